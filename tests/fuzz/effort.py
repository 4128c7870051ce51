"""How much is tried: the same few cases each time in `make test`, new ones in `make fuzz`, and how
many there were."""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, settings

TALLIES = os.environ.get("GROMAP_FUZZ")  # the folder where `make fuzz` counts; None in `make test`
LONG = 10  # times as many cases in each round of `make fuzz`
tally: Counter[str] = Counter()  #: what was tried in this process, by its kind


def tries(count: int) -> settings:
    """Settings of hypothesis for so many cases in `make test`."""
    return settings(
        max_examples=LONG * count if TALLIES else count,
        derandomize=not TALLIES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def write_tally() -> None:
    if TALLIES and tally:
        (Path(TALLIES) / f"{uuid.uuid4().hex}.json").write_text(json.dumps(tally))


@contextmanager
def ending(seconds: int = 60) -> Iterator[None]:
    """Fail if the inside takes so long that it would not end."""
    if sys.platform == "win32":
        yield
        return

    def late(*_: object) -> None:
        raise AssertionError(f"it did not end in {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

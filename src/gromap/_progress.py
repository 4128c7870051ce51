"""What every callback sees, and what `progress=True` shows of it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

LINE_EVERY = 5.0  # seconds between two lines of progress where stderr is a file


class Event(NamedTuple):
    """How far some work is: an outer step of a solve, a step of a flow, a pair of a collection,
    a stage of a mesh.

    A callback that returns True stops the work.

    >>> str(Event("solve", step=3, total=100, seconds=0.5, value=0.0123, marginal_error=2e-3))
    'step 3 of at most 100, energy 0.012300, misplaced 2.0e-03, 0.5 s'
    """

    stage: str  # "solve", "flow", "pairwise", "many", "mesh"
    step: int  # counted from 1
    total: int  # at most
    seconds: float = math.nan  # since the stage began
    value: float = math.nan  # the energy of a solve, the loss of a flow
    gamma_change: float = math.nan  # 8 |Γ - Γ'|², in units of the energy
    marginal_error: float = math.nan  # misplaced mass
    inner_steps: int = 0  # of Sinkhorn
    note: str = ""  # what is being done

    def __str__(self) -> str:
        if self.note:
            return self.note
        name = {"solve": "energy", "flow": "loss"}.get(self.stage)
        parts = [f"step {self.step} of at most {self.total}" if name else f"{self.step} of {self.total}"]
        if name and not math.isnan(self.value):
            parts.append(f"{name} {self.value:.6f}" if self.stage == "solve" else f"{name} {self.value:.4e}")
        if not math.isnan(self.marginal_error):
            parts.append(f"misplaced {self.marginal_error:.1e}")
        if not math.isnan(self.seconds):
            parts.append(f"{self.seconds:.1f} s")
        return ", ".join(parts)


def now_and_then(tell: Callable[[str], object]) -> Callable[[str], None]:
    """The same function, which passes on the first text, and then one every few seconds.

    >>> show = now_and_then(print)
    >>> for step in range(1000):
    ...     show(f"step {step}")
    step 0
    """
    last = -math.inf

    def show(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_EVERY:
            last = now
            tell(text)

    return show


class Progress:
    """One line on stderr that is rewritten as the work goes on; where stderr is no terminal, a new
    one now and then, and the last."""

    def __init__(self) -> None:
        self.terminal, self.left = sys.stderr.isatty(), ""
        self.line = now_and_then(self._print)

    def __call__(self, event: Event | str) -> None:
        text = str(event)
        if not self.terminal:
            self.left = text
            self.line(text)
            return
        if isinstance(event, Event) and event.total and not event.note:
            done = 20 * event.step // event.total
            text = f"[{'#' * done}{'.' * (20 - done)}] {text}"
        sys.stderr.write(f"\r{'gromap: ' + text:<110}")
        sys.stderr.flush()

    def close(self) -> None:
        if self.terminal:
            sys.stderr.write("\n")
        elif self.left:
            self._print(self.left)

    def _print(self, text: str) -> None:
        self.left = ""
        print(f"gromap: {text}", file=sys.stderr, flush=True)

"""Progress on stderr: one line for each stage of a command, and how far a long one is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from gromap._progress import LINE_EVERY, Event, now_and_then

Tell = Callable[[Event | str], None]  # shows how far a stage is; a callback for solvers and flows


class Show:
    """Stages, with a spinner where stderr is a terminal, and now and then a line where it is not;
    `seconds` has the duration of each."""

    def __init__(self, quiet: bool):
        self.console = Console(stderr=True, quiet=quiet, highlight=False, markup=False, soft_wrap=True)
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[Tell]:
        """Run a stage; call what it yields to show how far it is."""
        begin = time.perf_counter()
        if self.console.is_terminal:
            with self.console.status(f"{name} ...") as status:
                yield lambda event: status.update(f"{name}: {event}")
        else:
            show = now_and_then(self.console.print)
            late = threading.Timer(LINE_EVERY, lambda: show(f"{name} ..."))  # of a stage that tells nothing
            late.daemon = True
            late.start()
            try:
                yield lambda event: show(f"{name}: {event}")
            finally:
                late.cancel()
        self.seconds[name] = time.perf_counter() - begin
        self.console.print(f"{name:<24} {self.seconds[name]:6.1f} s")

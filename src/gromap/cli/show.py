"""What is shown while the work goes on: one line for each stage, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from gromap.solvers import Step


class Show:
    """Stages, with a spinner where stderr is a terminal; `seconds` keeps how long each one took."""

    def __init__(self, quiet: bool):
        self.console = Console(stderr=True, quiet=quiet, highlight=False, markup=False, soft_wrap=True)
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, lines: bool = False) -> Iterator[Callable[[str], None]]:
        """Run a stage; what it yields tells how far it is, with `lines` also in files, one line each time."""
        begin, lines = time.perf_counter(), lines and not self.console.is_terminal
        with self.console.status(f"{name} ...") as status:
            yield lambda text: self.console.print(f"{name}: {text}") if lines else status.update(f"{name}: {text}")
        self.seconds[name] = time.perf_counter() - begin
        self.console.print(f"{name:<24} {self.seconds[name]:6.1f} s")


def steps(tell: Callable[[str], None]) -> Callable[[Step], None]:
    """A callback for `gromap.solve`."""
    return lambda step: tell(
        f"step {step.iteration + 1}, energy {step.energy:.6f}, misplaced {step.marginal_error:.1e}, {step.seconds:.1f} s"
    )

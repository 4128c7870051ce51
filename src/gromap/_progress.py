"""What every callback sees, and what `progress=True` shows of it."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple


class Event(NamedTuple):
    """How far some work is: an outer step of a solve, a step of a flow, a pair of a collection,
    a stage of a mesh.

    A callback that returns True stops the work.

    >>> str(Event("solve", step=3, total=100, seconds=0.5, value=0.0123, marginal_error=2e-3))
    'step 3 of at most 100, energy 0.012300, misplaced 2.0e-03, 0.5 s'
    """

    stage: str  # "solve", "flow", "pairwise", "mesh"
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


class Progress:
    """One line on stderr that is rewritten as the work goes on."""

    def __call__(self, event: Event | str) -> None:
        text = str(event)
        if isinstance(event, Event) and event.total and not event.note:
            done = 20 * event.step // event.total
            text = f"[{'#' * done}{'.' * (20 - done)}] {text}"
        sys.stderr.write(f"\r{'gromap: ' + text:<110}")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")

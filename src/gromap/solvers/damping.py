"""Shorter steps of the outer loop where marginals are not fixed, and a whole one may raise the
energy (relaxed.py): it is taken back, and Γ goes half as far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gromap.solvers.protocol import Alternating
from gromap.transport.sinkhorn import Potentials

LEAST_SHARE, FASTER = 1e-3, 1.5  # of a whole step: how short one may be, and how fast they grow again


@dataclass
class Damping:
    """The last step that was accepted, from `old` to `new`, and how much of it was gone."""

    problem: Alternating
    share: float = 1.0
    last: tuple[Any, Any, Potentials] | None = None

    def refuses(self, energy: float, moved: float, before: float, tol: float) -> bool:
        """Whether the energy rose because the last step was too long."""
        return self.last is not None and self.share > LEAST_SHARE and moved < 0 and energy > before + tol

    def shorter(self) -> tuple[Any, Potentials]:
        """Γ and potentials after half of that step."""
        assert self.last is not None
        old, new, duals = self.last
        self.share /= 2
        return self.problem.mix(old, new, self.share), duals

    def step(self, old: Any, new: Any, duals: Potentials) -> Any:
        """The next Γ."""
        if not self.problem.relaxed:
            return new
        here = self.problem.mix(old, new, self.share)
        self.last, self.share = (old, new, duals), min(1.0, FASTER * self.share)
        return here

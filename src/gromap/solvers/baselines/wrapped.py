"""A problem around another: what both share comes from the inner one."""

from __future__ import annotations

from typing import Generic, TypeVar

from gromap.solvers.embedded import CntProblem
from gromap.solvers.protocol import Problem

P = TypeVar("P", bound=Problem)


class WrappedProblem(Problem, Generic[P]):
    """Weights, temperature, units, embedding and cost errors of `base`. It starts from a plan."""

    primal = True

    def __init__(self, base: P):
        super().__init__(base.a, base.b, base.eps, base.unit, base.pair)
        self.base, self.dense = base, base.dense

    @property
    def embedded(self) -> CntProblem:
        return self.base.embedded

    @property
    def cost_error(self) -> tuple[float, float] | None:
        return self.base.cost_error

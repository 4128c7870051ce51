"""Sharpened: a match by any solver, and from there conditional gradient to a sharp coupling.

The entropy makes the energy smooth enough to search; what a user of graphs or matrices wants in the
end is the lowest energy without it. Started from the blurred match, a few linear programs reach a
sharp one of lower energy than from the product of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gromap._pair import Pair
from gromap._solution import Status
from gromap.solvers.baselines.conditional_gradient import ConditionalGradientGW, ConditionalGradientProblem
from gromap.solvers.kernel import KernelProblem
from gromap.solvers.loop import run_steps
from gromap.solvers.protocol import Begin, Callback, Loop, Outcome, Problem, Solver, SolverDefaults, Start
from gromap.solvers.run import finish


@dataclass(frozen=True)
class Sharpened(SolverDefaults):
    """`solver`, and then `ConditionalGradientGW` from its plan: `solve(..., sharpen=True)`.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(40, 2)) * [2, 1]
    >>> sol = gromap.solve(X, X[::-1], sharpen=True)
    >>> sol.stats.method, int((sol.plan.dense() > 0).sum())
    ('cnt, conditional-gradient', 40)
    """

    solver: Solver
    last: ConditionalGradientGW = ConditionalGradientGW()

    memory_advice = ConditionalGradientGW.memory_advice

    @property
    def name(self) -> str:
        return f"{self.solver.name}, {self.last.name}"

    @property
    def loop(self) -> Loop:
        return self.solver.loop

    def with_loop(self, loop: Loop) -> Sharpened:
        return replace(self, solver=self.solver.with_loop(loop))

    def check(self, pair: Pair) -> None:
        self.last.check(pair)
        self.solver.check(pair)

    def memory(self, pair: Pair) -> int:
        return self.solver.memory(pair) + self.last.memory(pair)

    def problem(self, pair: Pair) -> SharpenedProblem:
        return SharpenedProblem(pair, self.solver)

    def run(self, problem: SharpenedProblem, start: Start, callback: Callback | None = None) -> Outcome:
        outcome = self.solver.run(problem.first, start, callback)
        plan, duals = finish(problem.first, outcome), problem.zero_potentials()
        gamma = problem.start(problem.a.new_zeros(0), plan)
        if outcome.status in (Status.STOPPED, Status.NOT_FINITE):
            return outcome._replace(gamma=gamma, score=problem.score(gamma), duals=duals)
        end = run_steps(problem, Begin(gamma, duals, outcome.minima), self.last.loop, callback)
        steps, seconds = len(outcome.events), outcome.events[-1].seconds
        later = [e._replace(step=e.step + steps, seconds=e.seconds + seconds) for e in end.events]
        return end._replace(events=outcome.events + later, levels=outcome.levels)


class SharpenedProblem(ConditionalGradientProblem):
    """The linear programs of one pair, and `first`, where the match begins."""

    def __init__(self, pair: Pair, solver: Solver):
        super().__init__(KernelProblem(pair, centered=False))
        self.first: Problem = solver.problem(pair)

    @property
    def embedded(self) -> Any:
        return self.first.embedded

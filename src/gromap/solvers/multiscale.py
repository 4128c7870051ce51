"""Multiscale (Alg. multiscale_dual_kernelpca, multiscale_interpolate): converge on few points,
finish on all.

Γ does not know the support of the measures, so a coarse solution is a start for the finer level,
and its potentials extend to new points by one soft half-step against the other coarse cloud, with
the coarse Γ and the same centring.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from gromap._pair import Pair
from gromap.solvers.cnt import CntGW
from gromap.solvers.embedded import CntProblem
from gromap.solvers.loop import alternate
from gromap.solvers.protocol import Begin, Callback, Loop, Outcome, SolverDefaults, Start

ENOUGH = 100_000  # points of a coarse level: at fixed ε the potentials are smooth, and more points do not refine them
# how much closer coarse levels meet their marginals: cheap there, it saves steps on all points
CLOSER = {"cpu": 5, "cuda": 2}


@dataclass(frozen=True)
class Multiscale(SolverDefaults):
    """A pyramid of coarser clouds (weighted k-means in the embedding) around CntGW.

    ratio: points of a level over those of the next finer one, up to 100,000 of them.  levels: how
    many, all points included; None = down to about `coarsest` points.  `Multiscale(levels=2)` is
    the paper's algorithm.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> gromap.solve(X, X[::-1], method=gromap.Multiscale(levels=2)).stats.levels
    (30, 300)
    """

    solver: CntGW = CntGW()
    ratio: float = 0.1
    coarsest: int = 1500
    levels: int | None = None

    name = "multiscale"
    memory_advice = CntGW.memory_advice

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1 or self.coarsest < 2 or (self.levels is not None and self.levels < 1):
            raise ValueError(f"Multiscale needs 0 < ratio < 1, coarsest >= 2 and levels >= 1 or None, got {self}.")

    @property
    def loop(self) -> Loop:
        return self.solver.loop

    def with_loop(self, loop: Loop) -> Multiscale:
        return replace(self, solver=self.solver.with_loop(loop))

    def for_gradients(self) -> Multiscale:
        return replace(self, solver=self.solver.for_gradients())

    def check(self, pair: Pair) -> None:
        self.solver.check(pair)

    def memory(self, pair: Pair) -> int:
        return self.solver.memory(pair)

    def problem(self, pair: Pair) -> CntProblem:
        return self.solver.problem(pair)

    def run(self, problem: CntProblem, start: Start, callback: Callback | None = None) -> Outcome:
        begin, sizes = self.approach(problem, start)
        return alternate(problem, begin, self.loop, callback)._replace(levels=sizes)

    @property
    def shares(self) -> bool:
        return self.solver.shares

    def approach(self, problem: CntProblem, start: Start) -> tuple[Begin, tuple[int, ...]]:
        """Down the levels, each from where the coarser one ended."""
        levels = [problem] if start.on_all_points else self.pyramid(problem)
        begin, loop = start.begin(problem, levels[0], self.loop), self.loop.rough()
        closer = replace(loop, marginal_tol=loop.marginal_tol / CLOSER[problem.x.device.type])
        for coarse, fine in itertools.pairwise(levels):
            end = alternate(coarse, begin, closer)
            duals = coarse.interpolate(end.gamma, end.duals, fine)
            begin = Begin(coarse.carried(end.gamma, duals, fine), duals, begin.minima)
        sizes = tuple(max(len(level.a), len(level.b)) for level in levels)
        return begin, sizes if len(levels) > 1 else ()

    def pyramid(self, full: CntProblem) -> list[CntProblem]:
        """The problem at every level, the coarsest first, the full one last."""
        found = [full]
        while self._goes_on(found[0], len(found)):
            least = 2 if self.levels is not None else self.coarsest
            n, m = (min(max(math.ceil(self.ratio * len(w)), least), ENOUGH) for w in (found[0].a, found[0].b))
            found.insert(0, found[0].coarser(n, m))
        return found

    def _goes_on(self, problem: CntProblem, count: int) -> bool:
        if self.levels is not None:
            return count < self.levels
        return min(len(problem.a), len(problem.b)) >= 2 * self.coarsest

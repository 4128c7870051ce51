"""CntGW (Alg. dual_kernelpca): alternate minimization over a D x E linear map, in linear memory.

Time O(N M (D + 1)) per Sinkhorn step, memory O(N D + M E). For any CNT cost, through its embedding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gromap._pair import Pair
from gromap.solvers.embedded import CntProblem, ExactSide
from gromap.solvers.loop import AlternatingSolver
from gromap.solvers.memory import linear_memory
from gromap.solvers.protocol import Begin, Loop, Start
from gromap.solvers.relaxed import embedded_problem


@dataclass(frozen=True)
class CntGW(AlternatingSolver):
    """CNT-GW on the embeddings of both spaces, with the options of its loop.

    truncation: on large clouds, leave out the parts of the plan that hold less than this share of
    the mass of any point (`Solution.stats.neglected_mass` bounds what was left out in all); None =
    leave out nothing.
    exact_norms: take |X_i|² and E c² from the costs, by sweeps over all pairs, so that only Γ is
    cut to the kept axes: the value is then an upper bound of the exact one, and its gradients are
    fit for use (GromovLoss). False: as in the paper.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> gromap.solve(X, X @ np.diag([1, -1, 1]), method=gromap.CntGW()).converged
    True
    """

    loop: Loop = Loop()
    truncation: float | None = 1e-4
    exact_norms: bool = False

    name = "cnt"
    memory_advice = "take fewer points or a smaller dim."

    def __post_init__(self) -> None:
        if self.truncation is not None and not 0 < self.truncation < 1:
            raise ValueError(f"CntGW's truncation is a share of mass in (0, 1), or None, got {self.truncation}.")

    def check(self, pair: Pair) -> None:
        pair.warn_if_not_cnt()

    def memory(self, pair: Pair) -> int:
        """Bytes that a solve takes at most, about: linear in the points."""
        return linear_memory(pair)

    def problem(self, pair: Pair) -> CntProblem:
        exact = (ExactSide(pair.x, pair.units[0]), ExactSide(pair.y, pair.units[1])) if self.exact_norms else None
        return embedded_problem(pair, self.truncation, exact)

    @property
    def shares(self) -> bool:
        return not self.exact_norms

    def approach(self, problem: CntProblem, start: Start) -> tuple[Begin, tuple[int, ...]]:
        return start.begin(problem, problem, self.loop), ()

    def for_gradients(self) -> CntGW:
        return replace(self, exact_norms=True)

"""LowRankCostGW, the Quadratic-LowRank-GW of Scetbon et al. 2022 (Alg. 2): Entropic-GW on costs
of low rank.

    -½ C_X ≈ F S Fᵀ,  -½ C_Y ≈ G T Gᵀ        S, T diagonal of signs
    ∇L(π)  = -16 F (S Γ T) Gᵀ,  Γ = Fᵀ π G    up to terms in i alone and in j alone

The costs need not be CNT: their negative eigenvalues are kept. For CNT costs, CNT-GW keeps centered
features instead, one more of them for the norms, and is the more stable of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gromap._pair import Pair
from gromap._plan import Plan
from gromap._space import Space
from gromap.geometry.embedding import AUTO_AXES, signed_factors
from gromap.solvers.cnt import CntGW
from gromap.solvers.embedded import CntProblem, map_of_plan
from gromap.solvers.loop import AlternatingSolver
from gromap.solvers.memory import linear_memory
from gromap.solvers.objective import bilinear_score
from gromap.solvers.protocol import PUBLISHED, Bilinear, Loop
from gromap.solvers.relaxed import embedded_problem
from gromap.transport import LowRank, Score


@dataclass(frozen=True)
class LowRankCostGW(AlternatingSolver):
    """Quadratic-LowRank-GW, for any cost in linear memory; `dim` is the rank of each cost matrix.

    Time O(N M D) per Sinkhorn step, memory O((N + M) D). For costs that are not CNT and too many
    points for EntropicGW; it may oscillate as that one does. `Solution.stats.cost_error` says how
    well the ranks fit both costs.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) * [2, 1]
    >>> sol = gromap.solve(X, X[::-1], cost=gromap.Power(4), epsilon=0.1, method="lowrank-cost")
    >>> max(sol.stats.cost_error) < 1e-6  # |x - x'|⁴ in the plane has rank 9
    True
    """

    loop: Loop = PUBLISHED

    name = "lowrank-cost"
    memory_advice = CntGW.memory_advice

    def memory(self, pair: Pair) -> int:
        """Bytes that a solve takes at most, about: linear in the points."""
        return linear_memory(pair, signed=True)

    def problem(self, pair: Pair) -> LowRankCostProblem:
        return LowRankCostProblem(pair)


class LowRankCostProblem(Bilinear):
    """Γ = Fᵀ π G is a (D, E) matrix in float64."""

    primal = True
    pair: Pair

    def __init__(self, pair: Pair):
        super().__init__(*pair.weights, pair.eps, pair.energy_unit, pair)
        found = [signed_factors(s.cost, s.measure, _rank(s), pair.seed) for s in (pair.x, pair.y)]
        self.x, self.y = ((f.values / unit**0.5).to(self.a.dtype) for f, unit in zip(found, pair.units, strict=True))
        self.signs = found[0].signs[:, None] * found[1].signs  # (D, E)
        self.sign_x, self.sign_y = found[0].signs, found[1].signs
        self.errors = found[0].error, found[1].error
        self.values = torch.cat([self.y, torch.ones_like(self.y[:, :1])], 1)  # (M, E + 1)
        self.constant = self._squares(self.a, self.b)

    @cached_property
    def embedded(self) -> CntProblem:  # pyright: ignore[reportIncompatibleMethodOverride] - a property, kept
        return embedded_problem(self.pair)

    @property
    def cost_error(self) -> tuple[float, float]:
        return self.errors

    def _squares(self, a: Tensor, b: Tensor) -> float:
        """Σ ĉ_X² a a + Σ ĉ_Y² b b for the costs of low rank."""
        total = 0.0
        for z, w, sign in ((self.x, a, self.sign_x), (self.y, b, self.sign_y)):
            moments = z.double().mT @ (w.double()[:, None] * z.double())  # (D, D)
            total += 4 * float(sign @ moments.square() @ sign)
        return total

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Tensor:
        if plan is None:
            return torch.outer(self.a.double() @ self.x.double(), self.b.double() @ self.y.double())
        return self.x.double().mT @ plan.score.apply(plan.u, plan.v, self.y.to(plan.u)).double()

    def score(self, gamma: Tensor) -> LowRank:
        return bilinear_score(self.signs * gamma, self.x, self.y, self.eps)

    def correlate(self, gamma: Tensor, score: Score, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        moved = score.apply(u, v, self.values)  # π [G, 1]
        return self.x.double().mT @ moved[:, :-1].double(), moved[:, -1]

    def norm2(self, gamma: Tensor) -> Tensor:
        """<π, K_X π K_Y>, of either sign.  ()"""
        return (self.signs * gamma.square()).sum()

    def distance2(self, old: Tensor, new: Tensor) -> Tensor:
        return self.norm2(old - new)

    def matrix(self, gamma: Tensor, plan: Plan) -> Tensor:
        return map_of_plan(plan, self.pair)

    def loss(self, plan: Plan) -> float:
        """L(π) in the costs of low rank, for any plan."""
        return self._squares(*plan.sums) - 8 * float(self.norm2(self.start(torch.empty(0), plan)))

    def evaluate(self, gamma: Tensor, plan: Plan) -> tuple[float, float]:
        """L(π) in the costs of low rank, and KL(π | α⊗β), for any plan."""
        inner = 16 / self.eps * float((self.signs * gamma * self.start(gamma, plan)).sum())
        return self.loss(plan), plan.kl(inner)


def _rank(space: Space) -> int:
    if isinstance(space.dim, str):
        return min(AUTO_AXES, len(space))
    if isinstance(space.dim, float):
        raise ValueError(f"a cost of low rank needs dim as an int, its rank; {space.name} has dim = {space.dim}.")
    return space.dim

"""SampledGW (Kerdoncuff et al. 2021): Entropic-GW with the gradient estimated on a few pairs
drawn from the last plan.

    ∇L(π_t)_ij = 2 Σ_kl (c_X(x_i, x_k) - c_Y(y_j, y_l))² π_kl
               ≈ (2/S) Σ_s (c_X(x_i, x_ks) - c_Y(y_j, y_ls))²      (k_s, l_s) ~ π_t

Up to terms in i alone and in j alone, the estimate is a score of rank S, so that no N x M array is
needed. It is of the whole gradient: ε means what it means for every other method. The plan never
settles, since each step draws anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._pair import Pair
from gromap._plan import Plan
from gromap.geometry.measure import own_generator
from gromap.solvers.baselines.lowrank_cost import LowRankCostProblem
from gromap.solvers.baselines.wrapped import WrappedProblem
from gromap.solvers.loop import AlternatingSolver
from gromap.solvers.memory import linear_memory
from gromap.solvers.protocol import PUBLISHED, Alternating, Loop
from gromap.transport import Dense, LowRank, Score


@dataclass(frozen=True)
class SampledGW(AlternatingSolver):
    """Sampled-GW, for any cost in linear memory; an order of magnitude of the loss, quickly.

    samples: pairs drawn at each step.  Time O(N M S) per Sinkhorn step, memory O((N + M)(S + D)).
    The couplings are optimal for the drawn gradient; their energies are in the costs of rank `dim`
    of LowRankCostGW, and fluctuate.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) * [2, 1]
    >>> few, many = (gromap.SampledGW(samples=s) for s in (5, 500))
    >>> runs = [gromap.solve(X, X, method=m, epsilon=0.1, max_iter=30) for m in (few, many)]
    >>> noise = [np.std(sol.history["energy"][10:]) for sol in runs]
    >>> bool(noise[1] < 0.5 * noise[0])
    True
    """

    loop: Loop = PUBLISHED
    samples: int = 20

    name = "sampled"
    memory_advice = "take fewer points or fewer samples."

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"SampledGW needs samples >= 1, got {self.samples}.")

    def memory(self, pair: Pair) -> int:
        """Bytes that a solve takes at most, about: linear in the points."""
        return linear_memory(pair, signed=True) + 8 * pair.itemsize * self.samples * sum(pair.shape)

    def problem(self, pair: Pair) -> SampledProblem:
        return SampledProblem(LowRankCostProblem(pair), self.samples)


class DrawnScore(NamedTuple):
    """The score that was drawn from a plan, and what is known of the plan."""

    score: LowRank
    gamma: Tensor  # Fᵀ π G, of LowRankCostGW
    inner: Tensor  # <s, π> for the score s that led to the plan


class SampledProblem(WrappedProblem[LowRankCostProblem], Alternating):
    def __init__(self, base: LowRankCostProblem, samples: int):
        super().__init__(base)
        self.samples, self.generator = samples, own_generator(base.pair.seed, self.a.device)

    def start(self, gamma: Tensor, plan: Plan | None = None) -> DrawnScore:
        known = self.base.start(gamma, plan)
        flat = Dense(self.a.new_zeros(1).expand(len(self.a), len(self.b)))
        score, v = (plan.score, plan.v) if plan is not None else (flat, self.log_b)
        return DrawnScore(self.draw(score, v), known, known.new_zeros(()))

    def draw(self, score: Score, v: Tensor) -> LowRank:
        """The gradient at pairs (k, l) of the plan ∝ a_k exp(s_kl + v_l), as a score."""
        k = torch.multinomial(self.a, self.samples, replacement=True, generator=self.generator)
        found = torch.multinomial((score.rows(k) + v).softmax(-1), 1, generator=self.generator)[:, 0]
        size, pair = (4 / (self.eps * self.samples)) ** 0.5, self.base.pair
        sides = zip((pair.x, pair.y), pair.units, (k, found), strict=True)
        # (N, S), (M, S)
        x, y = ((size / t * s.cost(s.measure.points, s.measure.points[i])).to(self.a.dtype) for s, t, i in sides)
        return LowRank(x - self.a @ x, y - self.b @ y)  # what depends on i alone, or on j alone, is left out

    def score(self, gamma: DrawnScore) -> LowRank:
        return gamma.score

    def correlate(self, gamma: DrawnScore, score: Score, u: Tensor, v: Tensor) -> tuple[DrawnScore, Tensor]:
        known, rows = self.base.correlate(gamma.gamma, score, u, v)
        inner = _inner(gamma.score, score, u, v)
        return DrawnScore(self.draw(score, v), known, inner), rows

    def energy(self, old: DrawnScore, new: DrawnScore, transport: Tensor) -> tuple[Tensor, Tensor]:
        """L(π) + ε KL(π | α⊗β) with transport = -ε <s, π> + ε KL, and 8 |Γ - Γ'|²."""
        loss = self.base.constant - 8 * self.base.norm2(new.gamma)
        return loss + transport + self.eps * new.inner, 8 * self.base.distance2(old.gamma, new.gamma)

    def matrix(self, gamma: DrawnScore, plan: Plan) -> Tensor:
        return self.base.matrix(gamma.gamma, plan)

    def evaluate(self, gamma: DrawnScore, plan: Plan) -> tuple[float, float]:
        """L(π) in the costs of low rank, and KL(π | α⊗β), for any plan."""
        return self.base.loss(plan), plan.kl(float(_inner(gamma.score, plan.score, plan.u, plan.v)))


def _inner(drawn: LowRank, score: Score, u: Tensor, v: Tensor) -> Tensor:
    """<s, π> for s = q kᵀ.  ()"""
    return (drawn.q.double() * score.apply(u, v, drawn.k).double()).sum()

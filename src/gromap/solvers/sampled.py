"""SampledGW (Kerdoncuff et al. 2021): Entropic-GW with the gradient estimated on a few pairs drawn from the last plan.

    ∇L(π_t)_ij = 2 Σ_kl (c_X(x_i, x_k) - c_Y(y_j, y_l))² π_kl ≈ (2/S) Σ_s (c_X(x_i, x_ks) - c_Y(y_j, y_ls))²,  (k_s, l_s) ~ π_t

The estimate is a score of rank S + 2, so that no N x M array is needed. It is of the whole gradient: ε means what it means
for every other method. The plan never settles, since each step draws anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gromap.engine import LowRank, Score, apply
from gromap.measure import own_generator
from gromap.plan import Plan
from gromap.solvers.cnt import CntGW
from gromap.solvers.loop import PUBLISHED, Loop, alternate
from gromap.solvers.lowrank_cost import LowRankCostProblem
from gromap.space import Space


@dataclass(frozen=True)
class SampledGW:
    """Sampled-GW, for any cost in linear memory; an order of magnitude of the loss, quickly.

    samples: pairs drawn at each step.  Time O(N M S) per Sinkhorn step, memory O((N + M)(S + D)). The couplings are optimal for
    the drawn gradient; their energies are in the costs of rank `dim` of LowRankCostGW, and fluctuate.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) * [2, 1]
    >>> few, many = (gromap.SampledGW(samples=s) for s in (5, 500))
    >>> noise = [np.std(gromap.solve(X, X, method=m, epsilon=0.1, max_iter=30).history["energy"][10:]) for m in (few, many)]
    >>> bool(noise[1] < 0.5 * noise[0])
    True
    """

    loop: Loop = PUBLISHED
    samples: int = 20

    name = "sampled"
    descend = staticmethod(alternate)
    frugal = "take fewer points or fewer samples."

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"SampledGW needs samples >= 1, got {self.samples}.")

    def memory(self, x: Space, y: Space) -> int:
        """Bytes that a solve takes at most, about: linear in the points."""
        size = torch.empty(0, dtype=x.dtype).element_size()
        return CntGW().memory(x, y) + 8 * size * self.samples * (len(x) + len(y))

    def problem(self, x: Space, y: Space, scale: tuple[float, float], eps: float, seed: int = 0) -> SampledProblem:
        return SampledProblem(LowRankCostProblem(x, y, scale, eps, seed), self.samples, seed)


class Sample(NamedTuple):
    """The score that was drawn from a plan, and what is known of the plan."""

    score: LowRank
    gamma: Tensor  # Fᵀ π G, of LowRankCostGW
    inner: Tensor  # <s, π> for the score s that led to the plan


class SampledProblem:
    primal = True

    def __init__(self, base: LowRankCostProblem, samples: int, seed: int):
        self.base, self.eps, self.samples, self.cost_error = base, base.eps, samples, base.cost_error
        self.a, self.b, self.log_a, self.log_b = base.a, base.b, base.log_a, base.log_b
        self.generator = own_generator(seed, self.a.device)

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Sample:
        known = self.base.start(gamma, plan)
        score, v = (plan.score, plan.v) if plan is not None else (self.a.new_zeros(len(self.a), 1), self.log_b)
        return Sample(self.draw(score, v), known, known.new_zeros(()))

    def draw(self, score: Score, v: Tensor) -> LowRank:
        """The gradient at pairs (k, l) of the plan ∝ a_k exp(s_kl + v_l), as a score."""
        k = torch.multinomial(self.a, self.samples, replacement=True, generator=self.generator)
        rows = score[k] if isinstance(score, Tensor) else type(score)(score.q[k], score.k).dense()
        found = torch.multinomial((rows + v).softmax(-1), 1, generator=self.generator)[:, 0]
        size = (4 / (self.eps * self.samples)) ** 0.5
        sides = zip(self.base.spaces, self.base.scale, (k, found), strict=True)
        x, y = (
            size / t * s.cost(s.measure.points, s.measure.points[i]).to(self.a.dtype) for s, t, i in sides
        )  # (N, S), (M, S)
        left, right = (-0.5 * z.square().sum(-1, keepdim=True) for z in (x, y))
        return LowRank(torch.cat([x, left, torch.ones_like(left)], -1), torch.cat([y, torch.ones_like(right), right], -1))

    def score(self, gamma: Sample) -> LowRank:
        return gamma.score

    def correlate(self, gamma: Sample, score: LowRank, u: Tensor, v: Tensor) -> tuple[Sample, Tensor]:
        known, rows = self.base.correlate(gamma.gamma, score, u, v)
        inner = (score.q.double() * apply(score, u, v, score.k).double()).sum()
        return Sample(self.draw(score, v), known, inner), rows

    def energy(self, old: Sample, new: Sample, transport: Tensor) -> tuple[Tensor, Tensor]:
        """L(π) + ε KL(π | α⊗β) with transport = -ε <s, π> + ε KL, and 8 |Γ - Γ'|²."""
        loss = self.base.constant - 8 * self.base.norm2(new.gamma)
        return loss + transport + self.eps * new.inner, 8 * self.base.distance2(old.gamma, new.gamma)

    def matrix(self, gamma: Sample, plan: Plan) -> Tensor:
        return self.base.matrix(gamma.gamma, plan)

    def evaluate(self, gamma: Sample, plan: Plan) -> tuple[float, float]:
        """L(π) in the costs of low rank, and <s, π>, for any plan."""
        assert isinstance(plan.score, LowRank)
        inner = float((plan.score.q.double() * apply(plan.score, plan.u, plan.v, plan.score.k).double()).sum())
        return self.base.loss(plan), inner

"""LowRankGW (Scetbon et al. 2022, sec. 5): couplings of low rank r, in linear time.

    π = Q diag(1/g) Rᵀ,    Q 1 = a,  R 1 = b,  Qᵀ 1 = Rᵀ 1 = g

Each point goes to r parts, then from parts to points. Mirror descent on (Q, R, g), with costs of
low rank (lowrank_cost.py):

    1  Γ       <- Fᵀ π G;  W = 16 S Γ T, so that ∇L(π) = -F W Gᵀ
    2  log K   <- log (Q, R, g) - γ (∇_Q, ∇_R, ∇_g)     γ halves while the energy rises
    3  Q, R, g <- the KL projection of K, by alternating over its constraints

What is minimized is L(π) + ε/2 (KL(Q | a⊗g) + KL(R | b⊗g)), an upper bound on L(π) + ε KL(π | a⊗b):
a plan that forgets through which part it went can only have less information.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._pair import Pair
from gromap._plan import Plan
from gromap._progress import Event
from gromap._torch import split
from gromap.geometry.measure import coarsen, nearest
from gromap.solvers.baselines.lowrank_cost import LowRankCostProblem
from gromap.solvers.baselines.wrapped import WrappedProblem
from gromap.solvers.loop import run_steps
from gromap.solvers.memory import linear_memory
from gromap.solvers.protocol import Callback, Loop, Outcome, SolverDefaults, Start, Stepping
from gromap.transport import Mixture
from gromap.transport.sinkhorn import Sinkhorn

SMOOTH = 0.1  # share of the start that is spread over all parts
MIN_MASS = 1e-10  # of a part
PROJECTION_CHECK_EVERY = 10  # steps of the projection between two looks at its error
# the largest move of a logarithm in one step: at first, from step to step, at least
FIRST, GROWS, SMALLEST = 2.0, 1.5, 1e-4
PIECE = 1 << 22  # entries of the plan that `evaluate` makes at a time


class Parts(NamedTuple):
    """Q, R and g as logarithms of probabilities; rows are defined where the weights are zero,
    too."""

    q: Tensor  # (N, r) log Q_ik / a_i
    r: Tensor  # (M, r) log R_jk / b_j
    g: Tensor  # (r,)


class Found(NamedTuple):
    """Parts, and what the descent knows of them."""

    parts: Parts
    gamma: Tensor  # Fᵀ π G  (D, E)
    energy: Tensor
    error: Tensor  # |Qᵀ 1 - g|_1 + |Rᵀ 1 - g|_1
    steps: int = 0  # of the projection


@dataclass(frozen=True)
class LowRankGW(SolverDefaults):
    """LowRank-GW: couplings of rank r between very many points, for any cost of low rank.

    rank: parts through which mass goes.  Time O((N + M) r (r + D)) per step, memory O((N + M)(r +
    D)). For rough matches of clouds too large for everything else: points of one part are not told
    apart, so that maps are coarse. `loop.sinkhorn` sets the steps and the tolerance of the
    projection.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(100, 2)) * [2, 1]
    >>> sol = gromap.solve(X, X[::-1], method=gromap.LowRankGW(rank=5))
    >>> int(np.linalg.matrix_rank(sol.plan.dense(), tol=1e-6))
    5
    """

    loop: Loop = Loop(Sinkhorn(200, tol=1e-3), adaptive=False, max_iter=500, tol=1e-6)
    rank: int = 20

    name = "lowrank"
    memory_advice = "take a smaller rank or dim."

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"LowRankGW needs rank >= 1, got {self.rank}.")

    def memory(self, pair: Pair) -> int:
        """Bytes that a solve takes at most, about: linear in the points."""
        return linear_memory(pair, signed=True) + 12 * pair.itemsize * self.rank * sum(pair.shape)

    def problem(self, pair: Pair) -> LowRankProblem:
        return LowRankProblem(LowRankCostProblem(pair), self.rank)

    def run(self, problem: LowRankProblem, start: Start, callback: Callback | None = None) -> Outcome:
        return run_steps(problem, start.begin(problem, problem, self.loop), self.loop, callback)


class LowRankProblem(WrappedProblem[LowRankCostProblem], Stepping):
    def __init__(self, base: LowRankCostProblem, rank: int):
        super().__init__(base)
        self.rank = min(rank, len(base.a), len(base.b))

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Found:
        """Cells of X by k-means, and where the plan sends them."""
        x, a = self.base.x, self.a
        cell = nearest(x, coarsen(x, a, self.rank)[0])
        q = (1 - SMOOTH) * torch.nn.functional.one_hot(cell, self.rank).to(a) + SMOOTH / self.rank
        g = a @ q
        r = g.expand(len(self.b), -1)
        if plan is not None:
            r = Plan(plan.score, plan.u, plan.v, plan.a, plan.b, numpy=False).T.conditional_mean(q).to(a)
        return self.look(self.rounded(q, r))

    def steps(self, gamma: Found, options: Loop) -> Iterator[tuple[Event, Found]]:
        """Mirror descent. A step that would raise the energy is halved; one that is too small is
        not taken."""
        begin, at, move = time.perf_counter(), gamma, FIRST
        for step in itertools.count(1):
            new = self.step(at, move, options.sinkhorn)
            while not bool(new.energy <= at.energy) and move > SMALLEST:
                move /= 2
                new = self.step(at, move, options.sinkhorn)
            new = new if move > SMALLEST else at
            change = 8 * float(self.base.distance2(at.gamma, new.gamma))
            at, move = new, GROWS * move
            seconds = time.perf_counter() - begin
            event = Event("solve", step, options.max_iter, seconds, float(at.energy), change, float(at.error), at.steps)
            yield event, at

    def score(self, gamma: Found) -> Mixture:
        """log π_ij / a_i b_j"""
        return Mixture(gamma.parts.q, gamma.parts.r - gamma.parts.g)

    def look(self, parts: Parts, steps: int = 0) -> Found:
        """Γ, the energy and the error of given parts."""
        base, (q, r, g) = self.base, parts
        Q, R = (w.double()[:, None] * z.double().exp() for w, z in ((self.a, q), (self.b, r)))
        gamma = (base.x.double().mT @ Q / g.double().exp()) @ (R.mT @ base.y.double())
        kl = (Q * (q - g)).sum() + (R * (r - g)).sum()
        error = sum((z.sum(0) - g.double().exp()).abs().sum() for z in (Q, R))
        energy = base.constant - 8 * base.norm2(gamma) + self.eps / 2 * kl
        return Found(parts, gamma, energy, torch.as_tensor(error), steps)

    def step(self, at: Found, move: float, options: Sinkhorn) -> Found:
        """One step of mirror descent, in which no logarithm moves by more than `move`."""
        base, (q, r, g) = self.base, at.parts
        W = (16 * base.signs * at.gamma).to(self.a.dtype)
        Q, R, mass = self.a[:, None] * q.exp(), self.b[:, None] * r.exp(), g.exp()
        left, right = base.x.mT @ Q, W @ (base.y.mT @ R)  # (D, r)
        up_q = base.x @ right / mass - self.eps / 2 * (q - g)  # minus the gradients
        up_r = base.y @ (W.mT @ left) / mass - self.eps / 2 * (r - g)
        up_g = -(left * right).sum(0) / mass.square()
        for up, Z in ((up_q, Q), (up_r, R)):  # what the constraints Z 1 = a and Zᵀ 1 = g absorb
            up -= up.mean(-1, keepdim=True)
            shift = (Z * up).sum(0) / mass
            up -= shift
            up_g += shift
        up_g -= mass @ up_g
        size = move / torch.stack([z.abs().max() for z in (up_q, up_r, up_g)]).max().clamp(min=1e-30)
        return self.project(q + size * up_q, r + size * up_r, (g + size * up_g).softmax(-1), options)

    def project(self, q: Tensor, r: Tensor, g: Tensor, options: Sinkhorn) -> Found:
        """KL projection onto Q 1 = a, R 1 = b, Qᵀ 1 = Rᵀ 1 = g: rows are scaled, then g is a
        geometric mean of three."""
        Q, R = ((z - z.amax(-1, keepdim=True)).exp() for z in (q, r))
        v, w, n = torch.ones_like(g), torch.ones_like(g), -1
        for n in range(options.steps):
            left, right = Q.mT @ (self.a / (Q @ v)), R.mT @ (self.b / (R @ w))
            sums = torch.stack([v * left, w * right]).clamp(min=MIN_MASS)
            last, g = g, (g.log() + sums.log().sum(0)).div(3).exp().clamp(min=MIN_MASS)
            v, w = v * g / sums[0], w * g / sums[1]
            if (
                options.tol is not None
                and n % PROJECTION_CHECK_EVERY == 0
                and float((sums - g).abs().sum() + (last - g).abs().sum()) <= options.tol
            ):
                break
        return self.look(self.rounded((q + v.log()).softmax(-1), (r + w.log()).softmax(-1)), n + 1)

    def rounded(self, q: Tensor, r: Tensor) -> Parts:
        """Nearby parts that keep all constraints, so that energies compare: g from Q, and R as
        in Altschuler et al. 2017."""
        g, sums = self.a @ q, self.b @ r
        r = r * (g / sums).clamp(max=1.0)
        spare = (g - self.b @ r).clamp(min=0.0) + 1e-30
        r = r + (1 - r.sum(-1, keepdim=True)).clamp(min=0.0) * spare / spare.sum()
        return Parts(*(z.clamp(min=1e-30).log() for z in (q, r, g)))

    def matrix(self, gamma: Found, plan: Plan) -> Tensor:
        return self.base.matrix(gamma.gamma, plan)

    def evaluate(self, gamma: Found, plan: Plan) -> tuple[float, float]:
        """L(π) in the costs of low rank, and KL(π | α⊗β): the one place that looks at all pairs,
        a few rows at a time."""
        kl, (f, g), rows = 0.0, plan.potentials, torch.arange(len(plan.u), device=plan.u.device)
        for i in split(rows, max(1, PIECE // len(plan.v))):
            s = plan.score.rows(i)
            ratio = s + f[i, None] + g
            kl += float((ratio * (s + plan.u[i, None] + plan.v).exp()).sum(dtype=torch.float64))
        return self.base.loss(plan), kl

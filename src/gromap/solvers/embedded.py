"""The embedded problem (Alg. dual_kernelpca): Γ is a D x E matrix between the features of both
spaces, and scores have rank min(D, E) + 1. What `CntGW` and its pyramid solve, and where starts are
searched."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gromap._features import FeatureCost
from gromap._pair import Pair
from gromap._plan import Plan
from gromap._space import Space
from gromap.geometry.measure import coarsen
from gromap.solvers.objective import constant, lifted_score, quartic
from gromap.solvers.protocol import Bilinear
from gromap.transport import Grid, LowRank, Score, split_cells
from gromap.transport.marginals import half_step
from gromap.transport.rows import HERE, Rows
from gromap.transport.sinkhorn import Potentials

Map = Any  # a (D, E) matrix in float64, or a batch of them; `relaxed.Moments` where marginals are not fixed
TRUNCATED_PAIRS = {"cpu": 8_000**2, "cuda": 40_000**2}  # pairs of points from which it pays to leave out tiles


@dataclass(frozen=True)
class ExactSide:
    """A side whose norms come from its costs."""

    space: Space
    unit: float

    def norms(self) -> Tensor:
        return (self.space.moments.norms / self.unit).to(self.space.dtype)

    def quartic(self) -> float:
        """E c²"""
        return float(self.space.measure.weights.double() @ self.space.moments.squares) / self.unit**2

    def with_weights(self, weights: Tensor) -> ExactSide:
        """The same points with other weights."""
        return ExactSide(Space(self.space.measure.points, weights, cost=self.space.cost), self.unit)


class Cells(NamedTuple):
    """Means of a cloud in at most so many cells, of what it carries along, and their masses."""

    points: Tensor  # (K, D)
    norms: Tensor  # (K,) none, where these are those of the points
    features: Tensor  # (K, F)
    mass: Tensor  # (K,)

    @classmethod
    def of(cls, x: Tensor, norms: Tensor | None, features: Tensor | None, mass: Tensor, count: int) -> Cells:
        parts = [x, *([] if features is None else [features]), *([] if norms is None else [norms[:, None]])]
        means, mass = coarsen(torch.cat(parts, 1) if len(parts) > 1 else x, mass, count)
        d, f = x.shape[1], 0 if features is None else features.shape[1]
        return cls(means[:, :d].contiguous(), means[:, -1], means[:, d : d + f], mass)


def map_of_plan(plan: Plan, pair: Pair) -> Tensor:
    """Γ = Σ π_ij X_i Y_jᵀ in the embeddings of both spaces.  (D, E)"""
    left, right = pair.features
    return left.double().mT @ plan.score.full.apply(plan.u, plan.v, right).double()


class CntProblem(Bilinear):
    """Γ is a (D, E) matrix in float64, or a batch of them."""

    def __init__(
        self,
        x: Tensor,  # (N, D) centered features
        y: Tensor,  # (M, E)
        a: Tensor,
        b: Tensor,
        eps: float,
        truncation: float | None = None,
        exact: tuple[ExactSide, ExactSide] | None = None,
        unit: float = 1.0,
        pair: Pair | None = None,
        fused: FeatureCost | None = None,
        rows: Rows = HERE,
    ):
        super().__init__(a, b, eps, unit, pair)
        self.rows = rows
        self.fused, self.alpha = fused, 1.0 if fused is None else fused.alpha
        self.x, self.y, self.truncation, self.exact = x, y, truncation, exact
        self.mean_norms = False  # whether norms are cell means of exact ones, not those of the cell means
        if exact is None:
            self.x_norms, self.y_norms = x.square().sum(-1), y.square().sum(-1)
            self.constant = constant(x, a, y, b, rows)
        else:
            self.x_norms, self.y_norms = (side.norms() for side in exact)
            spread = [float(w.double() @ z.double()) for w, z in ((a, self.x_norms), (b, self.y_norms))]
            self.constant = exact[0].quartic() + exact[1].quartic() - 4 * spread[0] * spread[1]

    @property
    def embedded(self) -> CntProblem:
        return self

    @cached_property
    def values(self) -> Tensor:
        return torch.cat([self.y, self.y_norms[:, None], torch.ones_like(self.y[:, :1])], 1)  # (M, E + 2)

    @cached_property
    def spread(self) -> tuple[Tensor, Tensor]:
        """Standard deviations along the axes: |Γ_de| <= σ_d σ_e for every coupling.  (D,) and
        (E,)"""
        sx, sy = (w.double() @ z.double().square() for z, w in ((self.x, self.a), (self.y, self.b)))
        return self.rows.sum(sx)[0].sqrt(), sy.sqrt()

    def coarser(self, n: int, m: int) -> CntProblem:
        """The same problem between at most n and m cell means."""
        carried = self.exact is not None or self.mean_norms or self.relaxed
        features = self.fused.sides() if self.fused else (None, None)
        sides = (self.x, self.x_norms, features[0], self.a, n), (self.y, self.y_norms, features[1], self.b, m)
        x, y = (Cells.of(z, s if carried else None, f, w, k) for z, s, f, w, k in sides)
        fused = self.fused.of(x.features, y.features) if self.fused else None
        coarse = self.on(x.points, y.points, x.mass, y.mass, fused)
        if carried:
            coarse.x_norms, coarse.y_norms, coarse.constant, coarse.mean_norms = x.norms, y.norms, self.constant, True
        return coarse

    def on(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor, fused: FeatureCost | None) -> CntProblem:
        """The same problem between other clouds."""
        return CntProblem(x, y, a, b, self.eps, self.truncation, None, self.unit, self.pair, fused)

    def interpolate(self, gamma: Map, duals: Potentials, fine: Any) -> Potentials:
        """Alg. Interpolate: potentials of this problem on the points of a finer version of it."""
        rows, cols = fine.score_to(self, gamma), self.score_to(fine, gamma)
        return Potentials(half_step(rows, self.log_b, duals.g), half_step(cols.mT, self.log_a, duals.f))

    def carried(self, gamma: Map, duals: Potentials, fine: Any) -> Map:
        """Γ for a finer version of this problem, given potentials there."""
        return gamma

    def at(self, eps: float) -> CntProblem:
        """The same problem at another temperature."""
        other = copy(self)
        other.eps = eps
        return other

    @cached_property
    def grid(self) -> Grid | None:
        """The spatial order of both clouds, where leaving out tiles pays."""
        if self.truncation is None or len(self.a) * len(self.b) < TRUNCATED_PAIRS[self.x.device.type]:
            return None
        # Γ is close to diag(θ) in the principal axes, so that lifted features are close to √θ X
        rows, cols = (split_cells(z * z.std(0)) for z in (self.x, self.y))
        return Grid(rows, cols, self.truncation)

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Map:
        return gamma.double()

    def score(self, gamma: Map) -> LowRank:
        return self.score_to(self, gamma)

    def score_to(self, other: CntProblem, gamma: Map) -> LowRank:
        """The score of the rows here and the columns of a coarser or finer version of this
        problem."""
        return self._score(gamma, (self.x, self.x_norms), (other.y, other.y_norms), other)

    def _score(
        self, gamma: Tensor, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], other: CntProblem
    ) -> LowRank:
        """From points and their squared norms on both sides."""
        (x, s), (y, t), grid = left, right, self.grid if other is self else None
        eps = self.eps / self.alpha if self.alpha > 0 else math.inf
        bilinear = lifted_score(gamma, x, y, eps, grid, (s, t))
        return bilinear if self.fused is None else bilinear + self.fused.score(self.eps, other.fused)

    def correlate(self, gamma: Map, score: Score, u: Tensor, v: Tensor) -> tuple[Map, Tensor]:
        moved = score.apply(u, v, self.values)  # π [Y, |Y|², 1]
        return self.x.double().mT @ moved[..., :-2].double(), moved[..., -1]

    def energy(self, old: Map, new: Map, transport: Tensor) -> tuple[Tensor, Tensor]:
        """α (C + 8 |Γ|²) + OT_ε(C_Γ) - 8 α |Γ - Γ'|², and 8 α |Γ - Γ'|².  (...) twice"""
        change = 8 * self.alpha * self.distance2(old, new)
        return self.alpha * (self.constant + 8 * self.norm2(old)) + self.apart + transport - change, change

    @property
    def apart(self) -> float:
        """What the features cost on either side alone."""
        if self.fused is None:
            return 0.0
        sides = (self.a, self.fused.rows), (self.b, self.fused.cols)
        return (1 - self.alpha) * sum(float(w.double() @ z.double()) for w, z in sides)

    def feature_offsets(self, side: int) -> Tensor | float:
        if self.fused is None:
            return 0.0
        return (1 - self.alpha) * (self.fused.rows, self.fused.cols)[side]

    def norm2(self, gamma: Tensor) -> Tensor:
        return gamma.square().sum((-2, -1))

    def distance2(self, old: Tensor, new: Tensor) -> Tensor:
        return self.norm2(old - new)

    def matrix(self, gamma: Map, plan: Plan) -> Tensor:
        return gamma

    def gradient_terms(self, plan: Plan, side: int) -> tuple[LowRank, Tensor]:
        """-W = -(p aᵀ + a pᵀ - 2 Z Zᵀ), of rank E + 2, with p = π |Y|² and Z = π Y."""
        other, norms = (self.y, self.y_norms) if side == 0 else (self.x, self.x_norms)
        plan = plan if side == 0 else plan.T
        moved = plan.score.apply(plan.u, plan.v, torch.cat([norms[:, None], other], 1))
        p, z, a = moved[:, :1], moved[:, 1:], (plan.sums[0] if self.relaxed else plan.a)[:, None]
        return LowRank(torch.cat([-p, -a, 2 * z], 1), torch.cat([a, p, z], 1)), p[:, 0]

    def evaluate(self, gamma: Map, plan: Plan) -> tuple[float, float]:
        """L(π) and KL(π | α⊗β) of any plan: its marginals may be off, by rounding errors too, so X
        and Y are centered anew for those that it has."""
        c = plan.sums[1].double()
        x, x_norms, y, norms = self.x.double(), self.x_norms.double(), self.y.double(), self.y_norms.double()
        moved = plan.score.apply(plan.u, plan.v, self.values).double()
        to, cross, rows = moved[:, :-2], moved[:, -2], moved[:, -1]
        new, lifted = self.rows.sum(x.mT @ to, x_norms @ cross)
        inner = self.alpha * float(16 * (gamma * new).sum() + 4 * lifted)
        linear = 0.0 if self.fused is None else (1 - self.alpha) * self.fused.inner(plan)
        kl = plan.kl((inner - linear) / self.eps)
        if self.exact is not None:
            left, right = self.exact[0], self.exact[1].with_weights(c)
            centered_norms = right.norms().double()
            centered = plan.score.apply(plan.u, plan.v, centered_norms[:, None].to(plan.v))[:, 0].double()
            loss = left.quartic() + right.quartic() - 4 * float(rows @ x_norms) * float(c @ centered_norms)
            return loss - 8 * float(self.norm2(new)) - 4 * float(x_norms @ centered), kl
        mass, x_mean = self.rows.sum(rows.sum(), rows @ x)
        x_mean, y_mean = x_mean / mass, c @ y / c.sum()
        x_norms = (x - x_mean).square().sum(-1)
        centered = cross - 2 * to @ y_mean + rows * y_mean.square().sum()  # Σ_j π_ij |Y_j - mean|²
        spread = float(c @ norms - c.sum() * y_mean.square().sum())
        new = (x - x_mean).mT @ (to - rows[:, None] * y_mean)
        new, lifted, x_spread = self.rows.sum(new, x_norms @ centered, rows @ x_norms)
        loss = quartic(x, rows, self.rows) + quartic(y, c) - 4 * float(x_spread) * spread
        return loss - 8 * float(self.norm2(new)) - 4 * float(mass * lifted), kl

    def feature_value(self, plan: Plan) -> float:
        return 0.0 if self.fused is None else self.fused.mean(plan)

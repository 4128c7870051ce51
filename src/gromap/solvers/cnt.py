"""CntGW (Alg. dual_kernelpca): alternate minimization over a D x E linear map, in linear memory.

Time O(N M (D + 1)) per Sinkhorn step, memory O(N D + M E). For any CNT cost, through its embedding.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from gromap._pair import Pair
from gromap._plan import Plan
from gromap._space import Space
from gromap.geometry.measure import coarsen
from gromap.solvers.loop import AlternatingSolver
from gromap.solvers.memory import linear_memory
from gromap.solvers.objective import constant, lifted_score, quartic
from gromap.solvers.protocol import Bilinear, Loop
from gromap.transport import Grid, LowRank, Score, split_cells

TRUNCATED_PAIRS = {"cpu": 8_000**2, "cuda": 40_000**2}  # pairs of points from which it pays to leave out tiles


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
        return CntProblem(*pair.features, *pair.weights, pair.eps, self.truncation, exact, pair.energy_unit, pair)

    def for_gradients(self) -> CntGW:
        return replace(self, exact_norms=True)


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


def embedded_problem(pair: Pair) -> CntProblem:
    """The pair as a problem for a D x E matrix, whatever solver it is for."""
    return CntProblem(*pair.features, *pair.weights, pair.eps, unit=pair.energy_unit, pair=pair)


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
    ):
        super().__init__(a, b, eps, unit, pair)
        self.x, self.y, self.truncation, self.exact = x, y, truncation, exact
        self.mean_norms = False  # whether norms are cell means of exact ones, not those of the cell means
        if exact is None:
            self.x_norms, self.y_norms = x.square().sum(-1), y.square().sum(-1)
            self.constant = constant(x, a, y, b)
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
        sx, sy = ((w.double() @ z.double().square()).sqrt() for z, w in ((self.x, self.a), (self.y, self.b)))
        return sx, sy

    def coarser(self, n: int, m: int) -> CntProblem:
        """The same problem between at most n and m cell means."""
        sides = (self.x, self.a, self.x_norms, n), (self.y, self.b, self.y_norms, m)
        if self.exact is None and not self.mean_norms:
            (x, a), (y, b) = (coarsen(z, w, k) for z, w, _, k in sides)
            return CntProblem(x, y, a, b, self.eps, self.truncation, None, self.unit, self.pair)
        (x, a), (y, b) = (coarsen(torch.cat([z, s[:, None]], 1), w, k) for z, w, s, k in sides)
        features = x[:, :-1].contiguous(), y[:, :-1].contiguous()
        coarse = CntProblem(*features, a, b, self.eps, self.truncation, None, self.unit, self.pair)
        coarse.x_norms, coarse.y_norms, coarse.constant, coarse.mean_norms = x[:, -1], y[:, -1], self.constant, True
        return coarse

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

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Tensor:
        return gamma.double()

    def score(self, gamma: Tensor) -> LowRank:
        return lifted_score(gamma, self.x, self.y, self.eps, self.grid, (self.x_norms, self.y_norms))

    def correlate(self, gamma: Tensor, score: Score, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        moved = score.apply(u, v, self.values)  # π [Y, |Y|², 1]
        return self.x.double().mT @ moved[..., :-2].double(), moved[..., -1]

    def norm2(self, gamma: Tensor) -> Tensor:
        return gamma.square().sum((-2, -1))

    def distance2(self, old: Tensor, new: Tensor) -> Tensor:
        return self.norm2(old - new)

    def matrix(self, gamma: Tensor, plan: Plan) -> Tensor:
        return gamma

    def gradient_terms(self, plan: Plan, side: int) -> tuple[LowRank, Tensor]:
        """-W = -(p aᵀ + a pᵀ - 2 Z Zᵀ), of rank E + 2, with p = π |Y|² and Z = π Y."""
        other, norms = (self.y, self.y_norms) if side == 0 else (self.x, self.x_norms)
        plan = plan if side == 0 else plan.T
        moved = plan.score.apply(plan.u, plan.v, torch.cat([norms[:, None], other], 1))
        p, z, a = moved[:, :1], moved[:, 1:], plan.a[:, None]
        return LowRank(torch.cat([-p, -a, 2 * z], 1), torch.cat([a, p, z], 1)), p[:, 0]

    def evaluate(self, gamma: Tensor, plan: Plan) -> tuple[float, float]:
        """L(π) and KL(π | α⊗β) of any plan: its marginals may be off, by rounding errors too, so X
        and Y are centered anew for those that it has."""
        c = plan.sums[1].double()
        x, x_norms, y, norms = self.x.double(), self.x_norms.double(), self.y.double(), self.y_norms.double()
        moved = plan.score.apply(plan.u, plan.v, self.values).double()
        to, cross, rows = moved[:, :-2], moved[:, -2], moved[:, -1]
        new = x.mT @ to
        kl = plan.kl(float(16 * (gamma * new).sum() + 4 * (x_norms @ cross)) / self.eps)
        if self.exact is not None:
            left, right = self.exact[0], self.exact[1].with_weights(c)
            centered_norms = right.norms().double()
            centered = plan.score.apply(plan.u, plan.v, centered_norms[:, None].to(plan.v))[:, 0].double()
            loss = left.quartic() + right.quartic() - 4 * float(rows @ x_norms) * float(c @ centered_norms)
            return loss - 8 * float(self.norm2(new)) - 4 * float(x_norms @ centered), kl
        mass = rows.sum()
        x_mean, y_mean = rows @ x / mass, c @ y / c.sum()
        x_norms = (x - x_mean).square().sum(-1)
        centered = cross - 2 * to @ y_mean + rows * y_mean.square().sum()  # Σ_j π_ij |Y_j - mean|²
        spread = float(c @ norms - c.sum() * y_mean.square().sum())
        new = (x - x_mean).mT @ (to - rows[:, None] * y_mean)
        loss = quartic(x, rows) + quartic(y, c) - 4 * float(rows @ x_norms) * spread
        return loss - 8 * float(self.norm2(new)) - 4 * float(mass * (x_norms @ centered)), kl

"""CntGW (Alg. dual_kernelpca): alternate minimisation over a D x E linear map, in linear memory.

Time O(N M (D + 1)) per Sinkhorn step, memory O(N D + M E). For any CNT cost, through its embedding.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gromap.engine import Grid, LowRank, apply, split_cells, whole
from gromap.measure import coarsen
from gromap.objective import constant, lifted_score, quartic
from gromap.plan import Plan
from gromap.solvers.loop import Bilinear, Loop, alternate
from gromap.space import Space

FIXED = {"cpu": 300 << 20, "cuda": 1 << 30}  # bytes of tiles, and of the exact embedding of few points
TRUNCATES = {"cpu": 8_000**2, "cuda": 40_000**2}  # pairs of points from which it pays to leave out tiles


@dataclass(frozen=True)
class CntGW:
    """CNT-GW on the embeddings of both spaces, with the options of its loop.

    truncation: on large clouds, leave out the parts of the plan that hold less than this share of the mass of any point
    (info["neglected_mass"] bounds what was left out in all); None = leave out nothing.
    exact_norms: take |X_i|² and E c² from the costs, by sweeps over all pairs, so that only Γ is cut to the kept axes: the
    value is then an upper bound of the exact one, and its gradients are fit for use (gromap.losses). False: as in the paper.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> gromap.solve(X, X @ np.diag([1, -1, 1]), method=gromap.CntGW()).converged
    True
    """

    loop: Loop = Loop()
    truncation: float | None = 1e-4
    exact_norms: bool = False

    name = "cnt"
    descend = staticmethod(alternate)

    def __post_init__(self) -> None:
        if self.truncation is not None and not 0 < self.truncation < 1:
            raise ValueError(f"CntGW's truncation is a share of mass in (0, 1), or None, got {self.truncation}.")

    frugal = "take fewer points or a smaller dim."

    def memory(self, x: Space, y: Space) -> int:
        """Bytes that a solve takes at most, about: linear in the points."""
        axes = max(20 if isinstance(s.dim, float) else s.dim for s in (x, y))
        size = torch.empty(0, dtype=x.dtype).element_size()
        each = 24 * (axes + 8) + 2 * size * axes + 256 * -(-3 * (axes + 1) // 64)  # embedding, features, lifted features
        return (len(x) + len(y)) * each + FIXED[x.device.type]

    def problem(self, x: Space, y: Space, scale: tuple[float, float], eps: float, seed: int = 0) -> CntProblem:
        features = scaled_features(x, scale[0]), scaled_features(y, scale[1])
        exact = (Exact(x, scale[0]), Exact(y, scale[1])) if self.exact_norms else None
        return CntProblem(*features, x.measure.weights, y.measure.weights, eps, self.truncation, exact)


@dataclass(frozen=True)
class Exact:
    """A side whose norms come from its costs."""

    space: Space
    scale: float

    def norms(self) -> Tensor:
        return (self.space.moments.norms / self.scale).to(self.space.dtype)

    def quartic(self) -> float:
        """E c²"""
        return float(self.space.measure.weights.double() @ self.space.moments.squares) / self.scale**2

    def anew(self, weights: Tensor) -> Exact:
        """The same points with other weights."""
        return Exact(Space(self.space.measure.points, weights, self.space.cost), self.scale)


def scaled_features(space: Space, scale: float) -> Tensor:
    """Features of the cost divided by its unit."""
    return (space.embedding.features / scale**0.5).to(space.dtype)


def map_of_plan(plan: Plan, x: Space, y: Space, scale: tuple[float, float]) -> Tensor:
    """Γ = Σ π_ij X_i Y_jᵀ in the embeddings of both spaces.  (D, E)"""
    left, right = scaled_features(x, scale[0]), scaled_features(y, scale[1])
    return left.double().mT @ apply(whole(plan.score), plan.u, plan.v, right).double()


class CntProblem(Bilinear):
    """Γ is a (D, E) matrix in float64, or a batch of them."""

    primal = False
    carried = False  # the norms of a coarse problem are means of exact ones, not those of its cell means

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        a: Tensor,
        b: Tensor,
        eps: float,
        truncation: float | None = None,
        exact: tuple[Exact, Exact] | None = None,
    ):
        self.x, self.y, self.a, self.b, self.eps, self.truncation, self.exact = x, y, a, b, eps, truncation, exact
        self.log_a, self.log_b = a.log(), b.log()
        if exact is None:
            self.x_norms, self.y_norms = x.square().sum(-1), y.square().sum(-1)
            self.constant = constant(x, a, y, b)
        else:
            self.x_norms, self.y_norms = (side.norms() for side in exact)
            spread = [float(w.double() @ z.double()) for w, z in ((a, self.x_norms), (b, self.y_norms))]
            self.constant = exact[0].quartic() + exact[1].quartic() - 4 * spread[0] * spread[1]

    @cached_property
    def values(self) -> Tensor:
        return torch.cat([self.y, self.y_norms[:, None], torch.ones_like(self.y[:, :1])], 1)  # (M, E + 2)

    @cached_property
    def spread(self) -> tuple[Tensor, Tensor]:
        """Standard deviations along the axes: |Γ_de| <= σ_d σ_e for every coupling.  (D,) and (E,)"""
        sx, sy = ((w.double() @ z.double().square()).sqrt() for z, w in ((self.x, self.a), (self.y, self.b)))
        return sx, sy

    def coarser(self, n: int, m: int) -> CntProblem:
        """The same problem between at most n and m cell means."""
        sides = (self.x, self.a, self.x_norms, n), (self.y, self.b, self.y_norms, m)
        if self.exact is None and not self.carried:
            (x, a), (y, b) = (coarsen(z, w, k) for z, w, _, k in sides)
            return CntProblem(x, y, a, b, self.eps, self.truncation)
        (x, a), (y, b) = (coarsen(torch.cat([z, s[:, None]], 1), w, k) for z, w, s, k in sides)
        coarse = CntProblem(x[:, :-1].contiguous(), y[:, :-1].contiguous(), a, b, self.eps, self.truncation)
        coarse.x_norms, coarse.y_norms, coarse.constant, coarse.carried = x[:, -1], y[:, -1], self.constant, True
        return coarse

    def at(self, eps: float) -> CntProblem:
        """The same problem at another temperature."""
        other = copy(self)
        other.eps = eps
        return other

    @cached_property
    def grid(self) -> Grid | None:
        """The spatial order of both clouds, where leaving out tiles pays."""
        if self.truncation is None or len(self.a) * len(self.b) < TRUNCATES[self.x.device.type]:
            return None
        # Γ is close to diag(θ) in the principal axes, so that lifted features are close to √θ X
        rows, cols = (split_cells(z * z.std(0)) for z in (self.x, self.y))
        return Grid(rows, cols, self.truncation)

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Tensor:
        return gamma.double()

    def score(self, gamma: Tensor) -> LowRank:
        return lifted_score(gamma, self.x, self.y, self.eps, self.grid, (self.x_norms, self.y_norms))

    def correlate(self, gamma: Tensor, score: LowRank, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        moved = apply(score, u, v, self.values)  # π [Y, |Y|², 1]
        return self.x.double().mT @ moved[..., :-2].double(), moved[..., -1]

    def norm2(self, gamma: Tensor) -> Tensor:
        return gamma.square().sum((-2, -1))

    def distance2(self, old: Tensor, new: Tensor) -> Tensor:
        return self.norm2(old - new)

    def matrix(self, gamma: Tensor, plan: Plan) -> Tensor:
        return gamma

    def evaluate(self, gamma: Tensor, plan: Plan) -> tuple[float, float]:
        """L(π) and <s, π> for a plan with exact rows; its columns c may be off, so Y is centred anew for c."""
        c = plan.sums[1].double()
        x_norms, y, norms = self.x_norms.double(), self.y.double(), self.y_norms.double()
        moved = apply(plan.score, plan.u, plan.v, self.values).double()
        to, cross, rows = moved[:, :-2], moved[:, -2], moved[:, -1]
        new = self.x.double().mT @ to
        inner = float(16 * (gamma * new).sum() + 4 * (x_norms @ cross)) / self.eps
        if self.exact is not None:
            left, right = self.exact[0], self.exact[1].anew(c)
            anew = right.norms().double()
            centred = apply(plan.score, plan.u, plan.v, anew[:, None].to(plan.v))[:, 0].double()
            loss = left.quartic() + right.quartic() - 4 * float(rows @ x_norms) * float(c @ anew)
            return loss - 8 * float(self.norm2(new)) - 4 * float(x_norms @ centred), inner
        mean = c @ y / c.sum()
        centred = cross - 2 * to @ mean + rows * mean.square().sum()  # Σ_j π_ij |Y_j - mean|²
        spread = float(c @ norms - c.sum() * mean.square().sum())
        loss = quartic(self.x, rows) + quartic(self.y, c) - 4 * float(rows @ x_norms) * spread
        return loss - 8 * float(self.norm2(new)) - 4 * float(x_norms @ centred), inner

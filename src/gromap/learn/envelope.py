"""Value and gradients of GW_ε at its solution, by the envelope theorem (Alg. egw_grad,
egw_grad_kernelpca, EOT-DualLoss).

The optimal plan π and linear map Γ may be kept fixed while the points and weights move. With p = π
|Y|² and Z = π Y,

    value      C + 8 |Γ|² + <a, f> + <b, g> - 8 |Γ - Γ(π)|²       for the potentials of the plan
    ∂/∂x_i     4 Σ_k (a_i a_k c_ik - W_ik) ∂c(x_i, x_k)/∂x_i,    W = π C_Y πᵀ = p aᵀ + a pᵀ - 2 Z Zᵀ
    ∂/∂a_i     f_i + 2 Σ_k a_k c_ik² - 4 Σ_k c_ik p_k             up to a constant: Σ a_i = 1

This is what autograd gives for the printed algorithms, worked out: W is dense for KernelGW, of rank
E + 2 for CntGW, and the costs of X enter exactly in both, tile by tile. (The printed Kernel-Proj
differentiates features cut to D axes: at D = 50 it misses a quarter of the gradient of a Euclidean
cost in the plane, where this misses 0.3 %.)

Where marginals are not fixed, p = π 1 takes the place of a, and features are linear in π:

    ∂/∂x_i     4 α Σ_k (p_i p_k c_ik - W_ik) ∂c(x_i, x_k)/∂x_i
    ∂/∂F_i     2 (1 - α) (p_i F_i - Σ_j π_ij G_j)    for |F_i - G_j|²
    ∂/∂a_i     -(ρ + ε) p_i / a_i; the potential of the whole linearized cost for ρ = inf
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gromap._pair import Pair
from gromap._plan import Plan
from gromap._solution import Status
from gromap._space import Space
from gromap.geometry.cost_sums import cost_apply, cost_gradient
from gromap.geometry.costs import as_cost
from gromap.solvers.protocol import Loop, Outcome
from gromap.solvers.run import finish, status_of
from gromap.transport.sinkhorn import Potentials


class SolvedPair(NamedTuple):
    """A solved problem between two spaces: what the value and the gradients are made of."""

    pair: Pair
    problem: Any  # Alternating
    plan: Plan
    gamma: Any  # Γ(π), as the problem represents it
    value: float
    status: Status


def solved(pair: Pair, problem: Any, outcome: Outcome, loop: Loop) -> SolvedPair:
    """EOT-DualLoss at the end of the loop, less 8 |Γ - Γ(π)|² as there: an unfinished solve
    costs a second-order error."""
    plan = finish(problem, outcome)
    f, g = plan.potentials
    gamma, _ = problem.correlate(outcome.gamma, plan.score, plan.u, plan.v)
    transport = problem.transport_value(outcome.gamma, Potentials(f, g), plan.sums[0])
    value, _ = problem.energy(outcome.gamma, gamma, transport)
    status = status_of(problem, outcome, plan, float(value), loop)
    return SolvedPair(pair, problem, plan, gamma, float(value), status)


class Sensitivity(NamedTuple):
    """How a value depends on one of its spaces while all plans stay as they are; those of one
    space can be added up."""

    quartic: float  # how often Σ c² a a counts
    w: Any  # (N, N) -W, as a low-rank or dense score
    p: Tensor  # (N,)
    f: Tensor  # (N,) in units of the cost, squared
    mass: Tensor  # (N,) that of the plan
    slope: Tensor | None = None  # (N,) ∂/∂a, where it is known

    def __add__(self, other: Sensitivity) -> Sensitivity:  # type: ignore[override]
        sums = self.quartic + other.quartic, self.w + other.w, self.p + other.p, self.f + other.f
        return Sensitivity(*sums, self.mass)

    def times(self, factor: float) -> Sensitivity:
        return Sensitivity(factor * self.quartic, self.w * factor, factor * self.p, factor * self.f, self.mass)


def sensitivity(match: SolvedPair, side: int) -> Sensitivity:
    """The dependence of GW_ε on its first (0) or second (1) space."""
    problem, plan = match.problem, match.plan
    w, p = problem.gradient_terms(plan, side)
    f = problem.eps * plan.potentials[side] + problem.feature_offsets(side)
    slope = problem.weight_slope(match.gamma, plan, side)
    mass = plan.sums[side] if slope is not None else (problem.a, problem.b)[side]
    return Sensitivity(problem.alpha, w * problem.alpha, problem.alpha * p, f, mass, slope)


def self_sensitivity(match: SolvedPair) -> Sensitivity:
    """Half the dependence of GW_ε(α, α) on its space, whose coupling is symmetric.

    The mean of both potentials: where no mass goes between two parts of α, one of them may be
    higher on a part by as much as the other is lower.
    """
    f, g = match.plan.potentials
    return sensitivity(match, 0)._replace(f=match.problem.eps * (f + g) / 2)


def point_gradient(space: Space, of: Sensitivity) -> Tensor:
    """∂/∂x_i  (N, d)"""
    x, a = space.measure.points, of.mass
    if space.cost.degree == 2:
        return 4 * _squared_norm_gradient(x, a, of.quartic, of.w)
    root = abs(of.quartic) ** 0.5  # those of a divergence have none
    gradient = 4 * cost_gradient(space.cost, x, root * a, of.w)
    if not bool(torch.isfinite(gradient).all()):
        row = int((~torch.isfinite(gradient)).any(1).nonzero()[0, 0])
        raise ValueError(
            f"the derivative of the cost of {space.name} is NaN or infinite at point {row}: it must be finite "
            "everywhere, also where two points coincide (torch.cdist is, the square root of a sum of squares is "
            "not)."
        )
    return gradient


def _squared_norm_gradient(x: Tensor, a: Tensor, quartic: float, w: Any) -> Tensor:
    """Σ_k (t a_i a_k c_ik + w_ik) 2 (x_i - x_k) for c = |x_i - x_k|², without any pair: all sums
    are polynomials."""
    x = x - a @ x
    s = x.square().sum(-1, keepdim=True)
    covariance = x.mT @ (a[:, None] * x)
    pairs = (s + a @ s) * x - a @ (s * x) + 2 * x @ covariance
    total = w @ torch.ones_like(x[:, :1])
    return 2 * (quartic * a[:, None] * pairs + total * x - w @ x)


def weight_gradient(space: Space, of: Sensitivity) -> Tensor:
    """∂/∂a_i along directions that keep the total weight.  (N,)"""
    if of.slope is not None:
        return of.slope
    points = space.measure.points
    moved = cost_apply(space.cost, points, points, of.p.double()[:, None])[:, 0]
    return of.f.double() + 2 * of.quartic * space.moments.squares - 4 * moved


def feature_gradient(match: SolvedPair, features: tuple[Any, Any], side: int, kind: Any) -> Tensor:
    """∂/∂F or ∂/∂G of a value in the units of the features.  (N, K) or (M, K)"""
    plan = match.plan if side == 0 else match.plan.T
    mine, other = (torch.as_tensor(z).to(plan.u).reshape(len(z), -1) for z in (features[side], features[1 - side]))
    share, moved = 1 - match.problem.alpha, plan.score.apply(plan.u, plan.v, other)
    if isinstance(kind, str) and kind == "factors":
        gradient = share * moved
    elif kind is None or as_cost(kind).degree == 2:
        gradient = 2 * share * (plan.sums[0][:, None] * mine - moved)
    else:
        raise ValueError(
            f"features have gradients for feature_cost='sqeuclidean' and 'factors', not for {kind!r}: detach them."
        )
    return gradient.reshape(features[side].shape)

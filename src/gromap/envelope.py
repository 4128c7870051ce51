"""Value and gradients of GW_ε at its solution, by the envelope theorem (Alg. egw_grad, egw_grad_kernelpca, EOT-DualLoss).

The optimal plan π and linear map Γ may be kept fixed while the points and weights move. With p = π |Y|² and Z = π Y,

    value      C + 8 |Γ|² + <a, f> + <b, g>          f from g, then g from the new f, for the cost C_Γ
    ∂/∂x_i     4 Σ_k (a_i a_k c_ik - W_ik) ∂c(x_i, x_k)/∂x_i,    W = π C_Y πᵀ = p aᵀ + a pᵀ - 2 Z Zᵀ
    ∂/∂a_i     f_i + 2 Σ_k a_k c_ik² - 4 Σ_k c_ik p_k            up to a constant, since the weights sum to one

This is what autograd gives for the printed algorithms, worked out: W is dense for KernelGW, of rank E + 2 for CntGW, and the
costs of X enter exactly in both, tile by tile. (The printed Kernel-Proj differentiates features cut to D axes: at D = 50 it
misses a quarter of the gradient of a Euclidean cost in the plane, where this misses 0.3 %.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gromap.costs import Power
from gromap.engine import LowRank, Pairs, apply, cost_apply, cost_gradient, whole
from gromap.plan import Plan
from gromap.sinkhorn import half_step
from gromap.solution import Status
from gromap.solvers.cnt import CntProblem
from gromap.solvers.kernel import KernelProblem
from gromap.solvers.loop import Outcome
from gromap.space import Space


class Match(NamedTuple):
    """A solved problem between two spaces: what the value and the gradients are made of."""

    x: Space
    y: Space
    problem: CntProblem | KernelProblem
    plan: Plan
    gamma: Tensor  # (D, E)
    f: Tensor  # (N,) in nats
    g: Tensor  # (M,)
    value: float
    status: Status


def settle(x: Space, y: Space, problem: CntProblem | KernelProblem, end: Outcome) -> Match:
    """EOT-DualLoss at the end of the loop, less 8 |Γ - Γ(π)|² as there: an unfinished solve costs a second-order error."""
    score: Any = whole(end.score)
    f = half_step(score, problem.log_b, end.duals.g)
    g = half_step(score.mT, problem.log_a, f)
    plan = Plan(score, f + problem.log_a, g + problem.log_b, problem.a, problem.b, numpy=False)
    gamma: Any = problem.correlate(end.gamma, score, plan.u, plan.v)[0]
    transport = problem.eps * (problem.a.double() @ f.double() + problem.b.double() @ g.double())
    quadratic = 8 * (problem.norm2(end.gamma) - problem.distance2(end.gamma, gamma))
    value = problem.constant + float(quadratic + transport)
    return Match(x, y, problem, plan, problem.matrix(gamma, plan), f, g, value, end.status)


class Pull(NamedTuple):
    """How a value depends on one of its spaces while all plans stay as they are; pulls of one space can be added up."""

    quartic: float  # how often Σ c² a a counts
    w: Pairs  # -W
    p: Tensor  # (N,)
    f: Tensor  # (N,) in units of the cost, squared

    def __add__(self, other: Pull) -> Pull:  # type: ignore[override]
        w = (
            LowRank(torch.cat([self.w.q, other.w.q], 1), torch.cat([self.w.k, other.w.k], 1))
            if isinstance(self.w, LowRank) and isinstance(other.w, LowRank)
            else self.w + other.w  # type: ignore[operator]
        )
        return Pull(self.quartic + other.quartic, w, self.p + other.p, self.f + other.f)

    def times(self, factor: float) -> Pull:
        return Pull(factor * self.quartic, self.w * factor, factor * self.p, factor * self.f)


def pull(match: Match, side: int) -> Pull:
    """The dependence of GW_ε on its first (0) or second (1) space."""
    problem, plan, f = match.problem, match.plan if side == 0 else match.plan.T, match.f if side == 0 else match.g
    if isinstance(problem, KernelProblem):
        cost, norms = (problem.cy, problem.dy) if side == 0 else (problem.cx, problem.dx)
        pi = plan.matrix()
        return Pull(1.0, -(pi @ cost @ pi.mT), pi @ norms, problem.eps * f)
    other, norms = (problem.y, problem.y_norms) if side == 0 else (problem.x, problem.x_norms)
    moved = apply(plan.score, plan.u, plan.v, torch.cat([norms[:, None], other], 1))
    p, z, a = moved[:, :1], moved[:, 1:], plan.a[:, None]
    return Pull(1.0, LowRank(torch.cat([-p, -a, 2 * z], 1), torch.cat([a, p, z], 1)), p[:, 0], problem.eps * f)


def point_gradient(space: Space, pull: Pull) -> Tensor:
    """∂/∂x_i  (N, d)"""
    x, a = space.measure.points, space.measure.weights
    if isinstance(space.cost, Power) and space.cost.p == 2 and isinstance(pull.w, LowRank):
        return 4 * _squared_norm_gradient(x, a, pull.quartic, pull.w)
    root = abs(pull.quartic) ** 0.5  # pulls of a divergence have none
    gradient = 4 * cost_gradient(space.cost, x, root * a, pull.w)
    if not bool(torch.isfinite(gradient).all()):
        row = int((~torch.isfinite(gradient)).any(1).nonzero()[0, 0])
        raise ValueError(
            f"the derivative of the cost of {space.name} is NaN or infinite at point {row}: it must be finite everywhere, also "
            "where two points coincide (torch.cdist is, the square root of a sum of squares is not)."
        )
    return gradient


def _squared_norm_gradient(x: Tensor, a: Tensor, quartic: float, w: LowRank) -> Tensor:
    """Σ_k (t a_i a_k c_ik + w_ik) 2 (x_i - x_k) for c = |x_i - x_k|², without any pair: all sums are polynomials."""
    x = x - a @ x
    s = x.square().sum(-1, keepdim=True)
    covariance = x.mT @ (a[:, None] * x)
    pairs = (s + a @ s) * x - a @ (s * x) + 2 * x @ covariance
    return 2 * (quartic * a[:, None] * pairs + (w.q @ w.k.sum(0))[:, None] * x - w.q @ (w.k.mT @ x))


def weight_gradient(space: Space, pull: Pull) -> Tensor:
    """∂/∂a_i along directions that keep the total weight.  (N,)"""
    points = space.measure.points
    moved = cost_apply(space.cost, points, points, pull.p.double()[:, None])[:, 0]
    return pull.f.double() + 2 * pull.quartic * space.moments.squares - 4 * moved

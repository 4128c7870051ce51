"""Unbalanced, semi-relaxed and partial GW of CNT costs: marginals that are not fixed.

    min over π of mass one   α L(π) + (1 - α) <C_F, π> + ε KL(π | a⊗b)
                             + ρ_X KL(π 1 | a) + ρ_Y KL(πᵀ 1 | b),  or π 1 <= h_X a, πᵀ 1 <= h_Y b

A plan enters through what is linear in it. With Φ(x) = (1, x, s), s = |x|², t = |y|²:

    G = Σ π_ij Φ(x_i) Φ(y_j)ᵀ = [1 ȳᵀ T; x̄ Γ v; S uᵀ A],   p = π 1,   q = πᵀ 1
    B(π, γ) = Σ (c_X - c_Y)² π γ = <J P_γ J, P_π> + <J Q_γ J, Q_π> - 2 <J G_γ J, G_π>
    L(π) = B(π, π);  J swaps 1 and s, and is -2 in between: c_X(x, x') = Φ(x)ᵀ J Φ(x'),  so that
    h(p)_i = Σ_k c_ik² p_k = Φ(x_i)ᵀ J P J Φ(x_i),   P = Σ p_k Φ(x_k) Φ(x_k)ᵀ

The next transport problem then has the score of the balanced one, around the means of p and q, and
parts that belong to one side, the anchors of its marginals (marginals.py):

    s_ij = (16/ε) <x_i, Γ y_j> + (4/ε) s_i t_j,    r_i = -(2/ε) h(p)_i + (4/ε) (T s_i - 2 <v, x_i>)
    E(π) = transport - B(γ, γ) + B(δ, δ),  δ = π - γ

For free marginals B(δ, δ) may be > 0, and plans may cycle. So the loop takes back a step that
raises the energy, and moments go a shorter part of the way (`mix`): a KL-proximal step.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gromap._features import FeatureCost
from gromap._pair import Pair
from gromap._plan import Plan
from gromap.solvers.embedded import CntProblem, ExactSide
from gromap.transport import LowRank, Score
from gromap.transport.marginals import Marginals, PartialMarginals, SoftMarginals
from gromap.transport.sinkhorn import Potentials


class Moments(NamedTuple):
    """What is known of a plan, in float64."""

    G: Tensor  # (D + 2, E + 2)
    p: Tensor  # (N,)
    q: Tensor  # (M,)

    def mix(self, other: Moments, t: float) -> Moments:
        """(1 - t) times these, and t times others."""
        return Moments(*(torch.lerp(here, there, t) for here, there in zip(self, other, strict=True)))


class RelaxedProblem(CntProblem):
    """Γ is the `Moments` of a plan.

    rho: what KL of each marginal costs.  most: in a partial match instead, of both weights.
    """

    relaxed = True

    def __init__(self, *given: Any):
        """Those of a `CntProblem`, then rho and most."""
        *sides, self.rho, self.most = given
        super().__init__(*sides)

    @cached_property
    def lifted(self) -> tuple[Tensor, Tensor]:
        """Φ of both sides.  (N, D + 2), (M, E + 2)"""
        return _lifted(self.x, self.x_norms), _lifted(self.y, self.y_norms)

    @cached_property
    def swaps(self) -> tuple[Tensor, Tensor]:
        """J of both sides.  (D + 2, D + 2), (E + 2, E + 2)"""
        return _swap(self.lifted[0]), _swap(self.lifted[1])

    def on(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor, fused: FeatureCost | None) -> RelaxedProblem:
        options = self.eps, self.truncation, None, self.unit, self.pair, fused
        return RelaxedProblem(x, y, a, b, *options, self.rho, self.most)

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Moments:
        """The moments of a plan; without one, those of a⊗b and a linear map."""
        if plan is not None and plan.shape == (len(self.a), len(self.b)):
            return self.correlate(None, plan.score.full, plan.u, plan.v)[0]
        return self.product(self.a, self.b, gamma)

    def moments(self, gamma: Moments) -> tuple[Tensor, ...]:
        return tuple(gamma)

    def holds(self, gamma: Moments) -> bool:
        """Whether these are moments of a plan between these points, in these axes."""
        return gamma.G.shape == tuple(z.shape[1] for z in self.lifted)

    def moments_of(self, pi: Tensor) -> Moments:
        """Those of a plan that is written down."""
        p, q = pi.sum(1).double(), pi.sum(0).double()
        left, right = self.lifted
        return Moments(left.mT @ pi.double() @ right, p, q)

    def product(self, p: Tensor, q: Tensor, gamma: Tensor | None = None) -> Moments:
        """The moments of p⊗q, and of a linear map between the two."""
        p, q = p.double(), q.double()
        G = torch.outer(p @ self.lifted[0], q @ self.lifted[1])
        if gamma is not None:
            G[1:-1, 1:-1] += gamma.double()
        return Moments(G, p, q)

    def score_to(self, other: CntProblem, gamma: Moments) -> LowRank:
        x_mean, y_mean = _means(gamma)
        linear = gamma.G[1:-1, 1:-1] - gamma.G[0, 0] * torch.outer(x_mean, y_mean)
        assert isinstance(other, RelaxedProblem)
        rows, cols = self.lifted[0] @ _shift(x_mean).mT, other.lifted[1] @ _shift(y_mean).mT
        left, right = ((z[:, 1:-1].to(self.x), z[:, -1].to(self.x)) for z in (rows, cols))
        return self._score(linear, left, right, other)

    def marginals(self, gamma: Moments) -> Marginals:
        return self.marginals_on(self, gamma)

    def marginals_on(self, other: RelaxedProblem, gamma: Moments) -> Marginals:
        """What the transport problem asks of a coarser or finer version of this problem, whose
        moments these are."""
        shifts, weight = tuple(_shift(mean) for mean in _means(gamma)), 2 * self.alpha / self.eps
        G, parts = shifts[0] @ gamma.G @ shifts[1].mT, list[Tensor]()
        for side, (shift, p) in enumerate(zip(shifts, (gamma.p, gamma.q), strict=True)):
            there, swap = other.lifted[side] @ shift.mT, self.swaps[side]
            form = swap @ shift @ _second(self.lifted[side], p) @ shift.mT @ swap  # J P J
            cross = (G[:, -1] if side == 0 else G[-1]) @ swap  # (A, -2 v, T)
            form[0, 1:] -= 2 * cross[1:]  # h - 2 (T s - 2 <v, x>) = Φᵀ form Φ
            parts.append(-weight * ((there @ form) * there).sum(1))
        if other.fused is not None:
            share = (1 - self.alpha) / self.eps
            features = other.fused.rows, other.fused.cols
            parts = [part - share * r.double() for part, r in zip(parts, features, strict=True)]
        anchor = torch.cat(parts).to(other.log_a)
        return marginals_of(other.log_a, other.log_b, anchor, self.eps, self.rho, self.most)

    def correlate(self, gamma: Moments | None, score: Score, u: Tensor, v: Tensor) -> tuple[Moments, Tensor]:
        moved = score.apply(u, v, self.values).double()  # π [Y, |Y|², 1]
        rows, cols = moved[:, -1], score.sums(u, v)[1].double()
        cols = cols * (rows.sum() / cols.sum())
        G = self.lifted[0].mT @ torch.cat([rows[:, None], moved[:, :-1]], 1)
        # columns are summed on their own, and B cancels nearly all: rounding must not tell G and q
        # apart
        lacking = cols @ self.lifted[1] - G[0]
        return Moments(G + torch.outer(G[:, 0] / G[0, 0], lacking), rows, cols), rows

    def mix(self, old: Moments, new: Moments, t: float) -> Moments:
        return old.mix(new, t)

    def energy(self, old: Moments, new: Moments, transport: Tensor) -> tuple[Tensor, Tensor]:
        """E(π), and -B(δ, δ)."""
        left, right = (_shift(mean) for mean in _means(old))
        change = Moments(*(there - here for here, there in zip(old, new, strict=True)))
        both, p, q = (torch.stack(pair) for pair in zip(old, change, strict=True))
        G = left @ both @ right.mT
        here, curve = self.alpha * -2 * (self.swaps[0] @ G @ self.swaps[1] * G).sum((1, 2))
        for w, z, shift, swap in zip((p, q), self.lifted, (left, right), self.swaps, strict=True):
            turned = swap @ shift @ _second(z, w) @ shift.mT  # J P
            squares = self.alpha * (turned * turned.mT).sum((1, 2))
            here, curve = here + squares[0], curve + squares[1]
        constant = here + 4 * self.alpha * G[0, -1, -1]  # 4 A is left out of the score
        return transport - constant + curve, -curve

    def matrix(self, gamma: Moments, plan: Plan) -> Tensor:
        """Γ around the means of both marginals."""
        x_mean, y_mean = _means(gamma)
        return gamma.G[1:-1, 1:-1] - gamma.G[0, 0] * torch.outer(x_mean, y_mean)

    def evaluate(self, gamma: Moments, plan: Plan) -> tuple[float, float]:
        loss, _ = super().evaluate(self.matrix(gamma, plan), plan)
        score = plan.score.full
        assert isinstance(score, LowRank)
        inner = float((score.q * plan.score.apply(plan.u, plan.v, score.k)).double().sum())
        return loss, plan.kl(inner)

    def weight_slope(self, gamma: Moments, plan: Plan, side: int) -> Tensor:
        return weight_slope(self.marginals(gamma), self.rho[side], self.eps, plan, side)

    def marginal_tol(self, tol: float) -> float:
        return marginal_tol(self.rho, tol * self.unit)

    def marginal_value(self, gamma: Moments, plan: Plan) -> float:
        return marginal_cost(self.rho, plan) if self.most is None else 0.0

    def interpolate(self, gamma: Moments, duals: Potentials, fine: RelaxedProblem) -> Potentials:
        here, there = self.marginals(gamma), self.marginals_on(fine, gamma)
        z = torch.cat([duals.f, duals.g], -1)
        rows, cols = fine.score_to(self, gamma), self.score_to(fine, gamma)
        f = there.close(rows.lse(duals.g + self.log_b), here.level(z, 0), 0)
        return Potentials(f, there.close(cols.mT.lse(duals.f + self.log_a), here.level(z, 1), 1))

    def carried(self, gamma: Moments, duals: Potentials, fine: RelaxedProblem) -> Moments:
        """The moments of the plan that interpolated potentials give, of mass one."""
        to = self.marginals_on(fine, gamma)
        score = to.truncated(fine.score(gamma), torch.cat([duals.f, duals.g]))
        u, v = duals.f + fine.log_a, duals.g + fine.log_b
        u = u - (u + score.lse(v)).logsumexp(0)  # of any mass, however small or large
        found, rows = fine.correlate(None, score, u, v)
        return Moments(*(part / rows.sum() for part in found))


def embedded_problem(
    pair: Pair, truncation: float | None = None, exact: tuple[ExactSide, ExactSide] | None = None
) -> CntProblem:
    """The pair as a problem between embeddings, whatever solver it is for."""
    given = *pair.features, *pair.weights, pair.eps, truncation, exact, pair.energy_unit, pair, pair.fused
    return RelaxedProblem(*given, pair.rho, pair.most) if pair.relaxed else CntProblem(*given)


def marginals_of(
    log_a: Tensor, log_b: Tensor, anchor: Tensor, eps: float, rho: tuple[float, float], most: tuple[float, float] | None
) -> Marginals:
    """What is asked of the marginals of one transport problem, or of a batch."""
    if most is not None:
        return PartialMarginals(log_a, log_b, anchor, most)
    left, right = (eps / size if size > 0 else math.inf for size in rho)
    return SoftMarginals(log_a, log_b, anchor, (left, right))


def weight_slope(to: Marginals, rho: float, eps: float, plan: Plan, side: int) -> Tensor:
    """∂/∂a up to a constant; for a fixed marginal the potential of the whole linearized cost."""
    if rho == math.inf:
        assert isinstance(to, SoftMarginals)
        return eps * (plan.potentials[side] - to.split(to.anchor)[side])
    weights = (plan.a, plan.b)[side]
    return -(rho + eps) * plan.sums[side] / weights.clamp(min=1e-300 if weights.dtype == torch.float64 else 1e-30)


def marginal_tol(rho: tuple[float, float], tol: float) -> float:
    """Misplaced mass e for which 10 ρ e², more than it adds to ρ KL, is less than this."""
    size = max((one for one in rho if one < math.inf), default=0.0)
    return math.sqrt(tol / (10 * size)) if size > 0 else math.inf


def marginal_cost(rho: tuple[float, float], plan: Plan) -> float:
    """ρ_X KL(π 1 | a) + ρ_Y KL(πᵀ 1 | b), of marginals that are not fixed."""
    sides = zip(rho, plan.sums, (plan.a, plan.b), strict=True)
    return sum(size * _kl(p, w) for size, p, w in sides if 0 < size < math.inf)


def _lifted(x: Tensor, s: Tensor) -> Tensor:
    """Φ(x) = (1, x, s)  (N, D + 2)"""
    return torch.cat([torch.ones_like(x[:, :1]), x, s[:, None]], 1).double()


def _means(m: Moments) -> tuple[Tensor, Tensor]:
    return m.G[1:-1, 0] / m.G[0, 0], m.G[0, 1:-1] / m.G[0, 0]


def _second(z: Tensor, p: Tensor) -> Tensor:
    """P = Σ p_k Φ_k Φ_kᵀ for weights of any sign.  (..., D + 2, D + 2)"""
    return z.mT @ (p[..., None] * z)


def _swap(z: Tensor) -> Tensor:
    """J for such Φ.  (D + 2, D + 2)"""
    out = torch.diag(z.new_full((z.shape[1],), -2.0))
    out[0, 0] = out[-1, -1] = 0.0
    out[0, -1] = out[-1, 0] = 1.0
    return out


def _shift(mean: Tensor) -> Tensor:
    """The matrix of Φ(x) -> Φ(x - mean)."""
    d = len(mean)
    out = torch.eye(d + 2, dtype=mean.dtype, device=mean.device)
    out[1:-1, 0] -= mean
    out[-1, 1:-1].sub_(mean, alpha=2)
    out[-1, 0] += mean @ mean
    return out


def _kl(p: Tensor, a: Tensor) -> float:
    p, a = p.double(), a.double()
    return float(torch.special.xlogy(p, p / a.clamp(min=1e-300)).sum() - p.sum() + a.sum())  # pyright: ignore

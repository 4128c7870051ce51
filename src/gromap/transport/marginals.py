"""What a transport problem asks of the marginals of its plan, and the steps that follow.

    min over π of mass one   <C, π> + ε KL(π | a⊗b) + D_X(π 1) + D_Y(πᵀ 1)

    Marginals          π 1 = a, πᵀ 1 = b
    SoftMarginals      D_X = ρ_X KL(. | a): ρ = inf keeps a marginal, ρ = 0 frees it
    PartialMarginals   π 1 <= h_X a, πᵀ 1 <= h_Y b, the rest goes to one more point of either side

Always π_ij = a_i b_j exp(s_ij + f_i + g_j), potentials in nats, f and g as one vector z. Free
marginals ask for what fixed ones absorb: the parts r_i and c_j of the cost C_ij = -ε (s_ij + r_i +
c_j) that belong to one side, the `anchor`. With κ = ε / ρ, τ = 1 / (1 + κ):

    π 1 = a exp(-κ (f - r)) / Z             f <- (1 - τ) r - τ log Σ_j b_j exp(s_ij + g_j)
    dual  ε (k_X + k_Y - log |π|),          k_X = -log Σ a exp(-κ (f - r)) / κ, or <a, f - r>
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from gromap.transport.rows import HERE, Rows
from gromap.transport.score import Held, Score

LEAST_HELD = 1e-6  # share of its weight that a point with a cap holds, below which it may lose it: a rounding error
NOTHING = -80.0  # log of a share of a weight, below which it may be anything
FREE = math.inf  # κ of a marginal that is free
LEAST_KAPPA = 1e-20  # for float32: the mean of `_soft_mean` is then the plain one


class Marginals:
    """Both marginals, fixed, as one vector: every elementwise step then runs once, for f and g
    together."""

    fixed = True
    kind: tuple[object, ...] = ()  # what a step is written for, beside the weights
    varying: tuple[str, ...] = ()  # the tensors that differ between problems of one kind
    # where these are not fixed:
    anchor: Tensor  # (..., N + M) r and c
    sides: Tensor  # (2, 4) κ, τ, rate and h of both, for potential_step.py

    def __init__(self, log_a: Tensor, log_b: Tensor, rows: Rows = HERE):
        self.log_a, self.log_b, self.n, self.rows = log_a, log_b, log_a.shape[-1], rows
        self.log = torch.cat([log_a, log_b])
        self.mass = self.log.exp()
        self.empty = self.log == -torch.inf

    def begin(self, z: Tensor) -> Tensor:
        """Potentials to begin with, given those of a problem before.  (..., N + M)"""
        return z

    def graph_copy(self) -> Marginals | None:
        """A copy that a CUDA graph may read from; None where steps wait for other processes."""
        if self.rows.shared:
            return None
        own = copy(self)
        for name in self.varying:
            setattr(own, name, getattr(self, name).clone())
        return own

    def rewrite(self, new: Marginals) -> bool:
        """Write what varies in others where it is here, and say whether they are of this kind: of
        the same weights, as those who share a graph see to."""
        if type(self) is not type(new) or self.kind != new.kind:
            return False
        for name in self.varying:
            getattr(self, name).copy_(getattr(new, name))
        return True

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return z[..., : self.n], z[..., self.n :]

    def residual(self, total: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Twice the step that z asks for where π has these row and column sums, and the sums that
        it should have.  (..., N + M) twice"""
        return total.log() - self.log, self.mass

    def held(self, z: Tensor) -> Held:
        """Log of the share of its weight that each row and column holds; None = all of it.
        (..., N), (..., M)"""
        return None

    def truncated(self, score: Score, z: Tensor) -> Score:
        """The score without the tiles that hold no mass."""
        if not score.truncates:
            return score
        return score.truncate(*self.split(z), self.log_a, self.log_b, self.held(z))

    def half_step(self, score: Score, z: Tensor, side: int) -> Tensor:
        """The potentials of the rows (side 0) or columns (1) that are best for those of the others.
        (..., N) or (..., M)"""
        f, g = self.split(z)
        lse = score.lse(g + self.log_b) if side == 0 else self.rows.lse(score.mT.lse(f + self.log_a))
        return self.close(lse, self.level(z, side), side)

    def close(self, lse: Tensor, level: Tensor, side: int) -> Tensor:
        """The same from log Σ_j b_j exp(s_ij + g_j) of one side."""
        return -lse

    def level(self, z: Tensor, side: int) -> Tensor:
        """What `close` knows of the potentials before.  (..., 1)"""
        return z[..., :1]

    def dual(self, f: Tensor, g: Tensor, rows: Tensor) -> Tensor:
        """The value of the problem by its dual, in units of ε, where π has these row sums: an
        unfinished Sinkhorn costs a second-order error; of rows in several processes the part of
        this one.  (...)"""
        a, b, once = self.log_a.exp().double(), self.log_b.exp().double(), self.rows.once
        return f.double() @ a + once(g.double() @ b) - (rows.double().sum(-1) - once(1.0))


class SoftMarginals(Marginals):
    """Marginals of a plan of mass one that cost ρ KL(. | a); κ = ε / ρ of each side, 0 where it is
    fixed, `FREE` where it costs nothing."""

    fixed = False
    varying = "anchor", "sides", "tau", "rate"

    def __init__(self, log_a: Tensor, log_b: Tensor, anchor: Tensor, kappa: tuple[float, float]):
        super().__init__(log_a, log_b)
        self.anchor, self.kind = anchor, tuple({0.0: "fixed", FREE: "free"}.get(k, "soft") for k in kappa)
        tau, rate = [1 / (1 + k) for k in kappa], [0.0 if k == FREE else k for k in kappa]
        self.sides = _sides([max(k, LEAST_KAPPA) for k in rate], tau, rate, [1.0, 1.0], anchor)
        self.tau, self.rate = (
            torch.cat([torch.full_like(log_a, left), torch.full_like(log_b, right)]) for left, right in (tau, rate)
        )

    def begin(self, z: Tensor) -> Tensor:
        """Those of a marginal that is free are known."""
        return torch.where(self.tau == 0, self.anchor, z)

    def residual(self, total: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        mass = total[..., : self.n].sum(-1, keepdim=True)
        away = z - self.anchor - self._shifts(z)
        want = torch.where(self.tau == 0, total / mass, (self.log - self.rate * away).exp())
        ratio = total.log() - self.log
        # where little is wanted, nothing at all is near enough
        ratio = torch.where(self.tau < 1, ratio.clamp(min=NOTHING), ratio)
        return self.tau * ratio + (1 - self.tau) * (away + mass.log()), want

    def held(self, z: Tensor) -> Held:
        """Where a marginal is free, this is not known, and the whole weight stands for it."""
        return self.split(-self.rate * (z - self.anchor - self._shifts(z)))

    def close(self, lse: Tensor, level: Tensor, side: int) -> Tensor:
        """With the plan brought to mass one, where the marginal is not fixed."""
        log, tau, anchor = (part[side] for part in map(self.split, (self.log, self.tau, self.anchor)))
        own = (1 - tau) * anchor - tau * lse
        return own - torch.logsumexp(log + own + lse, -1, keepdim=True) if self.kind[side] != "fixed" else own

    def dual(self, f: Tensor, g: Tensor, rows: Tensor) -> Tensor:
        z = torch.cat([f, g], -1)
        left, right = self.split(self._shifts(z.double()))
        return left[..., 0] + right[..., 0] - rows.double().sum(-1).log()

    def _shifts(self, z: Tensor) -> Tensor:
        """k_X for all rows, k_Y for all columns.  (..., N + M)"""
        away = z - self.anchor
        parts = zip(self.split(away), self.split(self.log), self.kind, self.sides[:, 0], strict=True)
        means = (_soft_mean(d, log.to(d), k) if kind == "soft" else _mean(d, log.to(d)) for d, log, kind, k in parts)
        return torch.cat([mean.expand_as(d) for mean, d in zip(means, self.split(away), strict=True)], -1)


def _sides(kappa: list[float], tau: list[float], rate: list[float], most: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor([kappa, tau, rate, most], dtype=torch.float64, device=like.device).mT.contiguous()


def _mean(d: Tensor, log: Tensor) -> Tensor:
    """That of `_soft_mean` for κ = 0; also where the marginal is free, since d is constant there.
    (..., 1)"""
    return (log.exp() * d.masked_fill(log == -torch.inf, 0.0)).sum(-1, keepdim=True)


def _soft_mean(d: Tensor, log: Tensor, kappa: Tensor) -> Tensor:
    """-log Σ a exp(-κ d) / κ  (..., 1)"""
    a, d, mean, kappa = log.exp(), d.masked_fill(log == -torch.inf, 0.0), _mean(d, log), kappa.to(d)
    away = kappa * (mean - d)  # small ones keep their digits, whatever κ is
    near = mean - torch.log1p((a * torch.expm1(away.clamp(-1.0, 1.0))).sum(-1, keepdim=True)) / kappa
    far = -torch.logsumexp(log - kappa * d, -1, keepdim=True) / kappa
    return torch.where(away.abs().amax(-1, keepdim=True) < 1, near, far)


class PartialMarginals(Marginals):
    """At most h a and h b of both sides, in a plan of mass one: what is left of one side goes to a
    point of the other that costs nothing, whose potential is known in closed form.

    The entropy of what is left, relative to the weights, counts too.
    """

    fixed = False
    varying = ("anchor",)

    def __init__(self, log_a: Tensor, log_b: Tensor, anchor: Tensor, most: tuple[float, float]):
        super().__init__(log_a, log_b)
        self.anchor, self.most, self.kind = anchor, most, most
        self.sides = _sides([-1.0, -1.0], [1.0, 1.0], [0.0, 0.0], most, anchor)
        self.log_most = torch.cat([torch.full_like(w, math.log(h)) for w, h in zip((log_a, log_b), most, strict=True)])

    def residual(self, total: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        left, full = self._left(z), (self.log + self.log_most).exp()
        return (total + left).log() - self.log - self.log_most, full - left

    def held(self, z: Tensor) -> Held:
        kept = (self.log_most.exp() - self._left(z) / self.log.exp()).clamp(min=LEAST_HELD)
        return self.split(torch.where(self.empty, 0.0, kept.log()))

    def close(self, lse: Tensor, level: Tensor, side: int) -> Tensor:
        rest, most = self.most[side] - 1, math.log(self.most[side])
        if rest <= 0:
            return most - lse
        return most - torch.logaddexp(lse, math.log(rest) - self.split(self.anchor)[side] - level)

    def level(self, z: Tensor, side: int) -> Tensor:
        return torch.logsumexp(self.split(self.log + z - self.anchor)[side], -1, keepdim=True)

    def dual(self, f: Tensor, g: Tensor, rows: Tensor) -> Tensor:
        value = 1 - rows.double().sum(-1)
        away = torch.cat([f, g], -1).double() - self.anchor.double()
        for d, log, h in zip(self.split(away), self.split(self.log.double()), self.most, strict=True):
            value = value + h * _mean(d, log)[..., 0] - (h - 1) * torch.logsumexp(log + d, -1)
        return value

    def _left(self, z: Tensor) -> Tensor:
        """What goes to the further points.  (..., N + M)"""
        sides = zip(self.split(self.log + z - self.anchor), self.most, strict=True)
        return torch.cat([(h - 1) * torch.softmax(d, -1) for d, h in sides], -1)


def half_step(score: Score, log_b: Tensor, g: Tensor) -> Tensor:
    """f = -log Σ_j b_j exp(s_ij + g_j): makes the row marginals exact. Also Alg. Interpolate,
    for new rows.  (..., N)"""
    return -score.lse(g + log_b)

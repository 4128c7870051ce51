"""One outer step for a batch of starts between small clouds, all scores written down.

    s   <- 16 <x_i, Γ y_j> + 4 |x_i|² |y_j|²                 one product
    g   <- Sinkhorn with momentum, f = f(g) exact            two products with vectors per step
    π   <- the coupling next to exp((s + f + g) / ε)         Altschuler et al. 2017
    Γ'  <- Xᵀ π Y                                            one product

so that the value of π is that of a coupling, however few steps Sinkhorn took: it bounds the minimum
from above, and may be compared with others. (The dual value of an unfinished Sinkhorn lies below
all minima, and may be negative.) Each start has a temperature of its own, and potentials are in
units of energy, which serve at any of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._torch import untyped
from gromap.search.budget import SearchBudget
from gromap.search.exchange import exchanged
from gromap.transport.backend import fused_for
from gromap.transport.tiles import LOG2E

FARTHEST = 80.0  # nats that a potential moves in one outer step, at most: its exponential is a float32
LOOK = 5  # Sinkhorn steps between two looks at the marginals


class Cooled(NamedTuple):
    """Where a batch of starts is, in the units of its clouds."""

    gamma: Tensor  # (B, D, E) of the last coupling
    g: Tensor  # (B, M) potentials, in units of energy
    value: Tensor  # (B,) float64, energy of the last coupling

    def take(self, some: Tensor | slice) -> Cooled:
        return Cooled(self.gamma[some], self.g[some], self.value[some])

    def join(self, other: Cooled) -> Cooled:
        return Cooled(*(torch.cat(z) for z in zip(self, other, strict=True)))


class Scaled(NamedTuple):
    """The plans diag(u) π diag(v) of some starts, whose rows are exact, and their potentials."""

    plan: Tensor  # (B, N, M)
    u: Tensor  # (B, 1, N)
    v: Tensor  # (B, 1, M)
    f: Tensor  # (B, N) in nats
    g: Tensor  # (B, M) in units of energy


class Clouds(NamedTuple):
    """Both clouds of all starts, or of each start of a batch: P is 1, or B. Points without mass
    fill up the smaller ones."""

    x: Tensor  # (P, N, D)
    lift: Tensor  # (P, N, L) |x_i|², and features
    a: Tensor  # (P, 1, N)
    b: Tensor  # (P, 1, M)
    values: Tensor  # (P, M, E + L + 1) y_j, |y_j|², and features, 1
    across: Tensor  # (P, E + L, M) all of these but the last, transposed
    constant: Tensor  # (P,) float64, of the energy
    heat: Tensor  # (P,) the energy that temperatures are measured by

    @classmethod
    def of(
        cls, x: Tensor, y: Tensor, lift: Tensor, features: Tensor, a: Tensor, b: Tensor, constant: Tensor, heat: Tensor
    ) -> Clouds:
        """lift, features: (P, N, L) and (P, M, L), four times whose product is the part of the
        score without Γ."""
        values = torch.cat([y, features, torch.ones_like(y[..., :1])], -1)
        across = values[..., :-1].mT.contiguous()
        return cls(x, lift, a[:, None], b[:, None], values, across, constant, heat)

    def take(self, some: Tensor | slice) -> Clouds:
        """Those of some starts."""
        return self if len(self.x) == 1 else Clouds(*(z[some] for z in self))

    def each(self, starts: int) -> Clouds:
        """Those of so many starts of each pair, one pair after another."""
        return self if len(self.x) == 1 else Clouds(*(z.repeat_interleave(starts, 0) for z in self))

    @property
    def axes(self) -> int:
        """E"""
        return self.values.shape[-1] - self.lift.shape[-1] - 1

    @property
    def tiny(self) -> float:
        return 100 * torch.finfo(self.x.dtype).tiny

    @property
    def copy_potential(self) -> Tensor:
        """-½ s_jj of Y against itself, the potential of a match that is an isometry: Sinkhorn is
        nearly done where a start is near one, and no start is lost to cold potentials.  (P, M)"""
        y, squares = self.values[..., : self.axes], self.values[..., self.axes]
        covariance = y.mT @ (self.b.mT * y)
        return -8 * ((y @ covariance) * y).sum(-1) - 2 * squares.square()

    def step(self, gamma: Tensor, g: Tensor, eps: Tensor, steps: int, tol: float, rank: bool = True) -> Cooled:
        """One outer step, with at most so many Sinkhorn steps, fewer where all meet their
        marginals.  rank: whether the values are wanted."""
        scaled = self.scaled(gamma, g, eps, steps, tol)
        if rank:
            return self._coupling(scaled, gamma, eps)
        return Cooled(self._map(scaled), scaled.g, eps.new_zeros(0))

    def scaled(self, gamma: Tensor, g: Tensor, eps: Tensor, steps: int, tol: float) -> Scaled:
        """The plans of some Γ after Sinkhorn."""
        bits, batch = (LOG2E / eps)[:, None, None], len(gamma)
        lift, across = ((4 * bits) * self.lift, self.across.expand(batch, -1, -1))
        left = torch.cat([self.x @ (16 * bits * gamma), lift, bits.expand(-1, lift.shape[1], -1)], -1)
        bias = g[:, None] + eps[:, None, None] * self.b.log()
        plan = torch.bmm(left, torch.cat([across, bias], 1))
        top = plan.amax(-1, keepdim=True)
        plan.sub_(top).exp2_()
        total = plan.sum(-1, keepdim=True)
        plan.mul_(self.a.mT / total)  # its rows are exact
        u, v, moved = self._sinkhorn(plan, steps, tol)
        f = u[:, 0].log() - (top + total.log2())[..., 0] / LOG2E
        return Scaled(plan, u, v, f, g + eps[:, None] * moved[:, 0])

    def matched(self, score: Tensor, steps: int, tol: float) -> Tensor:
        """The linear maps of the plans that scores in nats lead to.  (B, N, M) to (B, D, E)"""
        plan = torch.softmax(score + self.b.log(), -1) * self.a.mT
        u, v, _ = self._sinkhorn(plan, steps, tol)
        return self._map(Scaled(plan, u, v, u[:, 0], v[:, 0]))

    def images(self, gamma: Tensor, g: Tensor, eps: Tensor, budget: SearchBudget) -> Tensor:
        """The means of y, of |y|² and of features under each row of the plans of some Γ.
        (B, N, E + L)"""
        at = self.scaled(gamma, g, eps, budget.sinkhorn_steps, budget.marginal_tol)
        moved = at.u.mT * torch.bmm(at.plan, at.v.mT * self.values[..., :-1])
        return moved / self.a.mT.clamp(min=self.tiny)

    def traded(self, images: Tensor, budget: SearchBudget) -> tuple[Tensor, Tensor]:
        """Images after pairs of points have traded them (exchange.py), and how much these gained.
        (B, N, E + L), (B,)"""
        least = budget.least_gain * self.heat
        return exchanged(self.x, self.lift, self.a[:, 0], images, least, budget.exchanges)

    def mapped(self, images: Tensor) -> Tensor:
        """The linear maps of some images.  (B, D, E)"""
        return self.x.mT @ (self.a.mT * images[..., : self.axes])

    def _map(self, at: Scaled) -> Tensor:
        """Xᵀ diag(u) π diag(v) Y.  (B, D, E)"""
        return self.x.mT @ (at.u.mT * torch.bmm(at.plan, at.v.mT * self.values[..., : self.axes]))

    def _sinkhorn(self, plan: Tensor, steps: int, tol: float) -> tuple[Tensor, Tensor, Tensor]:
        """Scalings u of rows and v of columns, and log v: rows are exact, columns as well as so
        many steps make them.

        Each step is one of the ascent of the semi-dual in log v, with Nesterov's momentum, which a
        start loses where a step opposes it.
        """
        if fused_for(plan):
            from gromap.search import anneal_kernel

            if anneal_kernel.serves(plan):
                sides = self.a[:, 0], self.b[:, 0]
                u, log_v = anneal_kernel.scale(plan, *sides, steps, tol, LOOK, FARTHEST, self.tiny)
                return u[:, None], log_v.exp()[:, None], log_v[:, None]
        turned, wanted = plan.mT, self.b.clamp(min=self.tiny)
        old = ahead = plan.new_zeros(len(plan), 1, plan.shape[-1])
        n, error = 0, math.inf
        while n < steps and error > tol:
            v = ahead.exp()
            u = self.a / torch.bmm(v, turned).clamp_(min=self.tiny)
            col = torch.bmm(u, plan).clamp_(min=self.tiny)
            new = (wanted / col).log_()
            look, n = n % LOOK == 0, n + 1
            if look:
                error = float((v * col - wanted).abs_().sum(-1).max())
                opposed = (wanted * (new - old) * (new - ahead)).sum(-1, keepdim=True) < 0
                old = torch.where(opposed, new, old)
            old, ahead = new, torch.lerp(old, new, 1 + n / (n + 3)).clamp_(-FARTHEST, FARTHEST)
        old = old.clamp(-FARTHEST, FARTHEST)
        v = old.exp()
        return self.a / torch.bmm(v, turned).clamp_(min=self.tiny), v, old

    def _coupling(self, at: Scaled, gamma: Tensor, eps: Tensor) -> Cooled:
        """The couplings next to the plans, and their values: columns that hold too much are
        scaled down, and what is missing, m in all, is added as a product r qᵀ / m.

        KL is convex: that of the sum is at most (1 - m) that of the first part plus m that of the
        second.
        """
        plan, u, v, f, g = at
        cap = (self.b / (v * torch.bmm(u, plan)).clamp_(min=self.tiny)).clamp_(max=1.0)  # (B, 1, M)
        v = v * cap
        moved = u.mT * torch.bmm(plan, v.mT * self.values)  # (B, N, E + L + 1)
        col = (v * torch.bmm(u, plan)).double()  # (B, 1, M)
        rows = moved[..., -1].double()[:, None]  # (B, 1, N)
        r, q = (self.a.double() - rows).clamp_(min=0.0), (self.b.double() - col).clamp_(min=0.0)
        m = q.sum((1, 2)).clamp(min=self.tiny)
        axes, lift, values = self.axes, self.lift.double(), self.values.double()
        part, left, right = self.x.mT @ moved[..., :axes], r @ self.x.double(), q @ values[..., :-1]
        new = part.double() + left.mT * right[..., :axes] / m[:, None, None]
        cross = 4 * (moved[..., axes:-1].double() * lift).sum((-1, -2))
        inner = 16 * (gamma.double() * part.double()).sum((-1, -2)) + cross  # <s, π'>
        eps = eps.double()
        lower = _sum(rows, f[:, None]) + _sum(col, (g / eps[:, None])[:, None] + cap.log())
        rest = _entropy(r, self.a, m, self.tiny) + _entropy(q, self.b, m, self.tiny)
        kl = inner / eps + lower + rest - (1 - m) * torch.log1p(-m.clamp(max=1 - 1e-9))
        spread = cross + 4 * ((r @ lift) * right[..., axes:]).sum((-1, -2)) / m
        value = self.constant - 8 * new.square().sum((-1, -2)) - spread + eps * kl
        lost = ~torch.isfinite(value)
        new = new.masked_fill(lost[:, None, None], 0.0)
        return Cooled(new.to(gamma), g.nan_to_num(nan=0.0), value.masked_fill(lost, math.inf))


def _sum(mass: Tensor, of: Tensor) -> Tensor:
    """Σ of something over what carries mass.  (B,)"""
    return torch.where(mass > 0, mass * of.double(), 0.0).sum((1, 2))


def _entropy(part: Tensor, mass: Tensor, m: Tensor, tiny: float) -> Tensor:
    """m KL(part / m | mass) for parts of mass m.  (B,)"""
    share: Tensor = untyped.special.xlogy(part, part / m[:, None, None] / mass.clamp(min=tiny))
    return share.sum((1, 2))

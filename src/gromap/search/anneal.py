"""Simulated cooling of a batch of starts between small clouds, all scores written down.

At a high temperature D_ε has one minimum or few, at a low one thousands: a start that is cooled
slowly, one outer step per temperature, follows a wide valley down, where one that is quenched falls
into the nearest hole. Each outer step of the batch, at temperatures of their own, is

    s   <- 16 <x_i, Γ y_j> + 4 |x_i|² |y_j|²                 one product
    g   <- Sinkhorn with momentum, f = f(g) exact            two products with vectors per step
    π   <- the coupling next to exp((s + f + g) / ε)         Altschuler et al. 2017
    Γ'  <- Xᵀ π Y                                            one product

so that the value of π is that of a coupling, however few steps Sinkhorn took: it bounds the minimum
from above, and may be compared with others. (The dual value of an unfinished Sinkhorn lies below
all minima, and may be negative.) Features are in units of their spread, potentials in units of
energy, which serve at any temperature.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, reduce
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._threads import allowed, side_by_side
from gromap._torch import eigh, norm, untyped
from gromap.search.budget import SearchBudget
from gromap.search.descent import distinct
from gromap.search.exchange import exchanged
from gromap.solvers.embedded import CntProblem
from gromap.solvers.objective import quartic
from gromap.transport.backend import fused_for
from gromap.transport.cuda_graph import State, captured
from gromap.transport.tiles import LOG2E, cuts

FARTHEST = 80.0  # nats that a potential moves in one outer step, at most: its exponential is a float32
PART_ENTRIES = 1 << 15  # of the plans of a batch from which a second thread pays
LOOK = 5  # Sinkhorn steps between two looks at the marginals


class Cooled(NamedTuple):
    """Where a batch of starts is, in the units of `SmallPair`."""

    gamma: Tensor  # (B, D, E) of the last coupling
    g: Tensor  # (B, M) potentials, in units of energy
    value: Tensor  # (B,) float64, energy of the last coupling

    def take(self, some: Tensor | slice) -> Cooled:
        return Cooled(self.gamma[some], self.g[some], self.value[some])

    def join(self, other: Cooled) -> Cooled:
        return Cooled(*(torch.cat(z) for z in zip(self, other, strict=True)))


class SmallPair:
    """A problem between two small clouds, in units in which E|X|² = E|Y|² = 1, and in no more axes
    than points.

    heat: the energy that temperatures are measured by, 2 √(E c_X² E c_Y²) - 4 E|X|² E|Y|²: the
    constant of the energy, if both sides were scaled alike.
    critical: the temperature, in shares of it, below which Γ = 0 is unstable between independent
    points, 16 θ_X θ_Y for the largest variances along an axis: above it no start remembers where it
    came from for long.
    """

    def __init__(self, problem: CntProblem, dtype: torch.dtype):
        self.problem, self.tiny = problem, 100 * torch.finfo(dtype).tiny
        self._graphs: dict[tuple[int, SearchBudget], Callable[[State], State]] = {}
        sides = (problem.x, problem.a, problem.x_norms), (problem.y, problem.b, problem.y_norms)
        spread = [float(w.double() @ n.double()) or 1.0 for _, w, n in sides]  # one, where all points are one
        self.size, self.unit = math.sqrt(spread[0] * spread[1]), problem.alpha * spread[0] * spread[1]
        scaled = ((z.double() / s**0.5, w.double()) for (z, w, _), s in zip(sides, spread, strict=True))
        (self.turn_x, x), (self.turn_y, y) = (_spanned(z, w) for z, w in scaled)
        self.x, self.y, self.a, self.b = x.to(dtype), y.to(dtype), problem.a.to(dtype), problem.b.to(dtype)
        nx, ny = (n.double() / s for (*_, n), s in zip(sides, spread, strict=True))
        self.inner = (4 * nx[:, None] * ny).to(dtype)  # (N, M)
        self.log_b = self.b.log()
        self.lift, features = self._lifted(nx)  # (N, 1 + K), (M, K)
        if problem.fused is not None:
            self.inner += 4 * self.lift[:, 1:] @ features.mT
        self.values = torch.cat([self.y, ny.to(dtype)[:, None], features, torch.ones_like(self.y[:, :1])], 1)
        self.columns = self.y.mT.contiguous()
        self.nx, self.ny = nx, ny
        self.constant = (problem.alpha * problem.constant + problem.apart) / self.unit
        squares = [quartic(z, w) / s**2 for (z, w, _), s in zip(sides, spread, strict=True)]
        self.heat = max(0.0, 2 * math.sqrt(squares[0] * squares[1]) - 4)
        sx, sy = ((w.double() @ z.double().square()).sqrt() for z, w in ((self.x, self.a), (self.y, self.b)))
        self.spread = sx, sy  # along each axis
        self.critical = 16 * float(sx.max() * sy.max()) ** 2 / max(self.heat, 1e-300)
        unit = (sx[:, None] * sy).sqrt()
        self.axes = unit.clamp(min=max(1e-6 * float(unit.max()), 1e-30))

    def _lifted(self, nx: Tensor) -> tuple[Tensor, Tensor]:
        """|x_i|² and features of the rows, and features of the columns: four times the product of
        these and |y_j|² is the part of the score without Γ.  (N, 1 + K), (M, K)"""
        known, nx = self.problem.fused, nx[:, None]
        if known is None:
            return nx.to(self.x), self.y[:, :0]
        share = (1 - self.problem.alpha) / (4 * self.unit)
        return torch.cat([nx, -share * known.left.double()], 1).to(self.x), known.right.to(self.y)

    @property
    def fused(self) -> bool:
        """Whether a batch of starts takes about as long as one."""
        return fused_for(self.x)

    @cached_property
    def copy_potential(self) -> Tensor:
        """-½ s_jj of Y against itself, the potential of a match that is an isometry: Sinkhorn is
        nearly done where a start is near one, and no start is lost to cold potentials.  (M,)"""
        covariance = self.y.mT @ (self.b[:, None] * self.y)
        return -8 * ((self.y @ covariance) * self.y).sum(1) - 2 * self.ny.to(self.y).square()

    def units(self, gamma: Tensor) -> Tensor:
        """Linear maps of the problem in the units and axes here.  (B, D, E)"""
        gamma = gamma.double() / self.size
        gamma = gamma if self.turn_x is None else self.turn_x.mT @ gamma
        return (gamma if self.turn_y is None else gamma @ self.turn_y).to(self.x)

    def back(self, gamma: Tensor) -> Tensor:
        """Linear maps here, in the units and axes of the problem.  (B, D, E)"""
        gamma = gamma.double() * self.size
        gamma = gamma if self.turn_x is None else self.turn_x @ gamma
        return gamma if self.turn_y is None else gamma @ self.turn_y.mT

    def step(self, gamma: Tensor, g: Tensor, eps: Tensor, steps: int, tol: float, rank: bool = True) -> Cooled:
        """One outer step, with at most so many Sinkhorn steps, fewer where all meet their
        marginals.  rank: whether the values are wanted."""
        plan, u, v, f, g = self._plan(gamma, g, eps, steps, tol)
        if not rank:
            return Cooled(self._map(plan, u, v), g, self.a.new_zeros(0))
        return self._coupling(plan, u, v, f, g, gamma, eps)

    def images(self, gamma: Tensor, g: Tensor, eps: Tensor, budget: SearchBudget) -> Tensor:
        """The means of y, of |y|² and of features under each row of the plans of some Γ.
        (B, N, E + 1 + K)"""
        plan, u, v, *_ = self._plan(gamma, g, eps, budget.sinkhorn_steps, budget.marginal_tol)
        return u.mT * torch.bmm(plan, v.mT * self.values[:, :-1]) / self.a[:, None]

    def traded(self, images: Tensor, budget: SearchBudget) -> tuple[Tensor, Tensor]:
        """Images after pairs of points have traded them (exchange.py), and how much these gained.
        (B, N, E + 1 + K), (B,)"""
        return exchanged(self.x, self.lift, self.a, images, budget.least_gain * self.heat, budget.exchanges)

    def mapped(self, images: Tensor) -> Tensor:
        """The linear maps of some images.  (B, D, E)"""
        return self.x.mT @ (self.a[:, None] * images[..., : self.y.shape[1]])

    def _plan(
        self, gamma: Tensor, g: Tensor, eps: Tensor, steps: int, tol: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """diag(u) π diag(v) of Γ after Sinkhorn, as π, u and v, and its potentials f, in nats,
        and g."""
        batch = len(gamma)
        product = self.x @ (16 * gamma)
        plan = torch.baddbmm(self.inner.expand(batch, -1, -1), product, self.columns.expand(batch, -1, -1))
        plan.add_((g + eps[:, None] * self.log_b)[:, None]).mul_((LOG2E / eps)[:, None, None])
        top = plan.amax(-1, keepdim=True)
        plan.sub_(top).exp2_()
        total = plan.sum(-1, keepdim=True)
        plan.mul_(self.a[:, None] / total)  # its rows are exact
        u, v, moved = self._sinkhorn(plan, steps, tol)
        f = u[:, 0].log() - (top + total.log2())[..., 0] / LOG2E
        return plan, u, v, f, g + eps[:, None] * moved[:, 0]

    def matched(self, score: Tensor, steps: int, tol: float) -> Tensor:
        """The linear maps of the plans that scores in nats lead to.  (B, N, M) to (B, D, E)"""
        plan = torch.softmax(score + self.log_b, -1) * self.a[:, None]
        u, v, _ = self._sinkhorn(plan, steps, tol)
        return self._map(plan, u, v)

    def _map(self, plan: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Xᵀ diag(u) π diag(v) Y.  (B, D, E)"""
        return self.x.mT @ (u.mT * torch.bmm(plan, v.mT * self.y))

    def _sinkhorn(self, plan: Tensor, steps: int, tol: float) -> tuple[Tensor, Tensor, Tensor]:
        """Scalings u of rows and v of columns, and log v: rows are exact, columns as well as so
        many steps make them.

        Each step is one of the ascent of the semi-dual in log v, with Nesterov's momentum, which a
        start loses where a step opposes it.
        """
        if fused_for(plan):
            from gromap.search import anneal_kernel

            if anneal_kernel.serves(plan):
                u, log_v = anneal_kernel.scale(plan, self.a, self.b, steps, tol, LOOK, FARTHEST, self.tiny)
                return u[:, None], log_v.exp()[:, None], log_v[:, None]
        across = plan.mT
        old = ahead = plan.new_zeros(len(plan), 1, len(self.b))
        n, error = 0, math.inf
        while n < steps and error > tol:
            v = ahead.exp()
            u = self.a / torch.bmm(v, across).clamp_(min=self.tiny)
            col = torch.bmm(u, plan).clamp_(min=self.tiny)
            new = (self.b / col).log_()
            look, n = n % LOOK == 0, n + 1
            if look:
                error = float((v * col - self.b).abs_().sum(-1).max())
                opposed = (self.b * (new - old) * (new - ahead)).sum(-1, keepdim=True) < 0
                old = torch.where(opposed, new, old)
            old, ahead = new, torch.lerp(old, new, 1 + n / (n + 3)).clamp_(-FARTHEST, FARTHEST)
        old = old.clamp(-FARTHEST, FARTHEST)
        v = old.exp()
        return self.a / torch.bmm(v, across).clamp_(min=self.tiny), v, old

    def _coupling(self, plan: Tensor, u: Tensor, v: Tensor, f: Tensor, g: Tensor, gamma: Tensor, eps: Tensor) -> Cooled:
        """The coupling next to diag(u) π diag(v), and its value: columns that hold too much are
        scaled down, and what is missing, m in all, is added as a product r qᵀ / m.

        KL is convex: that of the sum is at most (1 - m) that of the first part plus m that of the
        second.
        """
        cap = (self.b / (v * torch.bmm(u, plan)).clamp_(min=self.tiny)).clamp_(max=1.0)  # (B, 1, M)
        v = v * cap
        moved = u.mT * torch.bmm(plan, v.mT * self.values)  # (B, N, E + 2 + K)
        col = (v * torch.bmm(u, plan))[:, 0].double()
        rows = moved[..., -1].double()
        r, q = (self.a.double() - rows).clamp_(min=0.0), (self.b.double() - col).clamp_(min=0.0)
        m = q.sum(-1).clamp(min=self.tiny)
        axes, lift, values = self.y.shape[1], self.lift.double(), self.values.double()
        part, left, right = self.x.mT @ moved[..., :axes], r @ self.x.double(), q @ self.y.double()
        new = part.double() + left[..., None] * right[:, None] / m[:, None, None]
        cross = 4 * (moved[..., axes:-1].double() * lift).sum((-1, -2))
        inner = 16 * (gamma.double() * part.double()).sum((-1, -2)) + cross  # <s, π'>
        eps = eps.double()
        lower = (f.double() * rows).sum(-1) + ((g / eps[:, None] + cap[:, 0].log()).double() * col).sum(-1)
        rest = _entropy(r, self.a, m) + _entropy(q, self.b, m)
        kl = inner / eps + lower + rest - (1 - m) * torch.log1p(-m.clamp(max=1 - 1e-9))
        spread = cross + 4 * ((r @ lift) * (q @ values[:, axes:-1])).sum(-1) / m
        value = self.constant - 8 * new.square().sum((-1, -2)) - spread + eps * kl
        lost = ~torch.isfinite(value)
        new = new.masked_fill(lost[:, None, None], 0.0)
        return Cooled(new.to(gamma), g.nan_to_num(nan=0.0), value.masked_fill(lost, math.inf))

    def cool(self, gamma: Tensor, hot: Tensor, eps: float, budget: SearchBudget, g: Tensor | None = None) -> Cooled:
        """Each start from a temperature of its own, in shares of `heat`, down to eps, and some
        steps there.  hot: (B,)  g: None = `copy_potential`."""
        hot = (self.heat * hot.to(gamma)).clamp(min=eps)
        g = self.copy_potential.expand(len(gamma), -1) if g is None else g
        rungs = max(1, math.ceil(math.log(max(float(hot.max()) / eps, 1.0)) / math.log(budget.cooling) - 1e-9))
        ratio, last = (eps / hot) ** (1 / rungs), hot.new_tensor(eps)

        def down(some: slice) -> Cooled:
            state = gamma[some], g[some], hot[some], ratio[some], last
            for _ in range(rungs + budget.settling):
                state = self._rung(state, budget)
            here, g_here, now = self._traded(state, budget)[:3]
            return self.step(here, g_here, now, budget.sinkhorn_steps, budget.marginal_tol)

        return reduce(Cooled.join, side_by_side(down, self._parts(len(gamma))))

    def _traded(self, state: State, budget: SearchBudget) -> State:
        """Γ and potentials after exchanges, and some steps where these gained."""
        gamma, g, now, ratio, last = state
        images, gain = self.traded(self.images(gamma, g, now, budget), budget)
        moved, better = self.mapped(images), (gain > 0).nonzero()[:, 0]
        if len(better) == 0:
            return state
        if self.fused:  # where all take as long as some
            better = torch.arange(len(gamma), device=gamma.device)
        some = moved[better], g[better], now[better], ratio[better], last
        for _ in range(budget.settling):
            some = self._rung(some, budget)
        return gamma.index_copy(0, better, some[0]), g.index_copy(0, better, some[1]), now, ratio, last

    def _rung(self, state: State, budget: SearchBudget) -> State:
        """Γ and potentials after one outer step, and the next temperature by its ratio to this
        one, down to the last; on a GPU as a CUDA graph for each size of a batch."""

        def rung(state: State) -> State:
            gamma, g, now, ratio, last = state
            here = self.step(gamma, g, now, budget.sinkhorn_steps, budget.marginal_tol, rank=False)
            return here.gamma, here.g, torch.maximum(now * ratio, last), ratio, last

        if not (self.fused and self.x.is_cuda):
            return rung(state)
        size = len(state[0]), budget
        if size in self._graphs:
            return self._graphs[size](state)
        state = rung(state)
        self._graphs[size] = captured(rung, state)
        return state

    def _parts(self, batch: int) -> list[slice]:
        """The starts of a batch in parts, one for each thread that pays."""
        threads = 1 if self.x.is_cuda else min(allowed(), batch * len(self.a) * len(self.b) // PART_ENTRIES)
        return cuts(batch, max(1, min(threads, batch)))

    def ranked(self, found: Cooled, eps: float, budget: SearchBudget, keep: int) -> Cooled:
        """The lowest distinct ones, with their marginals met."""
        found = self._met(found.take(self.distinct(found, budget)[: 2 * keep]), eps, budget)
        return found.take(self.distinct(found, budget)[:keep])

    def _met(self, found: Cooled, eps: float, budget: SearchBudget) -> Cooled:
        """Starts after an outer step that meets their marginals."""
        at = found.gamma.new_full((len(found.gamma),), eps)

        def meet(some: slice) -> Cooled:
            return self.step(found.gamma[some], found.g[some], at[some], budget.ranking_steps, budget.ranking_tol)

        return reduce(Cooled.join, side_by_side(meet, self._parts(len(at))))

    def best(self, found: Cooled, budget: SearchBudget) -> Cooled:
        """The lowest distinct ones."""
        return found.take(self.distinct(found, budget)[: budget.kept])

    def distinct(self, found: Cooled, budget: SearchBudget) -> Tensor:
        """The indices of distinct Γ, the lowest first.  (K,)"""
        each = torch.ones_like(found.value)
        leaders, _ = distinct(found.gamma.double() / self.axes, found.value, each, budget.same_gamma)
        return leaders[: max(1, int(torch.isfinite(found.value[leaders]).sum()))]

    def count(self, found: Cooled, ends: Cooled, eps: float, budget: SearchBudget) -> Tensor:
        """How many of some ends are each of some minima. Ends near the lowest may be others, by a
        few exchanges: some of them are looked at with their marginals met.  (K,)"""
        left, right = self._flat(found.gamma), self._flat(ends.gamma)
        near = torch.cdist(left, right) <= budget.near_gamma * norm(left, dim=1)[:, None]
        count, some = near.double().sum(1), near[0].nonzero()[: budget.looked_at, 0]
        if len(some) > 0:
            like = self._met(ends.take(some), eps, budget).value <= (1 + budget.same_value) * found.value[0]
            count[0] *= like.double().mean()
        return count

    def nearest(self, gamma: Tensor, known: Tensor) -> Tensor:
        """The index of the known Γ that is nearest to each.  (K,)"""
        return torch.cdist(self._flat(gamma), self._flat(known)).argmin(1)

    def _flat(self, gamma: Tensor) -> Tensor:
        return (gamma / self.axes.to(gamma)).flatten(1)

    def lost_variance(self, full: CntProblem) -> float:
        """The share of the variance of the clouds that lies within the cells: where it is large,
        cell means are another shape."""
        here = self.problem

        def spread(p: CntProblem) -> tuple[float, float]:
            x, y = (float(s.square().sum()) for s in p.spread)
            return x, y

        return 1 - min(s / t if t > 0 else 1.0 for s, t in zip(spread(here), spread(full), strict=True))


def _spanned(z: Tensor, weights: Tensor) -> tuple[Tensor | None, Tensor]:
    """Axes that span some points, where there are fewer of these than axes, and the points in
    them. None: those that they are in.  (D, N) and (N, N)"""
    if z.shape[1] <= len(z):
        return None, z
    turn = eigh((z.mT @ (weights[:, None] * z)).cpu())[1].flip(-1)[:, : len(z)].to(z.device)
    return turn, z @ turn


def _entropy(part: Tensor, mass: Tensor, m: Tensor) -> Tensor:
    """m KL(part / m | mass) for parts of mass m.  (B,)"""
    share: Tensor = untyped.special.xlogy(part, part / m[:, None] / mass)
    return share.sum(-1)

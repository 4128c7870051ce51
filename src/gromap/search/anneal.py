"""Simulated cooling of a batch of starts between small clouds.

At a high temperature D_ε has one minimum or few, at a low one thousands: a start that is cooled
slowly, one outer step per temperature (small.py), follows a wide valley down, where one that is
quenched falls into the nearest hole. Features are in units of their spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from gromap._threads import allowed, side_by_side
from gromap._torch import eigh, norm
from gromap.search.budget import SearchBudget
from gromap.search.descent import distinct
from gromap.search.small import Clouds, Cooled
from gromap.solvers.embedded import CntProblem
from gromap.solvers.objective import quartic
from gromap.transport.backend import fused_for
from gromap.transport.cuda_graph import State, captured
from gromap.transport.tiles import cuts

PART_ENTRIES = 1 << 15  # of the plans of a batch from which a second thread pays


class Cooling:
    """Starts between some clouds, from temperatures of their own.

    repeats: whether batches of the same size come again, so that their steps are worth a CUDA
    graph.
    """

    def __init__(self, clouds: Clouds, repeats: bool):
        self.clouds, self.repeats = clouds, repeats
        self._graphs: dict[tuple[int, SearchBudget], Callable[[State], State]] = {}

    @property
    def fused(self) -> bool:
        """Whether a batch of starts takes about as long as one."""
        return fused_for(self.clouds.x) and self.repeats

    def cool(
        self, gamma: Tensor, hot: Tensor, eps: float | Tensor, budget: SearchBudget, g: Tensor | None = None
    ) -> Cooled:
        """Each start from a temperature of its own, in shares of the heat of its clouds, down to
        eps, and some steps there.  hot: (B,)  eps: one, or (B,)  g: None = `copy_potential`."""
        last = torch.as_tensor(eps, dtype=gamma.dtype, device=gamma.device).expand(len(gamma))
        hot = torch.maximum(self.clouds.heat * hot.to(gamma), last)
        g = self.clouds.copy_potential.expand(len(gamma), -1) if g is None else g
        rungs = max(1, math.ceil(math.log(float((hot / last).max())) / math.log(budget.cooling) - 1e-9))
        ratio = (last / hot) ** (1 / rungs)

        def down(some: slice) -> Cooled:
            clouds, state = self.clouds.take(some), (gamma[some], g[some], hot[some], ratio[some], last[some])
            for _ in range(rungs + budget.settling):
                state = self._rung(clouds, state, budget)
            here, g_here, now = self._traded(clouds, state, budget)[:3]
            return clouds.step(here, g_here, now, budget.sinkhorn_steps, budget.marginal_tol)

        return reduce(Cooled.join, side_by_side(down, self._parts(len(gamma))))

    def _traded(self, clouds: Clouds, state: State, budget: SearchBudget) -> State:
        """Γ and potentials after exchanges, and some steps where these gained."""
        gamma, g, now, ratio, last = state
        images, gain = clouds.traded(clouds.images(gamma, g, now, budget), budget)
        moved, better = clouds.mapped(images), (gain > 0).nonzero()[:, 0]
        if len(better) == 0:
            return state
        if self.fused:  # where all take as long as some
            better = torch.arange(len(gamma), device=gamma.device)
        some = moved[better], g[better], now[better], ratio[better], last[better]
        for _ in range(budget.settling):
            some = self._rung(clouds.take(better), some, budget)
        return gamma.index_copy(0, better, some[0]), g.index_copy(0, better, some[1]), now, ratio, last

    def _rung(self, clouds: Clouds, state: State, budget: SearchBudget) -> State:
        """Γ and potentials after one outer step, and the next temperature by its ratio to this
        one, down to the last; on a GPU as a CUDA graph for each size of a batch."""

        def rung(state: State) -> State:
            gamma, g, now, ratio, last = state
            here = clouds.step(gamma, g, now, budget.sinkhorn_steps, budget.marginal_tol, rank=False)
            return here.gamma, here.g, torch.maximum(now * ratio, last), ratio, last

        if not (self.fused and clouds.x.is_cuda):
            return rung(state)
        size = len(state[0]), budget
        if size in self._graphs:
            return self._graphs[size](state)
        state = rung(state)
        self._graphs[size] = captured(rung, state)
        return state

    def _parts(self, batch: int) -> list[slice]:
        """The starts of a batch in parts, one for each thread that pays."""
        x, n, m = self.clouds.x, self.clouds.a.shape[-1], self.clouds.b.shape[-1]
        threads = 1 if x.is_cuda else min(allowed(), batch * n * m // PART_ENTRIES)
        return cuts(batch, max(1, min(threads, batch)))

    def met(self, found: Cooled, eps: float | Tensor, budget: SearchBudget) -> Cooled:
        """Starts after an outer step that meets their marginals."""
        at = torch.as_tensor(eps, dtype=found.gamma.dtype, device=found.gamma.device).expand(len(found.gamma))

        def meet(some: slice) -> Cooled:
            return self.clouds.take(some).step(
                found.gamma[some], found.g[some], at[some], budget.ranking_steps, budget.ranking_tol
            )

        return reduce(Cooled.join, side_by_side(meet, self._parts(len(at))))


class SmallPair(Cooling):
    """A problem between two small clouds, in units in which E|X|² = E|Y|² = 1, and in no more axes
    than points.

    heat: the energy that temperatures are measured by, 2 √(E c_X² E c_Y²) - 4 E|X|² E|Y|²: the
    constant of the energy, if both sides were scaled alike.
    critical: the temperature, in shares of it, below which Γ = 0 is unstable between independent
    points, 16 θ_X θ_Y for the largest variances along an axis: above it no start remembers where it
    came from for long.
    """

    def __init__(self, problem: CntProblem, dtype: torch.dtype):
        self.problem = problem
        sides = (problem.x, problem.a, problem.x_norms), (problem.y, problem.b, problem.y_norms)
        spread = [float(w.double() @ n.double()) or 1.0 for _, w, n in sides]  # one, where all points are one
        self.size, self.unit = math.sqrt(spread[0] * spread[1]), problem.alpha * spread[0] * spread[1]
        scaled = ((z.double() / s**0.5, w.double()) for (z, w, _), s in zip(sides, spread, strict=True))
        (self.turn_x, x), (self.turn_y, y) = (_spanned(z, w) for z, w in scaled)
        self.x, self.y, self.a, self.b = x.to(dtype), y.to(dtype), problem.a.to(dtype), problem.b.to(dtype)
        squares = [quartic(z, w) / s**2 for (z, w, _), s in zip(sides, spread, strict=True)]
        self.heat = max(0.0, 2 * math.sqrt(squares[0] * squares[1]) - 4)
        nx, ny = (n.double() / s for (*_, n), s in zip(sides, spread, strict=True))
        constant = (problem.alpha * problem.constant + problem.apart) / self.unit
        numbers = torch.tensor([[constant], [self.heat]], dtype=torch.float64, device=self.x.device)
        lift, features = self._lifted(nx, ny)
        x, y, lift, features, a, b = (z[None] for z in (self.x, self.y, lift, features, self.a, self.b))
        super().__init__(Clouds.of(x, y, lift, features, a, b, numbers[0], numbers[1].to(dtype)), repeats=True)
        sx, sy = ((w.double() @ z.double().square()).sqrt() for z, w in ((self.x, self.a), (self.y, self.b)))
        self.spread = sx, sy  # along each axis
        self.critical = 16 * float(sx.max() * sy.max()) ** 2 / max(self.heat, 1e-300)
        unit = (sx[:, None] * sy).sqrt()
        self.axes = unit.clamp(min=max(1e-6 * float(unit.max()), 1e-30))

    def _lifted(self, nx: Tensor, ny: Tensor) -> tuple[Tensor, Tensor]:
        """|x_i|² and |y_j|², each with features: four times their product is the part of the
        score without Γ.  (N, L), (M, L)"""
        known, (nx, ny) = self.problem.fused, (nx[:, None], ny[:, None])
        if known is None:
            return nx.to(self.x), ny.to(self.y)
        share = (1 - self.problem.alpha) / (4 * self.unit)
        left, right = torch.cat([nx, -share * known.left.double()], 1), torch.cat([ny, known.right.double()], 1)
        return left.to(self.x), right.to(self.y)

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

    def ranked(self, found: Cooled, eps: float, budget: SearchBudget, keep: int) -> Cooled:
        """The lowest distinct ones, with their marginals met."""
        found = self.met(found.take(self.distinct(found, budget)[: 2 * keep]), eps, budget)
        return found.take(self.distinct(found, budget)[:keep])

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
            like = self.met(ends.take(some), eps, budget).value <= (1 + budget.same_value) * found.value[0]
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

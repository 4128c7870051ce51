"""Many pairs of small clouds, and where some starts of each of them are: all of it one batch."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._torch import norm
from gromap.search.anneal import Cooling
from gromap.search.budget import SearchBudget
from gromap.search.small import Clouds, Cooled


class Sides(NamedTuple):
    """One cloud of each pair, in units of its spread; points without mass fill up the smaller
    ones."""

    x: Tensor  # (P, N, D) centered
    a: Tensor  # (P, N)
    profiles: Tensor  # (P, N, Q) sorted costs to all others
    second: Tensor  # (P,) float64, E|X|², which is one for all points, and less for cells of them
    fourth: Tensor  # (P,) float64, E c²
    spread: Tensor  # (P,) float64, the unit of squared points

    def take(self, some: Tensor) -> Sides:
        return Sides(*(z[some] for z in self))


class Found(NamedTuple):
    """Where some starts of each pair are; those that are none have an infinite value."""

    gamma: Tensor  # (P, S, D, E)
    g: Tensor  # (P, S, M) in units of energy
    value: Tensor  # (P, S) float64

    def take(self, pairs: Tensor) -> Found:
        """Of some pairs."""
        return Found(*(z[pairs] for z in self))

    def pick(self, starts: Tensor) -> Found:
        """Some starts of each pair.  starts: (P, K)"""
        every = torch.arange(len(starts), device=starts.device)[:, None]
        return Found(*(z[every, starts] for z in self))

    def join(self, other: Found) -> Found:
        return Found(*(torch.cat(z, 1) for z in zip(self, other, strict=True)))

    def put(self, pairs: Tensor, other: Found) -> Found:
        """With those of some pairs in place of theirs."""
        return Found(*(z.index_copy(0, pairs, new) for z, new in zip(self, other, strict=True)))


class ManyPairs:
    """Problems between small clouds, with costs that are embedded, and marginals that are fixed."""

    def __init__(self, left: Sides, right: Sides):
        self.left, self.right = left, right
        x_norms, y_norms = (side.x.square().sum(-1, keepdim=True) for side in (left, right))
        both, ratio = 4 * left.second * right.second, left.spread / right.spread
        heat = 2 * (left.fourth * right.fourth).sqrt() - both
        constant = ratio * left.fourth + right.fourth / ratio - both
        heat = heat.clamp(min=0.0).to(left.x)
        self.clouds = Clouds.of(left.x, right.x, x_norms, y_norms, left.a, right.a, constant, heat)

    def double(self) -> ManyPairs:
        """In float64."""
        return ManyPairs(*(Sides(*(z.double() for z in side)) for side in (self.left, self.right)))

    def widened(self, d: int, e: int) -> ManyPairs:
        """With so many more axes, which are zero."""
        pad = torch.nn.functional.pad
        return ManyPairs(*(s._replace(x=pad(s.x, (0, k))) for s, k in ((self.left, d), (self.right, e))))

    def take(self, pairs: Tensor) -> ManyPairs:
        return ManyPairs(self.left.take(pairs), self.right.take(pairs))

    def __len__(self) -> int:
        return len(self.left.x)

    @cached_property
    def spread(self) -> tuple[Tensor, Tensor]:
        """Standard deviations along the axes.  (P, D) and (P, E)"""
        sx, sy = ((s.a[:, None] @ s.x.square())[:, 0].sqrt() for s in (self.left, self.right))
        return sx, sy

    @cached_property
    def axes(self) -> Tensor:
        """Units of the entries of Γ.  (P, D, E)"""
        sx, sy = self.spread
        unit = (sx[..., None] * sy[:, None]).sqrt()
        return torch.maximum(unit, 1e-6 * unit.amax((1, 2), keepdim=True)).clamp(min=1e-30)

    @cached_property
    def critical(self) -> Tensor:
        """As that of a `SmallPair`.  (P,)"""
        sx, sy = (s.amax(1).double() for s in self.spread)
        return 16 * (sx * sy).square() / self.clouds.heat.double().clamp(min=1e-300)

    def cool(self, gamma: Tensor, hot: Tensor, eps: Tensor, budget: SearchBudget, g: Tensor | None = None) -> Found:
        """gamma: (P, S, D, E)  hot: (P, S)  eps: (P,)  g: (P, S, M), None = `copy_potential`."""
        starts = gamma.shape[1]
        every, flat = Cooling(self.clouds.each(starts), repeats=False), None if g is None else g.flatten(0, 1)
        end = every.cool(gamma.flatten(0, 1), hot.flatten(), eps.repeat_interleave(starts), budget, flat)
        return self._found(end, starts)

    def met(self, found: Found, eps: Tensor, budget: SearchBudget) -> Found:
        """After an outer step that meets the marginals."""
        starts = found.value.shape[1]
        every, flat = Cooling(self.clouds.each(starts), repeats=False), Cooled(*(z.flatten(0, 1) for z in found))
        end = self._found(every.met(flat, eps.repeat_interleave(starts), budget), starts)
        return end._replace(value=end.value.masked_fill(found.value.isinf(), torch.inf))

    def _found(self, end: Cooled, starts: int) -> Found:
        return Found(*(z.view(len(self), starts, *z.shape[1:]) for z in end))

    def flat(self, gamma: Tensor) -> Tensor:
        """Γ to be compared by.  (P, S, D E)"""
        return (gamma / self.axes[:, None]).flatten(2)

    def ranked(self, found: Found, eps: Tensor, budget: SearchBudget) -> Found:
        """The lowest distinct ones, with their marginals met."""
        return self.best(self.met(self.best(found, budget, 2), eps, budget), budget)

    def best(self, found: Found, budget: SearchBudget, times: int = 1) -> Found:
        """The lowest distinct ones."""
        order = found.value.argsort(dim=1, stable=True)
        found = found.pick(order)
        flat = self.flat(found.gamma)
        near = torch.cdist(flat, flat) <= budget.same_gamma * norm(flat, dim=2)[..., None]
        kept = found.value < torch.inf
        for k in range(1, kept.shape[1]):
            kept[:, k] &= ~(near[:, k, :k] & kept[:, :k]).any(1)
        first = kept.double().argsort(dim=1, descending=True, stable=True)[:, : times * budget.kept]
        best = found.pick(first)
        return best._replace(value=best.value.masked_fill(~kept.gather(1, first), torch.inf))

    def agreeing(self, found: Found, ends: Found, eps: Tensor, budget: SearchBudget) -> Tensor:
        """How many of some ends are the lowest minimum.  (P,)"""
        lowest, flat = self.flat(found.gamma[:, :1]), self.flat(ends.gamma)
        near = norm(flat - lowest, dim=2) <= budget.near_gamma * norm(lowest, dim=2)
        near &= ends.value < torch.inf
        some = near.double().argsort(dim=1, descending=True, stable=True)[:, : budget.looked_at]
        like = self.met(ends.pick(some), eps, budget).value <= (1 + budget.same_value) * found.value[:, :1]
        looked = near.gather(1, some)
        share = (like & looked).sum(1) / looked.sum(1).clamp(min=1)
        return near.sum(1) * share

    def matched_profiles(self, budget: SearchBudget) -> Tensor:
        """Linear maps of points that are matched by their sorted costs.  (P, blurs, D, E)"""
        gap = torch.cdist(self.left.profiles, self.right.profiles).square()
        mean = ((self.left.a[:, None] @ gap)[:, 0] * self.right.a).sum(1).clamp(min=1e-30)[:, None, None]
        each = [
            self.clouds.matched(-gap / (blur * mean), budget.sinkhorn_steps, budget.marginal_tol)
            for blur in budget.blurs
        ]
        return torch.stack(each, 1)

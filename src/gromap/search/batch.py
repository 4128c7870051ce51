"""Many pairs of small spaces as one batch, from the search (many.py) to the values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._pair import Pair
from gromap._space import Space
from gromap._threads import one_thread
from gromap._torch import tolist
from gromap.geometry.measure import coarsen
from gromap.search.budget import SearchBudget
from gromap.search.many import lifted, lowest, settled
from gromap.search.pairs import ManyPairs, Sides
from gromap.search.proposals import profiles
from gromap.search.search import Search
from gromap.solvers.objective import quartic

MOST_POINTS = 600  # of a space of a batch: beyond that a pair keeps a GPU busy alone
CELL_AXES = 64  # of cells, at most: the search needs no more
ENTRIES = {"cpu": 1 << 20, "cuda": 1 << 29}  # of the plans of all starts of a batch
STARTS = 64  # of a pair at once, about
LEAST = 0.1  # of the lowest temperature of the search: below, plans need float64


class Cloud(NamedTuple):
    """One space as a batch takes it, in units of its spread."""

    x: Tensor  # (N, D)
    a: Tensor  # (N,)
    profiles: Tensor  # (N, Q)
    second: float  # E|X|²
    fourth: float  # E c²
    spread: float  # of all points: the unit of squared points

    @classmethod
    def of(cls, x: Tensor, a: Tensor, spread: float) -> Cloud:
        second = float(a.double() @ x.double().square().sum(1))
        return cls(x, a, profiles(x, a), second, quartic(x, a), spread)

    def over(self, unit: float) -> Cloud:
        """With its costs divided by a unit."""
        return self._replace(spread=self.spread / unit)


class Prepared(NamedTuple):
    """A space, and cells of it where it has many points."""

    points: Cloud
    cells: Cloud

    @classmethod
    def of(cls, space: Space, budget: SearchBudget) -> Prepared:
        x, a = space.embedding.features.double(), space.measure.weights.double()
        spread = float(a @ x.square().sum(1)) or 1.0  # one, where all points are one
        x = x / math.sqrt(spread)
        points = cells = Cloud.of(x.float(), a.float(), spread)
        if len(x) > budget.whole:
            means, mass = coarsen(x.float(), a.float(), budget.cells)
            if 1 - float(mass @ means.square().sum(1)) <= budget.lost_variance:  # else they are another shape
                cells = Cloud.of(means[:, :CELL_AXES].contiguous(), mass, spread)
        return cls(points, cells)


class Matched(NamedTuple):
    """Where a pair of a batch has ended."""

    value: float  # of a coupling, in the units of the pair
    gamma: Tensor  # (D, E)
    g: Tensor  # (M,) in nats
    converged: bool


def is_small(pair: Pair) -> bool:
    """Whether a pair may be one of a batch: few points, which all have mass, of costs that are
    embedded whole, fixed marginals, and no left and right."""
    two_sided = pair.x.normals is not None and pair.y.normals is not None
    if pair.relaxed or pair.fused is not None or two_sided or max(pair.shape) > MOST_POINTS:
        return False
    return all((s.is_cnt or s.axes_given) and bool((s.measure.weights > 0).all()) for s in (pair.x, pair.y))


def match_batch(pairs: Sequence[Pair], search: Search) -> list[Matched | None]:
    """Match pairs that are small, on one device; None where one is beyond a batch: its temperature
    is near the critical one, or so low that its plans need float64."""
    known = dict[int, Prepared]()
    for space in (side for pair in pairs for side in (pair.x, pair.y)):
        if id(space) not in known:
            known[id(space)] = Prepared.of(space, search.budget)
    found: list[Matched | None] = [None] * len(pairs)
    for some in _batches(pairs):
        sides = [tuple(known[id(s)] for s in (pairs[k].x, pairs[k].y)) for k in some]
        with one_thread():
            for k, one in zip(some, _run([pairs[k] for k in some], sides, search), strict=True):
                found[k] = one
    return found


def _batches(pairs: Sequence[Pair]) -> Iterator[list[int]]:
    """Pairs of about the same size together, as many as memory and caches hold."""
    entries = [math.prod(pair.shape) for pair in pairs]
    left = sorted(range(len(pairs)), key=lambda k: (entries[k], k))
    most = ENTRIES["cuda" if pairs and pairs[0].device.type == "cuda" else "cpu"]
    while left:
        fits = (n for n in range(1, len(left)) if (n + 1) * STARTS * entries[left[n]] > most)
        count = next(fits, len(left))
        yield left[:count]
        left = left[count:]


def _run(pairs: Sequence[Pair], sides: Sequence[tuple[Prepared, ...]], search: Search) -> list[Matched | None]:
    budget = search.budget
    both = _stacked(pairs, [tuple(side.points for side in one) for one in sides])
    units = [math.prod(one.points.spread / unit for one, unit in zip(s, pair.units, strict=True))
             for s, pair in zip(sides, pairs, strict=True)]  # fmt: skip
    heat = both.clouds.heat
    at = heat.new_tensor([pair.eps / unit for pair, unit in zip(pairs, units, strict=True)])
    critical = both.critical.to(heat)
    floor = (budget.critical_floor * critical).clamp(max=budget.floor) * heat
    hot = torch.maximum(at, floor)  # of the search
    serves = (at >= LEAST * floor) & (hot <= budget.below_critical * critical * heat) & (hot < heat)
    which: list[int] = tolist(serves.nonzero()[:, 0])
    found: list[Matched | None] = [None] * len(pairs)
    if not which:
        return found
    kept = torch.tensor(which, device=at.device)
    both, at, hot = both.take(kept), at[kept], hot[kept]
    if all(one.cells is one.points for k in which for one in sides[k]):
        minima = lowest(both, hot, pairs[0].seed, search.starts, budget)
    else:
        small = _stacked([pairs[k] for k in which], [tuple(side.cells for side in sides[k]) for k in which])
        minima = lowest(small, hot, pairs[0].seed, search.starts, budget)
        minima = lifted(small, minima, both, hot, budget)
    end, rest = settled(both, minima, hot, at, budget)
    for n, (k, value, still) in enumerate(zip(which, tolist(end.value[:, 0]), tolist(rest), strict=True)):
        (x, y), unit, pair = sides[k], units[k], pairs[k]
        gamma = end.gamma[n, 0, : x.points.x.shape[1], : y.points.x.shape[1]] * math.sqrt(unit)
        g = end.g[n, 0, : len(y.points.a)] * (unit / pair.eps)
        found[k] = Matched(value * unit, gamma, g, still and math.isfinite(value))
    return found


def _stacked(pairs: Sequence[Pair], sides: Sequence[tuple[Cloud, ...]]) -> ManyPairs:
    left, right = ([s[k].over(pair.units[k]) for s, pair in zip(sides, pairs, strict=True)] for k in (0, 1))
    return ManyPairs(_side(left), _side(right))


def _side(clouds: list[Cloud]) -> Sides:
    """The clouds with points without mass, and axes of zeros, up to the largest of them."""
    n, d = (max(z.x.shape[k] for z in clouds) for k in (0, 1))

    def filled(z: Tensor, wide: int) -> Tensor:
        return torch.nn.functional.pad(z, (0, wide - z.shape[1], 0, n - len(z)))

    x = torch.stack([filled(z.x, d) for z in clouds])
    a = torch.stack([filled(z.a[:, None], 1)[:, 0] for z in clouds])
    known = torch.stack([filled(z.profiles, z.profiles.shape[1]) for z in clouds])
    second, fourth, spread = torch.tensor([z[3:] for z in clouds], dtype=torch.float64, device=x.device).unbind(1)
    return Sides(x, a, known, second, fourth, spread)

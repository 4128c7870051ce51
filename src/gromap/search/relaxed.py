"""The search where marginals are not fixed: parts against wholes, with features or not.

Which parts belong together is not known, so most starts are landmarks: some points of one side far
from each other, and points of the other side at about the same distances from each other. Between
small clouds all plans of a batch are written down (dense_pair.py):

    1  a⊗b; diag(±σ) on the leading axes; random Γ; they cool down from high temperatures
       landmarks, the best by how near all other points find a point with the same distances to them
    2  one outer step per temperature, down to that of the search; after some steps only the lowest
       go on
    3  the lowest distinct ones go on alone, until they settle, to the temperature asked for
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from gromap._threads import side_by_side
from gromap._torch import split, tolist
from gromap.geometry.measure import drawn_points, own_generator, spread_points
from gromap.search.budget import RelaxedBudget
from gromap.search.dense_pair import Batch, DensePair
from gromap.search.proposals import random_starts, sign_flips
from gromap.solvers.loop import alternate
from gromap.solvers.protocol import Begin, Loop, Minima, Outcome
from gromap.solvers.relaxed import Moments, RelaxedProblem
from gromap.transport.cuda_graph import StepGraph
from gromap.transport.sinkhorn import Potentials
from gromap.transport.tiles import cuts

LANDMARKS = 3


def relaxed_start(
    problem: RelaxedProblem, loop: Loop, seed: int, starts: int, budget: RelaxedBudget
) -> tuple[Moments, Potentials, Minima]:
    """The lowest minimum of the search, with potentials on all points of the problem, and the
    distinct minima that were met."""
    n, m = len(problem.a), len(problem.b)
    small = problem.coarser(*(k if k <= budget.whole else budget.cells for k in (n, m)))
    assert isinstance(small, RelaxedProblem)
    minima, states = relaxed_minima(small, loop, seed, starts, budget)
    duals = small.interpolate(states[0], minima.potentials(0), problem)
    return small.carried(states[0], duals, problem), duals, minima


def relaxed_minima(
    small: RelaxedProblem, loop: Loop, seed: int, starts: int, budget: RelaxedBudget
) -> tuple[Minima, list[Moments]]:
    """The distinct minima of a small problem, at its temperature; their Γ is G of the moments."""
    pair = DensePair(small, budget)
    tol = loop.tol if small.most else max(loop.tol, budget.tol)  # caps are met slowly, and best while it is cheap
    rough, graph = replace(loop.rough(), max_iter=budget.settled_steps, tol=tol), StepGraph()
    floor = max(small.eps, budget.floor * pair.heat * pair.unit)
    plans, count = hunt(pair, floor / pair.unit, seed, starts)
    ends = [_annealed(small, small.moments_of(plan), ladder(2 * floor, small.eps, 2.0), rough, graph) for plan in plans]
    energy = torch.stack([end.energy for end in ends]).nan_to_num(nan=math.inf)
    f, g = (torch.stack(z) for z in zip(*((end.duals.f, end.duals.g) for end in ends), strict=True))
    found = Minima(torch.stack([end.gamma.G for end in ends]), energy, f, g, count.to(energy))
    dense = torch.stack([small.plan(end.score, end.duals.f, end.duals.g).dense() for end in ends])
    owner = _owners(dense, energy.argsort(stable=True), budget.same)
    kept: list[int] = sorted(set(tolist(owner)), key=lambda k: float(energy[k]))
    shared = torch.zeros_like(found.count).index_add_(0, owner, found.count)
    return replace(found.take(kept), count=shared[kept]), [ends[k].gamma for k in kept]


def _owners(pi: Tensor, order: Tensor, same: float) -> Tensor:
    """For each plan the first one, in some order, that differs from it in no more than a share of
    the mass.  (K,)"""
    flat, owner, leaders = pi.flatten(1), torch.empty_like(order), list[int]()
    for k in tolist(order):
        near = [j for j in leaders if float((flat[k] - flat[j]).abs().sum()) <= same]
        owner[k] = near[0] if near else k
        leaders += [] if near else [k]
    return owner


def _annealed(
    problem: RelaxedProblem, state: Moments, temperatures: list[float], loop: Loop, graph: StepGraph
) -> Outcome:
    """Where a plan ends that settles at each of some temperatures."""
    *hot, cold = (problem.at(eps) for eps in temperatures)
    for here in hot:
        state = alternate(here, Begin(state, here.zero_potentials()), loop, graph=graph).gamma
    return alternate(cold, Begin(state, cold.zero_potentials()), loop, graph=graph)


def hunt(pair: DensePair, floor: float, seed: int, starts: int) -> tuple[Tensor, Tensor]:
    """Lines 1 and 2: the lowest distinct plans at the temperature of the search, in units of the
    pair, and how many of the starts that were not dropped came next to each.  (K, n, m), (K,)"""
    budget = pair.budget
    sx, sy = ((w @ z.square()).sqrt() for z, w in ((pair.x, pair.a), (pair.y, pair.b)))
    gamma = torch.cat([sign_flips(sx, sy, budget.flipped_axes), random_starts(sx, sy, starts, seed)])
    warm = max(budget.warm * pair.heat, floor)
    batch, slow = pair.around_weights(gamma), ladder(budget.hot * pair.heat, warm, budget.cooling)[:-1]
    if slow:
        batch = _cooled(pair, batch, slow)[1]
    if starts > 0:
        batch = batch.join(pair.of(landmark_plans(pair, seed, budget)))
    rungs = ladder(warm, floor, budget.cooling) + [floor] * budget.settling
    first, then = budget.races
    pi, value = torch.empty(0), torch.empty(0)
    for temperatures, share in (
        (rungs[:first], budget.racers),
        (rungs[first:then], budget.racers),
        (rungs[then:], 1.0),
    ):
        if temperatures:
            pi, batch = _cooled(pair, batch, temperatures)
            value = pair.value(pi, batch, temperatures[-1])
            lowest = value.argsort()[: math.ceil(share * len(value))]
            pi, value, batch = pi[lowest], value[lowest], batch.take(lowest)
    found = pi[pair.distinct(pi, value)]
    nearest = torch.cdist(pi.flatten(1), found.flatten(1), p=1).argmin(1)
    return found, torch.bincount(nearest, minlength=len(found))


def _cooled(pair: DensePair, batch: Batch, temperatures: list[float]) -> tuple[Tensor, Batch]:
    """Parts of the batch that stay in a cache, side by side; on a GPU all of it."""
    count, size = len(batch.p), batch.cross[0].numel()
    some = count if batch.cross.is_cuda else max(1, pair.budget.entries // size)
    ends = side_by_side(lambda k: pair.cool(batch.take(k), temperatures), cuts(count, -(-count // some)))
    pi, batches = zip(*ends, strict=True)
    return torch.cat(pi), Batch(*(torch.cat(z) for z in zip(*batches, strict=True)))


def ladder(hot: float, cold: float, ratio: float) -> list[float]:
    """Temperatures down to a given one."""
    rungs = max(0, math.ceil(math.log(max(hot / cold, 1.0)) / math.log(ratio) - 1e-9))
    return [cold * (hot / cold) ** (1 - k / rungs) for k in range(rungs)] + [cold] if rungs else [cold]


def landmark_plans(pair: DensePair, seed: int, budget: RelaxedBudget) -> Tensor:
    """Plans between landmarks alone, of both sides and their images on the other.  (B, n, m)"""
    generator, found = own_generator(seed + 1), list[Tensor]()
    linear = torch.zeros_like(pair.cx[:, :1] + pair.cy[:1]) if pair.linear is None else pair.linear
    left, right = (pair.cx, pair.x, pair.a), (pair.cy, pair.y, pair.b)
    for side, (here, there, apart) in enumerate(((left, right, linear), (right, left, linear.mT))):
        (_, x, a), (_, y, b) = here, there
        few = spread_points(x - a @ x, min(budget.landmarks, len(a)))
        if len(few) < LANDMARKS:
            continue
        near = spread_points(y - b @ y, min(budget.images, len(b)))
        for k in range(budget.landmark_sets):
            if k == 0:
                mine = few[:LANDMARKS]
            elif k % 2:
                mine = few[torch.randperm(len(few), generator=generator)[:LANDMARKS].to(few.device)]
            else:  # farthest points may be outliers
                mine = drawn_points(a, LANDMARKS, generator)
            images = _images(pair, mine, near, here, there, apart, budget)
            plan = torch.zeros(len(images), len(a), len(b), dtype=a.dtype, device=a.device)
            for i, j in zip(mine, images.mT, strict=True):
                plan[torch.arange(len(images), device=a.device), i, j] += 1 / LANDMARKS
            found.append(plan if side == 0 else plan.mT)
    return torch.cat(found) if found else pair.cx.new_zeros(0, len(pair.a), len(pair.b))


def _images(
    pair: DensePair,
    mine: Tensor,
    near: Tensor,
    here: tuple[Tensor, Tensor, Tensor],
    there: tuple[Tensor, Tensor, Tensor],
    linear: Tensor,
    budget: RelaxedBudget,
) -> Tensor:
    """Some of the near points of the other side for three landmarks: those at the most similar
    distances from each other, and then those whose distances to all other points are most alike.
    (B, 3)"""
    (cx, _, a), (cy, _, b) = here, there
    inner, far = cx[mine][:, mine], cy[near][:, near]
    own = linear[mine][:, near] / LANDMARKS
    apart = [(2 * pair.alpha / LANDMARKS**2) * (far - inner[i, j]).square() for i, j in ((0, 1), (0, 2), (1, 2))]
    score = own[0][:, None, None] + own[1][:, None] + own[2]
    score = score + apart[0][:, :, None] + apart[1][:, None] + apart[2]
    times = budget.cuda_times if cx.is_cuda else 1
    count = budget.landmark_starts * times
    best = score.flatten().topk(min(4 * count, score.numel()), largest=False).indices
    images = near[torch.stack([best // len(near) ** 2, best // len(near) % len(near), best % len(near)], 1)]
    values = list[Tensor]()
    for some in split(images, 64 * times):
        gaps = (cx[mine][None, :, :, None] - cy[some][:, :, None, :]).square().mean(1)
        gaps = 2 * pair.alpha * gaps + linear
        values.append(torch.minimum(gaps.min(2).values @ a, gaps.min(1).values @ b))
    return images[torch.cat(values).argsort()[:count]]

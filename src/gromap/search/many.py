"""The search of search.py for many pairs of small clouds at once, each line of it one batch: on a
GPU a thousand pairs take as many launches as one.

All pairs see the same random numbers, so that none depends on the others of its batch; those that
have found nothing lower for some rounds leave it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gromap._torch import norm
from gromap.geometry.measure import own_generator
from gromap.search.budget import SearchBudget
from gromap.search.pairs import Found, ManyPairs
from gromap.search.proposals import random_starts, sign_flips
from gromap.search.search import SAME_ENERGY
from gromap.search.small import Cooled

SETTLING = 60  # outer steps in the end, at most
SETTLED = 1e-6  # of the energy, for 8 |Γ - Γ'|² of the last of them
MARGINAL_TOL = 1e-4  # misplaced mass at which their Sinkhorn ends
VALUE_TOL, VALUE_STEPS = 1e-5, 1000  # the same for the value, in float64


def lowest(pairs: ManyPairs, eps: Tensor, seed: int, starts: int, budget: SearchBudget) -> Found:
    """Lines 1 to 3 of the search: distinct minima of each pair, the lowest first."""
    dims, low, high = pairs.clouds.x.shape[-1], pairs.critical.clamp(max=budget.heats[0])[:, None], budget.heats[1]
    ones = torch.ones(dims, dtype=torch.float64), torch.ones(pairs.clouds.axes, dtype=torch.float64)
    scale = pairs.spread[0][:, None, :, None] * pairs.spread[1][:, None, None]

    def cooled(gamma: Tensor, hot: Tensor, some: ManyPairs, at: Tensor) -> Found:
        return some.cool(gamma, hot.expand(len(some), -1), at, budget)

    def random(count: int, seed: int) -> tuple[Tensor, Tensor]:
        draws = random_starts(*ones, count, seed).to(scale)
        return draws * scale, low * (high / low) ** torch.linspace(0, 1, count, device=low.device)

    zero = torch.zeros_like(scale)
    known = torch.cat([zero, pairs.matched_profiles(budget)], 1)
    flips = sign_flips(*ones, budget.flipped_axes)[1:].to(scale) * scale
    some, hot = random(starts, seed)
    warm = torch.full_like(low, high), (budget.heat * low).expand(-1, known.shape[1] + flips.shape[1])
    cold = torch.zeros_like(low).expand(-1, known.shape[1])
    ends = cooled(torch.cat([known, zero, known, flips, some], 1), torch.cat([cold, *warm, hot], 1), pairs, eps)
    found = pairs.ranked(ends, eps, budget)
    unsure = pairs.agreeing(found, ends, eps, budget) < budget.agreement
    for k, size in enumerate(budget.more_starts(False, pairs.clouds.a.shape[-1] * pairs.clouds.b.shape[-1])):
        going = unsure.nonzero()[:, 0]
        if len(going) == 0:
            break
        here, gamma, hot = pairs.take(going), *(z[going] for z in random(size, seed + 1 + k))
        more = cooled(gamma, hot, here, eps[going])
        best = here.best(found.take(going).join(here.ranked(more, eps[going], budget)), budget)
        found = found.put(going, best)
        unsure[going] = here.agreeing(best, more, eps[going], budget) < budget.agreement
    return _shaken(pairs, found, ends, low, eps, seed, budget)


def _shaken(
    pairs: ManyPairs, found: Found, ends: Found, low: Tensor, eps: Tensor, seed: int, budget: SearchBudget
) -> Found:
    """Line 3: the best minima after rounds of moves, until each pair has found nothing lower for
    some."""
    generator, long = own_generator(seed + 1), replace(budget, settling=budget.nudged_steps)
    least, most = budget.shaken_heats
    going = torch.arange(len(pairs), device=eps.device)
    here, best, quiet = pairs, found, torch.zeros_like(going)
    for _ in range(budget.rounds_of(False, pairs.clouds.a.shape[-1] * pairs.clouds.b.shape[-1])):
        before = best.value[:, 0]
        hot = least * (most / least) ** torch.rand(budget.shaken, generator=generator).to(low)
        moves = [
            (*_noisy(here, best, budget.shaken, budget.noises, generator), hot * low, budget),
            (*_noisy(here, best, budget.nudged, budget.nudges, generator), None, long),
        ]
        for gamma, parents, heat, how in moves:
            g = None if heat is not None else best.pick(parents).g
            heat = torch.zeros_like(parents, dtype=low.dtype) if heat is None else heat
            end = here.cool(gamma, heat, eps, how, g)
            best, ends = _after(here, end, parents, best, ends, eps, budget)
        gamma, g, parents = _kicked(here, best, eps, budget, generator)
        end = here.cool(gamma, torch.zeros_like(parents, dtype=low.dtype), eps, budget, g)
        best, ends = _after(here, end, parents, best, ends, eps, budget)
        quiet = torch.where(best.value[:, 0] > before - SAME_ENERGY * before.abs(), quiet + 1, 0)
        agreed = here.agreeing(best, ends, eps, budget) >= budget.agreement
        done = quiet >= torch.where(agreed, budget.agreed_patience, budget.patience)
        if bool(done.any()):
            found, left = found.put(going, best), (~done).nonzero()[:, 0]
            if len(left) == 0:
                return found
            here, best, ends = here.take(left), best.take(left), ends.take(left)
            going, quiet, eps, low = (z[left] for z in (going, quiet, eps, low))
    return found.put(going, best)


def _after(
    pairs: ManyPairs, end: Found, parents: Tensor, found: Found, ends: Found, eps: Tensor, budget: SearchBudget
) -> tuple[Found, Found]:
    """The best minima after some have been left for others, and all ends with those that came to
    another one."""
    nearest = torch.cdist(pairs.flat(end.gamma), pairs.flat(found.gamma))
    back = nearest.masked_fill(found.value.isinf()[:, None], torch.inf).argmin(2) == parents
    left = end._replace(value=end.value.masked_fill(back, torch.inf))
    return pairs.best(found.join(pairs.ranked(end, eps, budget)), budget), ends.join(left)


def _turns(found: Found, count: int, shares: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """So many indices of minima in turn, of each pair, and the share of each.  (P, count) twice"""
    turn, known = torch.arange(count, device=found.g.device), (found.value < torch.inf).sum(1).clamp(min=1)[:, None]
    share = torch.tensor(shares, device=found.g.device)[turn // known % len(shares)]
    return turn % known, share


def _noisy(
    pairs: ManyPairs, found: Found, count: int, noises: tuple[float, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Some minima in turn, with noise (`moves.shaken`).  (P, count, D, E), (P, count)"""
    parents, share = _turns(found, count, noises)
    gamma, unit = found.pick(parents).gamma, pairs.axes.square()[:, None]
    noise = torch.randn(count, *gamma.shape[2:], generator=generator).to(gamma) * share[..., None, None]
    size = gamma.square().sum((-2, -1), keepdim=True).sqrt() / norm(unit.flatten(2), dim=2)[..., None, None]
    return gamma + size * noise * unit, parents


def _kicked(
    pairs: ManyPairs, found: Found, eps: Tensor, budget: SearchBudget, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Some minima in turn, after images have rolled on (`moves.kicked`).  (P, count, D, E),
    (P, count, M), (P, count)"""
    parents, share = _turns(found, budget.kicked, budget.kicks)
    kept, (count, n) = found.value.shape[1], (budget.kicked, pairs.left.a.shape[1])
    flat = Cooled(*(z.flatten(0, 1) for z in found))
    images = pairs.clouds.each(kept).images(flat.gamma, flat.g, eps.repeat_interleave(kept), budget)
    images = images.view(len(pairs), kept, n, -1)
    real = (pairs.left.a > 0)[:, None]
    size = (share * real.sum(2)).round().clamp(min=2)[..., None]
    draw = torch.rand(count, n, generator=generator).to(images)
    order, place = draw.masked_fill(~real, 2.0).argsort(2), torch.arange(n, device=images.device)
    after = order.gather(2, torch.where(place < size, (place + 1) % size, place).long())
    source = torch.empty_like(order).scatter_(2, order, after)
    every = torch.arange(len(pairs), device=images.device)[:, None, None]
    rolled = images[every, parents[..., None], source].flatten(0, 1)
    clouds = pairs.clouds.each(count)
    gamma = clouds.mapped(clouds.traded(rolled, budget)[0])
    return gamma.view(len(pairs), count, *gamma.shape[1:]), found.pick(parents).g, parents


def lifted(coarse: ManyPairs, found: Found, fine: ManyPairs, eps: Tensor, budget: SearchBudget) -> Found:
    """Minima between cells, with fewer axes, on the points, from the potentials that they have
    there."""
    wider, taller = fine.clouds.axes - coarse.clouds.axes, fine.clouds.x.shape[-1] - coarse.clouds.x.shape[-1]
    coarse, kept = coarse.widened(taller, wider), found.value.shape[1]
    found = found._replace(gamma=torch.nn.functional.pad(found.gamma, (0, wider, 0, taller)))
    flat, at = Cooled(*(z.flatten(0, 1) for z in found)), eps.repeat_interleave(kept)
    cells = coarse.clouds.each(kept)
    lift = cells.lift.expand(len(at), -1, -1)
    f = cells.scaled(flat.gamma, flat.g, at, budget.ranking_steps, budget.ranking_tol).f
    across = fine.clouds.each(kept).across
    left = torch.cat([cells.x @ (16 * flat.gamma), 4 * lift], -1) / at[:, None, None]
    g = -at[:, None] * ((f + cells.a[:, 0].log())[..., None] + left @ across).logsumexp(1)
    patient = replace(budget, sinkhorn_steps=budget.cold_steps)
    here = fine.cool(found.gamma, torch.zeros_like(found.value), eps, patient, g.view(len(fine), kept, -1))
    here = here._replace(value=here.value.masked_fill(found.value.isinf(), torch.inf))
    return fine.ranked(here, eps, budget)


def settled(pairs: ManyPairs, found: Found, hot: Tensor, eps: Tensor, budget: SearchBudget) -> tuple[Found, Tensor]:
    """Where the minima that are nearly as low as the lowest end, down from the temperature of the
    search, and the lowest of them for each pair; and whether it has come to rest."""
    tight, gap = replace(budget, ranking_tol=MARGINAL_TOL), budget.finer[-1][1]
    if bool((eps < hot).any()):  # minima may change places on the way down
        slow = replace(budget, cooling=2.0, sinkhorn_steps=budget.ranking_steps, marginal_tol=budget.ranking_tol)
        start = (2 * hot / pairs.clouds.heat)[:, None].expand_as(found.value)
        end = pairs.cool(found.gamma, start, eps, slow, found.g)
        found = pairs.ranked(end._replace(value=end.value.masked_fill(found.value.isinf(), torch.inf)), eps, slow)
    found = found._replace(value=found.value.masked_fill(found.value > (1 + gap) * found.value[:, :1], torch.inf))
    most = int((found.value < torch.inf).sum(1).max())
    found = found.pick(torch.arange(most, device=eps.device).expand(len(pairs), -1))
    going, here, end, at = torch.arange(len(pairs), device=eps.device), pairs, found, eps
    rest = torch.zeros(len(pairs), dtype=torch.bool, device=eps.device)
    for _ in range(SETTLING):
        before, end = end, here.met(end, at, tight)
        moved = 8 * (end.gamma - before.gamma).double().square().sum((-2, -1))
        still = (moved <= SETTLED * end.value.abs()) | end.value.isinf()
        done = still.all(1)
        found = found.put(going, end)
        rest[going] = done
        left = (~done).nonzero()[:, 0]
        if len(left) == 0:
            break
        if len(left) < len(going):
            going, here, end, at = going[left], here.take(left), end.take(left), at[left]
    exact = Found(found.gamma.double(), found.g.double(), found.value)
    end = pairs.double().met(exact, eps.double(), replace(budget, ranking_tol=VALUE_TOL, ranking_steps=VALUE_STEPS))
    return end.pick(end.value.argmin(1, keepdim=True)), rest

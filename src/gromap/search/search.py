"""The global search: GW is not convex, and its local minima are the near-symmetries of the two
shapes.

Γ is a tiny matrix that does not know the support of the measures, so many starts run as one batch
on coarse clouds:

    1  Γ = 0; diag(±σ) on the leading axes, σ_d the largest correlation of both d-th axes; random Γ
       of that scale
    2  half of them cool down from temperatures at which most minima are not there yet: they find
       the wide ones
    3  a few outer steps; starts that came together are merged, and only the better distinct ones go
       on, until they settle
    4  hops from the best minima: flipped signs of one or two of their singular directions, as in 3
    5  the best distinct minima, and Γ = 0 again, on finer clouds
    6  those whose order is in doubt for some steps on still finer ones, and those that are close to
       a tie on the points

How many points, starts and steps each line takes is in budget.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gromap.search.budget import SearchBudget
from gromap.search.chirality import handedness
from gromap.search.descent import axis_units, cooled, descend, distinct
from gromap.search.proposals import hops, random_starts, sign_flips
from gromap.search.start_plan import start_plan
from gromap.solvers.cnt import CntProblem
from gromap.solvers.loop import alternate
from gromap.solvers.multiscale import interpolate
from gromap.solvers.protocol import Begin, Loop, Minima, Problem
from gromap.transport.sinkhorn import Potentials, Sinkhorn

# of a match on coarse clouds, > 0 where it keeps left and right
Hand = Callable[[CntProblem, Tensor, Potentials], float]


@dataclass(frozen=True)
class Search:
    """Options of the global search: `init="auto"` is `init=Search()`.

    starts: random Γ to try, beside the sign flips.  chirality: among minima within 5 % of the best,
    prefer the one that keeps left and right apart, for clouds in space: GW itself cannot tell a
    shape from its mirror image.
    budget: all other numbers; None = those of the device.
    """

    starts: int = 100
    chirality: bool = False
    budget: SearchBudget | None = None

    on_all_points = False

    def __post_init__(self) -> None:
        if self.starts < 0:
            raise ValueError(f"Search needs starts >= 0, got {self.starts}.")

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        hand = handedness(problem.embedded) if self.chirality else None
        seed = problem.pair.seed if problem.pair is not None else 0
        gamma, duals, minima = best_start(coarse.embedded, loop.rough(), seed, self, hand)
        if problem.primal:
            plan = start_plan(problem.embedded, gamma, duals, loop)
            return Begin(problem.start(gamma, plan), problem.zero_potentials(), minima)
        return Begin(coarse.start(gamma), duals, minima)


def coarse_minima(
    problem: CntProblem, tol: float, seed: int, search: Search, budget: SearchBudget
) -> tuple[Tensor, Tensor]:
    """Lines 1 to 4: distinct Γ on coarse clouds, the lowest first, and how many starts each
    stands for.  (K, D, E), (K,)"""
    coarse = problem.coarser(budget.coarse_points, budget.coarse_points)
    drawn = random_starts(*coarse.spread, search.starts, seed)  # 1
    half = len(drawn) // 2
    flips = sign_flips(*coarse.spread, budget.flipped_axes)
    gamma, count = cooled(coarse, torch.cat([flips, drawn[:half]]), tol, budget)  # 2
    count = torch.cat([count, count.new_ones(len(drawn) - half)])
    few, launch = budget.coarse_minima, budget.launch_steps
    starts = torch.cat([gamma, drawn[half:]])
    first = descend(coarse, starts, tol, budget, keep=few, count=count, launch_steps=launch)  # 3
    others = hops(first.gamma[: budget.hop_bases], budget.hop_directions)
    again = descend(coarse, others, tol, budget, keep=few, launch_steps=launch)  # 4
    gamma, energy, count = (
        torch.cat(z) for z in zip(*((m.gamma, m.energy, m.count) for m in (first, again)), strict=True)
    )
    pick, count = distinct(gamma / axis_units(coarse), energy, count, budget.same_gamma)
    return gamma[pick], count


def best_start(
    problem: CntProblem, loop: Loop, seed: int = 0, search: Search | None = None, hand: Hand | None = None
) -> tuple[Tensor, Potentials, Minima]:
    """The lowest minimum of the search, with potentials for all points, and the distinct minima
    that were met.

    hand: decides among minima that are nearly equal.
    """
    search = search or Search()
    budget = search.budget or SearchBudget.on(problem.x.device)
    tol = budget.tol_share * loop.tol * problem.unit
    finer = problem.coarser(budget.finer_points, budget.finer_points)
    gamma, count = (z[: budget.max_minima] for z in coarse_minima(finer, tol, seed, search, budget))
    gamma = torch.cat([gamma, torch.zeros_like(gamma[:1])])  # 5: from Γ = 0 coarse clouds may lead elsewhere
    count = torch.cat([count, torch.ones_like(count[:1])])
    minima = descend(finer, gamma, tol, budget, count=count, sinkhorn_steps=budget.finer_sinkhorn_steps)
    if hand is not None:
        minima = minima.take(_keep_hand(finer, minima, hand, budget.mirror_gap))
    close = int((minima.energy[: budget.max_minima] <= _within(minima.energy, budget.unreliable_gap)).sum())
    gamma, duals = minima.gamma[:close], Potentials(minima.f[:close], minima.g[:close])
    here, settle = finer, replace(loop, sinkhorn=Sinkhorn(budget.finer_sinkhorn_steps, tol=2e-3), adaptive=False)
    looks = (budget.middle_points, budget.middle_steps, budget.tie_gap), (budget.tie_points, budget.tie_steps, 0.0)
    for points, steps, gap in looks:  # 6
        if len(gamma) > 1:
            there = problem if max(len(problem.a), len(problem.b)) <= points else problem.coarser(points, points)
            if there is not here:
                duals = interpolate(here, gamma, duals, there)
            here = there
            gamma, duals = _lowest(here, gamma, duals, replace(settle, max_iter=min(loop.max_iter, steps)), gap)
    gamma, duals = gamma[0], Potentials(duals.f[0], duals.g[0])
    return gamma, duals if here is problem else interpolate(here, gamma, duals, problem), minima


def _lowest(problem: CntProblem, gamma: Tensor, duals: Potentials, loop: Loop, gap: float) -> tuple[Tensor, Potentials]:
    """Where those starts end that end within a relative gap of the lowest, the lowest first.

    They run as one batch, unless tiles may be left out, which batches cannot.
    """
    if problem.grid is None:
        ends = alternate(problem, Begin(gamma, duals), loop)
        gamma, energy, f, g = ends.gamma, ends.energy, ends.duals.f, ends.duals.g
    else:
        begins = (Begin(gamma[k], Potentials(duals.f[k], duals.g[k])) for k in range(len(gamma)))
        each = [alternate(problem, begin, loop) for begin in begins]
        parts = ((end.gamma, end.energy, end.duals.f, end.duals.g) for end in each)
        gamma, energy, f, g = (torch.stack(z) for z in zip(*parts, strict=True))
    energy = energy.nan_to_num(nan=torch.inf)
    order = energy.argsort(stable=True)
    order = order[: max(1, int((energy <= _within(energy[order], gap)).sum()))]
    return gamma[order], Potentials(f[order], g[order])


def _keep_hand(problem: CntProblem, minima: Minima, hand: Hand, gap: float) -> list[int]:
    """The minima, without those that swap left and right while a nearly equal one does not."""
    near = [k for k in range(len(minima)) if float(minima.energy[k]) <= _within(minima.energy, gap)]
    hands = {k: hand(problem, minima.gamma[k], minima.potentials(k)) for k in near}
    if max(hands.values()) <= 0:
        return list(range(len(minima)))
    return [k for k in range(len(minima)) if hands.get(k, 1.0) > 0]


def _within(energy: Tensor, gap: float) -> float:
    """The energy that lies so far above the lowest one, which comes first, relatively."""
    return float(energy[0]) + gap * abs(float(energy[0]))

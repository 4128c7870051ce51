"""Batches of starts down to distinct minima: a few outer steps at a time, starts that came
together merged on the way."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gromap._torch import from_numpy, norm, untyped
from gromap.search.budget import SearchBudget
from gromap.solvers.cnt import CntProblem
from gromap.solvers.loop import alternate, transport_value
from gromap.solvers.protocol import Begin, Loop, Minima
from gromap.transport.backend import fused_for
from gromap.transport.cuda_graph import StepGraph
from gromap.transport.sinkhorn import Potentials, Sinkhorn


def axis_units(problem: CntProblem) -> Tensor:
    """√(σ_d σ_e), to compare Γ by: as it is, a long axis hides the others; in correlations,
    noise counts as much.  (D, E)"""
    sx, sy = problem.spread
    unit = (sx[:, None] * sy).sqrt()
    return unit.clamp(min=max(1e-6 * float(unit.max()), 1e-30))  # all points may be one


def descend(
    problem: CntProblem,
    gamma: Tensor,
    tol: float,
    budget: SearchBudget,
    *,
    keep: int | None = None,
    count: Tensor | None = None,
    sinkhorn_steps: int | None = None,
    rounds: int | None = None,
    launch_steps: int | None = None,
) -> Minima:
    """Run a batch of starts down to distinct minima; small clouds on a GPU take one launch for
    all of it.

    tol: energies that change by less in a round have settled.  keep: of the distinct ones, the
    worse third is dropped in each round, down to so many; None = all stay to the end.  count: how
    many starts each one stands for.  launch_steps: outer steps in one launch, None = those of all
    rounds.
    """
    rounds = budget.rounds if rounds is None else rounds
    inner = budget.sinkhorn_steps if sinkhorn_steps is None else sinkhorn_steps
    count, unit = gamma.new_ones(len(gamma)) if count is None else count, axis_units(problem)
    found = _launch(problem, gamma, count, tol, budget, inner, launch_steps or budget.round_steps * rounds)
    if found is not None:  # starts run side by side there, so that merging them saves no time
        return found if rounds == 1 else _merged(found, unit, budget.same_gamma)[0].take(slice(keep))
    options = Loop(
        Sinkhorn(inner, tol=budget.marginal_tol),
        adaptive=False,
        max_iter=budget.round_steps,
        tol=1e-3 * tol / problem.unit,
    )
    f, g = (w.new_zeros(len(gamma), len(w)) for w in (problem.a, problem.b))
    found, graph = Minima(gamma, torch.full_like(count, torch.inf), f, g, count), StepGraph()
    for _ in range(rounds):
        end = alternate(problem, Begin(found.gamma, Potentials(found.f, found.g)), options, graph=graph)
        settled = (found.energy - end.energy).abs() <= tol
        found = Minima(end.gamma, end.energy, end.duals.f, end.duals.g, found.count)
        found, pick = _merged(found, unit, budget.same_gamma)
        most = None if keep is None else max(keep, 2 * len(found) // 3)
        found, pick = found.take(slice(most)), pick[:most]
        if bool(settled[pick].all()):
            break
    return found


def _launch(
    problem: CntProblem, gamma: Tensor, count: Tensor, tol: float, budget: SearchBudget, inner: int, outer: int
) -> Minima | None:
    """Where a batch of starts is after so many outer steps, or has settled; None where no kernel
    serves such clouds."""
    if not fused_for(problem.x):
        return None
    from gromap.search import descent_kernel

    if not descent_kernel.serves(problem.x, problem.y):
        return None
    clouds = problem.x, problem.y, (problem.x_norms, problem.y_norms), (problem.log_a, problem.log_b)
    limits = outer, inner, budget.marginal_tol, budget.settled_share * tol
    end = descent_kernel.descents(*clouds, gamma, problem.eps, *limits)
    if end is None:
        return None
    energy, _ = problem.energy(end.gamma, end.new, transport_value(problem, Potentials(end.f, end.g), end.rows))
    return Minima(end.gamma, energy, end.f, end.g, count)


def _merged(minima: Minima, unit: Tensor, same: float) -> tuple[Minima, Tensor]:
    """The distinct ones, and which these are."""
    energy = minima.energy.nan_to_num(nan=torch.inf)
    pick, count = distinct(minima.gamma / unit, energy, minima.count, same)
    gamma, energy, f, g = (z[pick] for z in (minima.gamma, energy, minima.f, minima.g))
    return Minima(gamma, energy, f, g, count), pick


def cooled(problem: CntProblem, gamma: Tensor, tol: float, budget: SearchBudget) -> tuple[Tensor, Tensor]:
    """Γ after a few outer steps at each of the heats, merged, and how many starts each one
    stands for.  (K, D, E), (K,)"""
    count = gamma.new_ones(len(gamma))
    for eps in (share * problem.constant for share in budget.heats):
        if eps > problem.eps:
            warm = descend(problem.at(eps), gamma, tol, budget, count=count, rounds=1)
            gamma, count = warm.gamma, warm.count
    return gamma, count


def merge(gamma: Tensor, energy: Tensor, same: float) -> Tensor:
    """For each Γ the index of the lowest one that it is the same as, within a relative distance.
    (S,)"""
    order = energy.argsort(stable=True)
    flat = gamma[order].flatten(1)
    size = norm(flat, dim=1)
    gaps = (torch.cdist(flat, flat) <= same * size).cpu().numpy()  # [i, j]: i is the same as j
    owner, leaders = np.arange(len(order)), list[int]()
    for i in range(len(order)):
        near = [j for j in leaders if gaps[i, j]]
        if near:
            owner[i] = near[0]
        else:
            leaders.append(i)
    where = torch.empty_like(order)
    where[order] = order[from_numpy(owner).to(order.device)]
    return where


def distinct(gamma: Tensor, energy: Tensor, count: Tensor, same: float) -> tuple[Tensor, Tensor]:
    """The indices of distinct Γ, the lowest first, and how many starts each stands for.  (K,)
    twice"""
    owner = merge(gamma, energy, same)
    leaders: Tensor = untyped.unique(owner)
    leaders = leaders[energy[leaders].argsort(stable=True)]
    return leaders, torch.zeros_like(count).index_add_(0, owner, count)[leaders]

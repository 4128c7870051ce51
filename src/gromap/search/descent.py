"""Batches of starts down to the minima that are nearest to them, for the landscape: a few outer
steps at a time, starts that came together merged on the way."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gromap._torch import from_numpy, norm, untyped
from gromap.solvers.embedded import CntProblem
from gromap.solvers.loop import alternate
from gromap.solvers.protocol import Begin, Loop, Minima
from gromap.transport.backend import fused_for
from gromap.transport.cuda_graph import StepGraph
from gromap.transport.sinkhorn import Potentials, Sinkhorn

ROUND_STEPS = 3  # outer steps until starts that came together are merged
ROUNDS = 8  # of these, at most: 4 missed a valley of the man by 0.4 %
SINKHORN_STEPS = 31  # of each outer step
MARGINAL_TOL = 5e-3  # misplaced mass at which it ends
SETTLED_SHARE = 0.1  # of the tolerance of the energy, for 8 |Γ - Γ'|² of one step, at which a start has settled
SAME_GAMMA = 0.15  # relative distance of two Γ that count as one, entries in units of √(σ_d σ_e)


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
    *,
    count: Tensor | None = None,
    sinkhorn_steps: int = SINKHORN_STEPS,
    rounds: int = ROUNDS,
) -> Minima:
    """Run a batch of starts down to distinct minima; small clouds on a GPU take one launch for
    all of it.

    tol: energies that change by less in a round have settled.  count: how many starts each one
    stands for.
    """
    count, unit = gamma.new_ones(len(gamma)) if count is None else count, axis_units(problem)
    found = _launch(problem, gamma, count, tol, sinkhorn_steps, ROUND_STEPS * rounds)
    if found is not None:  # starts run side by side there, so that merging them saves no time
        return _merged(found, unit)[0]
    options = Loop(
        Sinkhorn(sinkhorn_steps, tol=MARGINAL_TOL),
        adaptive=False,
        max_iter=ROUND_STEPS,
        tol=1e-3 * tol / problem.unit,
    )
    f, g = (w.new_zeros(len(gamma), len(w)) for w in (problem.a, problem.b))
    found, graph = Minima(gamma, torch.full_like(count, torch.inf), f, g, count), StepGraph()
    for _ in range(rounds):
        end = alternate(problem, Begin(found.gamma, Potentials(found.f, found.g)), options, graph=graph)
        settled = (found.energy - end.energy).abs() <= tol
        found = Minima(end.gamma, end.energy, end.duals.f, end.duals.g, found.count)
        found, pick = _merged(found, unit)
        if bool(settled[pick].all()):
            break
    return found


def _launch(problem: CntProblem, gamma: Tensor, count: Tensor, tol: float, inner: int, outer: int) -> Minima | None:
    """Where a batch of starts is after so many outer steps, or has settled; None where no kernel
    serves such clouds."""
    if not fused_for(problem.x):
        return None
    from gromap.search import descent_kernel

    if not descent_kernel.serves(problem.x, problem.y):
        return None
    clouds = problem.x, problem.y, (problem.x_norms, problem.y_norms), (problem.log_a, problem.log_b)
    limits = outer, inner, MARGINAL_TOL, SETTLED_SHARE * tol
    end = descent_kernel.descents(*clouds, gamma, problem.eps, *limits)
    if end is None:
        return None
    energy, _ = problem.energy(end.gamma, end.new, problem.transport_value(gamma, Potentials(end.f, end.g), end.rows))
    return Minima(end.gamma, energy, end.f, end.g, count)


def _merged(minima: Minima, unit: Tensor) -> tuple[Minima, Tensor]:
    """The distinct ones, and which these are."""
    energy = minima.energy.nan_to_num(nan=torch.inf)
    pick, count = distinct(minima.gamma / unit, energy, minima.count, SAME_GAMMA)
    gamma, energy, f, g = (z[pick] for z in (minima.gamma, energy, minima.f, minima.g))
    return Minima(gamma, energy, f, g, count), pick


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

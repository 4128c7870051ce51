"""Fig. convergencebias: the steps of solvers in the plane of all linear maps Γ between a cloud on a line and one in a plane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import gromap
from gromap import Loop, Sinkhorn, Space
from gromap.bench.jobs import Job
from gromap.bench.settings import Sizes
from gromap.prepare import units_of
from gromap.sinkhorn import Potentials
from gromap.solvers.cnt import scaled_features
from gromap.solvers.kernel import KernelProblem
from gromap.solvers.loop import alternate

EPS = 0.01
STEPS = 25  # outer ones
INNER = (5, 10, 20, 100)
KINDS = (("Entropic-GW", "standard"), ("Entropic-GW", "symmetric"), ("Kernel-GW", "symmetric"))
HALF = 0.4  # of the side of the square of maps whose energies are drawn
GRID = 41  # maps along a side


def spaces() -> tuple[Space, Space]:
    """Two clumps on a line and two in a plane, with squared distances: Γ is a pair of numbers."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-1.0, 0.2, size=20), rng.normal(0.5, 0.3, size=40)])[:, None]
    y = np.concatenate([rng.normal([-1.0, 0.0], [0.2, 0.3], size=(20, 2)), rng.normal([0.5, 0.2], [0.3, 0.5], size=(40, 2))])
    turn = np.array([[np.cos(0.6), np.sin(0.6)], [-np.sin(0.6), np.cos(0.6)]])
    return Space(x, cost="sqeuclidean"), Space(y @ turn, cost="sqeuclidean")


def trajectories(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Γ after each outer step from π = α⊗β, for several numbers of Sinkhorn steps; and the energy that Γ should minimise."""
    for solver, update in KINDS:
        for inner in INNER:
            yield Job("trajectories", f"{solver}/{update}/{inner}", lambda s=solver, u=update, n=inner: {"path": path(s, u, n)})
    yield Job("trajectories", "energy", landscape)


def path(solver: str, update: Any, inner: int) -> list[list[float]]:
    """Γ_0, Γ_1, ...  (STEPS + 1, 2)"""
    x, y = spaces()
    units = units_of(x, y, "each")
    problem = KernelProblem(x, y, units, EPS, centred=solver == "Kernel-GW")
    left, right = (scaled_features(s, unit) for s, unit in zip((x, y), units, strict=True))
    gamma, duals = problem.start(torch.zeros(1, 2)), Potentials(torch.zeros_like(problem.a), torch.zeros_like(problem.b))
    loop, found = Loop(Sinkhorn(inner, update=update), adaptive=False, max_steps=inner, max_iter=1), [[0.0, 0.0]]
    for _ in range(STEPS):
        end = alternate(problem, gamma, duals, loop)
        duals = end.duals
        gamma, _ = problem.correlate(end.gamma, problem.score(end.gamma), duals.f + problem.log_a, duals.g + problem.log_b)
        assert gamma.pi is not None
        found.append((left.mT @ gamma.pi @ right)[0].tolist())
    return found


def landscape() -> dict[str, Any]:
    """C + 8 |Γ|² + OT_ε(C_Γ) on a grid, the best Γ, and both clouds."""
    x, y = spaces()
    units = units_of(x, y, "each")
    problem = gromap.CntGW().problem(x, y, units, EPS)
    side = torch.linspace(-HALF, HALF, GRID, dtype=torch.float64)
    gamma = torch.cartesian_prod(side, side)[:, None]
    f, g = (w.new_zeros(len(gamma), len(w)) for w in (problem.a, problem.b))
    end = alternate(problem, gamma, Potentials(f, g), Loop(Sinkhorn(400, tol=1e-4), adaptive=False, max_iter=1))
    moved, _ = problem.correlate(end.gamma, problem.score(gamma), end.duals.f + problem.log_a, end.duals.g + problem.log_b)
    energy = end.energy + 8 * (gamma - moved).square().sum((-2, -1))
    best = gromap.solve(x, y, epsilon=EPS, tol=1e-8)
    clouds = {"x": scaled_features(x, units[0]).tolist(), "y": scaled_features(y, units[1]).tolist()}
    return {"side": side.tolist(), "energy": energy.view(GRID, GRID).tolist(), "best": best.gamma[0].tolist()} | clouds

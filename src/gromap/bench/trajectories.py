"""Fig. convergencebias: the steps of solvers in the plane of all linear maps Γ between a cloud
on a line and one in a plane."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import gromap
from gromap import Sinkhorn, Space
from gromap._pair import Pair
from gromap.bench.jobs import Job
from gromap.bench.settings import Sizes
from gromap.search.landscape import objective
from gromap.solvers.kernel import KernelProblem
from gromap.transport.marginals import Marginals
from gromap.transport.sinkhorn import sinkhorn

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
    y = np.concatenate(
        [rng.normal([-1.0, 0.0], [0.2, 0.3], size=(20, 2)), rng.normal([0.5, 0.2], [0.3, 0.5], size=(40, 2))]
    )
    turn = np.array([[np.cos(0.6), np.sin(0.6)], [-np.sin(0.6), np.cos(0.6)]])
    return Space(x, cost="sqeuclidean"), Space(y @ turn, cost="sqeuclidean")


def trajectories(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """The energy as a function of Γ; and Γ after each outer step from π = α⊗β, for several
    numbers of Sinkhorn steps."""
    yield Job("trajectories", "energy", ground)
    for (solver, update), inner in itertools.product(KINDS, INNER):
        yield Job(
            "trajectories", f"{solver}/{update}/{inner}", lambda s=solver, u=update, n=inner: {"path": path(s, u, n)}
        )


def ground() -> dict[str, Any]:
    """C + 8 |Γ|² + OT_ε(C_Γ) on a grid, the best Γ, and both clouds."""
    pair = Pair.of(*spaces(), epsilon=EPS, scale="radius")
    side = torch.linspace(-HALF, HALF, GRID, dtype=torch.float64)
    energy = objective(gromap.CntGW().problem(pair), torch.cartesian_prod(side, side)[:, None], steps=400)
    best = gromap.solve(pair.x, pair.y, epsilon=EPS, scale="radius", tol=1e-8)
    clouds = dict(zip(("x", "y"), (z.tolist() for z in pair.features), strict=True))
    return {"side": side.tolist(), "energy": energy.view(GRID, GRID).tolist(), "best": best.gamma[0].tolist()} | clouds


def path(solver: str, update: Any, inner: int) -> list[list[float]]:
    """Γ_0, Γ_1, ...: lines 1 to 3 of the outer loop (solvers/loop.py), whatever the energy does.
    (STEPS + 1, 2)"""
    pair = Pair.of(*spaces(), epsilon=EPS, scale="radius")
    p = KernelProblem(pair, centered=solver == "Kernel-GW")
    left, right = pair.features
    gamma, duals = p.start(torch.zeros(1, 2)), p.zero_potentials()
    found = [[0.0, 0.0]]
    for _ in range(STEPS):
        score = p.score(gamma)
        duals = sinkhorn(score, Marginals(p.log_a, p.log_b), duals, Sinkhorn(inner, update=update))
        gamma, _ = p.correlate(gamma, score, duals.f + p.log_a, duals.g + p.log_b)
        assert gamma.pi is not None
        found.append((left.mT @ gamma.pi @ right)[0].tolist())
    return found

"""Experiments on convergence: energy against time, for solvers, Sinkhorn updates and budgets of
inner steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

import gromap
from gromap import Loop, Sinkhorn, Space
from gromap.bench.jobs import Job
from gromap.bench.settings import DIM, EPSILON, OTHERS, RANKS, SOLVERS, Factory, Sizes
from gromap.bench.shapes import surface_pair, surface_points
from gromap.mesh import Mesh

TETRAHEDRON = np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
CUBOID = np.stack(np.meshgrid([-1.0, 1.0], [-0.6, 0.6], [-0.3, 0.3], indexing="ij"), -1).reshape(8, 3)
SIDES = np.array([[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]])
KINDS = {
    "tetrahedra": ("tetra", "tetra"),
    "spheres": ("sphere", "sphere"),
    "3-D Gaussians": ("3-D", "3-D"),
    "2-D Gaussians": ("2-D", "2-D"),
    "tetrahedron-cuboid": ("tetra", "cuboid"),
    "tetrahedron-sphere": ("tetra", "sphere"),
}
UPDATES: tuple[Literal["standard", "symmetric"], ...] = ("standard", "symmetric")
LONGER = 10  # outer steps of LowRank-GW over those of the others: its steps are short and cheap


def clouds(name: str, n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """n points on, or of, each of two shapes; float32, on the device."""
    if name == "human":
        return surface_pair("human", n, seed, device)
    meshes = {
        "tetra": Mesh(TETRAHEDRON, np.array([[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]])),
        "cuboid": Mesh(CUBOID, np.concatenate([SIDES[:, [0, 1, 2]], SIDES[:, [0, 2, 3]]])),
    }
    generator = torch.Generator().manual_seed(seed)

    def draw(kind: str, side: int) -> Tensor:
        if kind in meshes:
            return surface_points(meshes[kind], n, 2 * seed + side, device)
        normal = torch.randn(n, 2 if kind == "2-D" else 3, generator=generator)
        return (normal / normal.norm(dim=1, keepdim=True) if kind == "sphere" else normal).to(device)

    first, second = KINDS[name]
    return draw(first, 0), draw(second, 1)


def curve(solver: Any, name: str, n: int, seed: int, device: torch.device) -> dict[str, Any]:
    """Energy against time, from Γ = 0."""
    x, y = (Space(z, dim=DIM) for z in clouds(name, n, seed, device))
    sol = gromap.solve(x, y, epsilon=EPSILON, scale="radius", method=solver, init="zero")
    columns = ("seconds", "energy", "marginal_error", "inner_steps")
    return {c: sol.history[c].tolist() for c in columns} | {"value": sol.value, "status": sol.status.name}


Case = tuple[str, str, Any]  # clouds, the name of a solver with its settings, the solver


def curves(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. ablation, smaller_sinkiters, convergence_surfaces, convergence_gaussians,
    convergence_asymmetric."""
    cases: list[Case] = []
    for name in sizes.clouds:
        budgets = sizes.inner_steps if name == "human" else sizes.fewer_inner_steps
        for label, factory in SOLVERS.items():
            cases += _budgets(name, label, factory, budgets, sizes)
    return _jobs("curves", cases, sizes, device)


def others(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. other_solvers: curves of the solvers that are left out of the benchmarks, and of
    LowRank-GW."""
    cases: list[Case] = []
    for label, factory in OTHERS.items():
        cases += _budgets("human", label, factory, sizes.inner_steps, sizes)
    for rank, steps in itertools.product(RANKS, sizes.inner_steps):
        solver = gromap.LowRankGW(rank=min(rank, sizes.points))
        loop = replace(solver.loop, sinkhorn=Sinkhorn(steps), max_iter=LONGER * sizes.curve_steps)
        cases.append(("human", f"LowRank-GW/rank {rank}/{steps}", replace(solver, loop=loop)))
    return _jobs("others", cases, sizes, device)


def thresholds(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. cvg_stopThr: Sinkhorn until a marginal error, here in misplaced mass."""
    cases: list[Case] = []
    for (label, factory), update, tol in itertools.product(SOLVERS.items(), UPDATES, sizes.thresholds):
        inner = Sinkhorn(sizes.max_inner_steps, tol=tol, update=update)
        solver = factory(Loop(inner, adaptive=False, max_steps=sizes.max_inner_steps, max_iter=sizes.curve_steps))
        cases.append(("human", f"{label}/{update}/{tol:g}", solver))
    return _jobs("thresholds", cases, sizes, device)


def _budgets(name: str, label: str, factory: Factory, inner: tuple[int, ...], sizes: Sizes) -> Iterator[Case]:
    """A solver with both updates, for each number of Sinkhorn steps and adaptively."""
    for update in UPDATES:
        loops = {str(n): Loop(Sinkhorn(n, update=update), adaptive=False, max_iter=sizes.curve_steps) for n in inner}
        loops["adaptive"] = Loop(
            Sinkhorn(5, update=update), max_steps=sizes.max_inner_steps, max_iter=sizes.curve_steps
        )
        for budget, loop in loops.items():
            yield name, f"{label}/{update}/{budget}", factory(loop)


def _jobs(experiment: str, cases: list[Case], sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Every case from every seed; seeds are the outer loop, so that an interrupted benchmark is
    complete for some of them."""
    for seed, (name, key, solver) in itertools.product(range(sizes.seeds), cases):
        yield Job(
            experiment, f"{name}/{key}/{seed}", lambda s=solver, n=name, k=seed: curve(s, n, sizes.points, k, device)
        )

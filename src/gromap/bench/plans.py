"""Experiments on what plans look like: textures that they carry, base costs as errors and as
flows, a cost that is not CNT."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import gromap
from gromap import Flow, Loop, Sinkhorn, Space
from gromap.bench.jobs import Job
from gromap.bench.settings import COSTS, DIM, EPSILON, FLOW_COSTS, RANKS, SOLVERS, Sizes, paper_loop
from gromap.bench.shapes import data_folder, planar_shape
from gromap.datasets import humans
from gromap.mesh import Mesh
from gromap.mesh.clean import components
from gromap.mesh.embedding import decimate
from gromap.mesh.texture import split, with_texture
from gromap.mesh.transfer import push

FLOW_METHODS = {"exact": "kernel", "50 axes": "cnt"}
FRAMES = 6


def textures(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. horse_texture_comparisons: where each solver puts the texture of the standing man on
    the running one."""
    solvers = {label: factory(paper_loop(label, sizes.match_steps)) for label, factory in SOLVERS.items()}
    short = gromap.LowRankGW().loop
    loop = replace(short, max_iter=sizes.match_steps * short.max_iter // 100)  # its steps are short
    solvers |= {f"LowRank-GW, rank {rank}": gromap.LowRankGW(loop, rank) for rank in RANKS}
    yield Job("textures", "source", lambda: _drawn(human_mesh("source", sizes.vertices), None))
    for label, solver in solvers.items():
        yield Job("textures", label, lambda s=solver: texture(s, sizes.vertices, device))


def human_mesh(side: str, vertices: int) -> Mesh:
    """One of the shipped men, with about so many vertices."""
    mesh = getattr(humans(), side)
    return decimate(mesh, components(mesh)[1], vertices, seed=0)[0]


def texture(solver: Any, vertices: int, device: torch.device) -> dict[str, Any]:
    """The target's vertices and faces, and their places in the texture of the source."""
    source, target = (human_mesh(side, vertices) for side in ("source", "target"))
    x, y = (
        Space(mesh.vertices.astype(np.float32), mesh.vertex_areas(), dim=DIM, device=device)
        for mesh in (source, target)
    )
    sol = gromap.solve(x, y, epsilon=EPSILON, scale="radius", method=solver, init="zero")
    moved = push(sol.plan, split(with_texture(source))[2])
    return _drawn(target, moved) | {
        "value": sol.value,
        "status": sol.status.name,
        "seconds": sol.stats.seconds["solve"],
    }


def _drawn(mesh: Mesh, uv: np.ndarray | None) -> dict[str, Any]:
    places = split(with_texture(mesh))[2] if uv is None else np.asarray(uv, np.float64)
    shape = {"vertices": mesh.vertices.astype(np.float64).round(5).tolist(), "faces": mesh.faces.tolist()}
    return shape | {"uv": places.round(5).tolist()}


def costs(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """What the base cost changes: the error of the match of two poses, for costs from global to
    local."""

    def run(cost: Any) -> dict[str, Any]:
        pair, rng = humans(), np.random.default_rng(0)
        i, j = (rng.permutation(len(m.vertices))[: sizes.cost_points] for m in (pair.source, pair.target))
        x, y = (
            z / np.linalg.norm(z - z.mean(0), axis=1).max() for z in (pair.source.vertices[i], pair.target.vertices[j])
        )
        sol = gromap.solve(x, y, cost=cost, epsilon=EPSILON, scale="radius", device=device)
        size = np.linalg.norm(np.ptp(pair.target.vertices, axis=0))
        found = pair.target.vertices[j][sol.map("argmax")]
        error = min(float(np.linalg.norm(found - t[i], axis=1).mean()) for t in (pair.direct, pair.mirrored)) / float(
            size
        )
        return {"error": error, "value": sol.value, "explained": sol.stats.explained, "status": sol.status.name}

    for label in sizes.costs:
        yield Job("costs", label, lambda c=COSTS[label]: run(c))


def flow_between(x: np.ndarray, y: np.ndarray, cost: Any, method: str, steps: int) -> Flow:
    """SGW flows from one cloud to another, at a thousandth of the squared unit of the cost."""
    eps = 1e-3 * Space(x, cost=cost).extent * Space(y, cost=cost).extent
    dim = min(50, len(x), len(y))
    return gromap.gradient_flow(
        x, y, steps=steps, cost=cost, epsilon=eps, method=method, dim=dim, tol=1e-3, frames=FRAMES
    )


def flows(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. flows_S_C, flows_S_C_approx: a reversed "5" flows to a "C", under base costs from
    global to local."""

    def run(cost: Any, method: str) -> dict[str, Any]:
        n, folder = sizes.flow_points, data_folder()
        x, y = planar_shape(folder, "five", n, 0) * [-1, 1], planar_shape(folder, "C", n, 1)
        flow = flow_between(x, y, cost, method, sizes.flow_steps)
        frames = np.asarray(flow.frames).round(4).tolist()
        record = {"frames": frames, "times": flow.times, "target": y.round(4).tolist(), "status": flow.status.name}
        return record | {"losses": flow.losses.tolist()}

    for label in sizes.flows:
        for kind, method in FLOW_METHODS.items():
            yield Job("flows", f"{label}/{kind}", lambda c=FLOW_COSTS[label], m=method: run(c, m))


def oscillation(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. gradientbias: Entropic-GW for |x - x'|⁶, and for |x - x'|², on eight points."""

    def run(power: int) -> dict[str, Any]:
        rng = np.random.default_rng(5)
        x, y = rng.normal(size=(8, 2)), rng.normal(size=(8, 2))
        method = gromap.EntropicGW(Loop(Sinkhorn(1000, tol=1e-4), max_steps=1000, max_iter=1, adaptive=False))
        options: dict[str, Any] = {"cost": gromap.Power(power), "epsilon": 1e-2, "dim": 8, "method": method}
        seen = [gromap.solve(x, y, init="zero", **options)]
        for _ in range(7):  # one step at a time, from where the last one ended
            seen.append(gromap.solve(x, y, init=seen[-1], **options))
        plans = [sol.plan.dense() for sol in seen]
        moves = [float(np.abs(p - q).sum()) for p, q in itertools.pairwise(plans)]
        return {"moved": moves, "plans": [plan.tolist() for plan in plans[-2:]]}

    for power in (6, 2):
        yield Job("oscillation", f"{power}", lambda p=power: run(p))

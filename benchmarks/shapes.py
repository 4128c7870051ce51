"""Real pairs of shapes, points on them, Sinkhorn steps at their solutions, and scores that put solvers on the same footing.

The pair "human" ships with gromap. The others are read from $GROMAP_DATA, or from ../shared/data beside the repository.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from torch import Tensor

import gromap
from gromap.datasets import humans
from gromap.engine import LowRank, whole
from gromap.mesh import Mesh, read_mesh
from gromap.sinkhorn import Potentials, Sinkhorn, sinkhorn
from gromap.solvers.cnt import CntProblem
from gromap.solvers.multiscale import interpolate

Array = NDArray[np.float64]
Index = NDArray[np.int64]
FILES = {"dog": "dog", "man": "mh_man", "hand": "mh_hand"}  # poses 0 and 1 of each
PAIRS = ("human", *FILES)
COARSE, SETTLE = 2000, 100  # points of the match that `extended_step` extends, and Sinkhorn steps after it, at most


def data_folder() -> Path:
    """The folder that holds `poses/`, or the end of the program with a sentence that says how to set it."""
    root = Path(__file__).resolve().parent.parent
    folder = Path(os.environ.get("GROMAP_DATA") or root.parent / "shared" / "data")
    if not (folder / "poses").is_dir():
        sys.exit(f"No shapes in {folder}: set GROMAP_DATA to the folder that holds poses/mh_man_0.ply and its neighbours.")
    return folder


def mesh_pair(name: str) -> tuple[Mesh, Mesh]:
    """Both meshes of one of PAIRS."""
    if name == "human":
        return humans().source, humans().target
    first, second = (read_mesh(data_folder() / "poses" / f"{FILES[name]}_{pose}.ply") for pose in (0, 1))
    return first, second


def surface_points(mesh: Mesh, n: int, seed: int, device: torch.device) -> Tensor:
    """n points drawn uniformly on a surface, on the device itself; the seed means other points on another device.  (n, 3)"""
    generator = torch.Generator(device).manual_seed(seed)
    vertices, faces = (torch.as_tensor(z, device=device) for z in (mesh.vertices, mesh.faces))
    areas = torch.as_tensor(np.linalg.norm(mesh.face_normals(), axis=1), device=device).cumsum(0)
    where = torch.rand(n, dtype=torch.float64, device=device, generator=generator) * areas[-1]
    face = faces[torch.searchsorted(areas, where).clamp_(max=len(areas) - 1)]
    s, t = torch.rand(2, n, 1, device=device, generator=generator)
    s, t = torch.where(s + t > 1, 1 - s, s), torch.where(s + t > 1, 1 - t, t)
    p, q, r = vertices.float()[face].unbind(1)
    return p + s * (q - p) + t * (r - p)


def surface_pair(name: str, n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """n points on each surface of one of PAIRS, drawn independently.  (n, 3) float32 each"""
    first, second = mesh_pair(name)
    return surface_points(first, n, 2 * seed, device), surface_points(second, n, 2 * seed + 1, device)


@dataclass(frozen=True)
class Pair:
    """Subsampled clouds of radius 1, uniform weights, with two equally good answers for each source point.

    The answers are positions: the target vertex that a source point corresponds to need not have been drawn.
    """

    source: Array  # (N, 3)
    target: Array  # (M, 3)
    truths: tuple[Array, Array]  # (N, 3) each: direct, and mirrored left/right
    diagonal: float  # of the bounding box of the whole target

    def error(self, match: Index) -> float:
        """Mean distance to the truth / diagonal, the whole map against the better of both truths."""
        found = self.target[match]
        return min(float(np.linalg.norm(found - truth, axis=1).mean()) / self.diagonal for truth in self.truths)

    @property
    def floor(self) -> float:
        """The error of the best map into the drawn target points."""
        gaps = (pairwise_distances(truth, self.target).min(1).mean() for truth in self.truths)
        return min(float(gap) for gap in gaps) / self.diagonal


def man_pair(n: int, seed: int = 0) -> Pair:
    """n vertices of the man in A-pose and, drawn independently and in random order, n of the same man running.

    Vertices are drawn by their area, so that the clouds cover the surfaces evenly: the mesh itself is much finer on the
    face, the hands and the feet.
    """
    meshes = mesh_pair("man")
    source, target = (mesh.vertices for mesh in meshes)
    mirror = np.load(data_folder() / "poses" / "mh_man.sym.npy")
    if not 2 <= n <= len(source):
        sys.exit(f"The man has {len(source)} vertices: ask for 2 to {len(source)} points, not {n}.")
    i, j = (
        np.random.default_rng([seed, side]).choice(len(source), n, replace=False, p=areas / areas.sum())
        for side, areas in enumerate(mesh.vertex_areas() for mesh in meshes)
    )
    x = source[i] - source[i].mean(0)
    centre = target[j].mean(0)
    radius = np.linalg.norm(target[j] - centre, axis=1).max()
    moved = (target - centre) / radius
    return Pair(
        source=x / np.linalg.norm(x, axis=1).max(),
        target=moved[j],
        truths=(moved[i], moved[mirror[i]]),
        diagonal=float(np.linalg.norm(np.ptp(moved, axis=0))),
    )


@dataclass(frozen=True)
class Step:
    """The arguments of one Sinkhorn step: π_ij = exp(<q_i, k_j> + u_i + v_j), with u = f + log a and v = g + log b."""

    score: LowRank
    u: Tensor
    v: Tensor
    log_a: Tensor
    log_b: Tensor

    @property
    def potentials(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.u - self.log_a, self.v - self.log_b, self.log_a, self.log_b

    def to(self, dtype: torch.dtype) -> Step:
        score = LowRank(self.score.q.to(dtype), self.score.k.to(dtype), self.score.grid)
        return Step(score, *(z.to(dtype) for z in (self.u, self.v, self.log_a, self.log_b)))

    def first(self, n: int) -> Step:
        if n >= len(self.u):
            return self
        return Step(LowRank(self.score.q[:n], self.score.k[:n]), *(z[:n] for z in (self.u, self.v, self.log_a, self.log_b)))


def extended_step(n: int, epsilon: float) -> Step:
    """The man pair: Γ from a match of its first points, potentials extended to all and settled by Sinkhorn steps."""
    pair = man_pair(n)
    spaces = [gromap.Space(points[:COARSE]) for points in (pair.source, pair.target)]
    solution = gromap.solve(*spaces, epsilon=epsilon, scale=None)
    gamma, f, g = (torch.from_numpy(z) for z in (solution.gamma, *solution.potentials))

    def problem(*features: Any) -> CntProblem:
        x, y = map(torch.from_numpy, features)
        a, b = (torch.full((len(z),), 1 / len(z), dtype=z.dtype) for z in (x, y))
        return CntProblem(x, y, a, b, epsilon, gromap.CntGW().truncation)

    coarse = problem(*(space.features for space in spaces))
    fine = problem(*(space.project(z) for space, z in zip(spaces, (pair.source, pair.target), strict=True)))
    start = interpolate(coarse, gamma, Potentials(f / epsilon, g / epsilon), fine)
    score = fine.score(gamma)
    end = sinkhorn(score, fine.log_a, fine.log_b, start, Sinkhorn(steps=SETTLE, tol=1e-3))
    return Step(score, end.f + fine.log_a, end.g + fine.log_b, fine.log_a, fine.log_b)


def solved_step(n: int, epsilon: float, device: torch.device) -> Step:
    """The shipped humans, n points of each surface, matched."""
    plan = gromap.solve(*surface_pair("human", n, 0, device), epsilon=epsilon).plan
    score = whole(plan.score)
    assert isinstance(score, LowRank)
    return Step(score, plan.u, plan.v, plan.a.log(), plan.b.log())


def pairwise_distances(x: Array, y: Array) -> Array:
    """|x_i - y_j|, from the differences themselves: exact zeros on the diagonal.  (N, M)"""
    return cdist(x, y).astype(np.float64, copy=False)


def round_to_marginals(pi: Array, a: Array, b: Array) -> Array:
    """The coupling of a and b nearest to a non-negative matrix, up to a factor (Altschuler, Weed & Rigollet 2017, Alg. 2)."""
    rows = pi.sum(1)
    pi = pi * np.divide(a, rows, out=np.ones_like(a), where=rows > a)[:, None]
    cols = pi.sum(0)
    pi = pi * np.divide(b, cols, out=np.ones_like(b), where=cols > b)
    missing_a, missing_b = a - pi.sum(1), b - pi.sum(0)
    mass = np.abs(missing_a).sum()
    return pi + np.outer(missing_a, missing_b) / mass if mass > 0 else pi


def gw_loss(cx: Array, cy: Array, pi: Array) -> float:
    """L(π) = Σ (cx_ik - cy_jl)² π_ij π_kl, in float64.  O(N M (N + M))"""
    a, b = pi.sum(1), pi.sum(0)
    return float(a @ cx**2 @ a + b @ cy**2 @ b - 2 * ((cx @ pi @ cy) * pi).sum())


def marginal_error(pi: Array, a: Array, b: Array) -> float:
    """Misplaced mass, rows plus columns, in L1."""
    return float(np.abs(pi.sum(1) - a).sum() + np.abs(pi.sum(0) - b).sum())

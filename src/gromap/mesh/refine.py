"""A map between two surfaces, made sharp by the eigenfunctions of their Laplacians: ZoomOut (Melzi
et al. 2019), in both directions.

A and B are the eigenfunctions of both sides, C the functional map, A C ≈ B∘T. For K = 20, 30 .. 150

    1  C       from the pairs of both maps, by least squares over the first K functions
    2  T(i)    the nearest B_j Cᵀ of A_i, and back the nearest A_i C of B_j

between some thousand samples of each side, which makes a step as fast for large meshes as for small
ones (Magnet & Ovsjanikov 2023). All vertices follow at the end.

A map that was in the wrong place stays there, and one that was right may be spoilt where the
shapes are too different. So that of least near distortion is kept, the one given included:

    mean of | d(i, j) / √area - d(T i, T j) / √area | over pairs that are near on the source

which tells, without any truth, which of several maps is better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from scipy.spatial import KDTree
from torch import Tensor

from gromap._threads import one_thread, side_by_side
from gromap._torch import from_numpy, split, untyped
from gromap.mesh.clean import components
from gromap.mesh.embedding import decimate, factor, laplacian
from gromap.mesh.mesh import Mesh
from gromap.mesh.paths import Near
from gromap.transport import LowRank

MODES = 150  # eigenfunctions of the last step: 50 leave twice the error, 200 spoil some maps
FIRST, STEP = 20, 10
LAST = 3  # steps with all of them
KEPT = (50, 100, 150)  # of which the better map is kept
SAMPLES = 3000  # of each side; fewer than PER_MODE for each eigenfunction spoil the map
PER_MODE = 13
LEAST = 30  # eigenfunctions from which there is anything to gain
NEIGHBORS = 12  # of a vertex, at most, that a walk looks at
WALKS = 4  # samples that a walk to the nearest vertex begins at: 1 misses a sixth of them, 4 a thirtieth
AT_ONCE = 2048  # vertices that walk side by side
SHIFT = 25.0  # of eigenvalues of a shape of area 1, of which the k-th is about 4πk: to be inverted
Tell = Callable[[str], Any]


@dataclass(frozen=True, eq=False)
class Refined:
    """Maps in both directions, and how they were chosen."""

    maps: tuple[np.ndarray, np.ndarray] | None  #: (N,) and (M,); None: the given one is the best
    modes: int  #: eigenfunctions that they were made with; 0: the given one
    near: dict[int, float]  #: near distortion for each number of eigenfunctions


def most_modes(source: Mesh, target: Mesh) -> int:
    """The eigenfunctions that two meshes have vertices for."""
    fewest = min(len(np.unique(mesh.faces)) for mesh in (source, target))
    return min(MODES, min(fewest, SAMPLES) // PER_MODE)


def refine(
    source: Mesh,
    target: Mesh,
    match: np.ndarray,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    tell: Tell | None = None,
) -> Refined:
    """Maps of all vertices, from a map (N,) of vertices of the source to vertices of the target.

    Where the given map has the least near distortion, it is kept. Vertices without faces go where
    the nearest other one does.

    >>> from gromap.datasets import humans
    >>> pair = humans()
    >>> start = KDTree(pair.target.vertices).query(pair.direct + 0.05)[1]
    >>> found = refine(pair.source, pair.target, start)
    >>> found.near[found.modes] < 0.5 * found.near[0]
    True
    """
    most, tell = most_modes(source, target), tell or (lambda text: None)
    if most < LEAST:
        raise ValueError(
            f"a map is refined from {LEAST * PER_MODE} vertices with faces on, of both meshes; these have "
            f"{len(source.vertices)} and {len(target.vertices)} vertices."
        )
    with one_thread():
        return _refine(source, target, match, most, seed, device, tell)


def _refine(
    source: Mesh, target: Mesh, match: np.ndarray, most: int, seed: int, device: torch.device | str, tell: Tell
) -> Refined:
    tell(f"{most} eigenfunctions of both meshes")
    sides = side_by_side(lambda mesh: _Side.of(mesh, most, seed, device), (source, target))
    x, y = sides
    start = from_numpy(y.place[match[x.used]]).to(device)
    tell("functional maps")
    found = _zoom(x, y, start, most)
    near = Near(x.mesh, y.mesh, seed)
    looked = from_numpy(near.looked).to(device)
    ends = {0: start[looked]} | {k: _nearest(x.modes[looked, :k], y, C.mT) for k, C in found.items()}
    off = {k: near.distortion(end.cpu().numpy()) for k, end in ends.items()}
    best = min(off, key=lambda k: off[k])
    if best == 0:
        return Refined(None, 0, off)
    tell(f"maps of all vertices by {best} eigenfunctions")
    C = found[best]
    there = _nearest(x.modes[:, :best], y, C.mT), _nearest(y.modes[:, :best], x, C)
    maps = [b.used[z.cpu().numpy()][a.place] for z, a, b in zip(there, sides, sides[::-1], strict=True)]
    return Refined((maps[0], maps[1]), best, off)


@dataclass(frozen=True, eq=False)
class _Side:
    """One of both meshes, of area one, without vertices that have no faces."""

    mesh: Mesh
    used: np.ndarray  # the old vertex of each
    place: np.ndarray  # for each old vertex the nearest one of these
    modes: Tensor  # (n, K) float32
    samples: Tensor  # (S,)
    areas: Tensor  # (S,) around each sample
    ring: Tensor  # (n, W) neighbors of each vertex, and itself where there are fewer

    @classmethod
    def of(cls, mesh: Mesh, modes: int, seed: int, device: torch.device | str) -> _Side:
        used, faces = np.unique(mesh.faces, return_inverse=True)
        place: np.ndarray = np.asarray(KDTree(mesh.vertices[used]).query(mesh.vertices)[1])
        place[used] = np.arange(len(used))  # also where two vertices coincide
        unit = np.sqrt(mesh.area) or 1.0
        mesh = Mesh(mesh.vertices[used].astype(np.float64) / unit, faces.reshape(-1, 3))
        phi, area = eigenfunctions(mesh, modes, seed)
        _, samples = decimate(mesh, components(mesh)[1], SAMPLES, seed)
        owner = KDTree(mesh.vertices[samples]).query(mesh.vertices)[1]
        areas = np.bincount(owner, area, len(samples)).astype(np.float32)
        tensors = (from_numpy(z).to(device) for z in (phi, samples, areas, mesh.ring(NEIGHBORS)))
        return cls(mesh, used, place, *tensors)


def eigenfunctions(mesh: Mesh, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The first eigenfunctions of the Laplacian, ∫ φ² = 1 over a surface of area one, to three
    digits, and the areas of the vertices.  (N, count) float32, (N,)

    Those of the inverse of √M⁻¹ L √M⁻¹ + a shift: sums in single precision are twice as fast.
    """
    stiff, area = laplacian(mesh)
    area = area / area.sum()
    root, solve = np.sqrt(area), factor(stiff + SHIFT * scipy.sparse.diags_array(area))
    apply = lambda v: (root * solve(root * v.ravel())).astype(np.float32)  # noqa: E731
    inverse: Any = scipy.sparse.linalg.LinearOperator(stiff.shape, matvec=apply, dtype=np.float32)  # type: ignore[call-arg]
    start = np.random.default_rng(seed).normal(size=len(area)).astype(np.float32)
    basis = min(len(area), max(count + 20, count * 6 // 5))
    options: dict[str, Any] = {"which": "LM", "v0": start, "tol": 1e-2, "ncv": basis}
    theta, v = scipy.sparse.linalg.eigsh(inverse, count, **options)
    return (v[:, np.argsort(-theta)] / root[:, None]).astype(np.float32), area


def _zoom(x: _Side, y: _Side, start: Tensor, most: int) -> dict[int, Tensor]:
    """Functional maps of so many eigenfunctions; start: (n,) for each vertex of x one of y."""
    A, B = x.modes[x.samples], y.modes[y.samples]
    P, Q, weight = A, y.modes[start[x.samples]], x.areas
    found = dict[int, Tensor]()
    kept = {k for k in KEPT if k < most} | {most}
    levels = sorted({*range(FIRST, most, STEP), *kept})
    for k in [*levels, *[most] * LAST]:
        root = weight.sqrt()[:, None]
        C = untyped.linalg.lstsq(root * P[:, :k], root * Q[:, :k]).solution
        if k in kept:
            found[k] = C
        there, back = _argmin(A[:, :k], B[:, :k] @ C.mT), _argmin(B[:, :k], A[:, :k] @ C)
        P, Q, weight = torch.cat([A, A[back]]), torch.cat([B[there], B]), torch.cat([x.areas, y.areas])
    return found


def _argmin(x: Tensor, y: Tensor) -> Tensor:
    """The nearest row of y for each one of x: |x - y|² is least where x·y - |y|² / 2 is largest."""
    return LowRank(x.contiguous(), y).argmax(-y.square().sum(1) / 2)


def _nearest(x: Tensor, side: _Side, C: Tensor) -> Tensor:
    """For each row of x about the nearest vertex of a side, with its eigenfunctions times C: from
    the nearest samples, over its edges, as long as that comes nearer.  (n,)"""
    y = side.modes[:, : len(C)] @ C
    half = y.square().sum(1) / 2
    samples = y[side.samples]
    starts = LowRank(x.contiguous(), samples).topk(-half[side.samples], min(WALKS, len(samples)))[1]
    parts = list(zip(split(x, AT_ONCE), split(starts, AT_ONCE), strict=True))
    return torch.cat(side_by_side(lambda part: _walk(part[0], y, half, side.samples[part[1]], side.ring), parts))


def _walk(x: Tensor, y: Tensor, half: Tensor, starts: Tensor, ring: Tensor) -> Tensor:
    """The best end of walks from several vertices, (n, W), for each row of x.  (n,)"""
    n, walks = starts.shape
    at, rows = starts.reshape(-1), torch.arange(n, device=x.device).repeat_interleave(walks)
    score = (x[rows] * y[at]).sum(1) - half[at]
    moving = torch.arange(len(at), device=x.device)
    while len(moving):
        around = ring[at[moving]]
        beside = torch.einsum("nk,nwk->nw", x[rows[moving]], y[around]) - half[around]
        best, which = beside.max(1)
        better = best > score[moving] + 1e-6 * score[moving].abs()
        moving, best = moving[better], best[better]
        at[moving] = around[better].gather(1, which[better][:, None])[:, 0]
        score[moving] = best
    return at.view(n, walks).gather(1, score.view(n, walks).argmax(1)[:, None])[:, 0]

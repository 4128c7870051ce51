"""A map between two surfaces, made sharp by the eigenfunctions of their Laplacians: ZoomOut (Melzi
et al. 2019), in both directions.

A and B are the eigenfunctions of both sides, C the functional map, A C ≈ B∘T. For K = 20, 30 .. 150

    1  C       from the pairs of both maps, by least squares over the first K functions
    2  T(i)    the nearest B_j Cᵀ of A_i, and back the nearest A_i C of B_j

between some thousand samples of each side, which makes a step as fast for large meshes as for small
ones (Magnet & Ovsjanikov 2023). Eigenfunctions and near distances are those of meshes decimated to
16,000 vertices, where waves are still ten times as long as edges. All vertices follow at the end.

A map that was in the wrong place stays there, and one that was right may be spoilt where the
shapes are too different. So that of least near distortion is kept, the one given included:

    mean of | d(i, j) / √area - d(T i, T j) / √area | over pairs that are near on the source

which tells, without any truth, which of several maps is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from gromap._threads import one_thread, side_by_side
from gromap._torch import from_numpy, split, untyped
from gromap.mesh.clean import components
from gromap.mesh.eigenfunctions import eigenfunctions, refined
from gromap.mesh.embedding import decimate
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
AT_ONCE = 512  # vertices that walk side by side, within the cache of a core
VERTICES = 16_000  # of the decimated meshes
Tell = Callable[[str], Any]
Images = Callable[[np.ndarray], np.ndarray]  # of some vertices of the source, vertices of the target


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
    return refine_from(source, target, lambda some: match[some], seed=seed, device=device, tell=tell)


def refine_from(
    source: Mesh,
    target: Mesh,
    images: Images,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    tell: Tell | None = None,
) -> Refined:
    """The same from a map of which a few thousand images are asked for, once."""
    most, tell = most_modes(source, target), tell or (lambda text: None)
    if most < LEAST:
        raise ValueError(
            f"a map is refined from {LEAST * PER_MODE} vertices with faces on, of both meshes; these have "
            f"{len(source.vertices)} and {len(target.vertices)} vertices."
        )
    with one_thread():
        return _refine(source, target, images, most, seed, device, tell)


def _refine(
    source: Mesh, target: Mesh, images: Images, most: int, seed: int, device: torch.device | str, tell: Tell
) -> Refined:
    tell(f"{most} eigenfunctions of both meshes")
    x, y = (_Side.of(mesh, most, seed, device) for mesh in (source, target))
    tell("functional maps")
    near = Near(x.mesh, y.mesh, seed)
    looked = from_numpy(near.looked).to(device)
    start = from_numpy(y.nearby(images(x.vertices(torch.cat([x.samples, looked]))))).to(device)
    first, given = start[: len(x.samples)], start[len(x.samples) :]
    kept = {k for k in KEPT if k < most} | {most}
    levels = [*sorted({*range(FIRST, most, STEP), *kept}), *[most] * LAST]
    found = _zoom(x.modes[x.samples], y.modes[y.samples], y.modes[first], (x.areas, y.areas), levels)
    ends = {k: _nearest(x.modes[looked, :k], y, y.modes[:, :k] @ found[k].mT) for k in sorted(kept)}
    off = {k: near.distortion(end.cpu().numpy()) for k, end in ({0: given} | ends).items()}
    best = min(off, key=lambda k: off[k])
    if best == 0:
        return Refined(None, 0, off)
    tell(f"maps of all vertices by {best} eigenfunctions")
    A, B, C = x.modes[:, :best], y.modes[:, :best], found[best]
    there, back = _nearest(A, y, B @ C.mT), _nearest(B, x, A @ C)
    if not (x.is_whole and y.is_whole):
        there, back = _on_whole(x, y, there, back, best)
    return Refined((x.of_old(there, y), y.of_old(back, x)), best, off)


def _on_whole(x: _Side, y: _Side, there: Tensor, back: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The maps of all vertices, from those of the decimated meshes: by the eigenfunctions of the
    whole ones, over whose edges each vertex walks from where its neighbors go."""
    A, B = (side.all_modes(most) for side in (x, y))
    at, to = x.anchors[x.samples], y.anchors[y.samples]
    C = _zoom(A[at], B[to], B[y.anchors[there[x.samples]]], (x.areas, y.areas), [most] * LAST)[most]
    rings = (from_numpy(side.whole.ring(NEIGHBORS)).to(A.device) for side in (y, x))
    starts = y.anchors[there[x.home]], x.anchors[back[y.home]]
    pairs = (A, B @ C.mT), (B, A @ C)
    found = [_walks(*pair, start, ring) for pair, start, ring in zip(pairs, starts, rings, strict=True)]
    return found[0], found[1]


@dataclass(frozen=True, eq=False)
class _Side:
    """One of both meshes, of area one, without vertices that have no faces, and decimated."""

    whole: Mesh
    used: np.ndarray  # the old vertex of each
    place: np.ndarray  # for each old vertex the nearest one of these
    mesh: Mesh  # decimated
    anchors: Tensor  # (n,) the vertex of `whole` at each
    home: Tensor  # (N, WALKS) for each vertex of `whole` the nearest ones of these, the first its own
    modes: Tensor  # (n, K) float32
    samples: Tensor  # (S,) some of these
    areas: Tensor  # (S,) around each sample
    ring: Tensor  # (n, W) neighbors of each vertex, and itself where there are fewer

    @classmethod
    def of(cls, mesh: Mesh, modes: int, seed: int, device: torch.device | str) -> _Side:
        used, faces = np.unique(mesh.faces, return_inverse=True)
        place = _nearest_of(mesh.vertices, used)[:, 0]
        unit = np.sqrt(mesh.area) or 1.0
        whole = Mesh(mesh.vertices[used].astype(np.float64) / unit, faces.reshape(-1, 3))
        mesh, anchors = decimate(whole, components(whole)[1], VERTICES, seed)
        phi, area = eigenfunctions(mesh, modes, seed)
        _, samples = decimate(mesh, components(mesh)[1], SAMPLES, seed)
        owner = _nearest_of(mesh.vertices, samples)[:, 0]
        areas = np.bincount(owner, area, len(samples)).astype(np.float32)
        home = _nearest_of(whole.vertices, anchors, WALKS)
        tensors = (from_numpy(z).to(device) for z in (anchors, home, phi, samples, areas, mesh.ring(NEIGHBORS)))
        return cls(whole, used, place, mesh, *tensors)

    @property
    def is_whole(self) -> bool:
        return len(self.anchors) == len(self.home)

    def vertices(self, some: Tensor) -> np.ndarray:
        """The old vertices at some of the decimated mesh."""
        return self.used[self.anchors[some].cpu().numpy()]

    def nearby(self, vertices: np.ndarray) -> np.ndarray:
        """The vertices of the decimated mesh next to some old ones."""
        return self.home[:, 0].cpu().numpy()[self.place[vertices]]

    def of_old(self, ends: Tensor, other: _Side) -> np.ndarray:
        """A map of all vertices of `whole`, as one between those that were given."""
        return other.used[ends.cpu().numpy()][self.place]

    def all_modes(self, count: int) -> Tensor:
        """The first eigenfunctions of `whole`.  (N, count)"""
        modes = self.modes[:, :count]
        if self.is_whole:
            return modes
        return from_numpy(refined(self.whole, modes[self.home[:, 0]].cpu().numpy())).to(modes)


def _nearest_of(points: np.ndarray, some: np.ndarray, count: int = 1) -> np.ndarray:
    """The nearest of some points, for each; for these themselves.  (N, count)"""
    found = np.asarray(KDTree(points[some]).query(points, count)[1]).reshape(len(points), count)
    found[some, 0] = np.arange(len(some))  # also where two coincide
    return found


def _zoom(A: Tensor, B: Tensor, Q: Tensor, areas: tuple[Tensor, Tensor], levels: Sequence[int]) -> dict[int, Tensor]:
    """The functional map of each number of eigenfunctions, given these at the samples of both
    sides, and those of y at the images of the samples of x: A, B and Q."""
    found, P, weight = dict[int, Tensor](), A, areas[0]
    for k in levels:
        root = weight.sqrt()[:, None]
        C = found[k] = untyped.linalg.lstsq(root * P[:, :k], root * Q[:, :k]).solution
        there, back = _argmin(A[:, :k], B[:, :k] @ C.mT), _argmin(B[:, :k], A[:, :k] @ C)
        P, Q, weight = torch.cat([A, A[back]]), torch.cat([B[there], B]), torch.cat(areas)
    return found


def _argmin(x: Tensor, y: Tensor) -> Tensor:
    """The nearest row of y for each one of x: |x - y|² is least where x·y - |y|² / 2 is largest."""
    return LowRank(x.contiguous(), y).argmax(-y.square().sum(1) / 2)


def _nearest(x: Tensor, side: _Side, y: Tensor) -> Tensor:
    """For each row of x about the nearest row of y, one for each vertex of a decimated mesh: from
    the nearest samples, over its edges, as long as that comes nearer.  (n,)"""
    samples = y[side.samples]
    starts = LowRank(x.contiguous(), samples).topk(-samples.square().sum(1) / 2, min(WALKS, len(samples)))[1]
    return _walks(x, y, side.samples[starts], side.ring)


def _walks(x: Tensor, y: Tensor, starts: Tensor, ring: Tensor) -> Tensor:
    """The best end of walks over the edges from some vertices, (n, W), for each row of x.  (n,)"""
    half = y.square().sum(1) / 2
    parts = list(zip(split(x, AT_ONCE), split(starts, AT_ONCE), strict=True))
    return torch.cat(side_by_side(lambda part: _walk(part[0], y, half, part[1], ring), parts))


def _walk(x: Tensor, y: Tensor, half: Tensor, starts: Tensor, ring: Tensor) -> Tensor:
    """The same for a few rows; half: those of |y|² / 2."""
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

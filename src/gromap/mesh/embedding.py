"""Points of R^k whose Euclidean distances follow a mesh (Experiment Details of the paper, after
Panozzo et al. 2013).

    1  decimate to about 2000 vertices          fast_simplification, jittered against slivers
    2  geodesic distances from 200 landmarks    geodesic.py
    3  multidimensional scaling into R^8        classical, then SMACOF
    4  all vertices from these                  min ∫ |Δ X|², given the 2000: (L M⁻¹ L) X = 0

Distances from 200 landmarks do as well as those between all 2000 (docs/decisions/meshes.md). Stress
is weighted by 1 / d²: errors count relatively, so that near pairs are kept, of which maps are made.

L is the Laplacian of the tufted cover (Sharp & Crane 2020), which exists for any mesh, open or not
manifold; M has the vertex areas on its diagonal. Diffusion and biharmonic coordinates are
eigenvectors of the same L, M.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from scipy.spatial import KDTree
from torch import Tensor

from gromap import _check
from gromap._threads import one_thread
from gromap._torch import eigh, from_numpy
from gromap.mesh.clean import components, without_folds
from gromap.mesh.geodesic import distances, is_manifold
from gromap.mesh.mesh import Mesh
from gromap.mesh.paths import farthest_vertices

MANY_PIECES = 100
JITTER = 1e-2  # of the mean edge
STEPS = 60  # of the scaling
LANDMARKS = 200  # that distances are taken from: 100 keep near pairs 1 to 4 % worse, 400 take twice as long
GEODESIC = {"geodesic": "paths", "heat": "heat", "exact": "exact"}  # how each cost measures distances
METHODS = (*GEODESIC, "diffusion", "biharmonic")
Tell = Callable[[str], Any]


@dataclass(frozen=True, eq=False)
class MeshEmbedding:
    """Coordinates of all vertices, and how well they keep the distances that they were made
    from."""

    points: np.ndarray  #: (N, k) float64
    distances: str  #: how distances were measured: "paths", "exact", "heat", "diffusion", "biharmonic"
    anchors: np.ndarray  #: vertices that were scaled, all N or about 2000 of them
    #: mean of | |x - y| - d | / d for landmarks x and all of them; nan for the spectral methods
    distortion: float
    pieces: int  #: connected components of the mesh

    def __repr__(self) -> str:
        off = "" if math.isnan(self.distortion) else f", distances off by {100 * self.distortion:.1f} % on average"
        return f"MeshEmbedding({len(self.points)} vertices in R^{self.points.shape[1]}, {self._way()}{off})"

    def _way(self) -> str:
        return {"paths": "shortest paths", "exact": "exact geodesics"}.get(self.distances, self.distances)


def embed_mesh(
    mesh: Mesh,
    method: str = "geodesic",
    dim: int = 8,
    vertices: int = 2000,
    seed: int = 0,
    device: torch.device | str = "cpu",
    tell: Tell | None = None,
) -> MeshEmbedding:
    """Coordinates in R^dim whose Euclidean distances are close to distances on the mesh.

    method: "geodesic" (by shortest paths), "exact" (geodesics, where edges have at most two faces),
    "heat" (geodesics by the heat method), "diffusion" (at the time where the first mode has fallen
    by half), "biharmonic".  vertices: of the decimated mesh.  tell: called with a line at each
    stage.  Connected components are joined by straight bridges between their nearest points. A
    vertex without faces gets the coordinates of the nearest other one.

    >>> from gromap.datasets import humans
    >>> embed_mesh(humans().source, "heat", vertices=500).distortion < 0.1
    True
    """
    _check.choice(method, METHODS, "mesh cost")
    if not len(mesh.faces):
        raise ValueError(f"cost {method!r} needs a surface, and this mesh has no faces: use 'euclidean'.")
    used = np.unique(mesh.faces)
    if len(used) < len(mesh.vertices):
        place = np.searchsorted(used, mesh.faces)
        part = embed_mesh(Mesh(mesh.vertices[used], place), method, dim, vertices, seed, device, tell)
        nearest = KDTree(mesh.vertices[used]).query(mesh.vertices)[1]
        return MeshEmbedding(part.points[nearest], part.distances, used[part.anchors], part.distortion, part.pieces)
    tell = tell or (lambda text: None)
    count, label = components(mesh)
    if count > MANY_PIECES:
        raise ValueError(
            f"this mesh has {count} separate pieces, and distances between pieces are a guess: merge its duplicate "
            "vertices, keep its large pieces, or use cost='euclidean'."
        )
    if method in ("diffusion", "biharmonic"):
        tell(f"eigenvectors of the Laplacian of {len(mesh.vertices)} vertices")
        return MeshEmbedding(_spectral(mesh, method, dim, seed), method, np.arange(len(mesh.vertices)), math.nan, count)
    coarse, anchors = decimate(mesh, label, vertices, seed)
    way, n = GEODESIC[method], len(coarse.vertices)
    if way == "exact" and not is_manifold(coarse):
        raise ValueError(
            "cost 'exact' needs edges with at most two faces, which this mesh has not, or lost when it was decimated: "
            "use 'geodesic', which is within a percent or two."
        )
    landmarks = farthest_vertices(coarse, LANDMARKS)
    known = distances(
        coarse, landmarks, way, lambda done, _: tell(f"geodesic distances, {done} of {len(landmarks)} landmarks")
    )
    tell(f"multidimensional scaling of {n} vertices into R^{dim}")
    with one_thread():  # many small steps
        scaled, distortion = scale(from_numpy(known).to(device), from_numpy(landmarks), min(dim, n - 1))
    points = np.zeros((n, dim))
    points[:, : scaled.shape[1]] = scaled.cpu().numpy()
    if len(anchors) < len(mesh.vertices):
        tell(f"interpolation to {len(mesh.vertices)} vertices")
    return MeshEmbedding(extend(mesh, anchors, points), way, anchors, distortion, count)


def decimate(mesh: Mesh, label: np.ndarray, vertices: int, seed: int) -> tuple[Mesh, np.ndarray]:
    """A mesh of about so many vertices, shared by the components, and for each of them a nearby
    vertex of the old mesh."""
    n = len(mesh.vertices)
    if n <= 1.2 * vertices:
        return mesh, np.arange(n)
    simplify = _check.extra("fast_simplification", "mesh")
    rng, parts, anchors, faces, size = np.random.default_rng(seed), [], [], [], 0
    edge = np.linalg.norm(mesh.vertices[mesh.faces[:, 0]] - mesh.vertices[mesh.faces[:, 1]], axis=1).mean()
    jittered = (mesh.vertices + JITTER * edge * rng.normal(size=mesh.vertices.shape)).astype(np.float32)
    for k in range(label.max() + 1):
        mine = np.flatnonzero(label == k)
        own = np.searchsorted(mine, mesh.faces[label[mesh.faces[:, 0]] == k])
        v, f, owner = jittered[mine], own, np.arange(len(mine))
        target = max(50, round(vertices * len(mine) / n))
        if target < len(mine):
            *_, steps = simplify.simplify(v, own, target_reduction=1 - target / len(mine), agg=5, return_collapses=True)
            v, f, owner = simplify.replay_simplification(v, own, steps)
        gap = np.linalg.norm(v[owner] - mesh.vertices[mine], axis=1)
        order = np.lexsort((gap, owner))
        first = order[np.unique(owner[order], return_index=True)[1]]  # of the vertices merged into one, the nearest
        kept = np.arange(len(v))
        if target < len(mine):
            open_, some = without_folds(Mesh(v, f))
            if len(open_.faces):  # else the piece is nothing but folds, a sheet with two sides
                v, f, kept = open_.vertices, open_.faces, some
        parts.append(v)
        anchors.append(mine[first][kept])
        faces.append(f + size)
        size += len(v)
    return Mesh(np.concatenate(parts).astype(np.float64), np.concatenate(faces)), np.concatenate(anchors)


def scale(known: Tensor, landmarks: Tensor, dim: int, steps: int = STEPS) -> tuple[Tensor, float]:
    """Multidimensional scaling of N points, given the distances of L landmarks to all, (L, N): X
    minimizes Σ (|X_l - X_i| / d_li - 1)² over these pairs. (N, dim), and the mean relative error.

    SMACOF (de Leeuw 1977) in turns: given all landmarks each point moves to the minimum of a
    majorizer, X_i <- Σ_l w_li (X_l + d_li (X_i - X_l) / |X_i - X_l|) / Σ_l w_li, overrelaxed by 2
    (de Leeuw & Heiser 1980); then given all points the landmarks. From the classical solution for
    the landmarks, and for the others by their distances to these (de Silva & Tenenbaum 2004).

    >>> x = torch.randn(30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> scale(torch.cdist(x[:10], x), torch.arange(10), 3)[1] < 1e-6
    True
    """
    known, landmarks = known.clone(), landmarks.to(known.device)
    between = known[:, landmarks]
    known[:, landmarks] = between = (between + between.mT) / 2
    known[torch.arange(len(landmarks)), landmarks] = 0
    weight = torch.where(known > 0, known, math.inf).square().reciprocal()
    weight = weight / weight.mean().clamp(min=1e-300)
    x = _classical(known, landmarks, dim)
    for step in range(steps):
        new = _closer(x, x[landmarks], known.mT, weight.mT)
        x = 2 * new - x if step < steps - 1 else new
        x[landmarks] = _closer(x[landmarks], x, known, weight)
    far, apart = torch.cdist(x[landmarks], x), known > 0
    return x, float(((far - known).abs() / known)[apart].mean())


def _closer(x: Tensor, y: Tensor, d: Tensor, weight: Tensor) -> Tensor:
    """Where points x go for their distances d to fixed points y."""
    far = torch.cdist(x, y)
    pull = torch.where(far > 0, weight * d / far.clamp(min=1e-300), 0.0)
    total = weight.sum(1, keepdim=True)
    moved = (pull.sum(1, keepdim=True) * x - pull @ y + weight @ y) / total.clamp(min=1e-300)
    return torch.where(total > 0, moved, x)


def _classical(known: Tensor, landmarks: Tensor, dim: int) -> Tensor:
    """The leading eigenvectors of -½ H d² H of the landmarks, as long as the roots of their
    eigenvalues; all points by d² to these."""
    square = known[:, landmarks].square()
    mean = square.mean(0)
    inner = -0.5 * (square - mean - mean[:, None] + mean.mean())
    theta, turn = eigh(inner)
    theta, turn = theta.flip(0)[:dim].clamp(min=0), turn.flip(1)[:, :dim]
    inverse = torch.where(theta > 1e-12 * theta[0], theta.clamp(min=1e-300).rsqrt(), 0.0)
    x = -0.5 * (known.square().mT - mean) @ (turn * inverse)
    return torch.nn.functional.pad(x, (0, dim - x.shape[1]))


def laplacian(mesh: Mesh) -> tuple[scipy.sparse.csc_array, np.ndarray]:
    """The positive semidefinite Laplacian of any mesh, and the areas of its vertices."""
    robust = _check.extra("robust_laplacian", "mesh")
    stiff, mass = robust.mesh_laplacian(mesh.vertices.astype(np.float64), mesh.faces.astype(np.int64))
    area = mass.diagonal()
    return scipy.sparse.csc_array(stiff), np.maximum(area, 1e-9 * area.mean())


def extend(mesh: Mesh, anchors: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The field of least ∫ |Δ X|² with given values at some vertices, at least one in each
    component.  (N, k)"""
    free = np.ones(len(mesh.vertices), bool)
    free[anchors] = False
    out = np.empty((len(mesh.vertices), values.shape[1]))
    out[anchors] = values
    if free.any():
        stiff, area = laplacian(mesh)
        bend = (stiff @ scipy.sparse.diags_array(1 / area) @ stiff).tocsc()
        rest = bend[free]
        out[free] = factor(rest[:, free])(-(rest[:, ~free] @ out[~free]))
    return out


def factor(matrix: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The solver of a sparse symmetric positive definite system."""
    symmetric = {"SymmetricMode": True}
    return scipy.sparse.linalg.splu(
        matrix.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=symmetric
    ).solve


def eigenpairs(mesh: Mesh, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least eigenvalues of the Laplacian, their modes, ∫ φ² = 1, and the areas of the
    vertices.  (count,), (N, count), (N,)"""
    stiff, area = laplacian(mesh)
    mass = scipy.sparse.diags_array(area).tocsc()
    shift = 1e-8 * stiff.diagonal().sum() / area.sum()
    start = np.random.default_rng(seed).normal(size=len(area))
    inverse: Any = scipy.sparse.linalg.LinearOperator(stiff.shape, matvec=factor(stiff + shift * mass))  # type: ignore[call-arg]
    theta, modes = scipy.sparse.linalg.eigsh(stiff, count, mass, sigma=-shift, v0=start, OPinv=inverse)
    return theta, modes, area


def _spectral(mesh: Mesh, method: str, dim: int, seed: int) -> np.ndarray:
    """φ_k / λ_k (biharmonic, Lipman et al. 2010) or exp(-λ_k t) φ_k with exp(-λ_1 t) = ½
    (diffusion)."""
    theta, modes, _ = eigenpairs(mesh, dim + 1, seed)
    theta, modes = theta[1:], modes[:, 1:]  # without the constant
    theta = theta.clip(1e-6 * theta.max())  # one constant for each component
    return modes / theta if method == "biharmonic" else modes * np.exp(-np.log(2) * theta / theta[0])

"""Points of R^k whose Euclidean distances follow a mesh (Experiment Details of the paper, after
Panozzo et al. 2013).

    1  decimate to about 2000 vertices          fast_simplification, jittered against slivers
    2  geodesic distances between all of them   geodesic.py
    3  multidimensional scaling into R^8        classical, then SMACOF
    4  all vertices from these                  min ∫ |Δ X|², given the 2000: (L M⁻¹ L) X = 0

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
from gromap.mesh.clean import components
from gromap.mesh.geodesic import distances, is_manifold
from gromap.mesh.mesh import Mesh

MANY_PIECES = 100
JITTER = 1e-2  # of the mean edge
METHODS = ("geodesic", "heat", "diffusion", "biharmonic")
Tell = Callable[[str], Any]


@dataclass(frozen=True, eq=False)
class MeshEmbedding:
    """Coordinates of all vertices, and how well they keep the distances that they were made
    from."""

    points: np.ndarray  #: (N, k) float64
    distances: str  #: how distances were measured: "exact", "heat", "diffusion", "biharmonic"
    anchors: np.ndarray  #: vertices whose distances were computed, all N or about 2000 of them
    distortion: float  #: mean of | |x - y| - d | / d over pairs of them; nan for the spectral methods
    pieces: int  #: connected components of the mesh

    def __repr__(self) -> str:
        off = "" if math.isnan(self.distortion) else f", distances off by {100 * self.distortion:.1f} % on average"
        return f"MeshEmbedding({len(self.points)} vertices in R^{self.points.shape[1]}, {self.distances}{off})"


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

    method: "geodesic" (exact where edges have at most two faces, else by the heat method), "heat",
    "diffusion" (at the time where the first mode has fallen by half), "biharmonic".  vertices: of
    the decimated mesh.  tell: called with a line at each stage.  Connected components are joined by
    straight bridges between their nearest points. A vertex without faces gets the coordinates of
    the nearest other one.

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
    way = "exact" if method == "geodesic" and is_manifold(coarse) else "heat"
    n = len(coarse.vertices)
    known = distances(coarse, np.arange(n), way, lambda done, _: tell(f"geodesic distances, {done} of {n} vertices"))
    known = np.minimum(known, known.T)
    tell(f"multidimensional scaling of {n} vertices into R^{dim}")
    scaled, distortion = scale(torch.from_numpy(known).to(device), min(dim, n - 1), seed)
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
        parts.append(v)
        anchors.append(mine[first])
        faces.append(f + size)
        size += len(v)
    return Mesh(np.concatenate(parts).astype(np.float64), np.concatenate(faces)), np.concatenate(anchors)


def scale(known: Tensor, dim: int, seed: int, steps: int = 100, tol: float = 1e-2) -> tuple[Tensor, float]:
    """Multidimensional scaling: X minimizes Σ (|X_i - X_j| - d_ij)², and the mean relative error
    of its distances.

    SMACOF (de Leeuw 1977), X <- B(X) X / n with B_ij = -d_ij / |X_i - X_j| off the diagonal and
    rows that sum to zero, overrelaxed by 2 (de Leeuw & Heiser 1980), from the classical solution;
    until ten steps lower the stress by less than `tol`.

    >>> x = torch.randn(30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> scale(torch.cdist(x, x).fill_diagonal_(0), 3, seed=0)[1] < 1e-6
    True
    """
    n = len(known)
    x, last = _classical(known, dim, seed), math.inf
    for step in range(steps):
        far = torch.cdist(x, x)
        ratio = torch.where(far > 0, known / far.clamp(min=1e-300), 0.0)
        new = (ratio.sum(1, keepdim=True) * x - ratio @ x) / n
        if step % 10 == 9:
            stress = float((far - known).square().sum())
            if stress > (1 - tol) * last:
                break
            last = stress
        x = 2 * new - x
    far, apart = torch.cdist(new, new), known > 0
    return new, float(((far - known).abs() / known)[apart].mean())


def _classical(known: Tensor, dim: int, seed: int) -> Tensor:
    """The leading eigenvectors of -½ H d² H, as long as the roots of their eigenvalues."""
    square = known.square()
    mean = square.mean(0)
    inner = -0.5 * (square - mean - mean[:, None] + mean.mean())
    guess = torch.randn(len(known), dim + 10, dtype=known.dtype, generator=torch.Generator().manual_seed(seed))
    basis = torch.linalg.qr(guess.to(known.device)).Q
    for _ in range(12):
        basis = torch.linalg.qr(inner @ basis).Q
    theta, turn = torch.linalg.eigh(basis.mT @ inner @ basis)
    theta, turn = theta.flip(0)[:dim], turn.flip(1)[:, :dim]
    return basis @ turn * theta.clamp(min=0).sqrt()


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
        out[free] = _factor(rest[:, free])(-(rest[:, ~free] @ out[~free]))
    return out


def _factor(matrix: Any) -> Callable[[np.ndarray], np.ndarray]:
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
    inverse: Any = scipy.sparse.linalg.LinearOperator(stiff.shape, matvec=_factor(stiff + shift * mass))  # type: ignore[call-arg]
    theta, modes = scipy.sparse.linalg.eigsh(stiff, count, mass, sigma=-shift, v0=start, OPinv=inverse)
    return theta, modes, area


def _spectral(mesh: Mesh, method: str, dim: int, seed: int) -> np.ndarray:
    """φ_k / λ_k (biharmonic, Lipman et al. 2010) or exp(-λ_k t) φ_k with exp(-λ_1 t) = ½
    (diffusion)."""
    theta, modes, _ = eigenpairs(mesh, dim + 1, seed)
    theta, modes = theta[1:], modes[:, 1:]  # without the constant
    theta = theta.clip(1e-6 * theta.max())  # one constant for each component
    return modes / theta if method == "biharmonic" else modes * np.exp(-np.log(2) * theta / theta[0])

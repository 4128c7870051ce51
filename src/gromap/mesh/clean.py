"""Cleaning: repeated vertices and faces, faces without area and vertices without a face are
removed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import connected_components

from gromap.mesh.mesh import Mesh


@dataclass(frozen=True)
class Report:
    """What `clean` removed, and the topology of the result."""

    merged: int  #: vertices with exactly the coordinates of an earlier one
    unreferenced: int  #: vertices without a face, after merging
    degenerate: int  #: faces without area
    repeated: int  #: faces with the corners of an earlier one
    components: int  #: connected components of the result
    boundary: int  #: edges of the result with one face; 0 for a closed surface
    crowded: int  #: edges of the result with more than two faces; 0 for a manifold

    def __str__(self) -> str:
        removed = [
            f"{count} {what}"
            for count, what in (
                (self.merged, "vertices at the place of another"),
                (self.unreferenced, "vertices without a face"),
                (self.degenerate, "faces without area"),
                (self.repeated, "repeated faces"),
            )
            if count
        ]
        shape = f"{self.components} component{'s' if self.components != 1 else ''}"
        edges = f"{self.boundary} boundary edges" if self.boundary else "closed"
        crowded = f", {self.crowded} edges with more than two faces" if self.crowded else ""
        return f"removed {', '.join(removed) or 'nothing'}; {shape}, {edges}{crowded}"


@dataclass(frozen=True, eq=False)
class Cleaned:
    mesh: Mesh
    kept: np.ndarray  #: (n,) for each vertex of the result, its index in the old mesh
    report: Report


def clean(mesh: Mesh) -> Cleaned:
    """Merge vertices at the same place; drop faces without area, repeated faces, then vertices
    without a face.

    The order is kept; of several vertices at one place the first remains, with its color. A cloud
    loses repeated points only.

    >>> corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0.0]])
    >>> cleaned = clean(Mesh(corners, np.array([[0, 1, 2], [3, 2, 4], [0, 3, 1]])))
    >>> cleaned.mesh, cleaned.kept.tolist(), str(cleaned.report)
    (Mesh(4 vertices, 2 faces), [0, 1, 2, 4], 'removed 1 vertices at the place of another, 1 faces
    without area;
    1 component, 4 boundary edges')
    """
    n = len(mesh.vertices)
    _, first, place = np.unique(mesh.vertices, axis=0, return_index=True, return_inverse=True)
    same = first[place.reshape(-1)]  # (N,) the first vertex at the place of each
    faces = same[mesh.faces]
    flat = _flat(replace(mesh, faces=faces))
    repeated = np.ones(len(faces), bool)
    repeated[np.unique(np.sort(faces, 1), axis=0, return_index=True)[1]] = False
    repeated &= ~flat
    left = ~flat & ~repeated
    faces = faces[left]
    used = np.zeros(n, bool)
    used[faces if len(mesh.faces) else same] = True
    kept = np.flatnonzero(used)
    new = np.cumsum(used) - 1
    out = replace(
        mesh,
        vertices=mesh.vertices[kept],
        faces=new[faces],
        colors=None if mesh.colors is None else mesh.colors[kept],
        uv=None if mesh.uv is None else mesh.uv[left],
    )
    merged = n - len(first)
    edges = _edge_counts(out.faces)
    return Cleaned(
        out,
        kept,
        Report(
            merged=merged,
            unreferenced=n - merged - len(kept),
            degenerate=int(flat.sum()),
            repeated=int(repeated.sum()),
            components=components(out)[0],
            boundary=int((edges == 1).sum()),
            crowded=int((edges > 2).sum()),
        ),
    )


def without_folds(mesh: Mesh) -> tuple[Mesh, np.ndarray]:
    """Without faces that lie on another with the same corners: of those that are turned opposite
    ways both go, of the others one stays. Then without vertices that have lost all of their faces.
    The mesh, and the old vertex of each.

    Decimation leaves such folds. They enclose nothing, and make edges with four faces.

    >>> corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.0], [2, 0, 0]])
    >>> without_folds(Mesh(corners, np.array([[0, 1, 2], [0, 2, 3], [1, 4, 2], [4, 1, 2]])))
    (Mesh(4 vertices, 2 faces), array([0, 1, 2, 3]))
    """
    faces = mesh.faces
    order = np.argsort(faces, axis=1)
    even = (order[:, 1] - order[:, 0]) % 3 == 1  # a cyclic order: these corners go round one way
    _, first, same = np.unique(np.sort(faces, axis=1), axis=0, return_index=True, return_inverse=True)
    turns = np.bincount(same.reshape(-1), np.where(even, 1, -1))
    faces = faces[np.sort(first[turns != 0])]
    kept, place = np.unique(faces, return_inverse=True)
    return Mesh(mesh.vertices[kept], place.reshape(-1, 3)), kept


def components(mesh: Mesh) -> tuple[int, np.ndarray]:
    """The number of connected components, and the component of each vertex, (N,).

    A vertex without faces is a component of its own; a cloud counts as one.
    """
    n = len(mesh.vertices)
    if not len(mesh.faces):
        return 1, np.zeros(n, np.int64)
    i, j = mesh.faces.reshape(-1), np.roll(mesh.faces, 1, 1).reshape(-1)
    graph = scipy.sparse.coo_array((np.ones(len(i), bool), (i, j)), shape=(n, n))
    count, label = connected_components(graph, directed=False)
    return int(count), label


def _flat(mesh: Mesh) -> np.ndarray:
    """Faces whose height is below the rounding of their coordinates.  (F,) bool"""
    corners = mesh.vertices[mesh.faces].astype(np.float64)
    longest = ((corners - np.roll(corners, 1, 1)) ** 2).sum(2).max(1, initial=0.0)
    precision = np.finfo(mesh.vertices.dtype if mesh.vertices.dtype.kind == "f" else np.float64).eps
    return np.linalg.norm(mesh.face_normals(), axis=1) <= precision * longest


def _edge_counts(faces: np.ndarray) -> np.ndarray:
    edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), 1)
    return np.unique(edges, axis=0, return_counts=True)[1]

"""A surface through a cloud of points."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import KDTree

from gromap.mesh.mesh import Mesh


def require_pymeshlab() -> Any:
    """The package, or what to install to have it."""
    try:
        import pymeshlab  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError(f"surfaces need pymeshlab ({error}): pip install 'gromap[poisson]'") from error
    return pymeshlab


def poisson_surface(points: np.ndarray, depth: int, neighbours: int, sides: np.ndarray | None = None) -> Mesh:
    """Screened Poisson reconstruction (Kazhdan & Hoppe 2013) of a closed surface, with normals from the nearest points.

    sides: (N, 3) directions that roughly point outwards, such as `normals_at` the points that a flow began with: normals of
    points know no side, and where one is guessed wrong the surface has a flap.
    """
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"a surface needs points in space, (N, 3), got {points.shape}.")
    pymeshlab = require_pymeshlab()
    meshes = pymeshlab.MeshSet()
    if sides is None:
        meshes.add_mesh(pymeshlab.Mesh(vertex_matrix=points.astype(np.float64)))
        meshes.compute_normal_for_point_clouds(k=neighbours)
    else:
        normals = _normals(points, sides, neighbours)
        meshes.add_mesh(pymeshlab.Mesh(vertex_matrix=points.astype(np.float64), v_normals_matrix=normals))
    meshes.generate_surface_reconstruction_screened_poisson(depth=depth)
    found = meshes.current_mesh()
    return outward(Mesh(found.vertex_matrix(), found.face_matrix().astype(np.int64)), len(points))


def normals_at(mesh: Mesh, points: np.ndarray) -> np.ndarray:
    """The direction of the surface next to each point: that of the face whose middle is nearest.  (N, 3)"""
    normals = mesh.face_normals()
    normals /= np.linalg.norm(normals, axis=1, keepdims=True).clip(1e-300)
    return normals[KDTree(mesh.vertices[mesh.faces].mean(1)).query(points)[1]]


def _normals(points: np.ndarray, sides: np.ndarray, neighbours: int) -> np.ndarray:
    """The direction in which the nearest points spread least, towards the side.  (N, 3)

    >>> plane = np.array([[0.0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]])
    >>> bool(np.allclose(_normals(plane, np.tile([0.1, 0.0, -1.0], (4, 1)), 4), [0.0, 0.0, -1.0]))
    True
    """
    near = points[KDTree(points).query(points, k=min(neighbours, len(points)))[1]].astype(np.float64)
    spread = near - near.mean(1, keepdims=True)
    normals = np.linalg.svd(spread, full_matrices=False)[2][:, 2]
    return normals * np.where((normals * sides).sum(1) < 0, -1.0, 1.0)[:, None]


def outward(mesh: Mesh, points: int) -> Mesh:
    """A closed surface through so many points, with its faces turned outwards: normals of points know no side.

    >>> inside = np.array([[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]])
    >>> outward(Mesh(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]), inside), 4).faces.tolist()
    [[2, 1, 0], [1, 3, 0], [3, 2, 0], [2, 3, 1]]
    """
    if not len(mesh.faces):
        raise ValueError(f"no surface goes through these {points} points: take more, 1500 for a vertebra.")
    p, q, r = np.moveaxis(mesh.vertices[mesh.faces] - mesh.vertices.mean(0), 1, 0)
    volume = float((p * np.cross(q, r)).sum()) / 6
    return mesh if volume >= 0 else Mesh(mesh.vertices, mesh.faces[:, ::-1].copy())

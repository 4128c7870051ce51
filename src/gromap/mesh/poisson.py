"""A surface through a cloud of points."""

from __future__ import annotations

import numpy as np
from scipy.spatial import KDTree

from gromap import _check
from gromap.mesh.mesh import Mesh


def poisson_surface(points: np.ndarray, depth: int, neighbors: int, sides: np.ndarray | None = None) -> Mesh:
    """Screened Poisson reconstruction (Kazhdan & Hoppe 2013) of a closed surface, with normals
    from the nearest points.

    sides: (N, 3) directions that roughly point outwards, such as `normals_at` the points that a
    flow began with: normals estimated from points have no orientation, and where one is guessed
    wrong the surface has a flap.
    """
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"a surface needs points in space, (N, 3), got {points.shape}.")
    pymeshlab = _check.extra("pymeshlab", "poisson")
    meshes = pymeshlab.MeshSet()
    if sides is None:
        meshes.add_mesh(pymeshlab.Mesh(vertex_matrix=points.astype(np.float64)))
        meshes.compute_normal_for_point_clouds(k=neighbors)
    else:
        normals = _normals(points, sides, neighbors)
        meshes.add_mesh(pymeshlab.Mesh(vertex_matrix=points.astype(np.float64), v_normals_matrix=normals))
    meshes.generate_surface_reconstruction_screened_poisson(depth=depth)
    found = meshes.current_mesh()
    return outward(Mesh(found.vertex_matrix(), found.face_matrix().astype(np.int64)), len(points))


def normals_at(mesh: Mesh, points: np.ndarray) -> np.ndarray:
    """The unit normal of the surface near each point: that of the face with the nearest center.
    (N, 3)"""
    normals = mesh.face_normals()
    normals /= np.linalg.norm(normals, axis=1, keepdims=True).clip(1e-300)
    return normals[KDTree(mesh.vertices[mesh.faces].mean(1)).query(points)[1]]


def _normals(points: np.ndarray, sides: np.ndarray, neighbors: int) -> np.ndarray:
    """The direction of least spread of the nearest points, oriented by the sides.  (N, 3)

    >>> plane = np.array([[0.0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]])
    >>> bool(np.allclose(_normals(plane, np.tile([0.1, 0.0, -1.0], (4, 1)), 4), [0.0, 0.0, -1.0]))
    True
    """
    near = points[KDTree(points).query(points, k=min(neighbors, len(points)))[1]].astype(np.float64)
    spread = near - near.mean(1, keepdims=True)
    normals = np.linalg.svd(spread, full_matrices=False)[2][:, 2]
    return normals * np.where((normals * sides).sum(1) < 0, -1.0, 1.0)[:, None]


def outward(mesh: Mesh, points: int) -> Mesh:
    """A closed surface through so many points, with its faces oriented outwards.

    >>> inside = np.array([[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]])
    >>> corners = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    >>> outward(Mesh(corners, inside), 4).faces.tolist()
    [[2, 1, 0], [1, 3, 0], [3, 2, 0], [2, 3, 1]]
    """
    if not len(mesh.faces):
        raise ValueError(f"no surface goes through these {points} points: take more, 1500 for a vertebra.")
    p, q, r = np.moveaxis(mesh.vertices[mesh.faces] - mesh.vertices.mean(0), 1, 0)
    volume = float((p * np.cross(q, r)).sum()) / 6
    return mesh if volume >= 0 else Mesh(mesh.vertices, mesh.faces[:, ::-1].copy())

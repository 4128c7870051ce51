"""A surface through a cloud of points."""

from __future__ import annotations

from typing import Any

import numpy as np

from gromap.mesh.mesh import Mesh


def require_pymeshlab() -> Any:
    """The package, or what to install to have it."""
    try:
        import pymeshlab  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError(f"surfaces need pymeshlab ({error}): pip install 'gromap[poisson]'") from error
    return pymeshlab


def poisson_surface(points: np.ndarray, depth: int, neighbours: int) -> Mesh:
    """Screened Poisson reconstruction (Kazhdan & Hoppe 2013) of a closed surface, with normals from the nearest points."""
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"a surface needs points in space, (N, 3), got {points.shape}.")
    pymeshlab = require_pymeshlab()
    meshes = pymeshlab.MeshSet()
    meshes.add_mesh(pymeshlab.Mesh(vertex_matrix=points.astype(np.float64)))
    meshes.compute_normal_for_point_clouds(k=neighbours)
    meshes.generate_surface_reconstruction_screened_poisson(depth=depth)
    found = meshes.current_mesh()
    return outward(Mesh(found.vertex_matrix(), found.face_matrix().astype(np.int64)), len(points))


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

"""A surface through a cloud of points."""

from __future__ import annotations

import numpy as np

from gromap.mesh.mesh import Mesh


def poisson_surface(points: np.ndarray, depth: int, neighbours: int) -> Mesh:
    """Screened Poisson reconstruction (Kazhdan & Hoppe 2013) of a closed surface, with normals from the nearest points."""
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"a surface needs points in space, (N, 3), got {points.shape}.")
    try:
        import pymeshlab  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError(f"surfaces need pymeshlab ({error}): pip install 'gromap[poisson]'") from error
    meshes = pymeshlab.MeshSet()
    meshes.add_mesh(pymeshlab.Mesh(vertex_matrix=points.astype(np.float64)))
    meshes.compute_normal_for_point_clouds(k=neighbours)
    meshes.generate_surface_reconstruction_screened_poisson(depth=depth)
    found = meshes.current_mesh()
    return Mesh(found.vertex_matrix(), found.face_matrix().astype(np.int64))

"""Meshes of other libraries, known by what they have: vertices and faces, in their order. Colors
and textures stay behind.

    trimesh, pyFM      .vertices, .faces               open3d     .vertices, .triangles; .points
    pyvista            .points, .faces (flat)          meshio     .points, .cells_dict
    libigl, anything   (vertices, faces), a pair of arrays
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gromap.mesh.mesh import Mesh

NONE = np.zeros((0, 3), np.int64)


def mesh_of(thing: Any) -> Mesh | None:
    """The mesh that an object of another library is; None if it is none.

    >>> mesh_of((np.eye(3), np.array([[0, 1, 2]])))
    Mesh(3 vertices, 1 faces)
    """
    vertices: Any
    faces: Any
    if isinstance(thing, tuple | list):
        if len(thing) != 2:
            return None
        vertices, faces = thing
    elif hasattr(thing, "extract_surface") and not hasattr(thing, "faces"):
        return None  # a volume of pyvista
    elif hasattr(thing, "cells_dict"):
        vertices, faces = thing.points, thing.cells_dict.get("triangle", NONE)
    elif hasattr(thing, "is_all_triangles") and hasattr(thing, "faces"):
        vertices, faces = thing.points, _triangles(thing)
    elif hasattr(thing, "vertices"):
        faces = getattr(thing, "faces", getattr(thing, "triangles", NONE))
        vertices, faces = thing.vertices, NONE if faces is None else faces
    elif hasattr(thing, "points"):
        vertices, faces = thing.points, NONE
    else:
        return None
    points, corners = np.array(vertices), np.array(faces)
    if points.dtype.kind not in "iuf" or corners.dtype.kind not in "iuf":
        return None
    points = points if points.dtype == np.float32 else points.astype(np.float64)
    return Mesh(points, corners.astype(np.int64) if corners.size else NONE)


def _triangles(polydata: Any) -> np.ndarray:
    """Of pyvista, whose faces are the number of their corners before these: [3, i, j, k, 3, ...].
    (F, 3)"""
    whole = polydata if polydata.is_all_triangles else polydata.triangulate()
    return np.asarray(whole.faces).reshape(-1, 4)[:, 1:]

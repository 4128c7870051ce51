"""The two sides of a surface: which meshes have them, and which one is outside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gromap.mesh.mesh import Mesh


@dataclass(frozen=True, eq=False)
class Outside:
    """Of a surface that has two sides."""

    normals: np.ndarray  #: (N, 3) unit normals of the vertices
    closed: bool  #: whether there is an inside


def outside(mesh: Mesh) -> Outside | None:
    """Which side of a mesh is outside; None where its faces do not agree about its two sides, or
    where there are none.

    They agree if no two faces run along an edge in the same direction. A closed surface encloses a
    positive volume, so that normals point outwards even where a file has its faces inside out; of
    an open one they are on the side from which its faces run counter-clockwise.

    >>> corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    >>> faces = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    >>> one, inside_out = (outside(Mesh(corners, f)).normals for f in (faces, faces[:, ::-1]))
    >>> bool(np.allclose(one, inside_out) and (one[0] < 0).all())
    True
    """
    if not len(mesh.faces) or mesh.vertices.shape[1] != 3:
        return None
    faces = mesh.faces[(mesh.faces != np.roll(mesh.faces, 1, axis=1)).all(1)]  # others have no sides
    runs = faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    code = runs[:, 0] * len(mesh.vertices) + runs[:, 1]
    if len(np.unique(code)) < len(code):
        return None
    normals = mesh.vertex_normals()
    closed = bool(np.isin(code, runs[:, 1] * len(mesh.vertices) + runs[:, 0]).all())
    if closed:
        corners = (mesh.vertices - mesh.vertices.mean(0, dtype=np.float64))[faces].astype(np.float64)
        normals = normals * (np.sign(np.linalg.det(corners).sum()) or 1.0)
    return Outside(normals, closed)

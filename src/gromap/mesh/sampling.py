"""Points of a surface: drawn uniformly, or spread evenly over it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gromap.geometry.measure import spread_points
from gromap.mesh.mesh import Mesh

DRAWN_PER_POINT = 10  # random points, for each one of an even sample


@dataclass(frozen=True, eq=False)
class Sample:
    """Points of a surface with their barycentric coordinates: points = Σ_k weights_k
    vertices[corners_k]."""

    points: np.ndarray  #: (n, d)
    corners: np.ndarray  #: (n, 3) vertices of the face of each point; (n, 1) for a cloud, the vertex itself
    weights: np.ndarray  #: (n, 3) or (n, 1), barycentric coordinates: they sum to one

    def carry(self, values: np.ndarray) -> np.ndarray:
        """Values at the vertices, (N, ...), to the points, (n, ...)."""
        return np.einsum("nk,nk...->n...", self.weights, np.asarray(values)[self.corners])


def sample(mesh: Mesh, n: int, seed: int = 0) -> Sample:
    """n points drawn uniformly from the surface; from a cloud, n distinct points of it.

    >>> triangle = Mesh(np.eye(3), np.array([[0, 1, 2]]))
    >>> drawn = sample(triangle, 5)
    >>> again = drawn.carry(triangle.vertices)
    >>> drawn.points.shape, np.allclose(again, drawn.points), np.allclose(again.sum(1), 1)
    ((5, 3), True, True)
    """
    rng = np.random.default_rng(seed)
    if n < 1:
        raise ValueError(f"sample needs n >= 1 points, got {n}.")
    if not len(mesh.faces):
        if n > len(mesh.vertices):
            raise ValueError(f"the cloud has {len(mesh.vertices)} points, {n} distinct ones cannot be drawn: lower n.")
        drawn = rng.permutation(len(mesh.vertices))[:n]
        return Sample(mesh.vertices[drawn], drawn[:, None], np.ones((n, 1)))
    areas = mesh.face_areas()
    if not areas.sum() > 0:
        raise ValueError("no face of the mesh has any area: nothing can be drawn from it.")
    face = rng.choice(len(areas), n, p=areas / areas.sum())
    u, v = np.sqrt(rng.random(n)), rng.random(n)
    weights = np.stack([1 - u, u * (1 - v), u * v], 1)  # uniform in a triangle
    corners = mesh.faces[face]
    points = np.einsum("nk,nkd->nd", weights, mesh.vertices[corners])
    return Sample(points.astype(np.result_type(mesh.vertices, np.float32)), corners, weights)


def spread_sample(mesh: Mesh, n: int, seed: int) -> np.ndarray:
    """n points, evenly on a surface; or of a cloud at most so many, as dense as it is.  (n, d)

    >>> triangle = Mesh(np.eye(3, dtype=np.float32), np.array([[0, 1, 2]]))
    >>> cloud = Mesh(np.eye(3), np.zeros((0, 3), int))
    >>> spread_sample(triangle, 7, 0).shape, spread_sample(cloud, 7, 0).shape
    ((7, 3), (3, 3))
    """
    if not len(mesh.faces):
        return sample(mesh, min(n, len(mesh.vertices)), seed).points
    drawn = torch.from_numpy(sample(mesh, DRAWN_PER_POINT * n, seed).points)
    return drawn[spread_points(drawn - drawn.mean(0), n)].numpy()

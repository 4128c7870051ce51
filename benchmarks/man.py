"""The man pair with its ground truth, in subsampled clouds of radius 1."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import ConvexHull, KDTree
from scipy.spatial.distance import pdist

from gromap.bench.scores import Array, Index, pairwise_distances
from gromap.bench.shapes import data_folder, mesh_pair
from gromap.geometry.measure import farthest_points
from gromap.mesh.cache import cached_embedding


@dataclass(frozen=True)
class ManPair:
    """Subsampled clouds of radius 1, with two equally good answers for each source point.

    The answers are positions: the target vertex that a source point corresponds to need not have
    been drawn.
    """

    source: Array  # (N, d)
    target: Array  # (M, d)
    a: Array  # (N,) weights
    b: Array  # (M,)
    places: Array  # (M, 3) where the target's points are
    truths: tuple[Array, Array]  # (N, 3) each: direct, and mirrored left/right
    diameter: float  # of the whole target: its largest straight distance

    def error(self, match: Index) -> float:
        """Mean distance to the truth / diameter, the whole map against the better of both
        truths."""
        found = self.places[match]
        return min(float(np.linalg.norm(found - truth, axis=1).mean()) / self.diameter for truth in self.truths)

    @property
    def floor(self) -> float:
        """The error of the best map into the drawn target points."""
        gaps = (pairwise_distances(truth, self.places).min(1).mean() for truth in self.truths)
        return min(float(gap) for gap in gaps) / self.diameter


def man_pair(n: int, seed: int = 0, geodesic: bool = False, even: bool = False) -> ManPair:
    """n vertices of the man in A-pose and, drawn independently and in random order, n of the
    same man running.

    Vertices are drawn by their area, so that the clouds cover the surfaces: the mesh itself is much
    finer on the face, the hands and the feet.  geodesic: the clouds are points of R^8, whose
    straight distances follow the surfaces.
    even: farthest points instead of random ones, each with the area of the vertices that are
    nearest to it.
    """
    meshes = mesh_pair("man")
    mirror = np.load(data_folder() / "poses" / "mh_man.sym.npy")
    size, whole = len(mirror), meshes[1].vertices
    if not 2 <= n <= size:
        sys.exit(f"The man has {size} vertices: ask for 2 to {size} points, not {n}.")
    clouds = [cached_embedding(mesh, "geodesic").points if geodesic else mesh.vertices for mesh in meshes]
    draw = _even if even else _random
    (i, a), (j, b) = (
        draw(cloud, mesh.vertex_areas(), n, np.random.default_rng([seed, side]))
        for side, (cloud, mesh) in enumerate(zip(clouds, meshes, strict=True))
    )
    diameter = float(pdist(whole[ConvexHull(whole).vertices]).max())
    return ManPair(
        _unit(clouds[0][i], a), _unit(clouds[1][j], b), a, b, whole[j], (whole[i], whole[mirror[i]]), diameter
    )


def _random(cloud: Array, areas: Array, n: int, rng: np.random.Generator) -> tuple[Index, Array]:
    return rng.choice(len(cloud), n, replace=False, p=areas / areas.sum()), np.full(n, 1 / n)


def _even(cloud: Array, areas: Array, n: int, rng: np.random.Generator) -> tuple[Index, Array]:
    """Farthest points from a random first one, in random order, and their shares of the area."""
    points = torch.from_numpy(np.asarray(cloud, np.float64))
    first = torch.tensor(rng.integers(len(cloud)))
    chosen = farthest_points(lambda k: (points - points[k]).square().sum(1), first, n).numpy()
    chosen = rng.permutation(chosen)
    mass = np.bincount(KDTree(cloud[chosen]).query(cloud)[1], areas, n)
    return chosen, mass / mass.sum()


def _unit(points: Array, weights: Array) -> Array:
    """Centered, with the farthest point at distance 1."""
    points = points - weights @ points
    return points / np.linalg.norm(points, axis=1).max()

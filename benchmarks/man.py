"""The man pair with its ground truth, in subsampled clouds of radius 1."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from gromap.bench.scores import Array, Index, pairwise_distances
from gromap.bench.shapes import data_folder, mesh_pair
from gromap.mesh.cache import cached_embedding


@dataclass(frozen=True)
class Pair:
    """Subsampled clouds of radius 1, uniform weights, with two equally good answers for each source point.

    The answers are positions: the target vertex that a source point corresponds to need not have been drawn.
    """

    source: Array  # (N, d)
    target: Array  # (M, d)
    places: Array  # (M, 3) where the target's points are
    truths: tuple[Array, Array]  # (N, 3) each: direct, and mirrored left/right
    diagonal: float  # of the bounding box of the whole target

    def error(self, match: Index) -> float:
        """Mean distance to the truth / diagonal, the whole map against the better of both truths."""
        found = self.places[match]
        return min(float(np.linalg.norm(found - truth, axis=1).mean()) / self.diagonal for truth in self.truths)

    @property
    def floor(self) -> float:
        """The error of the best map into the drawn target points."""
        gaps = (pairwise_distances(truth, self.places).min(1).mean() for truth in self.truths)
        return min(float(gap) for gap in gaps) / self.diagonal


def man_pair(n: int, seed: int = 0, geodesic: bool = False) -> Pair:
    """n vertices of the man in A-pose and, drawn independently and in random order, n of the same man running.

    Vertices are drawn by their area, so that the clouds cover the surfaces evenly: the mesh itself is much finer on the
    face, the hands and the feet.  geodesic: the clouds are points of R^8, whose straight distances follow the surfaces.
    """
    meshes = mesh_pair("man")
    mirror = np.load(data_folder() / "poses" / "mh_man.sym.npy")
    size, whole = len(mirror), meshes[1].vertices
    if not 2 <= n <= size:
        sys.exit(f"The man has {size} vertices: ask for 2 to {size} points, not {n}.")
    i, j = (
        np.random.default_rng([seed, side]).choice(size, n, replace=False, p=areas / areas.sum())
        for side, areas in enumerate(mesh.vertex_areas() for mesh in meshes)
    )
    x, y = (cached_embedding(mesh, "geodesic").points if geodesic else mesh.vertices for mesh in meshes)
    diagonal = float(np.linalg.norm(np.ptp(whole, axis=0)))
    return Pair(_unit(x[i]), _unit(y[j]), whole[j], (whole[i], whole[mirror[i]]), diagonal)


def _unit(points: Array) -> Array:
    """Centred, with the farthest point at distance 1."""
    points = points - points.mean(0)
    return points / np.linalg.norm(points, axis=1).max()

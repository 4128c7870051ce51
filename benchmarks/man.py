"""The man pair with its ground truth, in subsampled clouds of radius 1."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from gromap.bench.scores import Array, Index, pairwise_distances
from gromap.bench.shapes import data_folder, mesh_pair


@dataclass(frozen=True)
class Pair:
    """Subsampled clouds of radius 1, uniform weights, with two equally good answers for each source point.

    The answers are positions: the target vertex that a source point corresponds to need not have been drawn.
    """

    source: Array  # (N, 3)
    target: Array  # (M, 3)
    truths: tuple[Array, Array]  # (N, 3) each: direct, and mirrored left/right
    diagonal: float  # of the bounding box of the whole target

    def error(self, match: Index) -> float:
        """Mean distance to the truth / diagonal, the whole map against the better of both truths."""
        found = self.target[match]
        return min(float(np.linalg.norm(found - truth, axis=1).mean()) / self.diagonal for truth in self.truths)

    @property
    def floor(self) -> float:
        """The error of the best map into the drawn target points."""
        gaps = (pairwise_distances(truth, self.target).min(1).mean() for truth in self.truths)
        return min(float(gap) for gap in gaps) / self.diagonal


def man_pair(n: int, seed: int = 0) -> Pair:
    """n vertices of the man in A-pose and, drawn independently and in random order, n of the same man running.

    Vertices are drawn by their area, so that the clouds cover the surfaces evenly: the mesh itself is much finer on the
    face, the hands and the feet.
    """
    meshes = mesh_pair("man")
    source, target = (mesh.vertices for mesh in meshes)
    mirror = np.load(data_folder() / "poses" / "mh_man.sym.npy")
    if not 2 <= n <= len(source):
        sys.exit(f"The man has {len(source)} vertices: ask for 2 to {len(source)} points, not {n}.")
    i, j = (
        np.random.default_rng([seed, side]).choice(len(source), n, replace=False, p=areas / areas.sum())
        for side, areas in enumerate(mesh.vertex_areas() for mesh in meshes)
    )
    x = source[i] - source[i].mean(0)
    centre = target[j].mean(0)
    radius = np.linalg.norm(target[j] - centre, axis=1).max()
    moved = (target - centre) / radius
    return Pair(
        source=x / np.linalg.norm(x, axis=1).max(),
        target=moved[j],
        truths=(moved[i], moved[mirror[i]]),
        diagonal=float(np.linalg.norm(np.ptp(moved, axis=0))),
    )

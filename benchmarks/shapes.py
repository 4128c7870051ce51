"""Real pairs of shapes with their ground truth, and the scores that put every solver on the same footing.

The folder of shapes is $GROMAP_DATA, or ../shared/data beside the repository.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]
Index = NDArray[np.int64]
HEADER = (
    rb"ply\nformat binary_little_endian 1\.0\n(?:comment[^\n]*\n)*"
    rb"element vertex (\d+)\nproperty float x\nproperty float y\nproperty float z\n"
    rb"element face (\d+)\nproperty list uchar int \w+\nend_header\n"
)


def data_folder() -> Path:
    """The folder that holds `poses/`, or the end of the program with a sentence that says how to set it."""
    root = Path(__file__).resolve().parent.parent
    folder = Path(os.environ.get("GROMAP_DATA") or root.parent / "shared" / "data")
    if not (folder / "poses").is_dir():
        sys.exit(f"No shapes in {folder}: set GROMAP_DATA to the folder that holds poses/mh_man_0.ply and its neighbours.")
    return folder


def read_mesh(path: Path) -> tuple[Array, Index]:
    """Vertices and triangles of a binary little-endian PLY file that holds float x, y, z and int32 triangles, nothing else."""
    raw = path.read_bytes()
    head = re.match(HEADER, raw)
    if head is None or len(raw) != head.end() + 12 * int(head[1]) + 13 * int(head[2]):
        sys.exit(f"{path} is not a whole binary little-endian PLY file of triangles with vertices x, y, z in float32.")
    vertices = np.frombuffer(raw, "<f4", 3 * int(head[1]), head.end()).reshape(-1, 3)
    faces = np.frombuffer(raw, [("count", "u1"), ("corners", "<i4", 3)], int(head[2]), head.end() + vertices.nbytes)
    return vertices.astype(np.float64), faces["corners"].astype(np.int64)


def vertex_areas(vertices: Array, faces: Index) -> Array:
    """A third of the area of the triangles around each vertex, as a share of the whole.  (V,)"""
    p, q, r = np.moveaxis(vertices[faces], 1, 0)
    area = np.linalg.norm(np.cross(q - p, r - p), axis=1)
    total = np.bincount(faces.ravel(), np.repeat(area, 3), len(vertices))
    return total / total.sum()


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
    poses = data_folder() / "poses"
    (source, faces), (target, _) = (read_mesh(poses / f"mh_man_{k}.ply") for k in (0, 1))
    mirror = np.load(poses / "mh_man.sym.npy")
    if not 2 <= n <= len(source):
        sys.exit(f"The man has {len(source)} vertices: ask for 2 to {len(source)} points, not {n}.")
    i, j = (
        np.random.default_rng([seed, side]).choice(len(source), n, replace=False, p=vertex_areas(shape, faces))
        for side, shape in enumerate((source, target))
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


def pairwise_distances(x: Array, y: Array) -> Array:
    """|x_i - y_j|, from the differences themselves: exact zeros on the diagonal.  (N, M)"""
    return cdist(x, y).astype(np.float64, copy=False)


def round_to_marginals(pi: Array, a: Array, b: Array) -> Array:
    """The coupling of a and b nearest to a non-negative matrix, up to a factor (Altschuler, Weed & Rigollet 2017, Alg. 2)."""
    rows = pi.sum(1)
    pi = pi * np.divide(a, rows, out=np.ones_like(a), where=rows > a)[:, None]
    cols = pi.sum(0)
    pi = pi * np.divide(b, cols, out=np.ones_like(b), where=cols > b)
    missing_a, missing_b = a - pi.sum(1), b - pi.sum(0)
    mass = np.abs(missing_a).sum()
    return pi + np.outer(missing_a, missing_b) / mass if mass > 0 else pi


def gw_loss(cx: Array, cy: Array, pi: Array) -> float:
    """L(π) = Σ (cx_ik - cy_jl)² π_ij π_kl, in float64.  O(N M (N + M))"""
    a, b = pi.sum(1), pi.sum(0)
    return float(a @ cx**2 @ a + b @ cy**2 @ b - 2 * ((cx @ pi @ cy) * pi).sum())


def marginal_error(pi: Array, a: Array, b: Array) -> float:
    """Misplaced mass, rows plus columns, in L1."""
    return float(np.abs(pi.sum(1) - a).sum() + np.abs(pi.sum(0) - b).sum())

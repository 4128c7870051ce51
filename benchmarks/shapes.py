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
    rb"element vertex (\d+)\nproperty float x\nproperty float y\nproperty float z\n(?:element|end_header)"
)


def data_folder() -> Path:
    """The folder that holds `poses/`, or the end of the program with a sentence that says how to set it."""
    root = Path(__file__).resolve().parent.parent
    folder = Path(os.environ.get("GROMAP_DATA") or root.parent / "shared" / "data")
    if not (folder / "poses").is_dir():
        sys.exit(f"No shapes in {folder}: set GROMAP_DATA to the folder that holds poses/mh_man_0.ply and its neighbours.")
    return folder


def read_vertices(path: Path) -> Array:
    """The vertices of a binary little-endian PLY file whose vertices come first and are float x, y, z.  (V, 3)"""
    raw = path.read_bytes()
    head = re.match(HEADER, raw)
    start = raw.find(b"end_header\n") + len(b"end_header\n")
    if head is None or len(raw) < start + 12 * int(head[1]):
        sys.exit(f"{path} is not a whole binary little-endian PLY file with vertices x, y, z in float32.")
    return np.frombuffer(raw, "<f4", 3 * int(head[1]), start).reshape(-1, 3).astype(np.float64)


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
    """n vertices of the man in A-pose and, drawn independently and in random order, n of the same man running."""
    poses = data_folder() / "poses"
    source, target = (read_vertices(poses / f"mh_man_{k}.ply") for k in (0, 1))
    mirror = np.load(poses / "mh_man.sym.npy")
    if not 2 <= n <= len(source):
        sys.exit(f"The man has {len(source)} vertices: ask for 2 to {len(source)} points, not {n}.")
    i, j = (np.random.default_rng([seed, side]).permutation(len(source))[:n] for side in (0, 1))
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

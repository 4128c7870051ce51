"""How the report poses its shapes: a frame for the source, and a rotation that aligns the target
with it.

Files do not say which way is up. The source is seen along its thinnest axis, with y up (z if y is
the thinnest); the target is turned towards the source by the rotation R that the plan suggests,
max_R Σ_ij π_ij <x_i, R y_j>, unless both already agree.
"""

from __future__ import annotations

import numpy as np

AGREE = np.radians(45)  # shapes whose frames differ by less, as two poses may, are shown as they are
ROUND = 0.05  # of the largest correlation: below it, a second axis of the match is too weak to turn by
WEAK = 0.5  # correlation of the points with their images, below which a match is no guide


def upright(points: np.ndarray) -> np.ndarray:
    """Rows: to the right, up, towards the viewer.  (3, 3), a rotation"""
    thin = int(np.ptp(points, axis=0).argmin())
    towards, up = np.eye(3)[thin], np.eye(3)[2 if thin == 1 else 1]
    return np.stack([np.cross(up, towards), up, towards])


def beside(points: np.ndarray, images: np.ndarray, weights: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """The frame of the target, whose `points` come from `images` in the source; a mirrored match
    is no turn.  (3, 3)"""
    centered = [z - weights @ z / weights.sum() for z in (images.astype(np.float64), points.astype(np.float64))]
    left, size, right = np.linalg.svd(centered[0].T * weights @ centered[1])
    most = np.prod([np.sqrt(weights @ (z**2).sum(1)) for z in centered])
    turn = left @ right
    if np.linalg.det(turn) < 0:  # left and right are swapped: undo it
        turn -= 2 * np.outer(frame[0], frame[0] @ turn)
    angle = np.arccos(np.clip((np.trace(turn) - 1) / 2, -1, 1))
    unclear = size.sum() <= WEAK * most or size[1] <= ROUND * size[0]
    return frame if unclear or angle < AGREE else frame @ turn

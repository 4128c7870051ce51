"""What the formats share: polygons to triangles, colours to [0, 1]."""

from __future__ import annotations

import numpy as np


def fan(counts: np.ndarray) -> np.ndarray:
    """Triangles of polygons whose corners are listed one after another, as places in this list.  (T, 3)

    A polygon becomes the fan around its first corner, exact if it is convex; points and lines give no triangle.

    >>> fan(np.array([3, 4])).tolist()
    [[0, 1, 2], [3, 4, 5], [3, 5, 6]]
    """
    counts = np.asarray(counts, dtype=np.int64)
    pieces = (counts - 2).clip(0)
    first = np.repeat(counts.cumsum() - counts, pieces)  # the first corner of the polygon of each triangle
    step = np.arange(len(first)) - np.repeat(pieces.cumsum() - pieces, pieces)
    return np.stack([first, first + step + 1, first + step + 2], 1)


def rgb(colours: np.ndarray) -> np.ndarray:
    """The first three channels in [0, 1]; integers count up to the largest of their type.  (N, 3) float64"""
    colours = np.asarray(colours)[:, :3]
    return colours / np.iinfo(colours.dtype).max if colours.dtype.kind in "iu" else colours.astype(np.float64)


def bytes_of(colours: np.ndarray) -> np.ndarray:
    """Colours in [0, 1] as bytes.  (N, 3) uint8"""
    return (np.asarray(colours).clip(0, 1) * 255).round().astype(np.uint8)

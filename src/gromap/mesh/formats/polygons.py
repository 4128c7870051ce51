"""Shared by the formats: polygons to triangles, words to numbers, colors to [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def fan(counts: np.ndarray, corners: int) -> np.ndarray:
    """Triangles of polygons whose corners are listed one after another, as indices into this
    list.  (T, 3)

    A polygon becomes the fan around its first corner, exact if it is convex; points and lines give
    none.  corners: how many the list has; ValueError unless the polygons take each of them once.

    >>> fan(np.array([3, 4]), 7).tolist()
    [[0, 1, 2], [3, 4, 5], [3, 5, 6]]
    """
    counts = np.asarray(counts, dtype=np.int64)
    if len(counts) and not 0 <= counts.min() <= counts.max() <= corners:
        wrong = int(counts.min() if counts.min() < 0 else counts.max())
        raise ValueError(f"it has a face of {wrong} corners, and {corners} corners in all")
    if counts.sum() != corners:
        raise ValueError(f"its faces have {counts.sum()} corners, and {corners} are listed")
    pieces = (counts - 2).clip(0)
    out = np.empty((int(pieces.sum()), 3), np.int64)
    out[:, 0] = np.repeat(counts.cumsum() - counts, pieces)  # the first corner of the polygon of each triangle
    out[:, 1] = np.arange(1, len(out) + 1)
    out[:, 1] -= np.repeat(pieces.cumsum() - pieces, pieces)
    out[:, 1] += out[:, 0]
    out[:, 2] = out[:, 1] + 1
    return out


def steps(offsets: np.ndarray) -> np.ndarray:
    """How many corners each polygon has, given where it ends; ValueError unless ends increase."""
    if len(offsets) and (offsets.min() < 0 or (offsets[1:] < offsets[:-1]).any()):
        raise ValueError("the offsets of its faces do not increase")
    return np.diff(offsets, prepend=0)


def whole(numbers: Sequence[int]) -> np.ndarray:
    """Python's integers as an array; ValueError for those that no index can be."""
    if numbers and not -(2**62) < min(numbers) <= max(numbers) < 2**62:
        digits = len(str(max(map(abs, numbers))))
        raise ValueError(f"it has a number of {digits} digits where the index of a vertex is expected")
    return np.array(numbers, np.int64)


def rgb(colors: np.ndarray) -> np.ndarray:
    """The first three channels, clipped to [0, 1]; integers count up to the largest of their
    type.  (N, 3) float64"""
    colors = np.asarray(colors)[:, :3]
    shares = colors / np.iinfo(colors.dtype).max if colors.dtype.kind in "iu" else colors.astype(np.float64)
    return shares.clip(0, 1)


def parsed(words: Sequence[bytes] | Sequence[str] | list[list[str]], kind: str) -> np.ndarray:
    """Words as numbers of a kind, such as "f4" or "u1"; ValueError where they are none, or none
    of that kind."""
    values = np.array(words, np.float64)
    if np.dtype(kind).kind == "f":
        with np.errstate(over="ignore"):  # infinite, which is refused later where it counts
            return values.astype(kind)
    range_ = np.iinfo(kind)
    inside = (values >= range_.min) & (values < range_.max + 1.0) & (values == np.floor(values))
    wrong = values[~inside]
    if wrong.size:
        raise ValueError(f"it has {wrong.flat[0]:g} where a whole number from {range_.min} to {range_.max} is expected")
    return values.astype(kind)


def bytes_of(colors: np.ndarray) -> np.ndarray:
    """Colors in [0, 1] as bytes.  (N, 3) uint8"""
    return (np.asarray(colors).clip(0, 1) * 255).round().astype(np.uint8)

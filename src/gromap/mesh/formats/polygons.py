"""Shared by the formats: polygons to triangles, words to numbers, colors to [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def fan(counts: np.ndarray) -> np.ndarray:
    """Triangles of polygons whose corners are listed one after another, as indices into this
    list.  (T, 3)

    A polygon becomes the fan around its first corner, exact if it is convex; points and lines give
    none.

    >>> fan(np.array([3, 4])).tolist()
    [[0, 1, 2], [3, 4, 5], [3, 5, 6]]
    """
    counts = np.asarray(counts, dtype=np.int64)
    pieces = (counts - 2).clip(0)
    first = np.repeat(counts.cumsum() - counts, pieces)  # the first corner of the polygon of each triangle
    step = np.arange(len(first)) - np.repeat(pieces.cumsum() - pieces, pieces)
    return np.stack([first, first + step + 1, first + step + 2], 1)


def rgb(colors: np.ndarray) -> np.ndarray:
    """The first three channels in [0, 1]; integers count up to the largest of their type.  (N,
    3) float64"""
    colors = np.asarray(colors)[:, :3]
    return colors / np.iinfo(colors.dtype).max if colors.dtype.kind in "iu" else colors.astype(np.float64).clip(0, 1)


def parsed(words: Sequence[bytes] | Sequence[str] | list[list[str]], kind: str) -> np.ndarray:
    """Words as numbers of a kind, such as "f4" or "u1"; ValueError where they are none, or none
    of that kind."""
    values = np.array(words, np.float64)
    if np.dtype(kind).kind == "f":
        return values.astype(kind)
    range_ = np.iinfo(kind)
    wrong = values[~((values >= range_.min) & (values <= range_.max))]
    if wrong.size:
        raise ValueError(f"it has {wrong.flat[0]:g} where a whole number from {range_.min} to {range_.max} is expected")
    return values.astype(kind)


def bytes_of(colors: np.ndarray) -> np.ndarray:
    """Colors in [0, 1] as bytes.  (N, 3) uint8"""
    return (np.asarray(colors).clip(0, 1) * 255).round().astype(np.uint8)

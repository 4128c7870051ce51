"""A part, outliers, and features: python examples/parts.py draws docs/images/parts_plane.png.

Above with fixed marginals, below with reach=0.1, or with labels. Each target point has the color of
the source points that it receives mass from; where less than half of it is matched, it is gray.
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import gromap


def figure_eight(n: int, rng: np.random.Generator) -> np.ndarray:
    """Two rings of different size, with a tail.  (n, 2)"""
    t = rng.uniform(0, 1, n)
    ring = np.where(t < 0.4, 0, np.where(t < 0.75, 1, 2))
    angle = rng.uniform(0, 2 * np.pi, n)
    place = np.stack([np.cos(angle), np.sin(angle)], 1)
    along = rng.uniform(1.7, 3.4, n)
    tail = np.stack([along, 0.5 * np.sin(3 * along)], 1)
    at = np.where(ring[:, None] == 0, place, np.where(ring[:, None] == 1, [2.2, 1.2] + 0.6 * place, tail))
    return at + 0.02 * rng.normal(size=(n, 2))


def turned(x: np.ndarray, angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return x @ np.array([[c, s], [-s, c]])


def colors(x: np.ndarray) -> np.ndarray:
    low, high = x.min(0), x.max(0)
    u, v = ((x - low) / (high - low)).T
    return np.stack([u, 0.35 + 0.5 * v, 1 - u], 1)


def cases() -> dict[str, tuple[np.ndarray, np.ndarray, dict[str, Any], dict[str, Any]]]:
    """Source, target, and the arguments of both rows."""
    rng = np.random.default_rng(0)
    whole = figure_eight(700, rng)
    part = figure_eight(700, rng)
    part = part[part[:, 0] > 0.2]
    noise = np.r_[turned(whole, 1.0), rng.uniform(-4, 4, size=(70, 2))]
    two = rng.normal(size=(300, 2)) * [1.0, 0.4]
    two[:, 1] += 1.0
    both = np.r_[two, -two]  # half a turn changes nothing, and distances cannot tell
    upper, right = np.repeat([1, 0], 300), np.repeat([0, 1], 300)  # which half is which
    return {
        "a part": (part, turned(whole, 1.0), {}, {"reach": 0.1}),
        "outliers": (whole, noise, {}, {"reach": 0.1}),
        "labels": (both, turned(both, 2.5), {}, {"features": (upper, right)}),
    }


def main(path: str = "docs/images/parts_plane.png") -> None:
    found = cases()
    figure, axes = plt.subplots(3, len(found), figsize=(9, 8.4), layout="constrained")
    for k, (name, (x, y, plain, better)) in enumerate(found.items()):
        paint = colors(x)
        axes[0, k].scatter(*x.T, c=paint, s=5)
        axes[0, k].set_title(f"{name}: source")
        for row, given in ((1, plain), (2, better)):
            sol = gromap.solve(x, y, epsilon=3e-4, **given)
            shown = np.where((np.asarray(sol.kept_Y) > 0.5)[:, None], sol.push(paint).clip(0, 1), 0.8)
            axes[row, k].scatter(*y.T, c=shown, s=5)
            text = ", ".join(f"{key}={value if key != 'features' else '(F, G)'}" for key, value in given.items())
            axes[row, k].set_title(text or "fixed weights")
    for axis in axes.flat:
        axis.set_aspect("equal")
        axis.axis("off")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])

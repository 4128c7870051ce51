"""The figure of a landscape: contour lines of the objective on the plane of the minima, and what
each minimum matches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.ndimage

from gromap._check import extra
from gromap._space import Space
from gromap.report.figures import color_field, new_figure
from gromap.search.landscape import Landscape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN_POINTS = 3000  # points of each small picture
LEVELS = 18  # contour lines
FINER = 8  # times as many values along each side, by splines, so that contours are smooth
DARK = "#7a1f2c"  # of numbers beside their discs
LETTER = 9.0  # points, of a number


def landscape_figure(land: Landscape, resolution: int, pictures: int) -> Figure:
    """Minima as discs whose area is their share of the starts, numbered by energy; pictures of
    the lowest above and below."""
    plane = land.plane(resolution)
    shown = _pictures(land, min(pictures, len(land)))
    figure = new_figure(figsize=(13, 10.5) if shown else (9, 8))
    axes = figure.add_axes((0.07, 0.25, 0.90, 0.50) if shown else (0.09, 0.09, 0.88, 0.84))
    height, lines = relief(plane.values, float(land.energies[0]))
    s, t = (np.linspace(ends[0], ends[-1], n) for ends, n in zip((plane.s, plane.t), height.shape[::-1], strict=True))
    axes.contourf(s, t, height, levels=lines, cmap="Blues_r", extend="both", alpha=0.75)
    axes.contour(s, t, height, levels=lines, colors="#335577", linewidths=0.6, linestyles="solid")
    large = (-land.basins).argsort()  # first, so that small ones lie on top
    areas = 40 + 2600 * land.basins
    axes.scatter(
        *plane.minima[large].T,
        s=areas[large],
        c="#d1495b",
        alpha=0.85,
        edgecolors="white",
        linewidths=1.2,
        zorder=3,
    )
    axes.set(xticks=[], yticks=[], aspect="equal" if not shown else "auto")
    axes.margins(0)
    _number(axes, plane.minima, np.sqrt(areas) / 2)
    axes.set_xlabel("first principal axis of the minima, in the space of linear maps", fontsize=11)
    axes.set_ylabel("second axis", fontsize=11)
    for k, (points, colors) in enumerate(shown):
        row, column = divmod(k, 4)
        small = figure.add_axes((0.02 + 0.245 * column, 0.765 if row == 0 else 0.0, 0.235, 0.19))
        small.scatter(*points.T, c=colors, s=9, linewidths=0)
        small.set(aspect="equal")
        small.axis("off")
        title = f"{k + 1}:  energy {land.energies[k]:.5f}, {land.basins[k]:.0%} of starts".replace("%", " %")
        small.set_title(title, fontsize=10, weight="bold" if k == 0 else "normal", pad=2)
    seen = "; colors are carried from the source to the target by each match" if shown else ""
    figure.text(0.5, 0.98, f"{len(land)} minima{seen}", ha="center", fontsize=13)
    return figure


def _number(axes: Axes, minima: np.ndarray, radii: np.ndarray) -> None:
    """Number the minima, whose discs have these radii in points, where no number hides another."""
    effects = extra("matplotlib.patheffects", "plot", "matplotlib")
    axes.apply_aspect()
    at = axes.transData.transform(minima) * 72 / axes.figure.dpi
    for k, shift in enumerate(label_places(at, radii, LETTER)):
        if np.isnan(shift).any():
            continue
        inside = not shift.any()
        label = axes.annotate(
            str(k + 1),
            minima[k],
            shift,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=LETTER,
            weight="bold",
            color="white" if inside else DARK,
            zorder=5,
            arrowprops=None if inside else {"arrowstyle": "-", "color": DARK, "lw": 0.6, "shrinkA": 0, "shrinkB": 0},
        )
        if not inside:
            label.set_path_effects([effects.withStroke(linewidth=2, foreground="white")])


def label_places(at: np.ndarray, radii: np.ndarray, letter: float) -> np.ndarray:
    """Where the numbers 1, 2, ... of some discs go, from their centers: inside, or around, where
    they are clear of other numbers, and of other discs if that can be; NaN where there is no room.
    (K, 2)

    >>> label_places(np.array([[0.0, 0.0], [90.0, 0.0]]), np.array([9.0, 2.0]), 9.0)[:, 0].tolist()
    [0.0, 11.0]
    """
    count = len(at)
    half = np.array([[0.33 * letter * len(str(k + 1)) + 1.5, 0.5 * letter + 1] for k in range(count)])
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    around = np.stack([np.cos(angles), np.sin(angles)], 1)
    found, centers = np.full((count, 2), np.nan), np.full((count, 2), np.inf)
    for k in range(count):
        rings = [around * (radii[k] + letter * (1 + 0.9 * ring)) for ring in range(6)]
        room = radii[k] >= np.hypot(*half[k]) - 1.5
        shifts = np.concatenate([np.zeros((int(room), 2)), *rings])
        places = at[k] + shifts
        free = ~(np.abs(places[:, None] - centers) < half[k] + half).all(2).any(1)
        others = np.arange(count) != k
        gaps = (np.abs(places[:, None] - at[others]) - half[k]).clip(min=0)
        clear = free & (np.hypot(*gaps.transpose(2, 0, 1)) >= radii[others]).all(1)
        fitting = np.flatnonzero(clear) if clear.any() else np.flatnonzero(free)
        if len(fitting):
            found[k], centers[k] = shifts[fitting[0]], places[fitting[0]]
    return found


def relief(values: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """The height of the objective above the lowest minimum, in decades, on a finer grid between
    the same ends, and the contour levels: dense near the bottom."""
    height = np.log10(1e-3 + np.maximum(values - floor, 0) / abs(floor))
    fine = np.asarray(scipy.ndimage.zoom(height, FINER, order=3, mode="nearest"))
    return fine, np.linspace(fine.min(), np.quantile(height, 0.97), LEVELS)


def _pictures(land: Landscape, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The target in the colors that each of the lowest minima gives it: points (n, 2) on the
    page, and rgb (n, 3)."""
    if land.pair is None:
        return []
    source, target = (_places(s) for s in (land.pair.x, land.pair.y))
    if any(points.shape[1] not in (2, 3) for points in (source, target)):
        return []
    flat = np.pad(source, ((0, 0), (0, 3 - source.shape[1])))
    colors = color_field(flat)
    some = np.random.default_rng(0).permutation(len(target))[:DRAWN_POINTS]
    page, order = _page(target[some])
    found = []
    for k in range(count):
        pushed = replace(land.plan(k), numpy=True).T.conditional_mean(colors)[some]
        found.append((page[order], pushed[order].clip(0, 1)))
    return found


def _places(space: Space) -> np.ndarray:
    """The vertices of a mesh, the points of any other space.  (N, d)"""
    points = space.measure.points if space.vertices is None else space.vertices
    return points.double().cpu().numpy()


def _page(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where points fall on the page, seen a little from the side, y up; and the order in which
    to draw them."""
    if points.shape[1] == 2:
        return points, np.arange(len(points))
    turn = np.radians(25)
    right = np.array([np.cos(turn), 0, -np.sin(turn)])
    towards = np.array([np.sin(turn), 0, np.cos(turn)])
    return np.stack([points @ right, points[:, 1]], 1), (points @ towards).argsort()

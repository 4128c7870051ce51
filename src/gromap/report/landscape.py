"""The figure of a landscape: contour lines of the objective on the plane of the minima, and what
each minimum matches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gromap._check import extra
from gromap.report.figures import color_field, new_figure
from gromap.search.landscape import Landscape, Plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN_POINTS = 3000  # points of each small picture
LEVELS = 18  # contour lines


def landscape_figure(land: Landscape, resolution: int, pictures: int) -> Figure:
    """Minima as discs whose area is their share of the starts, numbered by energy; pictures of
    the lowest above and below."""
    plane = land.plane(resolution)
    shown = _pictures(land, min(pictures, len(land)))
    figure = new_figure(figsize=(13, 10.5) if shown else (9, 8))
    axes = figure.add_axes((0.07, 0.25, 0.90, 0.50) if shown else (0.09, 0.09, 0.88, 0.84))
    height, lines = relief(plane.values, float(land.energies[0]))
    axes.contourf(plane.s, plane.t, height, levels=lines, cmap="Blues_r", extend="both", alpha=0.75)
    axes.contour(plane.s, plane.t, height, levels=lines, colors="#335577", linewidths=0.6)
    large = (-land.basins).argsort()  # first, so that small ones lie on top
    axes.scatter(
        *plane.minima[large].T,
        s=40 + 2600 * land.basins[large],
        c="#d1495b",
        alpha=0.85,
        edgecolors="white",
        linewidths=1.2,
        zorder=3,
    )
    _number(axes, plane, land.basins)
    axes.set(xticks=[], yticks=[], aspect="equal" if not shown else "auto")
    axes.set_xlabel("first principal axis of the minima, in the space of linear maps", fontsize=11)
    axes.set_ylabel("second axis", fontsize=11)
    for k, (points, colors) in enumerate(shown):
        row, column = divmod(k, 4)
        small = figure.add_axes((0.02 + 0.245 * column, 0.765 if row == 0 else 0.0, 0.235, 0.19))
        small.scatter(*points.T, c=colors, s=5, linewidths=0)
        small.set(aspect="equal")
        small.axis("off")
        title = f"{k + 1}:  energy {land.energies[k]:.5f}, {land.basins[k]:.0%} of starts".replace("%", " %")
        small.set_title(title, fontsize=10, weight="bold" if k == 0 else "normal", pad=2)
    figure.text(
        0.5,
        0.975,
        f"{len(land)} minima; colors are carried from the source to the target by each match",
        ha="center",
        fontsize=13,
    )
    return figure


def _number(axes: Axes, plane: Plane, basins: np.ndarray) -> None:
    """Number the minima: inside large discs, beside small ones."""
    effects = extra("matplotlib.patheffects", "plot", "matplotlib")
    for k in range(len(basins) - 1, -1, -1):
        s, t = plane.minima[k]
        inside = basins[k] > 0.03
        shift, color = ((0, 0), "white") if inside else ((9, 0), "#7a1f2c")
        style = {"fontsize": 10 if inside else 8, "color": color, "weight": "bold", "zorder": 4}
        label = axes.annotate(str(k + 1), (s, t), shift, textcoords="offset points", ha="center", va="center", **style)
        if not inside:  # it may lie on a larger one
            label.set_path_effects([effects.withStroke(linewidth=2, foreground="white")])


def relief(values: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """The height of the objective above the lowest minimum, in decades, and the contour levels:
    dense near the bottom."""
    height = np.log10(1e-3 + np.maximum(values - floor, 0) / abs(floor))
    return height, np.linspace(height.min(), np.quantile(height, 0.97), LEVELS)


def _pictures(land: Landscape, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The target in the colors that each of the lowest minima gives it: points (n, 2) on the
    page, and rgb (n, 3)."""
    if land.pair is None:
        return []
    source, target = (s.measure.points.double().cpu().numpy() for s in (land.pair.x, land.pair.y))
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


def _page(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where points fall on the page, seen a little from the side, y up; and the order in which
    to draw them."""
    if points.shape[1] == 2:
        return points, np.arange(len(points))
    turn = np.radians(25)
    right = np.array([np.cos(turn), 0, -np.sin(turn)])
    towards = np.array([np.sin(turn), 0, np.cos(turn)])
    return np.stack([points @ right, points[:, 1]], 1), (points @ towards).argsort()

"""The figure of a barycenter: the shapes, the cloud between them, the surface through it, and
the loss of each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gromap.mesh import Mesh
from gromap.report.figures import add_triangles, new_figure, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 5
PANEL = 2.7  # inches
BONE = (0.93, 0.88, 0.80)
FAR = 0.5  # how much of its color the farthest point loses


class Panel(NamedTuple):
    """One cloud in the coordinates of the camera: right, up, towards the viewer."""

    title: str
    points: np.ndarray  # (N, 3)
    colors: np.ndarray  # (N, 3) rgb in [0, 1]


def barycenter_figure(panels: Sequence[Panel], losses: np.ndarray, surface: Mesh | None = None) -> Figure:
    """All clouds to one scale, the barycenter last, then its surface, also in camera
    coordinates, and the losses."""
    count = len(panels) + (surface is not None) + 1
    columns = min(COLUMNS, count)
    rows = -(-count // columns)
    figure = new_figure(figsize=(PANEL * columns, PANEL * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    half = 0.54 * max(np.ptp(panel.points[:, :2], axis=0).max() for panel in panels)
    for axes, panel in zip(places, panels, strict=False):
        _scatter(axes, panel)
        _frame(axes, panel.points, half, panel.title)
    if surface is not None:
        triangles, shaded = render(surface, np.tile(BONE, (len(surface.vertices), 1)), np.eye(3))
        axes = places[len(panels)]
        add_triangles(axes, triangles, shaded)
        _frame(axes, surface.vertices, half, "its surface")
    _curve(places[count - 1], losses)
    for axes in places[count:]:
        axes.set_axis_off()
    return figure


def _scatter(axes: Axes, panel: Panel) -> None:
    """Draw the nearest points last, and far points paler."""
    order = panel.points[:, 2].argsort()
    points, colors = panel.points[order], panel.colors[order].clip(0, 1)
    depth = (points[-1, 2] - points[:, 2]) / max(float(np.ptp(points[:, 2])), 1e-30)
    shaded = colors + FAR * depth[:, None] * (1 - colors)
    axes.scatter(points[:, 0], points[:, 1], c=shaded, s=np.clip(8000 / len(points), 2, 30), linewidths=0)


def _frame(axes: Axes, points: np.ndarray, half: float, title: str) -> None:
    x, y = (points[:, :2].min(0) + points[:, :2].max(0)) / 2
    axes.set(aspect="equal", xlim=(x - half, x + half), ylim=(y - half, y + half))
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()


def _curve(axes: Axes, losses: np.ndarray) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.plot(losses, ".-", color="#1d6fa5", markersize=4, linewidth=1)
    axes.set_yscale("log" if losses.min() > 0 else "linear")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_title("loss of each step", fontsize=9)
    axes.tick_params(labelsize=7, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_box_aspect(0.8)

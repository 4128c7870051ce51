"""Figures of a match, drawn by matplotlib without a display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gromap._check import extra
from gromap.mesh import Mesh

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VIEWS = {"front": 35.0, "back": 215.0}  # degrees around the vertical axis, from the z axis
TILT = 8.0  # degrees from above
LIGHT = np.array([-0.45, 0.55, 0.70])  # to the right, up, towards the viewer
GAP = 0.12  # between two meshes, in units of the higher one
WIDTH = 13.0  # inches
TINY = np.finfo(np.float64).tiny


def require_matplotlib() -> Any:
    """The module `matplotlib.figure`, or an error that says what to install."""
    return extra("matplotlib.figure", "plot", "matplotlib")


def new_figure(**options: Any) -> Figure:
    """An empty white figure."""
    return require_matplotlib().Figure(facecolor="white", **options)


def hues(hue: np.ndarray, saturation: float = 0.55) -> np.ndarray:
    """The bright rgb color of each hue; a hue of 1 is red again, as 0.  (N, 3) in [0, 1]

    >>> hues(np.array([0.0, 1 / 3, 1 / 2]), saturation=1.0).round(9).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    """
    pure = (abs((6 * hue[:, None] + (0, 4, 2)) % 6 - 3) - 1).clip(0, 1)
    return 1 - saturation * (1 - pure)


def color_field(vertices: np.ndarray) -> np.ndarray:
    """A smooth rgb color for each position: the hue changes with the height, and from left to
    right.  (N, 3) in [0, 1]"""
    x, y, _ = ((vertices - vertices.min(0)) / np.ptp(vertices, axis=0).clip(TINY)).T
    return hues(0.95 - 0.8 * y + 0.12 * np.tanh(5 * x - 2.5))


def correspondence_figure(
    source: Mesh, target: Mesh, colors: np.ndarray, pushed: np.ndarray, title: str = "", caption: str = ""
) -> Figure:
    """Both meshes side by side and to the same scale, from the front and from the back; y is up,
    z to the front.

    colors: rgb of each source vertex, (N, 3) in [0, 1].  pushed: rgb of each target vertex, such as
    `sol.push(colors)`.
    """
    sides = [("source", source, np.asarray(colors)), ("target", target, np.asarray(pushed))]
    for name, mesh, rgb in sides:
        if rgb.shape != (len(mesh.vertices), 3):
            raise ValueError(f"the {name} needs rgb colors of shape ({len(mesh.vertices)}, 3), got {rgb.shape}.")
    figure = new_figure()
    axes = figure.add_axes((0, 0, 1, 1))
    unit = max(float(np.ptp(mesh.vertices[:, 1])) for _, mesh, _ in sides)
    place = top = 0.0
    for view, azimuth in VIEWS.items():
        for name, mesh, rgb in sides:
            triangles, shaded = render(mesh, rgb, camera_at(azimuth))
            low, size = triangles.min((0, 1)), np.ptp(triangles, axis=(0, 1))
            triangles += (place - low[0], -low[1])
            add_triangles(axes, triangles, shaded)
            axes.text(place + size[0] / 2, -0.07 * unit, f"{name}, {view}", ha="center", va="center", fontsize=12)
            place, top = place + size[0] + GAP * unit, max(top, size[1])
    middle, low, high = (place - GAP * unit) / 2, -0.20 * unit, top + 0.14 * unit
    axes.text(middle, top + 0.08 * unit, title, ha="center", va="center", fontsize=15)
    axes.text(middle, -0.15 * unit, caption, ha="center", va="center", fontsize=11, color="0.35")
    axes.set(xlim=(-GAP * unit, place), ylim=(low, high))
    axes.axis("off")
    figure.set_size_inches(WIDTH, WIDTH * (high - low) / (place + GAP * unit))
    return figure


def render(mesh: Mesh, rgb: np.ndarray, camera: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The triangles that face the viewer, (F, 3, 2), the farthest first, and their colors in the
    light, (F, 3).

    camera: rows to the right, up, towards the viewer.
    """
    corners, normals = mesh.vertices[mesh.faces] @ camera.T, mesh.face_normals() @ camera.T
    smooth = mesh.vertex_normals() @ camera.T
    lambert = (smooth[mesh.faces].mean(1) @ (LIGHT / np.linalg.norm(LIGHT))).clip(0)
    shaded = rgb[mesh.faces].mean(1) * (0.5 + 0.5 * lambert[:, None])
    seen = np.flatnonzero(normals[:, 2] > 0)
    seen = seen[corners[seen, :, 2].mean(1).argsort()]
    return corners[seen, :, :2], shaded[seen].clip(0, 1)


def add_triangles(axes: Axes, triangles: np.ndarray, colors: np.ndarray, linewidth: float = 0.3) -> None:
    """Draw triangles, (F, 3, 2), in their colors, (F, 3); lines of the same colors hide the gaps
    between them."""
    collections = extra("matplotlib.collections", "plot", "matplotlib")
    axes.add_collection(
        collections.PolyCollection(list(triangles), facecolors=colors, edgecolors=colors, linewidths=linewidth)
    )


def camera_at(azimuth: float) -> np.ndarray:
    """Rows: to the right, up, towards the viewer."""
    turn, tilt = np.radians(azimuth), np.radians(TILT)
    right = np.array([np.cos(turn), 0.0, -np.sin(turn)])
    towards = np.array([np.sin(turn) * np.cos(tilt), np.sin(tilt), np.cos(turn) * np.cos(tilt)])
    return np.stack([right, np.cross(towards, right), towards])

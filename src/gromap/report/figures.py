"""Figures of a match, drawn by matplotlib without a display."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gromap.datasets import Mesh

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIEWS = {"front": 35.0, "back": 215.0}  # degrees around the vertical axis
TILT = 8.0  # degrees from above
LIGHT = (-0.45, 0.55, 0.70)  # right, up, towards the viewer
GAP = 0.12  # between two bodies, of the height of the taller one


def require_matplotlib() -> None:
    """Say what to install where matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(f"figures need matplotlib ({error}): pip install 'gromap[plot]'") from error


def colour_field(vertices: np.ndarray) -> np.ndarray:
    """A smooth rgb colour of each position: hue by height, shifted between left and right.  (N, 3) in [0, 1]"""
    from matplotlib.colors import hsv_to_rgb

    x, y, z = ((vertices - vertices.min(0)) / np.ptp(vertices, axis=0)).T
    return np.stack([x,y,z],1)


def correspondence_figure(
    source: Mesh, target: Mesh, colours: np.ndarray, pushed: np.ndarray, caption: str = ""
) -> Figure:
    """Both meshes side by side, from the front and from the back, y up, to the same scale.

    colours: rgb of each source vertex, (N, 3) in [0, 1].  pushed: rgb of each target vertex, such as `sol.push(colours)`.
    """
    require_matplotlib()
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    height = max(np.ptp(mesh.vertices[:, 1]) for mesh in (source, target))
    figure = Figure(facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    right = 0.0
    for view, azimuth in VIEWS.items():
        for mesh, rgb, name in ((source, colours, "source"), (target, pushed, "target")):
            polygons, shaded = _render(mesh, rgb, azimuth)
            low, high = polygons.min((0, 1)), polygons.max((0, 1))
            polygons += (right - low[0], -low[1])
            axes.add_collection(PolyCollection(list(polygons), facecolors=shaded, edgecolors=shaded, linewidths=0.3))
            axes.text(right + (high[0] - low[0]) / 2, -0.08 * height, f"{name}, {view}", ha="center", va="center", fontsize=12)
            right += high[0] - low[0] + GAP * height
    width = right - GAP * height
    box = (-GAP * height, width + GAP * height, -0.24 * height, 1.08 * height)
    axes.text(width / 2, -0.18 * height, caption, ha="center", va="center", fontsize=11, color="0.35")
    axes.set(xlim=box[:2], ylim=box[2:])
    axes.axis("off")
    figure.set_size_inches(13.0, 13.0 * (box[3] - box[2]) / (box[1] - box[0]))
    return figure


def _render(mesh: Mesh, rgb: np.ndarray, azimuth: float) -> tuple[np.ndarray, np.ndarray]:
    """The faces that look at the viewer, (F, 3, 2), from back to front, and their shaded colours, (F, 3)."""
    camera = _camera(azimuth)
    corners = mesh.vertices[mesh.faces] @ camera.T
    raw = mesh.face_normals()
    smooth = np.stack([np.bincount(mesh.faces.ravel(), np.repeat(raw[:, k], 3), len(mesh.vertices)) for k in range(3)], 1)
    smooth /= np.linalg.norm(smooth, axis=1, keepdims=True)
    normals = smooth[mesh.faces].mean(1) @ camera.T
    light = np.array(LIGHT) / np.linalg.norm(LIGHT)
    shade = 0.45 + 0.55 * (normals @ light).clip(0)
    shaded = (rgb[mesh.faces].mean(1) * shade[:, None]).clip(0, 1)
    front = (raw @ camera.T)[:, 2] > 0
    order = np.flatnonzero(front)[np.argsort(corners[front].mean(1)[:, 2])]
    return corners[order][:, :, :2], shaded[order]


def _camera(azimuth: float) -> np.ndarray:
    """Rows: right, up and towards the viewer, who stands at this angle from the z axis."""
    turn, tilt = np.radians(azimuth), np.radians(TILT)
    right = np.array([np.cos(turn), 0.0, -np.sin(turn)])
    towards = np.array([np.sin(turn) * np.cos(tilt), np.sin(tilt), np.cos(turn) * np.cos(tilt)])
    return np.stack([right, np.cross(towards, right), towards])

"""Figures of flows, one row of frames per flow, and animations."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gromap._check import extra
from gromap.report.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TARGET = "#1d6fa5"


class FlowLike(Protocol):
    """What is drawn: a gromap.Flow, or a record of one."""

    @property
    def frames(self) -> Any: ...
    @property
    def times(self) -> list[int]: ...
    @property
    def target(self) -> Any: ...


def flow_figure(flows: Sequence[tuple[str, FlowLike]], frames: int = 6) -> Figure:
    """One row of frames for each named flow, and its target at the end."""
    columns = frames + any(flow.target is not None for _, flow in flows)
    figure = new_figure(figsize=(1.7 * columns, 1.85 * len(flows)), layout="constrained")
    for row, (name, flow) in zip(figure.subplots(len(flows), columns, squeeze=False), flows, strict=True):
        clouds = _clouds(flow)
        target = None if flow.target is None else _aligned(_flat(flow.target), clouds[-1])
        box = _box(clouds if target is None else [*clouds, target])
        colors = _hues(clouds[0])
        for axes, k in zip(row, np.linspace(0, len(clouds) - 1, frames).round().astype(int), strict=False):
            _scatter(axes, clouds[k], box, colors, f"step {flow.times[k]}")
        row[0].set_ylabel(name, fontsize=9)
        if target is not None:
            _scatter(row[-1], target, box, TARGET, "target, turned")
    return figure


def write_gif(flow: FlowLike, path: Path, seconds: float) -> Path:
    """Write all frames as an animated GIF; the last one is shown for longer."""
    image = extra("PIL.Image", "plot", "Pillow")
    clouds = _clouds(flow)
    box, colors, pictures = _box(clouds), _hues(clouds[0]), []
    for cloud, step in zip(clouds, flow.times, strict=True):
        figure = new_figure(figsize=(3.2, 3.2))
        _scatter(figure.add_axes((0, 0, 1, 0.92)), cloud, box, colors, f"step {step}")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=100)
        pictures.append(image.open(buffer).convert("P", palette=image.Palette.ADAPTIVE))
    each = max(20, int(1000 * seconds / len(pictures)))
    lasting = [each] * (len(pictures) - 1) + [1500]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=lasting, loop=0)
    return path


def _clouds(flow: FlowLike) -> list[np.ndarray]:
    frames = _numpy(flow.frames)
    if frames.shape[-1] not in (2, 3):
        raise ValueError(f"pictures need points in 2-D or 3-D, got {frames.shape[-1]} coordinates.")
    return [_flat(frame) for frame in frames]


def _scatter(axes: Axes, cloud: np.ndarray, box: tuple[Any, Any], colors: Any, title: str) -> None:
    axes.scatter(*cloud.T, c=colors, s=max(4.0, 600 / len(cloud)), linewidths=0)
    axes.set(aspect="equal", xlim=box[0], ylim=box[1], xticks=[], yticks=[])
    axes.set_title(title, fontsize=8, pad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _hues(cloud: np.ndarray) -> np.ndarray:
    """A color for each point by where it started: it shows which point went where.  (N, 3)"""
    x, y = ((cloud - cloud.min(0)) / np.ptp(cloud, axis=0).clip(1e-300)).T
    return extra("matplotlib", "plot").colormaps["turbo"](0.05 + 0.9 * (0.75 * y + 0.25 * x))[:, :3]


def _aligned(target: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The target in the pose of the last frame: GW ignores rotations, so the best of many
    angles, mirrored or not."""
    center, target = end.mean(0), target - target.mean(0)
    angles = [(t, m) for t in np.arange(0, 2 * np.pi, 0.05) for m in (1, -1)]
    turns = [np.array([[np.cos(t), -np.sin(t)], [m * np.sin(t), m * np.cos(t)]]) for t, m in angles]

    def gap(turn: np.ndarray) -> float:
        away = np.linalg.norm((target @ turn)[:, None] - (end - center), axis=-1)
        return float(away.min(0).mean() + away.min(1).mean())

    return target @ min(turns, key=gap) + center


def _box(clouds: list[np.ndarray]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Square limits that contain all clouds."""
    low, high = np.min([c.min(0) for c in clouds], 0), np.max([c.max(0) for c in clouds], 0)
    half, middle = 0.54 * max(high - low), (low + high) / 2
    return (middle[0] - half, middle[0] + half), (middle[1] - half, middle[1] + half)


def _flat(points: Any) -> np.ndarray:
    """Points in the plane: as they are in 2-D, or along the two widest axes in 3-D.  (N, 2)"""
    array = _numpy(points)
    if array.shape[1] == 2:
        return array
    return array[:, np.sort(np.argsort(-np.ptp(array, axis=0))[:2])]


def _numpy(x: Any) -> np.ndarray:
    return x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)

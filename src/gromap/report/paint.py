"""The colors of the report: for each color mode, rgb bytes of the source and, transported by the
plan, of the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gromap._plan import Plan
from gromap.mesh import Mesh
from gromap.mesh.transfer import pull_back
from gromap.report.figures import TINY, color_field, hues

#: colors of a quantity from 0 to 1, at equal steps: none at all is a neutral gray
RAMP = np.array([[214, 216, 222], [250, 214, 120], [243, 132, 62], [201, 44, 84], [88, 16, 104]], dtype=np.float64)
LEFT_OUT = np.array([176, 178, 182], dtype=np.uint8)  # the color of points that are not matched
LABELS = 64  # colors that can still be told apart
SQUARES = 16  # of the checkerboard, along each side of the texture


@dataclass(frozen=True, eq=False)
class Mode:
    """One way to color both shapes."""

    name: str  #: on the button
    note: str  #: what is seen
    source: np.ndarray  #: (N, 3) uint8
    target: np.ndarray  #: (M, 3) uint8
    ramp: tuple[str, str] | None = None  #: what both ends of the ramp mean
    swatches: tuple[tuple[str, str], ...] = ()  #: names and css colors


def carry(plan: Plan, fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Each row's average of the fields on the columns, Σ_j π_ij w_j / Σ_j π_ij, in one sweep
    over the tiles that hold mass."""
    stacked = _stacked(fields)
    moved, weights = plan @ np.concatenate([stacked, np.ones((len(stacked), 1))], 1), plan.a.cpu().numpy()
    sound = (weights > 0).all() and (moved[:, -1] > weights / 2).all()  # else a row has lost its mass to underflow
    means = moved[:, :-1] / moved[:, -1:] if sound else plan.conditional_mean(stacked)
    return _parted(np.nan_to_num(means), fields)  # NaN after an overflow


def pulled(fields: dict[str, np.ndarray], target: Mesh, back: np.ndarray) -> dict[str, np.ndarray]:
    """The fields on the target, along a map to the source."""
    return _parted(pull_back(_stacked(fields), target, back), fields)


def _stacked(fields: dict[str, np.ndarray]) -> np.ndarray:
    """All fields side by side.  (N, k)"""
    return np.concatenate([field.reshape(len(field), -1) for field in fields.values()], 1)


def _parted(stacked: np.ndarray, fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same by their names."""
    ends = np.cumsum([field.reshape(len(field), -1).shape[1] for field in fields.values()])
    return dict(zip(fields, np.split(stacked, ends[:-1], axis=1), strict=True))


def fields_of(
    source: Mesh, points: np.ndarray, frame: np.ndarray, labels: np.ndarray | None, error: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The fields that the plan carries from the source to the target; points: those of the
    source, in space."""
    seen = points @ frame.T.astype(np.float64)
    unit = in_units(points)
    fields = {
        "colors": _colors(source, seen),
        "coordinates": (seen - seen.min(0)) / np.ptp(seen, axis=0).clip(TINY),
        "place": unit,
        "norm": (unit**2).sum(1, keepdims=True),
    }
    if source.uv is not None:
        fields["texture"] = at_vertices(source, texture_of(source))
    if labels is not None:
        fields["labels"] = (labels[:, None] == np.unique(labels)).astype(np.float64)
    if error is not None:
        fields["error"] = error[:, None]
    return fields


def modes_of(
    fields: dict[str, np.ndarray],
    carried: dict[str, np.ndarray],
    spreads: tuple[np.ndarray, np.ndarray],
    labels: Any,
    matched: tuple[np.ndarray, np.ndarray] | None = None,
    unit: str = "",
) -> dict[str, Mode]:
    """All that can be shown of these fields, the best first.  matched: the points of both sides
    that are; all others are gray.  unit: of the error."""
    some = matched or tuple(np.ones(len(z), bool) for z in spreads)

    def both(name: str, color: Callable[[np.ndarray], np.ndarray] = as_bytes) -> tuple[np.ndarray, np.ndarray]:
        return color(fields[name]), color(carried[name])

    modes = {}
    if "texture" in fields:
        modes["texture"] = Mode("Texture", "The texture of the source, carried to the target.", *both("texture"))
    modes["colors"] = Mode("Colors", "Colors of the source, carried to the target.", *both("colors"))
    note = "Coordinates of the source as red (across), green (up) and blue (depth), carried to the target."
    modes["coordinates"] = Mode("Coordinates", note, *both("coordinates"))
    if "labels" in fields:
        names, palette = np.unique(labels), as_bytes(hues(0.05 + 0.618034 * np.arange(fields["labels"].shape[1]), 0.6))
        swatches = tuple(
            (str(name), f"rgb({r} {g} {b})") for name, (r, g, b) in zip(names.tolist(), palette, strict=True)
        )
        note = "Labels of the source; each target point takes the likeliest."
        modes["labels"] = Mode(
            "Labels", note, *both("labels", lambda values: palette[values.argmax(1)]), swatches=swatches
        )
    if "error" in fields:
        error = fields["error"][some[0]]
        top = _top(error)
        note = f"Error of each source point against the truth, mean {error.mean():.4g}{unit}, carried to the target."
        modes["error"] = Mode(
            "Error", note, *both("error", lambda values: ramp(values[:, 0] / top)), ramp=("0", _more(top, unit))
        )
    top = _top(np.concatenate([z[k] for z, k in zip(spreads, some, strict=True)]))
    note = "How far the image of each point spreads on the other shape, as a share of its diagonal."
    modes["spread"] = Mode(
        "Spread", note, ramp(spreads[0] / top), ramp(spreads[1] / top), ramp=("0", _more(100 * top, " %"))
    )
    return modes if matched is None else {name: _left_out(mode, matched) for name, mode in modes.items()}


def _left_out(mode: Mode, matched: tuple[np.ndarray, np.ndarray]) -> Mode:
    """The same where all points are gray that are not matched."""
    source, target = (
        np.where(some[:, None], rgb, LEFT_OUT) for rgb, some in zip((mode.source, mode.target), matched, strict=True)
    )
    gray = "rgb({} {} {})".format(*LEFT_OUT)
    return replace(mode, source=source, target=target, swatches=(*mode.swatches, ("not matched", gray)))


def _top(values: np.ndarray) -> float:
    """Where a ramp ends: few points are beyond."""
    return (float(np.quantile(values, 0.99)) or float(values.max()) or 1.0) if values.size else 1.0


def _more(top: float, unit: str) -> str:
    return f"{top:.2g}{unit} and more"


def spread(carried: dict[str, np.ndarray], points: np.ndarray) -> np.ndarray:
    """√(E|x|² - |E x|²) for the images x of each point among these points, as a share of their
    diagonal."""
    variance = carried["norm"][:, 0] - (carried["place"] ** 2).sum(1)
    size = np.linalg.norm(np.ptp(in_units(points), axis=0))
    return np.sqrt(variance.clip(0)) / max(float(size), TINY)


def in_units(points: np.ndarray) -> np.ndarray:
    """Centered, the farthest at 1: second moments of these are safe in float32."""
    centered = points - points.mean(0, dtype=np.float64)
    return centered / max(float(np.linalg.norm(centered, axis=1).max()), TINY)


def ramp(values: np.ndarray) -> np.ndarray:
    """Colors of quantities between 0 and 1.  (N, 3) uint8

    >>> ramp(np.array([0.0, 0.25, 7.0])).tolist()
    [[214, 216, 222], [250, 214, 120], [88, 16, 104]]
    """
    at = np.nan_to_num(values).clip(0, 1) * (len(RAMP) - 1)
    return np.stack([np.interp(at, np.arange(len(RAMP)), channel) for channel in RAMP.T], 1).round().astype(np.uint8)


def as_bytes(rgb: np.ndarray) -> np.ndarray:
    """From [0, 1] to 0 .. 255."""
    return (255 * np.nan_to_num(rgb)).round().clip(0, 255).astype(np.uint8)


def texture_of(mesh: Mesh) -> np.ndarray:
    """The mesh's own texture, or a checkerboard.  (H, W, 3) uint8"""
    if mesh.texture is not None:
        return np.asarray(mesh.texture, dtype=np.uint8)
    i, j = np.indices((SQUARES, SQUARES)).repeat(16, 1).repeat(16, 2)
    return np.where(((i + j) % 2 == 0)[..., None], (236, 233, 226), (52, 96, 148)).astype(np.uint8)


def at_vertices(mesh: Mesh, texture: np.ndarray) -> np.ndarray:
    """The texture where the corners of each vertex lie, on average; gray where it has none.  (N,
    3) in [0, 1]"""
    assert mesh.uv is not None
    height, width = texture.shape[:2]
    u, v = np.mod(mesh.uv.reshape(-1, 2), 1).T
    rgb = texture[((1 - v) * height).astype(int).clip(0, height - 1), (u * width).astype(int).clip(0, width - 1)] / 255
    corners, n = mesh.faces.ravel(), len(mesh.vertices)
    count = np.bincount(corners, minlength=n)
    mean = np.stack([np.bincount(corners, channel, n) for channel in rgb.T], 1) / count.clip(1)[:, None]
    return np.where(count[:, None] > 0, mean, 0.5)


def _colors(source: Mesh, seen: np.ndarray) -> np.ndarray:
    if source.colors is not None:
        return np.asarray(source.colors, dtype=np.float64)
    if source.uv is not None and source.texture is not None:
        return at_vertices(source, source.texture)
    return color_field(seen)

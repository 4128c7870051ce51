"""Tables and small charts of the report, as HTML and SVG text; colors come from
assets/style.css."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from gromap.report.landscape import label_places, relief

WIDTH, HEIGHT = 340, 132  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 58, 10, 8, 22  # around its axes
MIN_SHARE = 2e-3  # of its values that an axis spans: with less, what a solve leaves undone would look like a trend
MIN_DECADES = 0.3  # decades of a log axis: with fewer, its labels would be equal, and noise would look like a trend
NUMBER = 9.5  # the size of a number of a minimum, as in assets/style.css
PLANE = (340, 280)  # of the plane of the minima
SHADES = np.array([[16, 50, 92], [238, 244, 251]], dtype=np.float64)  # of the bottom and of the top of a landscape


def table(rows: Iterable[tuple[str, object]]) -> str:
    """Names and values.

    >>> table([("a < b", 1)])
    '<table><tr><th scope="row">a &lt; b</th><td>1</td></tr></table>'
    """
    lines = (f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(value))}</td></tr>' for name, value in rows)
    return f"<table>{''.join(lines)}</table>"


def chart(title: str, series: dict[str, np.ndarray], log: bool = False, ends: tuple[str, str] | None = None) -> str:
    """Curves over the steps 1, 2, ..., or from one end to the other; on a log axis, values that
    are not positive are left out."""
    curves = {name: np.asarray(values, dtype=np.float64) for name, values in series.items()}
    shown = {name: np.isfinite(y) & (y > 0) if log else np.isfinite(y) for name, y in curves.items()}
    drawn = np.concatenate([y[shown[name]] for name, y in curves.items()])
    if drawn.size == 0:
        return ""
    scale = np.log10 if log else np.asarray
    low, high = float(scale(drawn.min())), float(scale(drawn.max()))
    if log and high - low < MIN_DECADES:
        low, high = (low + high - MIN_DECADES) / 2, (low + high + MIN_DECADES) / 2
    elif not log and high - low <= MIN_SHARE * max(abs(low), abs(high)):
        least = MIN_SHARE * max(abs(low), abs(high)) or 1.0
        low, high = (low + high - least) / 2, (low + high + least) / 2
    steps = max(len(y) for y in curves.values())
    x = lambda i: LEFT + (WIDTH - LEFT - RIGHT) * (i / (steps - 1) if steps > 1 else 0.5)  # noqa: E731
    y = lambda v: TOP + (HEIGHT - TOP - BOTTOM) * (high - v) / (high - low)  # noqa: E731
    parts = []
    ticks = np.linspace(low, high, 3)
    for tick, label in zip(ticks, tick_labels(10**ticks if log else ticks, log), strict=True):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(tick) + 3.5:.1f}" text-anchor="end">{label}</text>')
    for i, label in {0: "1", steps - 1: str(steps)}.items() if ends is None else ((0, ends[0]), (steps - 1, ends[1])):
        anchor = "end" if i and ends else "middle"
        parts.append(f'<text x="{x(i):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{escape(label)}</text>')
    for k, (name, values) in enumerate(curves.items()):
        at = [(x(i), y(float(scale(values[i])))) for i in np.flatnonzero(shown[name])]
        line = " ".join(f"{i:.1f},{j:.1f}" for i, j in at)
        parts.append(f'<polyline class="curve c{k}" points="{line}"><title>{escape(name)}</title></polyline>')
        if len(at) <= 40:
            parts += [f'<circle class="dot c{k}" cx="{i:.1f}" cy="{j:.1f}" r="2"/>' for i, j in at]
    keys = (
        "".join(f'<span class="key c{k}">{escape(name)}</span>' for k, name in enumerate(curves))
        if len(curves) > 1
        else ""
    )
    return figure(title + (", log scale" if log else ""), f"{WIDTH} {HEIGHT}", parts, keys)


def tick_labels(ticks: np.ndarray, log: bool = False) -> list[str]:
    """Numbers with as many digits as tell them apart, two at least.

    >>> tick_labels(np.array([0.026705, 0.026718, 0.026731]))
    ['0.026705', '0.026718', '0.026731']
    >>> tick_labels(np.array([0.0, 0.5, 1.0]))
    ['0', '0.5', '1']
    """
    found = list[str]()
    for digits in range(2, 17):
        found = [f"{tick:.{digits - 1}e}" if log else f"{tick:.{digits}g}" for tick in ticks]
        steps = np.diff([float(label) for label in found])
        if np.allclose(steps, np.diff(ticks), rtol=0.05, atol=0):
            break
    return found


def bars(title: str, values: dict[str, float], unit: str) -> str:
    """One bar for each name."""
    top = max([*values.values(), 1e-12])
    parts = []
    for k, (name, value) in enumerate(values.items()):
        middle, width = 12 + 20 * k, (WIDTH - LEFT - 70) * max(value, 0) / top
        parts.append(f'<text x="{LEFT - 6}" y="{middle + 3.5}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="bar" x="{LEFT}" y="{middle - 6}" width="{max(width, 1):.1f}" height="12" rx="2"/>')
        parts.append(f'<text x="{LEFT + width + 6:.1f}" y="{middle + 3.5}">{value:.3g} {escape(unit)}</text>')
    return figure(title, f"{WIDTH} {20 * len(values) + 4}", parts)


def plane_map(
    s: np.ndarray,
    t: np.ndarray,
    values: np.ndarray,
    minima: np.ndarray,
    energies: Sequence[float],
    basins: Sequence[float],
) -> str:
    """The relief in bands, t upwards, and the minima as discs whose area is their basin,
    numbered by energy."""
    height, lines = relief(values, float(energies[0]))
    bands = np.searchsorted(lines, height) / len(lines)
    picture = png((SHADES[0] + bands[..., None] * (SHADES[1] - SHADES[0])).round().astype(np.uint8)[::-1])
    wide, tall = PLANE
    parts = [f'<image href="{picture}" width="{wide}" height="{tall}" preserveAspectRatio="none"/>']
    at = np.array(PLANE) * (minima - np.array([s[0], t[0]])) / np.array([s[-1] - s[0], t[-1] - t[0]])
    radii = 6 + 24 * np.sqrt(basins)
    shifts = label_places(at, radii, NUMBER)
    for k in range(len(minima) - 1, -1, -1):  # the lowest lies on top
        (x, y), (dx, dy) = (at[k, 0], tall - at[k, 1]), shifts[k] * [1, -1]
        said = f"{k + 1}: energy {energies[k]:.6g}, {100 * basins[k]:.3g} % of starts"
        disc = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radii[k]:.1f}"/>'
        place, beside = f'x="{x + dx:.1f}" y="{y + dy + 3.5:.1f}"', ' class="beside"' if dx or dy else ""
        number = "" if np.isnan(dx) else f'<text{beside} {place} text-anchor="middle">{k + 1}</text>'
        parts.append(f'<g class="minimum" data-minimum="{k}"><title>{said}</title>{disc}{number}</g>')
    return figure("Objective on the plane of the minima, dark is low", f"{wide} {tall}", parts)


def figure(title: str, size: str, parts: list[str], keys: str = "") -> str:
    picture = f'<svg viewBox="0 0 {size}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    return f'<figure class="chart"><figcaption>{escape(title)} {keys}</figcaption>{picture}</figure>'


def png(rgb: np.ndarray) -> str:
    """An (H, W, 3) uint8 image as a data URL."""
    height, width = rgb.shape[:2]
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(np.insert(rgb.reshape(height, -1), 0, 0, axis=1).tobytes(), 9),
        b"IEND": b"",
    }
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")

"""The page of a collection: its matrix of distances as a heat map in the order of a tree, the tree,
a map of the shapes, and their nearest neighbors. One HTML file that loads nothing from the network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from gromap._files import replacing
from gromap.learn.nearest import Neighbors
from gromap.report.charts import figure, png, table
from gromap.report.paint import RAMP, ramp

SIDE = 560  # of the heat map, pixels
TREE = 190  # beside it
NAMES = 230  # beside that, for names
LETTER = 0.6  # of the height of a letter is its width
SMALLEST, LARGEST = 5.5, 12.0  # letters
ORDERED = 500  # shapes up to which the leaves of the tree are put in the best order, in cubic time
MAP = (620, 440)  # of the map of the shapes
MAP_NAMES = 60  # shapes up to which the map names them
FAILED = (150, 150, 150)  # the gray of pairs that have no distance


class Tree(NamedTuple):
    """Average linkage of the shapes that have distances."""

    order: np.ndarray  # (K,) leaves from top to bottom
    merges: np.ndarray  # (K - 1, 4) the two clusters that meet, their distance, how many shapes they hold


def write_collection(
    path: Path,
    names: list[str],
    *,
    title: str,
    distances: np.ndarray | None = None,
    neighbors: Neighbors | None = None,
    failures: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> Path:
    """Write the page.

    distances: (K, K), NaN where a pair failed; shapes without any are left out of the tree and the
    map.  failures: what failed, and why, a line each.
    """
    parts = list[str]()
    if failures:
        lines = "".join(f"<li>{escape(line)}</li>" for line in failures)
        parts.append(f'<div class="status bad">Not compared:<ul>{lines}</ul></div>')
    facts: dict[str, object] = {}
    if distances is not None:
        matrix, facts = _matrix(distances, names)
        parts.append(matrix)
    if neighbors is not None:
        parts.append(_neighbor_table(names, neighbors))
    if settings:
        parts.append("<h2>Settings</h2>" + table((str(name), value) for name, value in settings.items()))
    assets = files("gromap.report") / "assets"
    read = lambda name: (assets / name).read_text(encoding="utf-8")  # noqa: E731
    inside = {
        "title": escape(title),
        "style": read("style.css"),
        "width": str(TREE + SIDE + NAMES),
        "font": f"{_letters(len(names)):.1f}",
        "content": "\n".join(parts),
        "facts": json.dumps(facts, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        "script": read("collection.js"),
    }
    text = re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: inside[mark[1]], read("collection.html"))
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _matrix(distances: np.ndarray, names: list[str]) -> tuple[str, dict[str, object]]:
    """The heat map, and the map of all shapes that have a distance; names and distances in the
    order of the heat map, for the pointer."""
    alive = np.flatnonzero(np.isfinite(distances).sum(1) > 1)
    if not len(alive):
        return "<p>There is no matrix: no two shapes have a distance.</p>", {}
    known = filled(distances[np.ix_(alive, alive)])
    tree = tree_of(known)
    order = np.concatenate([alive[tree.order], np.setdiff1d(np.arange(len(names)), alive)])
    ordered, shown = distances[np.ix_(order, order)], [names[k] for k in order.tolist()]
    rows = [[None if np.isnan(d) else float(f"{d:.4g}") for d in row] for row in ordered.tolist()]
    parts = [
        heat_map(ordered, tree, shown),
        '<p id="under">Point at a cell to see its pair.</p>',
        f'<div class="map">{shape_map(known, [names[k] for k in alive.tolist()])}</div>',
    ]
    return "\n".join(parts), {"names": shown, "distances": rows}


def filled(distances: np.ndarray) -> np.ndarray:
    """The same with pairs that failed at the largest distance, which the tree and the map need."""
    return np.where(np.isnan(distances), np.nanmax(distances), distances)


def tree_of(distances: np.ndarray) -> Tree:
    """The tree of average linkage, neighbors beside each other.

    >>> tree_of(np.array([[0, 9, 1.0], [9, 0, 8], [1, 8, 0]])).merges[:, 2]
    array([1. , 8.5])
    """
    if len(distances) < 2:
        return Tree(np.arange(len(distances)), np.zeros((0, 4)))
    pairs = squareform((distances + distances.T) / 2, checks=False)
    merges = linkage(pairs, "average")
    if len(distances) <= ORDERED:
        merges = optimal_leaf_ordering(merges, pairs)
    return Tree(leaves_list(merges), merges)


def heat_map(distances: np.ndarray, tree: Tree, names: list[str]) -> str:
    """The matrix in the order of the tree, which stands on its left, and the names on its
    right."""
    count = len(names)
    cell, letters, top = SIDE / count, _letters(count), 12.0
    largest = float(np.nanmax(distances)) or 1.0
    shades = ramp(distances.ravel() / largest).reshape(count, count, 3)
    rgb = np.where(np.isnan(distances)[..., None], FAILED, shades).astype(np.uint8)
    parts = [
        f'<image class="cells" href="{png(rgb)}" x="{TREE}" y="{top}" width="{SIDE}" height="{SIDE}" '
        'preserveAspectRatio="none"/>',
        f'<path class="tree" d="{_branches(tree, cell, top)}"/>',
    ]
    if letters >= SMALLEST:
        longest = int((NAMES - 14) / (LETTER * letters))
        for k, name in enumerate(names):
            y = top + (k + 0.5) * cell + 0.35 * letters
            parts.append(f'<text x="{TREE + SIDE + 8}" y="{y:.1f}">{escape(_short(name, longest))}</text>')
    bar = png(RAMP[None].round().astype(np.uint8))
    y = top + SIDE + 14
    parts.append(f'<image href="{bar}" x="{TREE}" y="{y}" width="180" height="9" preserveAspectRatio="none"/>')
    for x, label in ((TREE, "0"), (TREE + 180, f"{largest:.3g}")):
        parts.append(f'<text class="small" x="{x}" y="{y + 22}" text-anchor="middle">{label}</text>')
    title = "Distances, dark gray where there is none, in the order of the tree (average linkage) on the left"
    return figure(title, f"{TREE + SIDE + NAMES} {top + SIDE + 42}", parts)


def _branches(tree: Tree, cell: float, top: float) -> str:
    """The brackets of the tree: leaves at the heat map, the last merge at the left."""
    count = len(tree.order)
    place, depth = np.zeros(2 * count), np.zeros(2 * count)
    place[tree.order] = top + (np.arange(count) + 0.5) * cell
    furthest = float(tree.merges[-1, 2]) if len(tree.merges) else 0.0
    x = lambda d: TREE - 6 - (TREE - 16) * d / (furthest or 1.0)  # noqa: E731
    lines = list[str]()
    for k, (i, j, height, _) in enumerate(tree.merges.tolist(), count):
        i, j = int(i), int(j)
        lines.append(
            f"M{x(depth[i]):.1f} {place[i]:.1f}H{x(height):.1f}V{place[j]:.1f}H{x(depth[j]):.1f}",
        )
        place[k], depth[k] = (place[i] + place[j]) / 2, height
    return "".join(lines)


def scaling(distances: np.ndarray) -> tuple[np.ndarray, float]:
    """Points in the plane whose distances are as near to these as squares allow (classical
    multidimensional scaling), and the share of the variance that they keep.  (K, 2)

    >>> points, share = scaling(np.abs(np.subtract.outer([0.0, 3.0, 7.0], [0.0, 3.0, 7.0])))
    >>> np.abs(np.subtract.outer(points[:, 0], points[:, 0])).round(6)[0], round(share, 6)
    (array([0., 3., 7.]), 1.0)
    """
    squares = distances**2
    centered = -0.5 * (squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean())
    values, vectors = np.linalg.eigh(centered)
    kept = np.concatenate([values[::-1][:2].clip(min=0), np.zeros(2)])[:2]
    axes = np.concatenate([vectors[:, ::-1][:, :2], np.zeros((len(values), 2))], 1)[:, :2]
    total = float(values.clip(min=0).sum())
    return axes * np.sqrt(kept), float(kept.sum() / total) if total > 0 else 1.0


def shape_map(distances: np.ndarray, names: list[str]) -> str:
    """The shapes as points in the plane, near where their distances are small."""
    points, share = scaling(distances)
    wide, tall = MAP
    low, span = points.min(0), np.ptp(points, axis=0)
    scale = min((wide - 130) / (span[0] or 1.0), (tall - 40) / (span[1] or 1.0)) if span.any() else 1.0
    at = (points - low - span / 2) * scale * [1, -1] + [(wide - 90) / 2, tall / 2]
    parts = [
        f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{escape(name)}</title></circle>'
        for (x, y), name in zip(at, names, strict=True)
    ]
    if len(names) <= MAP_NAMES:
        places = labels_beside(at, [LETTER * 11 * len(_short(name, 16)) for name in names], 12.0)
        for (x, y), name in zip(places, names, strict=True):
            parts.append(f'<text class="small" x="{x:.1f}" y="{y + 4:.1f}">{escape(_short(name, 16))}</text>')
    title = f"Map of the shapes (multidimensional scaling, {100 * share:.0f} % of the variance)"
    return figure(title, f"{wide} {tall}", parts)


def labels_beside(at: np.ndarray, widths: Sequence[float], height: float) -> np.ndarray:
    """Where labels go, right of their points and moved up or down from where others are.  (K, 2)

    >>> labels_beside(np.array([[0.0, 0.0], [1.0, 0.0]]), [20.0, 20.0], 10.0)[:, 1].tolist()
    [0.0, 10.0]
    """
    found, placed = at + np.array([8.0, 0.0]), list[int]()
    for k in at[:, 1].argsort(kind="stable").tolist():
        for other in sorted(placed, key=lambda i: found[i, 1]):
            beside = found[other, 0] < found[k, 0] + widths[k] and found[k, 0] < found[other, 0] + widths[other]
            if beside and abs(found[other, 1] - found[k, 1]) < height:
                found[k, 1] = found[other, 1] + height
        placed.append(k)
    return found


def _neighbor_table(names: list[str], neighbors: Neighbors) -> str:
    """The nearest of each shape, with distances."""
    k = neighbors.indices.shape[1]
    head = "".join(f'<th scope="col">{n}</th>' for n in range(1, k + 1))
    rows = list[str]()
    for name, indices, distances in zip(names, neighbors.indices.tolist(), neighbors.distances.tolist(), strict=True):
        cells = "".join(
            f"<td>{escape(names[i])} ({d:.3g})</td>" if i >= 0 else "<td></td>"
            for i, d in zip(indices, distances, strict=True)
        )
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    said = f"{neighbors.solved:,} of {neighbors.pairs:,} pairs were solved ({100 * neighbors.share:.3g} %); bounds "
    return (
        f"<h2>Nearest shapes, with their distances</h2><p>{said}exclude the others.</p>"
        f'<div class="wide"><table class="neighbors"><tr><th scope="col">Shape</th>{head}</tr>{"".join(rows)}</table>'
        "</div>"
    )


def _letters(count: int) -> float:
    """The size of a name beside the heat map."""
    return min(LARGEST, 0.9 * SIDE / count)


def _short(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"

"""The report: one HTML file that shows a match between two meshes or clouds, and loads nothing
from the network.

The file holds both shapes, the colors of every mode as the plan transports them, and the factors of
the plan, so that a click gives the exact row π_ij = exp(q_i·k_j + u_i + v_j) of any point. assets/
has the template, the style and the viewer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree

from gromap._files import replacing
from gromap._plan import Plan
from gromap._solution import Solution
from gromap.geometry.measure import spread_points
from gromap.mesh import Mesh
from gromap.mesh.mesh import in_space
from gromap.mesh.parts import parts
from gromap.mesh.quality import Quality, orientation_of
from gromap.report import paint, pose
from gromap.report.panel import landscape_tab, match_tab
from gromap.report.payload import block, probe_blocks
from gromap.search.landscape import Landscape
from gromap.transport import LowRank

SCRIPTS = ("data.js", "probe.js", "scene.js", "tools.js", "viewer.js")
LINES = 24  # points of the source that lines lead from, far from each other
MINIMA = 24  # the lowest minima, whose matches can be shown on the target
SAMPLE = 4000  # source points that carry the colors of a minimum
TEXTURE = 2048  # pixels along a side; larger images are subsampled
FLAT = 0.02  # of the largest extent: thinner shapes are seen from the front


def write_report(
    path: str | Path,
    source: Mesh,
    target: Mesh,
    solution: Solution,
    *,
    title: str = "",
    labels: Any = None,
    error: Any = None,
    quality: Quality | None = None,
    landscape: Landscape | None = None,
    settings: Mapping[str, object] | None = None,
    force: bool = False,
) -> Path:
    """Write the page of a match: both shapes, what the plan carries from one to the other, and
    how the solver got there.

    source, target: meshes, or clouds without faces, whose vertices were matched. A target that
    carries the very texture of the source, with uv of its own, is drawn with it.  labels: (N,)
    integers on the source.  error: (N,) floats, how far each source point lands from the truth.
    quality: of the map against the truth, with a panel of its own; errors are then in its unit, the
    root of the target's area.  landscape: of the same two clouds.  settings: shown in a table.  Of
    a match of parts, points that are not matched are gray.

    >>> import gromap, numpy as np, tempfile, pathlib
    >>> X = np.random.default_rng(0).normal(size=(60, 3)) * [3, 2, 1]
    >>> cloud = gromap.mesh.Mesh(X, np.zeros((0, 3), int))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "match.html"
    ...     page = write_report(path, cloud, cloud, gromap.solve(X, X))
    ...     page.stat().st_size > 500_000                             # the viewer is inside
    True
    """
    path = _free(Path(path), force)
    plan = replace(solution.plan, numpy=True)
    for name, mesh, count in zip(("source", "target"), (source, target), plan.shape, strict=True):
        _check_mesh(name, mesh, count)
    labels, error = _check_labels(labels, len(source.vertices)), _check_error(error, len(source.vertices))
    _check_landscape(landscape, plan)

    kept = parts(solution)
    matched = None if kept is None else kept.matched
    hand = orientation_of(solution, source, target, None if matched is None else matched[0])
    points = in_space(source.vertices), in_space(target.vertices)
    frame = pose.upright(points[0])
    fields = paint.fields_of(source, points[0], frame, labels, error)
    carried = paint.carry(plan.T, fields)
    unit = paint.in_units(points[1])
    back = paint.carry(plan, {"place": unit, "norm": (unit**2).sum(1, keepdims=True)})
    spreads = paint.spread(back, points[1]), paint.spread(carried, points[0])
    unit_of_error = "" if quality is None else " √area"
    if solution.refined is not None:
        ends = solution.refined[1].cpu().numpy()
        carried |= paint.pulled(fields, target, ends)
    modes = paint.modes_of(fields, carried, spreads, labels, matched, unit_of_error)
    counts = (plan.b if kept is None else plan.sums[1]).double().cpu().numpy()
    frames = frame, pose.beside(points[1], carried["place"], counts, frame)

    probe = probe_blocks(plan)
    blocks = _shape_blocks((source, target), points) | probe
    if kept is not None:
        blocks |= {
            f"{name}-kept": z.astype(np.float32) for name, z in zip(("source", "target"), kept.kept, strict=True)
        }
    for key, mode in modes.items():
        blocks |= {f"source-{key}": mode.source, f"target-{key}": mode.target}
    if error is not None:
        blocks["error"] = error.astype(np.float32)
    painted = _minima_colors(landscape, fields["colors"])
    blocks |= {f"minimum-{k}": colors for k, colors in enumerate(painted)}
    facts = {
        "sides": _sides((source, target), points, frames),
        "modes": {
            key: {k: getattr(mode, k) for k in ("name", "note", "ramp", "swatches")} for key, mode in modes.items()
        },
        "factors": "q" in probe,
        "errorUnit": unit_of_error,
        "lines": _lines(points[0], unit, back["place"], None if matched is None else matched[0]),
        "yaw": 0 if _flat(points[0]) and _flat(points[1]) else 0.45,
        "ramp": paint.RAMP.tolist(),
    }
    text = _page(
        title or "A match by gromap",
        facts,
        match_tab(solution, settings, hand, kept, quality),
        landscape_tab(landscape, len(painted)),
    )
    before, after = text.split("<!--blocks-->")
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(before)
        file.writelines(block(name, array) for name, array in blocks.items())
        file.write(after)
    return path


def _page(title: str, facts: dict[str, Any], match: str, landscape: str) -> str:
    """The template with everything but the arrays in it."""
    assets = files("gromap.report") / "assets"
    read = lambda name: (assets / name).read_text(encoding="utf-8")  # noqa: E731
    library = f"/*! {read('three/LICENSE')}*/\n{read('three/three.min.js')}"
    parts = {
        "title": escape(title),
        "style": read("style.css"),
        "facts": json.dumps(facts, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        "match": match,
        "landscape": landscape,
        "landscape-tab": "" if landscape else "hidden",
        "scripts": "\n".join(f"<script>\n{script}</script>" for script in (library, *map(read, SCRIPTS))),
    }
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: parts[mark[1]], read("template.html"))


def _shape_blocks(meshes: tuple[Mesh, Mesh], points: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
    """Positions, triangles, and a texture where the source has uv; the target only shows uv if
    they are into the same image."""
    source, target = meshes
    blocks = {}
    for name, mesh, place in zip(("source", "target"), meshes, points, strict=True):
        blocks |= {f"{name}-points": place, f"{name}-faces": np.asarray(mesh.faces, dtype=np.int32)}
    if source.uv is not None:
        texture = paint.texture_of(source)
        step = -(-max(texture.shape[:2]) // TEXTURE)
        thin = texture[::step, ::step]
        blocks |= {"texture": thin, "texture-size": np.array(thin.shape[:2], dtype=np.int32)}
        blocks["source-uv"] = source.uv.astype(np.float32)
        if target.uv is not None and target.texture is not None and np.array_equal(target.texture, texture):
            blocks["target-uv"] = target.uv.astype(np.float32)
    return blocks


def _sides(
    meshes: tuple[Mesh, Mesh], points: tuple[np.ndarray, ...], frames: tuple[np.ndarray, ...]
) -> list[dict[str, Any]]:
    """How each shape is named and placed; both are drawn to the same scale unless one is more
    than twice the other."""
    boxes = [(z.min(0).astype(np.float64), z.max(0).astype(np.float64)) for z in points]
    sizes = [float(np.linalg.norm(high - low)) or 1.0 for low, high in boxes]
    units = [max(sizes)] * 2 if max(sizes) <= 2 * min(sizes) else sizes
    sides = []
    for k, (role, mesh) in enumerate(zip(("Source", "Target"), meshes, strict=True)):
        caption = " · ".join([role, *([mesh.name] if mesh.name else []), f"{len(points[k]):,} vertices"])
        center, frame = (boxes[k][0] + boxes[k][1]) / 2, frames[k]
        sides.append({"caption": caption, "center": center.tolist(), "radius": units[k] / 2, "diagonal": sizes[k]})
        sides[k]["frame"] = frame.tolist()
    return sides


def _lines(points: np.ndarray, targets: np.ndarray, images: np.ndarray, some: np.ndarray | None) -> list[list[int]]:
    """Some points of the source, far from each other, and the target points nearest to the mean
    of where their mass goes.

    some: those that are matched, None if all are.
    """
    known = np.arange(len(points)) if some is None else np.flatnonzero(some)
    if not len(known):
        return []
    centered = torch.as_tensor(points[known].astype(np.float64) - points[known].mean(0, dtype=np.float64))
    chosen = known[np.unique(spread_points(centered, min(LINES, len(known))).numpy())]
    nearest = np.asarray(KDTree(targets).query(images[chosen])[1], dtype=int)
    return np.stack([chosen, nearest], 1).tolist()


def _flat(points: np.ndarray) -> bool:
    extent = np.ptp(points, axis=0)
    return bool(extent.min() < FLAT * extent.max())


def _minima_colors(land: Landscape | None, colors: np.ndarray) -> list[np.ndarray]:
    """The colors that each of the lowest minima carries to the target, from a sample of the
    source."""
    if land is None or land.pair is None:
        return []
    some = np.random.default_rng(0).permutation(len(colors))[:SAMPLE]
    found = []
    for k in range(min(MINIMA, len(land))):
        plan = land.plan(k)
        factors = plan.score.tensors()
        thin = Plan(LowRank(factors["q"][some], factors["k"]), plan.u[some], plan.v, plan.a[some], plan.b, numpy=True)
        found.append(paint.as_bytes(thin.T.conditional_mean(colors[some])))
    return found


def _free(path: Path, force: bool) -> Path:
    """The path, if a page may be written there; checked before the long work."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the report is a web page, so its name must end in .html, got {str(path)!r}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {str(path.parent)!r} for the report: create it, or choose another one."
        )
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder: choose another name for the report.")
    if path.exists() and not force:
        raise FileExistsError(f"{str(path)!r} exists: pass force=True to replace it, or choose another name.")
    return path


def _check_mesh(name: str, mesh: Mesh, count: int) -> None:
    vertices, faces = np.asarray(mesh.vertices), np.asarray(mesh.faces)
    if vertices.ndim != 2 or len(vertices) != count:
        raise ValueError(
            f"the {name} has vertices of shape {vertices.shape}, but the plan matches {count} points on this side: "
            "pass the meshes whose vertices were matched, the source first."
        )
    if not np.isfinite(vertices).all():
        raise ValueError(f"the {name} has vertices that are NaN or infinite: remove them and match again.")
    if faces.size and (faces.ndim != 2 or faces.shape[1] != 3 or faces.min() < 0 or faces.max() >= count):
        raise ValueError(f"the {name} needs faces of shape (F, 3) with indices in 0 .. {count - 1}, got {faces.shape}.")
    if mesh.colors is not None and np.shape(mesh.colors) != (count, 3):
        raise ValueError(f"the {name} needs rgb colors of shape ({count}, 3), got {np.shape(mesh.colors)}.")
    if mesh.uv is not None and np.shape(mesh.uv) != (len(faces), 3, 2):
        raise ValueError(
            f"the {name} needs uv of shape ({len(faces)}, 3, 2), one for each corner, got {np.shape(mesh.uv)}."
        )


def _check_labels(labels: Any, n: int) -> np.ndarray | None:
    if labels is None:
        return None
    array = np.asarray(labels)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be integers of shape ({n},), one per source vertex; got {array.dtype} of {array.shape}."
        )
    if (kinds := len(np.unique(array))) > paint.LABELS:
        raise ValueError(f"labels has {kinds} different values and the page shows at most {paint.LABELS}: group them.")
    return array


def _check_error(error: Any, n: int) -> np.ndarray | None:
    if error is None:
        return None
    array = np.asarray(error, dtype=np.float64)
    if array.shape != (n,) or not np.isfinite(array).all():
        raise ValueError(
            f"error must be finite numbers of shape ({n},), one per source vertex; got shape {array.shape}."
        )
    return array


def _check_landscape(land: Landscape | None, plan: Plan) -> None:
    sizes = None if land is None or land.pair is None else land.pair.shape
    if sizes is not None and sizes != plan.shape:
        raise ValueError(
            f"the landscape is of {sizes[0]} x {sizes[1]} points and the plan of {plan.shape[0]} x {plan.shape[1]}."
        )

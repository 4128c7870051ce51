"""`gromap barycenter A B [C ...]`: a free cloud between shapes, or a surface through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gromap
from gromap import _check
from gromap._files import save_figure
from gromap.cli import folder, inputs
from gromap.cli.show import Show, Tell
from gromap.geometry.measure import nearest
from gromap.mesh import Mesh, write_mesh
from gromap.mesh.mesh import in_space
from gromap.mesh.poisson import normals_at, poisson_surface
from gromap.mesh.sampling import spread_sample
from gromap.report.barycenter import Panel, barycenter_figure
from gromap.report.figures import color_field
from gromap.report.pose import beside, upright

POINTS, SURFACE_POINTS = 500, 1500  # a surface through fewer points than that has holes
STARTS = 20  # of the search for the matches that the picture shows
NAMED = 3  # shapes that the folder of the results is named after


@dataclass(frozen=True)
class Options:
    weights: str | None  #: numbers with commas between
    points: int | None
    steps: int
    cost: str
    epsilon: float  #: in units of the shapes, squared
    aligned: bool  #: the shapes lie in one pose
    surface: bool
    seed: int
    device: str | None
    force: bool


def barycenter(paths: Sequence[Path], out: Path | None, options: Options, show: Show) -> dict[str, Any]:
    """What report.json holds."""
    weights, cost = _weights(options.weights, len(paths)), inputs.free_cost(options.cost)
    _check.positive(options.epsilon, "epsilon")
    if options.surface:
        _check.extra("pymeshlab", "poisson")
    missing = _no_picture()
    with show.stage("read the shapes"):
        meshes = [inputs.read(path) for path in paths]
        size = options.points or (SURFACE_POINTS if options.surface else POINTS)
        clouds = _clouds(meshes, size, options)
    names = ["barycenter.ply", *([] if missing else ["barycenter.png"]), "report.json"]
    place = folder.ready(out or Path(_title(meshes)), names, options.force)
    device = inputs.device(options.device, size)
    centered = [torch.from_numpy(cloud - cloud.mean(0)).to(device) for cloud in clouds]
    first = int(weights.argmax())  # the flow starts there, and distances see no place
    middle = in_space(clouds[first]).mean(0)
    unit = max(gromap.Space(cloud, cost=cost).scale for cloud in centered)

    with folder.keeping(place, names):
        with show.stage("flow") as tell:
            start = centered[first] if len(meshes[first].faces) else None
            flow = _flow(centered, weights, start, size, cost, unit, options, tell)
            result = Mesh(in_space(flow.points.cpu().numpy()) + middle, np.zeros((0, 3), np.int64), name="barycenter")
            write_mesh(result, place / "barycenter.ply", force=True)
        settings = {"shapes": [str(path) for path in paths]} | asdict(options)
        settings |= {"weights": weights.tolist(), "points": size, "device": device, "gromap": gromap.__version__}
        facts = {
            "settings": settings,
            "unit": unit,
            "losses": (flow.losses / unit**2).tolist(),
            "status": flow.status.value,
        }
        facts |= {
            "loss": float(flow.losses.min()) / unit**2,
            "seconds": show.seconds,
            "folder": str(place),
            "files": names,
        }
        if flow.status is gromap.FlowStatus.INTERRUPTED:
            folder.write_json(place / "report.json", facts | {"files": ["barycenter.ply", "report.json"]})
            raise KeyboardInterrupt(f"the best points of the {len(flow.losses) - 1} steps so far")
        if options.surface:
            with show.stage("find the surface"):
                mesh = meshes[first]
                sides = normals_at(mesh, clouds[first]) if len(mesh.faces) else None
                result = _surface(flow, middle, sides, place)
        if not missing:
            with show.stage("draw the shapes"):
                panels, frame = _panels(meshes, weights, centered, flow.points, cost, options)
                surface = Mesh((result.vertices - middle) @ frame.T, result.faces) if options.surface else None
                figure = barycenter_figure(panels, flow.losses / unit**2, surface)
                save_figure(figure, place / "barycenter.png", dpi=130)
        folder.write_json(place / "report.json", facts)
    return facts | {"text": "\n".join([*_summary(facts, result), *missing, f"wrote {place / 'barycenter.ply'}"])}


def _flow(
    clouds: list[torch.Tensor], weights: np.ndarray, start: torch.Tensor | None, size: int, cost: Any, unit: float,
    options: Options, tell: Tell,
) -> gromap.Flow:  # fmt: skip
    """The cloud at the lowest loss; the best until Ctrl-C."""
    tell("match the shapes for the first time")
    try:
        flow = gromap.barycenter(
            clouds,
            weights,
            points=None if start is not None else size,
            init=start,
            match="nearest" if options.aligned else "auto",
            steps=options.steps,
            cost=cost,
            epsilon=options.epsilon * unit**2,
            seed=options.seed,
            callback=lambda event: tell(event._replace(value=event.value / unit**2)),
        )
    except gromap.FlowInterrupted as error:
        return error.flow
    if flow.status in (gromap.FlowStatus.NOT_FINITE, gromap.FlowStatus.DIVERGED):
        raise ValueError(
            f"the flow overflowed after {len(flow.losses) - 1} steps at --epsilon {options.epsilon:g}: raise it."
        )
    return flow


def _clouds(meshes: Sequence[Mesh], size: int, options: Options) -> list[np.ndarray]:
    """At most `size` points of each shape, all in 2-D or all in 3-D: flat shapes among others
    lie at height 0."""
    for mesh in meshes:
        if mesh.vertices.shape[1] > 3:
            d = mesh.vertices.shape[1]
            raise ValueError(
                f"{mesh.name} has {d} coordinates, and a barycenter is drawn in space: give shapes of 2 or 3."
            )
    dim = max(2, *(mesh.vertices.shape[1] for mesh in meshes))
    if options.surface and dim < 3:
        raise ValueError("--surface goes through points in space, and these shapes are flat: leave it out.")
    clouds = [spread_sample(mesh, size, options.seed) for mesh in meshes]
    return [np.pad(cloud, ((0, 0), (0, dim - cloud.shape[1]))) for cloud in clouds]


def _surface(flow: gromap.Flow, middle: np.ndarray, sides: np.ndarray | None, place: Path) -> Mesh:
    """The surface, in place of the points."""
    try:
        found = poisson_surface(flow.points.cpu().numpy(), 7, 8, sides)
    except ValueError as error:
        raise ValueError(f"{error} The points are kept in {place / 'barycenter.ply'}.") from error
    mesh = Mesh((found.vertices + middle).astype(np.float32), found.faces, name="barycenter")
    write_mesh(mesh, place / "barycenter.ply", force=True)
    return mesh


def _panels(
    meshes: Sequence[Mesh],
    weights: np.ndarray,
    clouds: list[torch.Tensor],
    middle: torch.Tensor,
    cost: Any,
    options: Options,
) -> tuple[list[Panel], np.ndarray]:
    """The shapes and then the barycenter, in matching colors, and the frame in which the
    barycenter is seen.

    Unless they lie in one pose, the shapes are turned as they match the barycenter.
    """
    points = in_space(middle.cpu().numpy())
    frame = upright(points)
    colors, panels = color_field(points @ frame.T), []
    for mesh, weight, cloud in zip(meshes, weights, clouds, strict=True):
        init = nearest(middle, cloud) if options.aligned else gromap.Search(STARTS)
        sol = gromap.solve(middle, cloud, cost=cost, epsilon=options.epsilon, init=init, seed=options.seed)
        shade, image = (sol.push(torch.from_numpy(z).to(middle)).cpu().numpy() for z in (colors, points))
        shape = in_space(cloud.cpu().numpy())
        seen = frame if options.aligned else beside(shape, image, np.ones(len(shape)), frame)
        panels.append(Panel(f"{mesh.name}, weight {weight:.2g}", shape @ seen.T, shade))
    return [*panels, Panel("barycenter", points @ frame.T, colors)], frame


def _weights(text: str | None, count: int) -> np.ndarray:
    """One share for each shape; they sum to one.  (count,)"""
    if count < 2:
        raise ValueError(f"a barycenter lies between shapes, and {count} is given: name 2 files or more.")
    if text is None:
        return np.full(count, 1 / count)
    try:
        weights = np.array([float(word) for word in text.split(",")])
    except ValueError as error:
        raise ValueError(f"--weights are numbers with commas between, as 0.5,0.5; got {text!r}.") from error
    if len(weights) != count:
        raise ValueError(f"--weights has {len(weights)} numbers for {count} shapes, got {text!r}: give one for each.")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise ValueError(f"--weights must be numbers >= 0, not all of them 0; got {text!r}.")
    return weights / weights.sum()


def _no_picture() -> list[str]:
    """Why there is none, if so."""
    try:
        _check.extra("matplotlib.figure", "plot", "matplotlib")
    except ImportError as error:
        return [f"no picture: {error}"]
    return []


def _title(meshes: Sequence[Mesh]) -> str:
    names = [mesh.name for mesh in meshes[:NAMED]]
    return "-".join([*names, *([f"and-{len(meshes) - NAMED}-more"] if len(meshes) > NAMED else []), "barycenter"])


def _summary(facts: dict[str, Any], result: Mesh) -> list[str]:
    losses, what = facts["losses"], f"{len(result.vertices)} {'vertices' if len(result.faces) else 'points'}"
    return [
        f"barycenter of {len(facts['settings']['shapes'])} shapes: {what}",
        f"  loss            {losses[0]:.4g} to {facts['loss']:.4g} in {len(losses) - 1} steps, in squared units",
        f"  status          {facts['status']}",
    ]

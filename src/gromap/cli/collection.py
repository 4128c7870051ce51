"""`gromap landscape A B` and `gromap pairwise FOLDER`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import gromap
from gromap.cli import folder, inputs
from gromap.cli.show import Show
from gromap.learn.collection import Collection
from gromap.learn.nearest import find_nearest
from gromap.learn.pairwise import all_values
from gromap.mesh.io import READERS
from gromap.mesh.mesh import in_space


@dataclass(frozen=True)
class LandscapeOptions:
    cost: str | None
    epsilon: float
    dim: int | None
    starts: int
    seed: int
    device: str | None
    force: bool


def landscape(paths: tuple[Path, Path], out: Path | None, options: LandscapeOptions, show: Show) -> dict[str, Any]:
    """What report.json holds."""
    with show.stage("read the shapes"):
        source, target = (inputs.read(path) for path in paths)
    costs = inputs.costs(options.cost, (source, target))
    device = inputs.device(options.device, min(len(source.vertices), len(target.vertices)))
    names = ["landscape.safetensors", "landscape.png", "report.html", "report.json"]
    place = folder.ready(out or Path(f"{source.name}-{target.name}-landscape"), names, options.force)
    with show.stage("embed the shapes") as tell:
        x, y = (
            inputs.space(z, c, options.dim, options.seed, device, tell)
            for z, c in zip((source, target), costs, strict=True)
        )
    with show.stage(f"run {options.starts} starts"):
        land = gromap.landscape(x, y, starts=options.starts, epsilon=options.epsilon, seed=options.seed)
        land.save(place / "landscape.safetensors")
    with show.stage("refine the lowest"):
        sol = land.refine(1)[0]
    if len(land) > 1:
        with show.stage("draw the minima"):
            land.plot(place / "landscape.png")
    else:
        names.remove("landscape.png")
        (place / "landscape.png").unlink(missing_ok=True)
    settings = {"source": str(paths[0]), "target": str(paths[1]), "starts": options.starts}
    settings |= {"epsilon": options.epsilon, "seed": options.seed}
    with show.stage("write the report"):
        from gromap.report.page import write_report

        title = f"{source.name} to {target.name}: {len(land)} minima"
        page = place / "report.html"
        source, target = (replace(mesh, vertices=in_space(mesh.vertices)) for mesh in (source, target))
        write_report(
            page,
            source,
            target,
            sol,
            title=title,
            landscape=land if len(land) > 1 else None,
            settings=settings,
            force=True,
        )
    facts = {
        "settings": settings,
        "minima": len(land),
        "energies": land.energies.tolist(),
        "basins": land.basins.tolist(),
    }
    facts |= {"continuous": land.continuous, "seconds": show.seconds, "folder": str(place), "files": names}
    folder.write_json(place / "report.json", facts)
    alone = [] if len(land) > 1 else ["one minimum alone: there is no landscape to draw"]
    return facts | {"text": "\n".join([str(land), *alone, f"wrote {page}"])}


@dataclass(frozen=True)
class PairwiseOptions:
    cost: str | None
    epsilon: float
    dim: int | None
    debias: bool
    nearest: int | None
    jobs: int | None
    seed: int
    device: str | None
    force: bool


def pairwise(shapes: Path, out: Path | None, options: PairwiseOptions, show: Show) -> dict[str, Any]:
    """What report.json holds."""
    if not shapes.is_dir():
        raise NotADirectoryError(f"{shapes} is not a folder: name a folder of meshes.")
    paths = sorted(path for path in shapes.iterdir() if path.suffix.lower() in READERS and path.is_file())
    if len(paths) < 2:
        raise ValueError(
            f"{shapes} has {len(paths)} files that could be read: at least 2 are needed, of {', '.join(READERS)}."
        )
    if options.nearest is not None and options.nearest >= len(paths):
        raise ValueError(f"--nearest {options.nearest} of {len(paths)} shapes: give a number below {len(paths)}.")
    matrices = ["distances.npy", "distances.csv", "values.npy", "values.csv"]
    names = [*(["neighbors.csv"] if options.nearest else matrices), "report.html", "report.json"]
    place = folder.ready(out or Path(f"{shapes.resolve().name}-pairwise"), names, options.force)
    kept = place / "pairwise.safetensors"
    if options.force:
        kept.unlink(missing_ok=True)
    collection = Collection.of(
        _spaces(paths, options, show),
        cost=None,
        dim="auto",
        epsilon=options.epsilon,
        scale="joint",
        method="auto",
        init="auto",
        tol=None,
        seed=options.seed,
        debias=options.debias,
        n_jobs=options.jobs,
        path=kept,
    )
    files = [path.name for path in paths]
    facts: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    with show.stage("match the pairs" if options.nearest else "match all pairs") as tell:
        collection.callback = tell
        if options.nearest:
            found = find_nearest(collection, options.nearest)
            folder.write_text(place / "neighbors.csv", _neighbors(files, found))
            shown["neighbors"] = found
            facts["neighbors"] = {files[k]: _row(files, found, k) for k in range(len(files))}
            facts["solved"] = {"pairs": found.solved, "share": found.share}
        else:
            values = all_values(collection)
            distances = np.sqrt(values.clip(min=0))
            for name, matrix in (("distances", distances), ("values", values)):
                folder.write_array(place / f"{name}.npy", matrix)
                folder.write_text(place / f"{name}.csv", _table(files, matrix))
            shown["distances"] = distances
            facts["values"] = [[None if np.isnan(v) else v for v in row] for row in values.tolist()]
    failures = [
        f"{' and '.join(files[k] for k in dict.fromkeys(which))}: {reason}"
        for which, reason in collection.failures.items()
    ]
    settings = {"shapes": str(shapes), "cost": options.cost or "geodesic on meshes, euclidean on clouds"}
    settings |= {"epsilon": options.epsilon, "debias": options.debias, "seed": options.seed}
    with show.stage("write the report"):
        from gromap.report.collection import write_collection

        page, title = place / "report.html", f"{len(paths)} shapes of {shapes.resolve().name}"
        write_collection(page, files, title=title, failures=failures, settings=settings, **shown)
    facts = {"settings": settings | {"shapes": [str(path) for path in paths]}, **facts, "failures": failures}
    facts |= {"seconds": show.seconds, "folder": str(place), "files": names}
    folder.write_json(place / "report.json", facts)
    counts = f"{len(paths)} shapes, {len(paths) * (len(paths) - 1) // 2} pairs"
    if options.nearest:
        counts += f", {found.solved} solved"
    return facts | {"text": f"{counts}\nwrote {place / names[1 - bool(options.nearest)]} and {page}"}


def _spaces(paths: list[Path], options: PairwiseOptions, show: Show) -> list[gromap.Space | Exception]:
    """The shapes as spaces, and in the place of one that cannot be used the error that says
    why."""
    found = list[Any](paths)
    with show.stage("read the shapes"):
        for k, path in enumerate(paths):
            try:
                found[k] = inputs.read(path)
            except (ValueError, OSError) as error:
                found[k] = error
    meshes = {k: mesh for k, mesh in enumerate(found) if not isinstance(mesh, Exception)}
    if len(meshes) < 2 or (len(meshes) < len(paths) and "," in (options.cost or "")):
        raise next(error for error in found if isinstance(error, Exception))
    device = inputs.device(options.device, min(len(mesh.vertices) for mesh in meshes.values()))
    costs = inputs.costs(options.cost, list(meshes.values()))
    with show.stage("embed the shapes") as tell:
        for n, ((k, mesh), cost) in enumerate(zip(meshes.items(), costs, strict=True), 1):
            numbered = lambda event, n=n: tell(f"{n} of {len(meshes)}, {event}")  # noqa: E731
            try:
                found[k] = inputs.space(mesh, cost, options.dim, options.seed, device, numbered)
            except (ValueError, MemoryError) as error:
                found[k] = error
    return found


def _row(names: list[str], found: gromap.Neighbors, k: int) -> list[list[Any]]:
    """The neighbors of one shape and their distances."""
    pairs = zip(found.indices[k].tolist(), found.distances[k].tolist(), strict=True)
    return [[names[i], d] for i, d in pairs if i >= 0]


def _neighbors(names: list[str], found: gromap.Neighbors) -> str:
    rows = [(names[k], rank, *pair) for k in range(len(names)) for rank, pair in enumerate(_row(names, found, k), 1)]
    return _csv([("shape", "rank", "neighbor", "distance"), *rows])


def _table(names: list[str], values: np.ndarray) -> str:
    return _csv([("", *names), *((name, *row) for name, row in zip(names, values.tolist(), strict=True))])


def _csv(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()

"""`gromap landscape A B` and `gromap pairwise FOLDER`."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import gromap
from gromap.cli import folder, inputs
from gromap.cli.show import Show
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
    jobs: int
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
    names = ["distances.npy", "distances.csv", "report.json"]
    place = folder.ready(out or Path(f"{shapes.resolve().name}-pairwise"), names, options.force)
    with show.stage("read the shapes"):
        meshes = [inputs.read(path) for path in paths]
    device = inputs.device(options.device, min(len(mesh.vertices) for mesh in meshes))
    costs = inputs.costs(options.cost, meshes)
    spaces = []
    with show.stage("embed the shapes") as tell:
        for k, (mesh, cost) in enumerate(zip(meshes, costs, strict=True), 1):
            numbered = lambda event, k=k: tell(f"{k} of {len(meshes)}, {event}")  # noqa: E731
            spaces.append(inputs.space(mesh, cost, options.dim, options.seed, device, numbered))
    kept = place / "pairwise.safetensors"
    if options.force:
        kept.unlink(missing_ok=True)
    with show.stage("match all pairs") as tell:
        values = gromap.pairwise(
            spaces,
            debias=options.debias,
            n_jobs=options.jobs,
            epsilon=options.epsilon,
            seed=options.seed,
            path=kept,
            callback=tell,
        )
    folder.write_array(place / "distances.npy", values)
    folder.write_text(place / "distances.csv", _table([path.name for path in paths], values))
    settings = {"shapes": [str(path) for path in paths], "cost": options.cost, "epsilon": options.epsilon}
    settings |= {"debias": options.debias, "seed": options.seed}
    facts = {
        "settings": settings,
        "values": values.tolist(),
        "seconds": show.seconds,
        "folder": str(place),
        "files": names,
    }
    folder.write_json(place / "report.json", facts)
    return facts | {
        "text": f"{len(paths)} shapes, {len(paths) * (len(paths) - 1) // 2} pairs\nwrote {place / 'distances.csv'}"
    }


def _table(names: list[str], values: np.ndarray) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["", *names])
    table.writerows([name, *row] for name, row in zip(names, values.tolist(), strict=True))
    return text.getvalue()

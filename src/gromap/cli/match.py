"""`gromap match A B`: read, embed, solve, carry over, write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import gromap
from gromap import _check
from gromap.cli import folder, inputs
from gromap.cli.extras import Extras
from gromap.cli.show import Show
from gromap.mesh import Mesh, write_mesh
from gromap.mesh import match as match_meshes
from gromap.mesh.mesh import in_space
from gromap.mesh.parts import Parts, parts
from gromap.mesh.quality import Orientation, Quality, orientation_of, quality
from gromap.mesh.texture import with_texture
from gromap.mesh.transfer import colored, pull_back, push, push_labels, sharpen, textured
from gromap.report.figures import color_field
from gromap.report.paint import LEFT_OUT

# of a match that exchanges left and right, and is lower
MIRRORED = ("mirrored.safetensors", "mirrored_map.txt", "mirrored_map_21.txt")


@dataclass(frozen=True)
class Options:
    cost: str | None
    epsilon: float | None
    dim: int | None
    landmarks: Path | None
    starts: int
    chirality: bool
    allow_mirror: bool
    extras: Extras
    transfer: str  #: "colors", "texture", or a .npy file
    truths: tuple[Path, ...]
    seed: int
    device: str | None
    force: bool


def match(paths: tuple[Path, Path], out: Path | None, options: Options, show: Show) -> dict[str, Any]:
    """What report.json holds."""
    if options.epsilon is not None:
        _check.positive(options.epsilon, "epsilon")
    with show.stage("read the shapes"):
        source, target = (inputs.read(path) for path in paths)
    n, m = len(source.vertices), len(target.vertices)
    costs, device = inputs.costs(options.cost, (source, target)), inputs.device(options.device, min(n, m))
    if options.chirality:
        _check_chirality(options, source, target)
    pairs = gromap.landmarks(inputs.integers(options.landmarks, "landmarks", 2)) if options.landmarks else None
    truths = [inputs.integers(path, "a true map", 1)[:, 0] for path in options.truths]
    carried, extras = Transfer.read(options.transfer, source, target), options.extras
    if truths and not (len(source.faces) and len(target.faces)):
        raise ValueError("--truth measures along the surface, and a cloud has none: give meshes with faces.")
    if truths:  # refuse what is not a map, and meshes without geodesics, before the long work
        quality(np.zeros(n, np.int64), source, target, truths, samples=1)
    names = ["result.safetensors", "map.txt", "map_21.txt", *MIRRORED, *carried.files, "report.html", "report.json"]
    features = None
    if extras.features is not None:
        with show.stage("describe the shapes"):
            features = extras.descriptions(source, target, options.seed)
    place = folder.ready(out or Path(f"{source.name}-{target.name}"), names, options.force)

    with show.stage("embed the shapes") as tell:
        x, y = (
            inputs.space(z, c, options.dim, options.seed, device, tell)
            for z, c in zip((source, target), costs, strict=True)
        )
    with folder.keeping(place, names):
        with show.stage("match") as tell:
            given: dict[str, Any] = {"reach": extras.reach, "mass": extras.mass}
            told = True if options.chirality else False if options.allow_mirror else None
            given |= {"init": pairs or gromap.Search(options.starts, told)}
            given |= {"allow_mirror": options.allow_mirror or pairs is not None}
            if features is not None:
                given |= {"features": features, "alpha": extras.alpha}
            sol = match_meshes(x, y, epsilon=options.epsilon, seed=options.seed, callback=tell, **given)
            sol.save(place / "result.safetensors")
            there = sol.map()
            folder.write_map(place / "map.txt", there)
            folder.write_map(place / "map_21.txt", sol.inverse_map())
            _write_mirrored(place, sol.mirrored)
            if sol.status is gromap.Status.INTERRUPTED:
                raise KeyboardInterrupt("the best match so far, which is not converged")
        measured, kept = None, parts(sol)
        if truths:
            with show.stage("measure the map"):
                measured = quality(there, source, target, truths, seed=options.seed)
        with show.stage(f"carry the {carried.what} over"):
            painted, values = carried.carry(source, target, sol, kept)
            for mesh, file in zip(painted, carried.files, strict=False):
                write_mesh(mesh, place / file, force=True)
            if values is not None:
                folder.write_array(place / carried.files[-1], values)
        some = None if kept is None else kept.matched[0]
        hand = orientation_of(sol, source, target, some)
        settings = _settings(paths, options, device) | extras.settings() | _embedded(x, y)
        with show.stage("write the report"):
            from gromap.report.page import write_report

            write_report(
                place / "report.html",
                *painted,
                sol,
                title=f"{source.name} to {target.name}",
                labels=carried.labels,
                error=None if measured is None else _error(there, truths[measured.truth or 0], target),
                quality=measured,
                settings=settings,
                force=True,
            )
        facts = _facts(sol, measured, hand, settings) | {"reach": extras.reach, "kept": _kept(kept)}
        written = [name for name in names if sol.mirrored is not None or name not in MIRRORED]
        facts |= {"seconds": show.seconds, "folder": str(place), "files": written}
        folder.write_json(place / "report.json", facts)
    hands = _left_and_right(hand, kept is not None, sol.stats.hand is not None)
    said = [str(sol), hands, str(measured) if measured else "", f"wrote {place / 'report.html'}"]
    return facts | {"text": "\n".join(filter(None, said))}


def _write_mirrored(place: Path, other: gromap.Solution | None) -> None:
    """The match that exchanges left and right, if there is one; files of one before are removed."""
    if other is None:
        for name in MIRRORED:
            (place / name).unlink(missing_ok=True)
        return
    other.save(place / MIRRORED[0])
    folder.write_map(place / MIRRORED[1], other.map())
    folder.write_map(place / MIRRORED[2], other.inverse_map())


def _left_and_right(hand: Orientation | None, partly: bool, told: bool) -> str:
    """A line for the console, and what to do about a match that exchanges both, where this was not
    told yet."""
    if hand is None:
        return ""
    remedy = "" if told else ": try --landmarks" if partly else ": try --chirality, or --landmarks"
    return f"  {hand}" + (remedy if hand.word == "mirrored" else "")


def _kept(kept: Parts | None) -> dict[str, Any] | None:
    """How much of both sides is matched: the mean over their areas, and the share at vertices of
    which less than half is."""
    if kept is None:
        return None
    sides = zip(("source", "target"), kept.means, kept.below, strict=True)
    return {name: {"mean": mean, "below_half": below} for name, mean, below in sides}


def _check_chirality(options: Options, source: Mesh, target: Mesh) -> None:
    if options.allow_mirror:
        raise ValueError("--chirality keeps left and right apart, and --allow-mirror does not: give one of them.")
    if options.extras.partly:
        raise ValueError("--chirality does not choose among matches of parts: give --landmarks instead.")
    if options.landmarks:
        raise ValueError("--landmarks choose the match by themselves: leave out --chirality.")
    for mesh in (source, target):
        if mesh.vertices.shape[1] != 3:
            raise ValueError(
                f"--chirality needs points in space, and {mesh.name} has {mesh.vertices.shape[1]} coordinates: leave "
                "it out."
            )


def _embedded(x: gromap.Space, y: gromap.Space) -> dict[str, str]:
    """How well the embeddings of the meshes keep the distances on them."""
    made = {"source embedding": x.mesh_embedding, "target embedding": y.mesh_embedding}
    return {name: repr(embedding) for name, embedding in made.items() if embedding}


@dataclass(frozen=True, eq=False)
class Transfer:
    """What is carried from the source to the target, and the files that show it."""

    what: str
    files: tuple[str, ...]
    field: np.ndarray | None = None

    @property
    def labels(self) -> np.ndarray | None:
        return self.field if self.field is not None and self.field.dtype.kind in "iu" else None

    @classmethod
    def read(cls, text: str, source: Mesh, target: Mesh) -> Transfer:
        if text == "texture":
            for mesh in (source, target):
                if not len(mesh.faces):
                    raise ValueError(
                        f"{mesh.name} is a cloud, which has no faces to put a texture on: use --transfer colors."
                    )
            return cls("texture", ("source.glb", "target.glb"))
        shapes = ("source.ply", "target.ply")
        if text in ("colors", "colours"):
            return cls("colors", shapes)
        path, n = Path(text), len(source.vertices)
        if path.suffix.lower() != ".npy":
            raise ValueError(
                f"--transfer is colors, texture or a .npy file with a value for each source vertex, got {text!r}."
            )
        values = inputs.array(path, "to carry over")
        if values.shape != (n,) or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            raise ValueError(
                f"{path} must hold {n} finite numbers, one for each source vertex; got {values.dtype} {values.shape}."
            )
        values = values.astype(np.int64) if values.dtype.kind in "bu" else values
        return cls("labels" if values.dtype.kind == "i" else "field", (*shapes, "field_target.npy"), values)

    def carry(
        self, source: Mesh, target: Mesh, sol: gromap.Solution, kept: Parts | None
    ) -> tuple[tuple[Mesh, Mesh], np.ndarray | None]:
        """Both shapes in matching colors, gray where they are not matched, or textures, and the
        field on the target."""
        back = None if sol.refined is None else sol.inverse_map()
        if self.what == "texture":
            source = source if source.uv is not None and source.texture is not None else with_texture(source)
            sharp = sharpen(sol.plan) if back is None else sol.plan
            return (source, textured(target, source, sharp, back)), None
        source, target = (replace(mesh, vertices=in_space(mesh.vertices)) for mesh in (source, target))
        if self.field is None:
            source = source if source.colors is not None else replace(source, colors=color_field(source.vertices))
            return _grayed((source, colored(target, source, sol.plan, back)), kept), None
        if back is not None:
            values = self.field[back] if self.what == "labels" else pull_back(self.field, target, back)
        else:
            values = push_labels(sol.plan, self.field)[0] if self.what == "labels" else push(sol.plan, self.field)
        low, high = self.field.min(), self.field.max()
        shades = [shade((z - low) / max(high - low, 1e-300)) for z in (self.field, np.asarray(values))]
        shaded = replace(source, colors=shades[0]), replace(target, colors=shades[1])
        return _grayed(shaded, kept), np.asarray(values)


def _grayed(shapes: tuple[Mesh, Mesh], kept: Parts | None) -> tuple[Mesh, Mesh]:
    """The same where all vertices are gray that are not matched."""
    if kept is None:
        return shapes
    found = list[Mesh]()
    for mesh, some in zip(shapes, kept.matched, strict=True):
        assert mesh.colors is not None
        found.append(replace(mesh, colors=np.where(some[:, None], mesh.colors, LEFT_OUT / 255)))
    return found[0], found[1]


def shade(share: np.ndarray) -> np.ndarray:
    """From blue over light gray to red.  (N, 3) in [0, 1]"""
    stops = np.array([[0.23, 0.30, 0.75], [0.87, 0.87, 0.87], [0.71, 0.02, 0.15]])
    return np.stack([np.interp(share, [0, 0.5, 1], stops[:, k]) for k in range(3)], 1)


def _error(match: np.ndarray, truth: np.ndarray, target: Mesh) -> np.ndarray:
    """Euclidean distances to the truth, to color all vertices by; the printed error is geodesic."""
    return np.linalg.norm(target.vertices[match] - target.vertices[truth], axis=1) / np.sqrt(target.area)


def _settings(paths: tuple[Path, Path], options: Options, device: str) -> dict[str, Any]:
    return {
        "source": str(paths[0]),
        "target": str(paths[1]),
        "cost": options.cost or "geodesic on meshes, euclidean on clouds",
        "epsilon": options.epsilon or "auto",
        "dim": options.dim or "auto",
        "landmarks": str(options.landmarks) if options.landmarks else "none",
        "starts": options.starts,
        "chirality": options.chirality,
        "allow mirror": options.allow_mirror,
        "transfer": options.transfer,
        "seed": options.seed,
        "device": device,
        "gromap": gromap.__version__,
    }


def _facts(
    sol: gromap.Solution, measured: Quality | None, hand: Orientation | None, settings: dict[str, Any]
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "settings": settings,
        "points": list(sol.plan.shape),
        "value": sol.value,
        "value_gw": sol.value_gw,
        "value_features": sol.value_features,
        "value_marginals": sol.value_marginals,
        "alpha": sol.alpha,
        "mass": sol.mass,
    }
    facts |= {"epsilon": sol.epsilon, "scale": list(sol.scale), "marginal_error": sol.plan.marginal_error}
    facts |= {"converged": sol.converged, "status": sol.status.value}
    facts["left_and_right"] = (
        None if hand is None else {"word": hand.word, "hand": hand.hand, "mirrored": sol.stats.mirrored}
    )
    other = sol.mirrored
    facts["mirrored"] = (
        None
        if other is None
        else {"value": other.value, "value_gw": other.value_gw, "hand": other.stats.hand, "status": other.status.value}
    )
    facts["stats"] = sol.stats.facts()
    if measured:
        named = {"error": measured.error, "auc": measured.auc, "truth": measured.truth}
        facts["quality"] = named | {"coverage": measured.coverage, "smoothness": measured.smoothness}
        facts["quality"]["distances"] = measured.distances
    return facts

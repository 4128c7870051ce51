"""What the user gives on the command line: meshes, costs, landmarks, maps, devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import gromap
from gromap import _check, _options
from gromap._files import read_array
from gromap._pair import default_device
from gromap.cli.show import Tell
from gromap.geometry.costs import NAMES, Exponential, Gaussian, Power
from gromap.mesh import Mesh, read_mesh
from gromap.mesh.embedding import METHODS
from gromap.mesh.match import auto_cost

FAMILIES = {"power": Power, "gaussian": Gaussian, "exponential": Exponential}
KNOWN = [*METHODS, *NAMES, *(f"{family}:NUMBER" for family in FAMILIES)]


def read(path: Path) -> Mesh:
    """A mesh in single precision, in which the command line computes."""
    if not _check.is_text(str(path)):
        raise ValueError(f"the name {str(path)!r} is not UTF-8, and reports name it: rename the file.")
    mesh = read_mesh(path)
    with np.errstate(over="ignore"):
        vertices = mesh.vertices.astype(np.float32)
    if not np.isfinite(vertices).all():
        raise ValueError(f"{path} has coordinates up to {np.abs(mesh.vertices).max():.3g}: divide them by a unit.")
    return replace(mesh, vertices=vertices)


def costs(text: str | None, meshes: Sequence[Mesh]) -> list[Any]:
    """The cost of each mesh: a name or a family, "power:0.5", for all, or one for each,
    separated by commas."""
    names = text.split(",") if text else [auto_cost(meshes)]
    if len(names) == 1:
        names *= len(meshes)
    if len(names) != len(meshes):
        raise ValueError(
            f"--cost is one cost for all {len(meshes)} shapes, or one for each with commas between, got {text!r}."
        )
    for name, mesh in zip(names, meshes, strict=True):
        if name in METHODS and not len(mesh.faces):
            raise ValueError(
                f"{mesh.name} is a cloud, without faces, and --cost {name} needs a surface: use --cost euclidean."
            )
    return [_cost(name) for name in names]


def free_cost(name: str) -> Any:
    """A cost between any points in space, for a cloud that moves freely."""
    free = [known for known in NAMES if known.endswith("euclidean")]
    if "," in name:
        raise ValueError(f"--cost is one cost for all shapes and for the barycenter, got {name!r}.")
    if name in METHODS:
        raise ValueError(
            f"--cost {name} runs along faces, and the points of a barycenter have none: use --cost euclidean."
        )
    if name in NAMES and name not in free:
        raise ValueError(
            f"--cost {name} needs points of its own space, and a barycenter moves freely: use --cost euclidean."
        )
    return _cost(name, [*free, *(f"{family}:NUMBER" for family in FAMILIES)])


def _cost(name: str, known: Sequence[str] = KNOWN) -> Any:
    family, colon, number = name.partition(":")
    if colon and family in FAMILIES:
        try:
            return FAMILIES[family](float(number))
        except ValueError as error:
            raise ValueError(f"--cost {name}: {error}") from error
    if name not in METHODS and name not in NAMES:
        raise ValueError(f"unknown --cost {name!r}: use one of {', '.join(known)}.")
    return name


def space(mesh: Mesh, cost: Any, dim: int | None, seed: int, device: str, tell: Tell) -> gromap.Space:
    """The mesh as a space, embedded."""
    made = gromap.Space.from_mesh(
        mesh,
        cost=cost,
        dim=dim or "auto",
        seed=seed,
        device=device,
        callback=lambda event: tell(f"{mesh.name}, {event}"),
    )
    tell(f"{mesh.name}, kernel PCA")
    made.embedding  # noqa: B018 - computed here
    return made


def device(name: str | None, points: int) -> str:
    """Where to compute; None: on a GPU, if there is one and the shapes are large."""
    if name is None:
        return default_device(points)
    return str(_options.device(name))


def array(path: Path, what: str) -> np.ndarray:
    """The numbers of a NPY file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} {what}: check its name.")
    try:
        return read_array(path)
    except ValueError as error:
        raise ValueError(f"{path} is no file {what}: {error}.") from error


def integers(path: Path, what: str, columns: int) -> np.ndarray:
    """Whole numbers in a text, CSV or NPY file.  (n, columns)"""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} of {what}: check its name.")
    try:
        if path.suffix.lower() == ".npy":
            array = read_array(path)
        else:
            lines = path.read_text(encoding="utf-8").splitlines()
            rows = [line.partition("#")[0].replace(",", " ").split() for line in lines]
            array = np.array([row for row in rows if row], dtype=np.float64)
        if array.ndim not in (1, 2) or not len(array) or array.size != columns * len(array):
            raise ValueError(f"it has shape {array.shape}")
        array = array.reshape(len(array), columns)
        if not (np.abs(array) < 2**53).all() or not (array == np.floor(array)).all():
            raise ValueError("some of its numbers are not whole")
    except ValueError as error:
        each = "one whole number" if columns == 1 else f"{columns} whole numbers"
        raise ValueError(f"{path} is not a file of {what}, {each} per line, counted from 0: {error}.") from error
    return array.astype(np.int64)

"""Options of `gromap match` beside distances: what of both shapes is to be matched, and what their
vertices look like."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gromap import _options
from gromap._pair import ALPHA
from gromap.cli import inputs
from gromap.mesh import Mesh
from gromap.mesh.descriptors import KINDS, pair_of_descriptors

PARTIAL = 0.1  # the reach of --partial


@dataclass(frozen=True)
class Extras:
    """What is matched beside distances, and how much of it."""

    reach: tuple[float | None, float | None] | None
    mass: float | None
    features: str | None
    alpha: float

    @classmethod
    def read(
        cls, partial: bool, reach: str | None, mass: float | None, features: str | None, alpha: float | None
    ) -> Extras:
        if partial and (reach is not None or mass is not None):
            other = "--mass" if reach is None else "--reach"
            raise ValueError(f"--partial is short for --reach {PARTIAL}: leave it out, or leave out {other}.")
        if reach is not None and mass is not None:
            raise ValueError("--reach and --mass both say how much is matched: give one of them.")
        if alpha is not None and features is None:
            raise ValueError("--alpha is what distances count beside features: give --features too.")
        _options.part(mass, (1.0, 1.0))
        found = (PARTIAL, PARTIAL) if partial else None if reach is None else _reach(reach)
        return cls(found, mass, features, ALPHA if alpha is None else _options.balance(alpha))

    @property
    def partly(self) -> bool:
        return self.reach is not None or self.mass is not None

    def descriptions(self, source: Mesh, target: Mesh, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The features of both shapes: descriptors by their name, or what two files hold."""
        assert self.features is not None
        if self.features in KINDS:
            return pair_of_descriptors(source, target, self.features, self.partly, seed)
        names = self.features.split(",")
        if len(names) != 2 or not all(name.lower().endswith(".npy") for name in names):
            raise ValueError(
                f"--features are {', '.join(KINDS)}, or two .npy files with a comma between, got {self.features!r}."
            )
        left, right = (_rows(Path(name), mesh) for name, mesh in zip(names, (source, target), strict=True))
        return left, right

    def settings(self) -> dict[str, Any]:
        """Those that were given, for the report."""
        given: dict[str, Any] = {}
        if self.reach is not None:
            given["reach"] = ", ".join("none" if r is None else f"{r:g}" for r in self.reach)
        if self.mass is not None:
            given["mass"] = self.mass
        return given if self.features is None else given | {"features": self.features, "alpha": self.alpha}


def _reach(text: str) -> tuple[float | None, float | None]:
    """The reach of both sides: one number for both, or one for each with a comma; none keeps a
    side."""
    words = text.split(",")
    try:
        found = [None if word.strip() == "none" else float(word) for word in words]
    except ValueError:
        found = []
    if len(found) not in (1, 2):
        raise ValueError(
            "--reach is a distance, or two with a comma between, for A and for B, where none keeps all of a side; "
            f"got {text!r}."
        )
    both = found[0], found[-1]
    _options.reach(both)
    return both


def _rows(path: Path, mesh: Mesh) -> np.ndarray:
    array, n = inputs.array(path, "of features"), len(mesh.vertices)
    if array.ndim not in (1, 2) or len(array) != n or not array.size or not np.isfinite(array).all():
        raise ValueError(
            f"{path} must hold finite numbers, a row for each of the {n} vertices of {mesh.name}; got {array.dtype} "
            f"{array.shape}."
        )
    return array

"""The shipped example: one man in two poses, meshed independently, with the true map between
them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

import numpy as np

from gromap.mesh import Mesh


@dataclass(frozen=True, eq=False)
class Pair:
    """Two meshes, and where each source vertex truly goes: a point of the target's surface,
    rarely one of its vertices."""

    source: Mesh
    target: Mesh
    direct: np.ndarray  #: (N, 3)
    mirrored: np.ndarray  #: (N, 3), left and right swapped: the same distances, so just as right for Gromov-Wasserstein

    def errors(self, match: Any) -> tuple[float, float]:
        """Mean distance of a map to the direct and to the mirrored truth, over the diagonal of
        the target's bounding box.

        match: for each source vertex, the index of a target vertex (N,), or a position (N, 3).
        """
        match, n = np.asarray(match), len(self.source.vertices)
        if match.shape == (n,) and match.dtype.kind in "iu":
            match = self.target.vertices[match]
        if match.shape != (n, 3) or match.dtype.kind != "f":
            raise ValueError(
                f"match must give each of the {n} source vertices a target vertex, integers of shape ({n},), "
                f"or a position, floats of shape ({n}, 3); got {match.dtype} of shape {match.shape}."
            )
        size = np.linalg.norm(np.ptp(self.target.vertices, axis=0))
        direct, mirrored = (
            np.linalg.norm(match - truth, axis=1).mean() / size for truth in (self.direct, self.mirrored)
        )
        return float(direct), float(mirrored)

    def error(self, match: Any) -> float:
        """The better of both errors, each taken over the whole map: a map that mixes left and
        right is wrong."""
        return min(self.errors(match))


def humans() -> Pair:
    """A standing and a running man, 4,000 and 3,900 vertices in meters; y is up, z is to the
    front.  CC0, from MakeHuman

    >>> from gromap.datasets import humans
    >>> pair = humans()
    >>> pair.source.vertices.shape, pair.target.faces.shape
    ((4000, 3), (7796, 3))
    >>> print(f"{pair.source.vertex_areas().sum():.2f} square meters of skin")
    1.82 square meters of skin
    >>> pair.error(pair.mirrored)
    0.0
    """
    with as_file(files("gromap") / "data" / "humans.npz") as path, np.load(path) as stored:
        source, target = (
            Mesh(stored[f"{name}_vertices"], stored[f"{name}_faces"].astype(np.int64)) for name in ("source", "target")
        )
        return Pair(source, target, stored["direct"], stored["mirrored"])

"""How good a map between two surfaces is: geodesic error, coverage, smoothness.

    error_i     d(T(i), truth_i) / √area, with geodesic distances d on the target
    coverage    share of the target's area at vertices in the image of T
    smoothness  Dirichlet energy of T over the target's area: 1 for an isometry, 0 for a
                constant map, much more than 1 for a rough one

All three are free of units. `orientation` tells mirrored matches from others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gromap._plan import Plan
from gromap._solution import Solution
from gromap.mesh import geodesic
from gromap.mesh.mesh import Mesh
from gromap.search.chirality import CLEAR
from gromap.search.chirality import orientation as measure

THIN = 1e-3  # of the width: thinner shapes have no left and right in space
Distances = Callable[[np.ndarray], np.ndarray]  # vertices (S,) -> their distances to all vertices (S, M)


@dataclass(frozen=True)
class Orientation:
    """Whether a match keeps left and right apart, which Gromov-Wasserstein cannot see."""

    hand: float  #: from -1, mirrored, to 1: the share of small tetrahedra that are not turned over, less the others

    @property
    def word(self) -> str:
        """ "kept", "mirrored" or "unclear"."""
        if not abs(self.hand) >= CLEAR:  # or NaN
            return "unclear"
        return "kept" if self.hand > 0 else "mirrored"

    def __str__(self) -> str:
        return f"left and right  {self.word} ({self.hand:+.2f})"


def orientation(
    plan: Plan, source: np.ndarray, target: np.ndarray, some: np.ndarray | None = None
) -> Orientation | None:
    """Of the match of the points of two shapes; None where one of them is flat, or not in space.
    some: (N,) bool, the points that are matched; None: all.

    >>> import gromap
    >>> X = np.random.default_rng(0).normal(size=(80, 3)) * [3, 2, 1]
    >>> X[:, 1] += 0.3 * X[:, 0] ** 2 + X[:, 2]
    >>> [orientation(gromap.solve(X, Y).plan, X, Y).word for Y in (X, -X)]
    ['kept', 'mirrored']
    """
    if not all(z.ndim == 2 and z.shape[1] == 3 and _is_solid(z) for z in (source, target)):
        return None
    images = replace(plan, numpy=False).conditional_mean(np.asarray(target, np.float64))
    points, ends = torch.as_tensor(np.asarray(source, np.float64)), images.cpu()
    if some is not None:
        points, ends = points[some], ends[some]
    return Orientation(measure(points, ends)) if len(points) else None


def orientation_of(sol: Solution, source: Mesh, target: Mesh, some: np.ndarray | None = None) -> Orientation | None:
    """That of the map which a solution of `gromap.mesh.match` knows, else of its plan."""
    if sol.stats.hand is not None:
        return Orientation(sol.stats.hand)
    return orientation(sol.plan, source.vertices, target.vertices, some)


def _is_solid(points: np.ndarray) -> bool:
    size = np.linalg.svd(points.astype(np.float64) - points.mean(0), compute_uv=False)
    return bool(size[2] > THIN * size[0])


@dataclass(frozen=True, eq=False)
class Quality:
    """Measures of one map. The errors are in units of the square root of the target's area."""

    coverage: float
    smoothness: float
    #: (n,) of the sampled vertices, against the better truth
    errors: np.ndarray | None = field(default=None, repr=False)
    truth: int | None = None  #: which truth that was
    distances: str | None = None  #: how they were computed: "exact", "heat" (on non-manifold meshes), "given"

    @property
    def error(self) -> float | None:
        """The mean geodesic error; often printed times 100."""
        return None if self.errors is None else float(self.errors.mean())

    def curve(self, thresholds: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """The share of vertices whose error is at most each threshold; 0, 0.0025, .., 0.25 if
        None."""
        if self.errors is None:
            raise ValueError("without a truth there are no errors: give quality(..., truths=[truth]).")
        t = np.linspace(0, 0.25, 101) if thresholds is None else np.asarray(thresholds, np.float64)
        return t, np.searchsorted(np.sort(self.errors), t, side="right") / len(self.errors)

    @property
    def auc(self) -> float | None:
        """The area under the curve up to 0.25, over that of a perfect map."""
        if self.errors is None:
            return None
        share = self.curve()[1]
        return float((share[1:] + share[:-1]).mean() / 2)

    def __str__(self) -> str:
        lines = [] if self.errors is None else [
            f"  geodesic error  {100 * self.errors.mean():.2f}   (median {100 * np.median(self.errors):.2f}, "
            f"worst {100 * self.errors.max():.2f}; x 100, over the root of the area, {len(self.errors)} vertices"
            + (", by the heat method)" if self.distances == "heat" else ")"),
            f"  area under the error curve up to 0.25: {self.auc:.3f}",
        ]  # fmt: skip
        lines += [f"  coverage        {self.coverage:.1%}".replace("%", " %") + " of the target's area"]
        return "\n".join(
            ["Quality of the map:", *lines, f"  smoothness      {self.smoothness:.3g}   (an isometry has 1)"]
        )


def quality(
    match: Any,
    source: Mesh,
    target: Mesh,
    truths: Sequence[Any] = (),
    distances: Distances | None = None,
    samples: int = 500,
    seed: int = 0,
) -> Quality:
    """Measure a map.

    match: for each source vertex its target vertex, such as `sol.map()`.
    truths: maps of the same form. Where several are right (a body and its mirror image), the one
        with the lower mean error counts: a map that mixes them is wrong.
    distances: gives rows of distances on the target; None: exact geodesics where edges have at most
        two faces, else by the heat method.
    samples: number of random vertices at which errors are taken.

    >>> corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.0]])
    >>> square = Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]]))
    >>> flat = lambda s: np.linalg.norm(square.vertices[s][:, None] - square.vertices, axis=2)
    >>> print(quality([1, 2, 3, 0], square, square, [[0, 1, 2, 3], [1, 2, 3, 3]], flat))
    Quality of the map:
      geodesic error  25.00   (median 0.00, worst 100.00; x 100, over the root of the area,
      4 vertices)
      area under the error curve up to 0.25: 0.750
      coverage        100.0 % of the target's area
      smoothness      1   (an isometry has 1)
    """
    match = _map(match, "match", source, target)
    area = target.area
    coverage = float(target.vertex_areas()[np.unique(match)].sum() / area)
    smooth = dirichlet(source, target.vertices[match]) / area
    if not len(truths):
        return Quality(coverage, smooth)
    given = [_map(truth, f"truth {k}", source, target) for k, truth in enumerate(truths)]
    some = np.random.default_rng(seed).permutation(len(match))[:samples]
    starts, row = np.unique(match[some], return_inverse=True)
    way, measure = ("given", distances) if distances else _geodesic(target)
    rows = np.asarray(measure(starts), np.float64)
    if rows.shape != (len(starts), len(target.vertices)):
        raise ValueError(f"distances must give shape {(len(starts), len(target.vertices))}, got {rows.shape}.")
    errors = np.stack([rows[row.reshape(-1), truth[some]] for truth in given]) / np.sqrt(area)
    best = int(errors.mean(1).argmin())
    return Quality(coverage, smooth, errors[best], best, way)


def dirichlet(mesh: Mesh, values: np.ndarray) -> float:
    """½ ∫ |∇ values|² of a piecewise linear field, (N, ...): ¼ Σ cot(angle) |difference along
    the opposite edge|².

    Faces without area are left out. The energy of the positions is the area of the mesh.

    >>> triangle = Mesh(np.eye(3), np.array([[0, 1, 2]]))
    >>> round(dirichlet(triangle, triangle.vertices) / triangle.area, 12)
    1.0
    """
    double = np.linalg.norm(mesh.face_normals(), axis=1)
    faces, double = mesh.faces[double > 0], double[double > 0]
    points, field = mesh.vertices.astype(np.float64), np.asarray(values, np.float64).reshape(len(mesh.vertices), -1)
    total = 0.0
    for k in range(3):
        i, j, o = faces[:, k], faces[:, (k + 1) % 3], faces[:, (k + 2) % 3]
        cotangent = ((points[i] - points[o]) * (points[j] - points[o])).sum(1) / double
        total += float((cotangent * ((field[i] - field[j]) ** 2).sum(1)).sum()) / 4
    return total


def _map(match: Any, name: str, source: Mesh, target: Mesh) -> np.ndarray:
    array, n, m = np.asarray(match), len(source.vertices), len(target.vertices)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must give each of the {n} source vertices a target vertex, {n} integers; got {array.dtype} of "
            f"shape {array.shape}."
        )
    if array.min() < 0 or array.max() >= m:
        wrong = int(array.min() if array.min() < 0 else array.max())
        raise ValueError(f"{name} sends a vertex to {wrong}, and the target has the vertices 0 to {m - 1}.")
    return array


def _geodesic(target: Mesh) -> tuple[str, Distances]:
    """How distances on the target are computed, and the function that computes them."""
    way = "exact" if geodesic.is_manifold(target) else "heat"
    return way, lambda sources: geodesic.distances(target, sources, way)

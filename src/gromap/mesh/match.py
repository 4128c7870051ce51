"""The match of two meshes, or of files: both as spaces, the recipe, and the match of the other hand
where that is lower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gromap import _check
from gromap._pair import ALPHA, default_device
from gromap._progress import Event, Progress
from gromap._solution import Solution, Status
from gromap._space import Space
from gromap.mesh.descriptors import pair_of_descriptors
from gromap.mesh.hands import is_mirrored, lower, reflected, tell_of, with_hand
from gromap.mesh.io import read_mesh
from gromap.mesh.mesh import Mesh
from gromap.mesh.recipe import Recipe, kept, prefixed, tell
from gromap.search.search import Search
from gromap.solvers.protocol import Callback

Shape = Mesh | str | Path | Space


def match(
    source: Shape,
    target: Shape,
    *,
    cost: Any = "auto",
    epsilon: float | None = None,
    scale: str | float | None = "auto",
    dim: Any = "auto",
    init: Any = "auto",
    features: Any = None,
    alpha: float = ALPHA,
    feature_cost: Any = None,
    reach: Any = None,
    mass: float | None = None,
    refine: bool = True,
    allow_mirror: bool = False,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Solution:
    """Match two meshes: a global search at the temperature 1e-3, or higher, from which their
    vertex maps are refined.

    Parameters
    ----------
    source, target
        Meshes, mesh files, or prepared `Space`s.
    cost
        As in `Space.from_mesh`, or a pair for both sides; "auto" is "geodesic" if all meshes have
        faces, else "euclidean".
    epsilon
        Temperature of the returned match, in units of the scaled costs, squared. Below 1e-3 a
        second solve goes on from the search. None: 1e-3 where the map is refined, else 3e-4.
    scale
        What distances are divided by, as in `gromap.solve`: parts are matched in one unit.
    dim
        Axes of the embedding, as in `gromap.solve`, or a pair for both sides.
    init
        Start of the search, as in `gromap.solve`. "auto" tells left from right, see allow_mirror.
    features, alpha, feature_cost
        What is matched beside the distances, which count alpha, as in `gromap.solve`: (F, G), one
        row for each vertex. Or the name of `descriptors` of two meshes: "wks", "hks", "normals" or
        "color".
    reach, mass
        For a part and a whole, or two parts, as in `gromap.solve`: the distance from which vertices
        need not be matched, in units of the shapes, 0.1 to begin with; or the share of the smaller
        area to match. `sol.kept_X` and `sol.kept_Y` tell what was.
    refine
        Whether to sharpen the vertex maps of two meshes by the eigenfunctions of their Laplacians
        (`gromap.mesh.refine`): `sol.map()` and `sol.inverse_map()` are the refined ones, if these
        keep distances between near vertices better; `sol.map("mean")` is that of the plan, which
        `push` and `pull` go along. Matches of parts, and clouds, get the second solve instead:
        `sol.stats.not_refined` says why. False: stop after the search.
    allow_mirror
        Distances do not tell left from right. Where both meshes have two sides, minima that
        exchange left and right are left out. Where one of them is lower by more than 5 %, one mesh
        may be a mirror image of the other, as right and left bones are: then a warning says so, and
        that match is kept beside the other one, as `sol.mirrored`, which takes as long again. True:
        the lowest minimum, whatever its hand; `sol.stats.hand` tells it.
    seed
        Of the embeddings and the random starts.
    device
        Where to compute. None: where a given `Space` is; a GPU for two float32 meshes from 3000
        vertices, if there is one.
    progress
        Show a line on stderr while the work goes on.
    callback
        Called with an `Event` at each stage of the embeddings and after each outer step;
        return True after a step to stop.

    Returns
    -------
    Solution
        That of the last temperature, with its history; `stats` has the seconds of both solves,
        the minima of the search, and how the map was refined. After Ctrl-C the best so far, with
        status INTERRUPTED; KeyboardInterrupt if there is none yet.

    Examples
    --------
    >>> from gromap.datasets import humans
    >>> pair = humans()
    >>> sol = match(pair.source, pair.target, cost="biharmonic", refine=False)
    >>> pair.error(sol.map()) < 0.05
    True
    """
    if epsilon is not None:
        _check.positive(epsilon, "epsilon")
    read = [shape if isinstance(shape, Mesh | Space) else read_mesh(shape) for shape in (source, target)]
    if isinstance(features, str):
        one_unit = reach is not None or mass is not None or scale not in ("auto", "each", "radius")
        tell(callback, f"{features} of both meshes")
        features = _described(read, features, one_unit, seed)
    given: dict[str, Any] = {"scale": scale, "features": features, "alpha": alpha, "feature_cost": feature_cost}
    given |= {"reach": reach, "mass": mass}
    x, y = _spaces(read, _check.pair(cost), _check.pair(dim), seed, device, progress, callback)
    if _check.is_auto(init) and allow_mirror:
        init = Search(chirality=False)
    recipe = Recipe(init, epsilon, refine, seed, progress, given)
    sol = with_hand(recipe.run(x, y, callback), x, y)
    if allow_mirror:
        return sol
    if lower(sol) and not is_mirrored(sol) and sol.status not in (Status.STOPPED, Status.INTERRUPTED):
        sol = _with_mirrored(sol, recipe, x, y, callback)
    tell_of(sol)
    return sol


def _with_mirrored(sol: Solution, recipe: Recipe, x: Space, y: Space, callback: Callback | None) -> Solution:
    """The same with the match that exchanges left and right: the one with the mirror image of y."""
    tell(callback, "a match that exchanges left and right, which is lower")
    try:
        other = with_hand(recipe.run(x, reflected(y), prefixed("mirrored", callback)), x, y)
    except KeyboardInterrupt:
        return kept(sol)
    if other.status is Status.INTERRUPTED:
        return kept(sol)
    return replace(sol, mirrored=other) if is_mirrored(other) else sol


def auto_cost(meshes: Sequence[Mesh]) -> str:
    """The default cost between meshes: along the surface if all of them have one."""
    return "geodesic" if all(len(mesh.faces) for mesh in meshes) else "euclidean"


def _described(shapes: Sequence[Mesh | Space], kind: str, one_unit: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Descriptors of both meshes, as features."""
    meshes = [shape for shape in shapes if isinstance(shape, Mesh)]
    if len(meshes) < 2:
        raise ValueError(
            f"features={kind!r} are computed from two meshes, and a Space is none: pass meshes, or "
            "gromap.mesh.descriptors of both."
        )
    return pair_of_descriptors(meshes[0], meshes[1], kind, one_unit, seed)


def _spaces(
    read: Sequence[Mesh | Space],
    costs: tuple[Any, Any],
    dims: tuple[Any, Any],
    seed: int,
    device: torch.device | str | None,
    progress: bool,
    callback: Callback | None,
) -> list[Space]:
    """Both shapes as spaces, in one precision and on one device."""
    meshes, ready = [z for z in read if isinstance(z, Mesh)], [z for z in read if isinstance(z, Space)]
    for name, shape, cost, dim in zip(("source", "target"), read, costs, dims, strict=True):
        if isinstance(shape, Space) and not (_check.is_auto(cost) and _check.is_auto(dim)):
            raise ValueError(f"the {name} is a Space, which has its own cost and dim: set them when you build it.")
    default = auto_cost(meshes)
    given = [np.float32 if space.dtype == torch.float32 else np.float64 for space in ready]
    dtype = np.dtype(given[0]) if given else np.result_type(np.float32, *(mesh.vertices for mesh in meshes))
    if device is None:
        points = min(len(mesh.vertices) for mesh in meshes) if meshes and dtype == np.float32 else 0
        device = ready[0].device if ready else default_device(points)
    show, spaces = Progress() if progress and meshes else None, []
    for name, shape, cost, dim in zip(("source", "target"), read, costs, dims, strict=True):
        if isinstance(shape, Space):
            spaces.append(shape)
            continue
        on_stage = prefixed(shape.name or name, _both(show, callback))
        mesh = replace(shape, vertices=shape.vertices.astype(dtype))
        base = default if _check.is_auto(cost) else cost
        spaces.append(Space.from_mesh(mesh, cost=base, dim=dim, seed=seed, device=device, callback=on_stage))
    if show:
        show.close()
    return spaces


def _both(show: Progress | None, callback: Callback | None) -> Callback | None:
    """One callback that does what both do."""
    if show is None or callback is None:
        return show or callback

    def both(event: Event) -> Any:
        show(event)
        return callback(event)

    return both

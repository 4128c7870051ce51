"""The recipe for two meshes: search at a blurred temperature, then sharpen the map by the
eigenfunctions of both, or the match at a lower temperature.

The search runs on coarse versions of both shapes. Their grain is visible at low temperatures, where
it makes minima of its own, and is blurred away at `SEARCH_EPSILON`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gromap import _check
from gromap._pair import ALPHA, default_device
from gromap._progress import Event, Progress
from gromap._solution import Interrupted, Solution, Status
from gromap._solve import solve
from gromap._space import Space
from gromap._stats import Stats
from gromap.mesh.descriptors import pair_of_descriptors
from gromap.mesh.io import read_mesh
from gromap.mesh.mesh import Mesh
from gromap.mesh.refine import LEAST, PER_MODE, most_modes, refine_from
from gromap.search.chirality import CLEAR, normals_of, orientation
from gromap.search.search import Search
from gromap.solvers.protocol import Callback

SEARCH_EPSILON = 1e-3  # the lowest temperature of the search, and where a map is refined
SHARP_EPSILON = 3e-4  # of the match, where there is no such map
LOWER = 0.05  # from which a match that exchanges left and right is better by more than chance
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
        exchange left and right are left out, with a warning where one of them is lower by more than
        5 %: then one mesh may be a mirror image of the other, as right and left bones are. True:
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
        _tell(callback, f"{features} of both meshes")
        features = _described(read, features, one_unit, seed)
    given: dict[str, Any] = {"scale": scale, "features": features, "alpha": alpha, "feature_cost": feature_cost}
    given |= {"reach": reach, "mass": mass}
    x, y = _spaces(read, _check.pair(cost), _check.pair(dim), seed, device, progress, callback)
    if _check.is_auto(init) and allow_mirror:
        init = Search(chirality=False)
    warm, sol = max(epsilon or SEARCH_EPSILON, SEARCH_EPSILON), None
    temperature = warm
    try:
        sol = solve(x, y, epsilon=warm, init=init, seed=seed, progress=progress, callback=callback, **given)
        if not refine or sol.status is Status.STOPPED:
            return _with_hand(sol, x, y, allow_mirror)
        reason = unrefined(x, y, sol)
        if reason is None and epsilon is None:
            sol = _refined(sol, x, y, seed, callback)
        if sol.refined is None and (epsilon or SHARP_EPSILON) < warm:
            temperature = epsilon or SHARP_EPSILON
            _tell(callback, "sharpen")
            told = _prefixed("sharpen", callback)
            end = solve(x, y, epsilon=temperature, init=sol, seed=seed, progress=progress, callback=told, **given)
            sol = replace(end, stats=_joined(sol.stats, end.stats))
        if reason is None and epsilon is not None and sol.status is not Status.STOPPED:
            sol = _refined(sol, x, y, seed, callback)
    except Interrupted as error:
        parts = sol is not None and sol.plan.wanted is not None
        if error.state.is_empty or (parts and error.state.moments is None):
            return _kept(sol)  # a linear map does not know which parts are matched
        _tell(callback, "keep the best so far; Ctrl-C again to leave at once")
        best = solve(x, y, epsilon=temperature, init=error.state, max_iter=1, **given)
        return replace(best, status=Status.INTERRUPTED)
    except KeyboardInterrupt:  # between two steps of the solver
        return _kept(sol)
    return _with_hand(sol.with_stats(not_refined=reason), x, y, allow_mirror)


def unrefined(x: Space, y: Space, sol: Solution) -> str | None:
    """Why the maps of a match cannot be refined; None where they can."""
    if x.mesh is None or y.mesh is None or not (len(x.mesh.faces) and len(y.mesh.faces)):
        return "it takes two meshes with faces"
    if sol.plan.wanted is not None:
        return "it takes whole shapes, and this is a match of parts"
    if most_modes(x.mesh, y.mesh) < LEAST:
        return f"it takes meshes of {LEAST * PER_MODE} vertices and more"
    return None


def _refined(sol: Solution, x: Space, y: Space, seed: int, callback: Callback | None) -> Solution:
    """The same with the maps that the eigenfunctions of both meshes find from its own."""
    assert x.mesh is not None
    assert y.mesh is not None
    begin = time.perf_counter()
    found = refine_from(
        x.mesh, y.mesh, sol.images, seed=seed, device=x.device, tell=lambda text: _tell(callback, f"refine, {text}")
    )
    known = {str(k): off for k, off in found.near.items()}
    seconds = sol.stats.seconds | {"refine": time.perf_counter() - begin}
    sol = sol.with_stats(near_distortion=known, refined_modes=found.modes, seconds=seconds)
    if found.maps is None:
        return sol
    there, back = (torch.as_tensor(z, device=x.device) for z in found.maps)
    return replace(sol, refined=(there, back))


def _with_hand(sol: Solution, x: Space, y: Space, allow_mirror: bool) -> Solution:
    """The same, which knows whether it exchanges left and right; with a warning where it does, or
    where a match that does is better."""
    if x.normals is None or y.normals is None or x.mesh is None or y.mesh is None or sol.plan.wanted is not None:
        return sol
    points, places = (torch.as_tensor(z.mesh.vertices).double() for z in (x, y) if z.mesh is not None)
    there, (above, normals) = torch.as_tensor(sol.map()).cpu(), normals_of(x, y)
    ends = None if normals is None else normals.cpu()[there]
    hand = orientation(points, places[there], None if above is None else above.cpu(), ends)
    lower = 0.0 if sol.stats.mirrored is None else -sol.stats.mirrored
    if not allow_mirror and hand < -CLEAR:
        _check.warn(
            "this match exchanges left and right, as if one mesh were a mirror image of the other. If it is, pass "
            "allow_mirror=True; else init=gromap.landmarks(pairs)."
        )
    elif lower > LOWER:
        _check.warn(
            f"a match that exchanges left and right is {100 * lower:.0f} % lower in energy, and was left out: where "
            "one mesh is a mirror image of the other, as right and left bones are, pass allow_mirror=True."
        )
    return sol.with_stats(hand=hand)


def _kept(sol: Solution | None) -> Solution:
    """What Ctrl-C leaves where the solve under way has nothing to show."""
    if sol is None:
        raise KeyboardInterrupt
    return replace(sol, status=Status.INTERRUPTED)


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
        on_stage = _prefixed(shape.name or name, _both(show, callback))
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


def _prefixed(what: str, callback: Callback | None) -> Callback | None:
    """A callback for events whose line begins with what is being done."""
    if callback is None:
        return None
    return lambda event: callback(event._replace(note=f"{what}, {event}"))


def _tell(callback: Callback | None, note: str) -> None:
    if callback is not None:
        callback(Event("mesh", 0, 0, note=note))


def _joined(search: Stats, end: Stats) -> Stats:
    """The facts of the last solve, what only the search knows, and the seconds of both."""
    both = {name: search.seconds[name] + seconds for name, seconds in end.seconds.items()}
    return Stats.of(search.facts() | end.facts() | {"seconds": search.seconds | both})

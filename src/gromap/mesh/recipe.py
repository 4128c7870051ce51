"""The recipe for the match of two meshes: search at a blurred temperature, then sharpen the map by
the eigenfunctions of both, or the match at a lower temperature.

The search runs on coarse versions of both shapes. Their grain is visible at low temperatures, where
it makes minima of its own, and is blurred away at `SEARCH_EPSILON`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from gromap._progress import Event
from gromap._solution import Interrupted, Solution, Status
from gromap._solve import solve
from gromap._space import Space
from gromap._stats import Stats
from gromap.mesh.refine import LEAST, PER_MODE, most_modes, refine_from
from gromap.solvers.protocol import Callback

SEARCH_EPSILON = 1e-3  # the lowest temperature of the search, and where a map is refined
SHARP_EPSILON = 3e-4  # of the match, where there is no such map


@dataclass(frozen=True)
class Recipe:
    """A search, and what makes its match sharper."""

    init: Any
    epsilon: float | None
    refine: bool
    seed: int
    progress: bool
    given: dict[str, Any]

    def run(self, x: Space, y: Space, callback: Callback | None) -> Solution:
        """The match; after Ctrl-C the best so far."""
        epsilon, seed, given = self.epsilon, self.seed, self.given | {"seed": self.seed, "progress": self.progress}
        warm, sol = max(epsilon or SEARCH_EPSILON, SEARCH_EPSILON), None
        temperature = warm
        try:
            sol = solve(x, y, epsilon=warm, init=self.init, callback=callback, **given)
            if not self.refine or sol.status is Status.STOPPED:
                return sol
            reason = unrefined(x, y, sol)
            if reason is None and epsilon is None:
                sol = _refined(sol, x, y, seed, callback)
            if sol.refined is None and (epsilon or SHARP_EPSILON) < warm:
                temperature = epsilon or SHARP_EPSILON
                tell(callback, "sharpen")
                end = solve(x, y, epsilon=temperature, init=sol, callback=prefixed("sharpen", callback), **given)
                sol = replace(end, stats=_joined(sol.stats, end.stats))
            if reason is None and epsilon is not None and sol.status is not Status.STOPPED:
                sol = _refined(sol, x, y, seed, callback)
        except Interrupted as error:
            parts = sol is not None and sol.plan.wanted is not None
            if error.state.is_empty or (parts and error.state.moments is None):
                return kept(sol)  # a linear map does not know which parts are matched
            tell(callback, "keep the best so far; Ctrl-C again to leave at once")
            best = solve(x, y, epsilon=temperature, init=error.state, max_iter=1, **self.given)
            return replace(best, status=Status.INTERRUPTED)
        except KeyboardInterrupt:  # between two steps of the solver
            return kept(sol)
        return sol.with_stats(not_refined=reason)


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
        x.mesh, y.mesh, sol.images, seed=seed, device=x.device, tell=lambda text: tell(callback, f"refine, {text}")
    )
    known = {str(k): off for k, off in found.near.items()}
    seconds = sol.stats.seconds | {"refine": time.perf_counter() - begin}
    sol = sol.with_stats(near_distortion=known, refined_modes=found.modes, seconds=seconds)
    if found.maps is None:
        return sol
    there, back = (torch.as_tensor(z, device=x.device) for z in found.maps)
    return replace(sol, refined=(there, back))


def kept(sol: Solution | None) -> Solution:
    """What Ctrl-C leaves where the solve under way has nothing to show."""
    if sol is None:
        raise KeyboardInterrupt
    return replace(sol, status=Status.INTERRUPTED)


def prefixed(what: str, callback: Callback | None) -> Callback | None:
    """A callback for events whose line begins with what is being done."""
    if callback is None:
        return None
    return lambda event: callback(event._replace(note=f"{what}, {event}"))


def tell(callback: Callback | None, note: str) -> None:
    if callback is not None:
        callback(Event("mesh", 0, 0, note=note))


def _joined(search: Stats, end: Stats) -> Stats:
    """The facts of the last solve, what only the search knows, and the seconds of both."""
    both = {name: search.seconds[name] + seconds for name, seconds in end.seconds.items()}
    return Stats.of(search.facts() | end.facts() | {"seconds": search.seconds | both})

"""gromap.solve_many: many pairs of small spaces at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from gromap import _check
from gromap._pair import EPSILON, Pair
from gromap._plan import Plan
from gromap._progress import Event, Progress
from gromap._solution import Solution
from gromap._space import Space
from gromap.search.batch import Matched, is_small, match_batch
from gromap.search.search import Search
from gromap.solvers.choose import as_solver
from gromap.solvers.cnt import CntGW
from gromap.solvers.protocol import Callback
from gromap.solvers.run import known_solution, solve_pair

AT_ONCE = {"cpu": 32, "cuda": 1000}  # pairs between two calls of the callback


@dataclass(frozen=True, eq=False)
class Match:
    """One of many matches: its value, its linear map, and the rest when it is asked for."""

    value: float  #: GW_ε, as `Solution.value`
    gamma: Any  #: (D, E)
    converged: bool  #: whether the linear map has come to rest
    find: Callable[[], Solution]

    @cached_property
    def solution(self) -> Solution:
        """Everything, as `gromap.solve` returns it."""
        return self.find()

    @property
    def plan(self) -> Plan:
        """The coupling."""
        return self.solution.plan

    def map(self) -> Any:
        """For each point of X a point of Y.  (N,)"""
        return self.solution.map()

    def inverse_map(self) -> Any:
        """For each point of Y a point of X.  (M,)"""
        return self.solution.inverse_map()

    def __repr__(self) -> str:
        return f"Match(value={self.value:.6g}, converged={self.converged})"


def solve_many(
    pairs: Sequence[tuple[Any, Any]],
    *,
    cost: Any = "euclidean",
    epsilon: float = EPSILON,
    scale: str | float | None = "auto",
    dim: Any = "auto",
    seed: int = 0,
    device: Any = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> list[Match]:
    """Match many pairs of spaces, the small ones in batches, with the search of `gromap.solve`.

    On a GPU hundreds of pairs take about as many launches as one, and a pair a thirtieth of the
    time; on a CPU it takes 0.4 to 1.1 of what it takes alone. Pairs that do not fit a batch (more
    than 600 points, points without mass, costs that are not CNT, temperatures near the critical one
    or very low) are solved one by one.

    Parameters
    ----------
    pairs
        (X, Y), each an (N, d) array or a `Space`. An object that occurs in several pairs is
        embedded once.
    cost, epsilon, scale, dim, seed, device
        As in `gromap.solve`, for all pairs.
    progress
        Show a line on stderr while the work goes on.
    callback
        Called with an `Event` after each batch; return True to stop, with fewer matches than
        pairs.

    Returns
    -------
    list of Match
        In the order of the pairs: `value`, `gamma`, `converged`, and `map()`, `plan`, `solution`
        when asked for.

    Examples
    --------
    >>> import numpy as np, gromap
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(40, 3)), rng.normal(size=(50, 3))
    >>> turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    >>> copy, other = gromap.solve_many([(X, X[::-1] @ turn), (X, Y)], epsilon=0.01)
    >>> copy.value < other.value, bool((copy.map() == np.arange(40)[::-1]).all())
    (True, True)
    """
    pairs, spaces = list(pairs), dict[int, Any]()  # which keeps all objects, so that none takes the place of another

    def space(z: Any, name: str) -> Space:
        if id(z) not in spaces:
            spaces[id(z)] = (
                z if isinstance(z, Space) else Space(z, cost=cost, dim=dim, seed=seed, device=device, name=name)
            )
        return spaces[id(z)]

    how: dict[str, Any] = {"epsilon": epsilon, "scale": scale, "seed": seed}
    prepared = list[Pair]()
    for k, pair in enumerate(pairs):
        X, Y = _both(pair)
        prepared.append(Pair.of(space(X, f"X of pair {k}"), space(Y, f"Y of pair {k}"), **how))
    show, clock, found = Progress() if progress else None, time.perf_counter(), list[Match]()
    while len(found) < len(prepared):
        size = AT_ONCE["cuda" if prepared[0].device.type == "cuda" else "cpu"]
        found += match_pairs(prepared[len(found) : len(found) + size])
        event = Event(
            stage="many",
            step=len(found),
            total=len(prepared),
            seconds=time.perf_counter() - clock,
            value=found[-1].value,
        )
        if show:
            show(event)
        if callback is not None and callback(event):
            break
    if show:
        show.close()
    return found


def match_pairs(pairs: Sequence[Pair], search: Search | None = None) -> list[Match]:
    """Small pairs in batches, the others one by one."""
    search = search or Search()
    small = [pair for pair in pairs if is_small(pair)]
    known = dict(zip(map(id, small), match_batch(small, search), strict=True))
    found = list[Match]()
    for pair in pairs:
        one = known.get(id(pair))
        found.append(_alone(pair, search) if one is None else _of_batch(pair, one))
    return found


def _of_batch(pair: Pair, one: Matched) -> Match:
    gamma, g = one.gamma.to(pair.dtype), one.g.to(pair.dtype)
    solution = partial(known_solution, pair, CntGW(), one.gamma, g)
    return Match(one.value, _check.to_array(gamma, pair.numpy), one.converged, solution)


def _alone(pair: Pair, search: Search) -> Match:
    solver = as_solver("auto", pair)
    solver.check(pair)
    sol = solve_pair(pair, solver, search)
    return Match(sol.value, sol.gamma, sol.converged, lambda: sol)


def _both(pair: Any) -> tuple[Any, Any]:
    try:
        X, Y = pair
    except (TypeError, ValueError):
        raise ValueError(f"each pair is a tuple (X, Y) of arrays or Spaces, got a {type(pair).__name__}.") from None
    return X, Y

"""One solve by many processes: `solve(X_own, Y_own, group=...)`.

Each process gives its rows of X and of Y. All of them get all points (d numbers each); the first
one embeds them, searches and solves the coarse levels, which together take a small share of the
time of a large match, and deals out where that ended. The loop on all points, which takes the rest,
is the one of a single process, on own rows of X against all columns (shared.py): no process holds
more than its rows of X, and Y.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gromap._group import Group
from gromap._pair import Pair
from gromap._progress import Event, Progress
from gromap._solution import Solution
from gromap._stats import Stats
from gromap._threads import one_thread
from gromap.solvers.embedded import CntProblem
from gromap.solvers.loop import alternate
from gromap.solvers.own_rows import agreed, check_options, device_of, joined, own_rows, whole_start
from gromap.solvers.protocol import Begin, Callback, Minima, Shareable, Solver, Start
from gromap.solvers.run import finish, memory_checked, solution_of
from gromap.transport.shared import SharedRows
from gromap.transport.sinkhorn import Potentials

Prepare = Callable[..., tuple[Pair, Solver, Start]]  # of X, Y, a, b and init


@dataclass(frozen=True)
class Handout:
    """What the first process found before the loop on all points, but for what it has per point."""

    units: tuple[float, float]
    extents: tuple[tuple[float, float], tuple[float, float]]  # scale and extent of both sides
    spectra: tuple[Tensor, Tensor]
    variances: tuple[float, float]
    truncation: float | None
    minima: Minima | None
    settled: bool
    levels: tuple[int, ...]
    memory: int  # bytes that it was to take
    seconds: dict[str, float]  # of each phase
    watched: bool  # whether a callback waits there


def solve_together(
    group: Group,
    data: tuple[Any, Any, Any, Any],
    prepare: Prepare,
    options: dict[str, Any],
    callback: Callback | None = None,
    show: Progress | None = None,
) -> Solution:
    """Match X and Y, of which each process of the group has some rows.

    prepare: makes a pair, a solver and a start of all points.  options: those of `solve`, by name.
    """
    show = show if group.is_first else None
    with group.same_errors():
        x, y = own_rows(data[0], data[2], "X", "a"), own_rows(data[1], data[3], "Y", "b")
        check_options(options)
        device = device_of(group, options["device"], x.points)
    counts = agreed(group, x, y, options, device)
    whole = [joined(group, side, count, device) for side, count in zip((x, y), counts, strict=True)]
    init = whole_start(group, options["init"], counts[0], device)
    with group.same_errors(), warnings.catch_warnings():
        if not group.is_first:
            warnings.simplefilter("ignore")  # one warning is enough
        (X, a), (Y, b) = whole
        pair, solver, start = prepare(X, Y, a, b, init=init)
        _check_solver(solver)
    del whole, X, Y
    first = None
    with group.same_errors(), one_thread():
        if group.is_first:
            first = _first(pair, solver, start, callback is not None, show)
    handout, begin, pair = _deal(group, pair, counts[0], first)
    first, shared = None, SharedRows(group, counts[0])
    watch = _watch(group, handout.watched, callback, show)
    with group.loop(pair.device), one_thread(), memory_checked(pair, solver) if not group.is_first else nullcontext():
        clock = time.perf_counter()
        given = *pair.features, *pair.weights, pair.eps, handout.truncation, None, pair.energy_unit, pair
        problem = CntProblem(*given, rows=shared)
        outcome = alternate(problem, begin, solver.loop, watch)._replace(levels=handout.levels)
        plan = finish(problem, outcome, pair.numpy)
        solution = solution_of(pair, solver, problem, outcome, plan)
        stats = replace(
            solution.stats, memory=handout.memory, seconds=handout.seconds | {"solve": time.perf_counter() - clock}
        )
    if show:
        show.close()
    known = group.told((stats, {name: getattr(solution, name) for name in ("value", "value_gw", "mass", "status")}))
    stats, facts = _stats_of_all([told[0] for told in known], counts[0]), known[0][1]
    return replace(solution, **facts, stats=stats, sides=(_far_away, pair.y.side()))


def _stats_of_all(known: list[Stats], counts: list[int]) -> Stats:
    """Those of the first process, with the tiles of all."""
    if all(one.tiles is None for one in known):
        return known[0]
    tiles = [1.0 if one.tiles is None else one.tiles for one in known]
    neglected = sum(one.neglected_mass or 0.0 for one in known)
    return replace(known[0], tiles=float(np.average(tiles, weights=counts)), neglected_mass=neglected)


def _far_away() -> Tensor:
    raise ValueError(
        "inverse_map() takes all points of X, and each process of the group has some of them: sol.push(values) carries "
        "values from X to Y, or match Y to X instead."
    )


def _check_solver(solver: Solver) -> None:
    if not isinstance(solver, Shareable):
        raise ValueError(
            f"method {solver.name!r} does not run in a group: pass method='cnt' or 'multiscale', which take costs that "
            "are CNT, or leave out group= and match in one process."
        )
    if not solver.shares:
        raise ValueError(
            "exact_norms=True takes sums over all pairs in one process: leave it out, or leave out group=."
        )


class First(NamedTuple):
    """What the first process found."""

    handout: Handout
    gamma: Tensor  # (D, E)
    features: tuple[Tensor, Tensor]  # (N, D) and (M, E)
    duals: tuple[Tensor, Tensor]  # the potentials and the weights of both sides, (N, 2) and (M, 2)


def _first(pair: Pair, solver: Any, start: Start, watched: bool, show: Progress | None) -> First:
    """What happens once, on all points: the embedding, the search and the coarse levels."""
    clock = [time.perf_counter()]
    with memory_checked(pair, solver) as needed:
        if show:
            show(f"embedding {pair.shape[0]} and {pair.shape[1]} points on {pair.device}")
        problem = solver.problem(pair)
        clock.append(time.perf_counter())
        if show:
            show("looking for a good start")
        begin, levels = solver.approach(problem, start)
        clock.append(time.perf_counter())
    x, y = pair.x, pair.y
    minima = begin.minima
    if minima is not None:  # what is told of them
        nothing = minima.energy.new_zeros(0)
        minima = replace(
            minima, gamma=nothing, f=nothing, g=nothing, energy=minima.energy.cpu(), count=minima.count.cpu()
        )
    handout = Handout(
        units=pair.units,
        extents=((x.scale, x.extent), (y.scale, y.extent)),
        spectra=(x.embedding.spectrum.cpu(), y.embedding.spectrum.cpu()),
        variances=(x.embedding.variance, y.embedding.variance),
        truncation=problem.truncation,
        minima=minima,
        settled=begin.settled,
        levels=levels,
        memory=needed,
        seconds=dict(zip(("embed", "search"), np.diff(clock).tolist(), strict=True)),
        watched=watched,
    )
    features = x.embedding.features.double(), y.embedding.features.double()
    f, g = (torch.stack([z, w], 1).double() for z, w in zip((begin.duals.f, begin.duals.g), pair.weights, strict=True))
    return First(handout, begin.gamma.double(), features, (f, g))


def _deal(group: Group, pair: Pair, counts: list[int], first: First | None) -> tuple[Handout, Begin, Pair]:
    """Own rows and all columns of what the first process found, and where the loop begins."""
    handout: Handout = group.from_first(None if first is None else first.handout)
    (d, e), m = map(len, handout.spectra), pair.shape[1]
    like = torch.empty(0, dtype=torch.float64, device=pair.device)
    new = like.new_empty
    mine = first or First(handout, new(d, e), (new(0, d), new(m, e)), (new(0, 2), new(m, 2)))
    gamma = group.tensor_from_first(mine.gamma)
    left, right = (
        (group.dealt(rows, counts), group.tensor_from_first(cols)) for rows, cols in (mine.features, mine.duals)
    )
    begin = sum(counts[: group.rank])
    own = slice(begin, begin + counts[group.rank]), slice(None)
    sides = zip((pair.x, pair.y), own, left, right, handout.spectra, handout.variances, handout.extents, strict=True)
    x, y = (
        space.part(some, features, known[:, 1].to(pair.dtype), spectrum, variance, extents)
        for space, some, features, known, spectrum, variance, extents in sides
    )
    f, g = (known[:, 0].to(pair.dtype) for known in right)
    return (
        handout,
        Begin(gamma, Potentials(f, g), handout.minima, handout.settled),
        replace(pair, x=x, y=y, units=handout.units),
    )


def _watch(group: Group, watched: bool, callback: Callback | None, show: Progress | None) -> Callback | None:
    """The callback of the first process, whose answer all processes hear."""
    if not watched:
        return show

    def watch(event: Event) -> bool:
        if show:
            show(event)
        stop = bool(callback(event)) if callback is not None and group.is_first else False
        flag = group.tensor_from_first(torch.tensor([float(stop)]))
        return bool(flag.item())

    return watch

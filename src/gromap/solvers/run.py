"""One pair from spaces to a solution: memory, problem, run, finish. `solve` and the landscape end
here; the losses share `finish`."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap._pair import Pair
from gromap._plan import Plan
from gromap._progress import Event, Progress
from gromap._solution import Interrupted, Solution, State, Status
from gromap._stats import Stats
from gromap._threads import one_thread
from gromap.solvers.embedded import map_of_plan
from gromap.solvers.loop import state_of
from gromap.solvers.protocol import Callback, Loop, Outcome, Problem, Solver, Start
from gromap.transport.sinkhorn import Potentials

LITTLE = 0.05  # share of a side, of which it is better to tell if less is matched
LOOSER = 2.0  # times the tolerance of Sinkhorn: rounding errors, and tiles left out, add to what it misplaces


def solve_pair(
    pair: Pair, solver: Solver, start: Start, callback: Callback | None = None, show: Progress | None = None
) -> Solution:
    """Match one pair by one solver, from one start."""
    with memory_checked(pair, solver) as needed, one_thread():
        clock = [time.perf_counter()]
        if show:
            show(
                f"embedding {pair.shape[0]} and {pair.shape[1]} points on {pair.device}, about {needed / 2**20:.0f} MiB"
            )
        problem = solver.problem(pair)
        clock.append(time.perf_counter())
        if show:
            show("looking for a good start")

        def watch(event: Event) -> object:
            if show:
                show(event)
            return callback(event) if callback is not None else None

        outcome = solver.run(problem, start, watch)
        clock.append(time.perf_counter() - outcome.events[-1].seconds)
        try:
            plan = finish(problem, outcome, pair.numpy)
            solution = solution_of(pair, solver, problem, outcome, plan)
        except KeyboardInterrupt:
            raise Interrupted(state_of(problem, outcome.gamma, outcome.duals, outcome.energy)) from None
        clock.append(time.perf_counter())
        if show:
            show.close()
    phases = dict(zip(("embed", "search", "solve"), np.diff(clock).tolist(), strict=True))
    return solution.with_stats(memory=needed, seconds=phases)


def known_solution(pair: Pair, solver: Solver, gamma: Tensor, g: Tensor) -> Solution:
    """What `solve_pair` returns, of a linear map and potentials in nats that are known."""
    problem = solver.problem(pair)
    begin = problem.start(gamma)
    duals = Potentials(torch.zeros_like(problem.log_a), g)
    outcome = Outcome(begin, problem.score(begin), duals, g.new_tensor(math.nan), Status.CONVERGED, [])
    return solution_of(pair, solver, problem, outcome, finish(problem, outcome, pair.numpy))


@contextmanager
def memory_checked(pair: Pair, solver: Solver) -> Generator[int]:
    """Refuse what will not fit, before it is tried; say what was tried where memory runs out all
    the same."""
    needed = solver.memory(pair)
    what = f"{type(solver).__name__} on {pair.shape[0]} x {pair.shape[1]} points"
    _check.memory(needed, pair.device, what, solver.memory_advice)
    try:
        yield needed
    except RuntimeError as error:
        if not isinstance(error, torch.cuda.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise MemoryError(
            f"out of memory on {pair.device}: {pair.shape[0]} x {pair.shape[1]} points were to take about "
            f"{needed / 2**30:.1f} GiB. Free some memory there, pass another device=, or {solver.memory_advice}"
        ) from error


def finish(problem: Problem, outcome: Outcome, numpy: bool = False) -> Plan:
    """The plan that is returned: its rows are exact, but for rounding errors, and its columns off
    by the marginal error. Where marginals are not fixed, its mass is one."""
    score, z = outcome.score, torch.cat([outcome.duals.f, outcome.duals.g])
    to, g = problem.marginals(outcome.gamma), outcome.duals.g
    f = to.half_step(score, z, 0)
    if score is not score.full and not bool(torch.isfinite(f).all()):
        f = to.half_step(score.full, z, 0)  # points without mass may have no tiles
    if bool((problem.b == 0).any()):
        g = torch.where(problem.b > 0, g, to.half_step(score.full, torch.cat([f, g]), 1))
    plan = problem.plan(score, f, g, numpy)
    if to.fixed:
        return plan
    plan = problem.plan(score, f - plan.sums[0].sum().log(), g, numpy)
    if not problem.relaxed:
        return plan
    wanted = to.residual(torch.cat(plan.sums), torch.cat(plan.potentials))[1]
    return replace(plan, wanted=to.split(wanted))


def status_of(problem: Problem, outcome: Outcome, plan: Plan, value: float, loop: Loop) -> Status:
    """How the loop ended, in view of the plan that is returned: mass that it misplaces, or a value
    that no coupling has, is no convergence."""
    error = plan.marginal_error
    # both terms of a value are >= 0 for a coupling, and marginals that are off move them by as much
    least = -max(error, loop.marginal_tol) * problem.unit
    if not (math.isfinite(error) and least <= value < math.inf):
        return Status.NOT_FINITE
    if outcome.status is Status.CONVERGED and error > LOOSER * loop.marginal_tol:
        return Status.MARGINALS
    return outcome.status


def solution_of(pair: Pair, solver: Solver, problem: Problem, outcome: Outcome, plan: Plan) -> Solution:
    """Everything that a user sees of an outcome."""
    loss, kl = problem.evaluate(outcome.gamma, plan)
    features, marginals = problem.feature_value(plan), problem.marginal_value(outcome.gamma, plan)
    value = problem.alpha * loss + (1 - problem.alpha) * features + marginals + pair.eps * kl
    f, g = plan.potentials
    gamma = problem.matrix(outcome.gamma, plan).to(pair.dtype) if pair.is_embedded else None
    solution = Solution(
        plan=plan,
        state=State(gamma) if problem.primal else State(gamma, pair.eps * f, pair.eps * g),
        value=value,
        value_gw=loss,
        value_features=features,
        value_marginals=marginals,
        alpha=problem.alpha,
        mass=pair.mass(value),
        most=pair.most or (1.0, 1.0),
        epsilon=pair.eps,
        scale=pair.units,
        status=status_of(problem, outcome, plan, value, solver.loop),
        history=_history(outcome.events),
        stats=_stats(pair, solver, problem, outcome),
        sides=(pair.x.side(), pair.y.side()),
        find_gamma=None if pair.is_embedded else partial(_gamma, plan, pair),
    )
    least = min(solution.matched(0), solution.matched(1)) if problem.relaxed and pair.most is None else 1.0
    if least < LITTLE:
        _check.warn(
            f"{100 * least:.1f} % of a side are matched: where marginals cost little, one pair of points may be best. "
            "Pass a larger reach, or mass=."
        )
    return solution


def _gamma(plan: Plan, pair: Pair) -> Tensor:
    return map_of_plan(plan, pair).to(pair.dtype)


def _history(events: list[Event]) -> dict[str, np.ndarray]:
    names = {"energy": "value", "gamma_change": "gamma_change", "marginal_error": "marginal_error"}
    names |= {"inner_steps": "inner_steps", "seconds": "seconds"}
    return {name: np.array([getattr(event, field) for event in events]) for name, field in names.items()}


def _stats(pair: Pair, solver: Solver, problem: Problem, outcome: Outcome) -> Stats:
    minima, embedded = outcome.minima, pair.is_embedded
    return Stats(
        method=solver.name,
        engine=outcome.score.engine,
        device=str(pair.device),
        dtype=str(pair.dtype).removeprefix("torch."),
        levels=outcome.levels,
        minima=None if minima is None else minima.energy.double().cpu().numpy(),
        minima_starts=None if minima is None else minima.count.cpu().numpy().astype(int),
        mirrored=None if minima is None else minima.mirrored,
        explained=(pair.x.explained, pair.y.explained) if embedded else None,
        spectrum=(_numbers(pair.x.embedding.spectrum), _numbers(pair.y.embedding.spectrum)) if embedded else None,
        cost_error=problem.cost_error,
        tiles=outcome.score.tile_share,
        neglected_mass=outcome.score.neglected_mass,
    )


def _numbers(spectrum: Tensor) -> tuple[float, ...]:
    return tuple(round(float(v), 9) for v in spectrum)

"""The one outer loop (Alg. dual_kernelpca, kernel_gw, kernel_gw_adaptive): alternate between π
and Γ.

    while Γ moves                                                 line 3 of Alg. dual_kernelpca
        s   <- score of C_Γ                   problem.score       line 4
        f,g <- Sinkhorn(a, b, s | f, g)       warm-started        line 5
        Γ'  <- Σ π_ij φ(x_i) ψ(y_j)ᵀ          problem.correlate   lines 6, 7
        E   <- C + 8 |Γ|² + <a, f> + <b, g> - 8 |Γ - Γ'|²         problem.energy
        if E rose or settled while the marginals are off:         Alg. kernel_gw_adaptive
            double the Sinkhorn steps
    finish Sinkhorn, between few points                           newton.py

A plan that misplaces a tenth of its mass says nothing about Γ: then the steps are doubled first.

E is the value of (Γ', π) with OT_ε evaluated by its dual, so that an unfinished Sinkhorn costs a
second-order error only. For CNT costs E falls by at least 8 |Γ - Γ'|² per step (Thm.
altmin_convergence_reg): a step that stalls E while Γ still moves is not converged but oscillating.
`run_steps` runs the solvers whose steps are not transport problems, under the same rules.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap._progress import Event
from gromap._solution import Interrupted, State, Status
from gromap.solvers.damping import Damping
from gromap.solvers.protocol import (
    Alternating,
    Begin,
    Callback,
    Loop,
    Outcome,
    Problem,
    SolverDefaults,
    Start,
    Stepping,
)
from gromap.transport import Score
from gromap.transport.cuda_graph import StepGraph
from gromap.transport.marginals import half_step
from gromap.transport.newton import newton
from gromap.transport.shared import whole
from gromap.transport.sinkhorn import Potentials, sinkhorn

UNFINISHED = 0.1  # misplaced mass of a plan that says nothing about Γ yet: Sinkhorn goes on
SMALL_ENERGY = 20.0  # times the energy: where this is less than a unit of energy, tolerances are shares of it
QUIET_STEPS = 2  # between few points, in which nothing changes: near a saddle the first one is quiet too
ROUNDING = 10.0  # rounding errors of potentials in nats, which energies carry
STILL = 1e-3  # of the tolerance: movements that are rounding errors, and those of an unfinished Sinkhorn
TIGHT_PAIRS = 1 << 20  # pairs of points up to which marginals are met closely in the end


class AlternatingSolver(SolverDefaults):
    """A solver whose problem is `Alternating`, as most are."""

    loop: Loop

    def run(self, problem: Alternating, start: Start, callback: Callback | None = None) -> Outcome:
        return alternate(problem, start.begin(problem, problem, self.loop), self.loop, callback)


def alternate(
    problem: Alternating,
    begin: Begin,
    options: Loop,
    callback: Callback | None = None,
    graph: StepGraph | None = None,
) -> Outcome:
    """Run the loop from Γ and from potentials in nats. A batch of starts runs until all have
    settled.

    graph: one that earlier runs of the same problem have captured.
    """
    gamma, duals, minima, known_end = begin
    del begin  # a dense Γ_0 is large
    inner, clock, events = options.sinkhorn.steps, time.perf_counter(), list[Event]()
    last, graph = np.array([np.inf]), graph or StepGraph()
    marginal_tol = options.sinkhorn.tol or (options.marginal_tol if options.adaptive else None)
    if marginal_tol is not None:
        marginal_tol = min(marginal_tol, problem.marginal_tol(options.tol))
    energy, quiet, noise = torch.tensor(torch.inf), 0, ROUNDING * torch.finfo(problem.a.dtype).eps * problem.eps
    damping = Damping(problem)
    few = duals.f.ndim == 1 and problem.pairs <= TIGHT_PAIRS  # a batch of starts is only compared
    needed = QUIET_STEPS if few else 1
    try:
        while True:  # 3, until `_status` says how it ends
            score = problem.score(gamma)  # 4
            asked = replace(options.sinkhorn, steps=inner, tol=marginal_tol)
            to = problem.marginals(gamma)
            duals = sinkhorn(score, to, duals, asked, graph)  # 5
            if options.adaptive and inner < options.max_steps and float(duals.error.max()) > UNFINISHED:
                inner = min(2 * inner, options.max_steps)
                continue  # with the same Γ
            score = to.truncated(score, torch.cat([duals.f, duals.g], -1))
            new, rows = problem.correlate(gamma, score, duals.f + problem.log_a, duals.g + problem.log_b)  # 6, 7
            new, transport = problem.rows.sum(new, problem.eps * to.dual(duals.f, duals.g, rows))
            energy, change = problem.energy(gamma, new, transport)
            known, moved, error = _read(energy, change, duals.error)
            best = int(known.argmin())
            rounding = options.tol * min(problem.unit, SMALL_ENERGY * abs(float(last[0])))
            if damping.refuses(float(known[0]), float(moved[0]), float(last[0]), rounding):
                gamma, duals = damping.shorter()
                marginal_tol, inner = _closer(marginal_tol, inner, options)
                continue
            event = Event(
                stage="solve",
                step=len(events) + 1,
                total=options.max_iter,
                seconds=time.perf_counter() - clock,
                value=float(known[best]),
                gamma_change=float(moved[best]),
                marginal_error=float(error.max()),
                inner_steps=duals.steps,
            )
            events.append(event)
            stop = callback is not None and bool(callback(event))
            energy_tol = np.maximum(options.tol * np.minimum(problem.unit, SMALL_ENERGY * np.abs(known)), noise)
            settled = bool((np.abs(moved) <= energy_tol).all())  # from a converged start the first step is the last
            settled = settled and (len(events) == 1 or bool((np.abs(last - known) <= energy_tol).all()))
            leaving = needed > 1 and len(events) > 1 and _leaves(events, float(energy_tol[best]))
            quiet = quiet + 1 if settled and not leaving else 0
            feasible = event.marginal_error <= options.marginal_tol
            tol = float(energy_tol[best])
            ended = quiet >= (1 if known_end and len(events) == 1 else needed)
            status = _status(events, options, tol, np.isfinite(known).any(), ended, feasible, inner, stop)
            if status is not None:
                break
            if options.adaptive and not feasible and (settled or bool((known > last).any())):
                inner = min(2 * inner, options.max_steps)
            if problem.relaxed and feasible and not settled and bool((np.abs(moved) <= energy_tol).all()):
                marginal_tol, inner = _closer(marginal_tol, inner, options)
            last = known
            gamma = damping.step(gamma, new, duals)  # 8
        if options.adaptive and status == Status.CONVERGED:
            duals = _tightened(problem, score, duals, options, events[-1].value)
    except KeyboardInterrupt:
        raise Interrupted(state_of(problem, gamma, duals, energy)) from None
    return Outcome(gamma, score, duals, energy, status, events, minima=minima)


def _tightened(problem: Problem, score: Score, duals: Potentials, options: Loop, energy: float) -> Potentials:
    """The potentials of a plan between few points, with its marginals met so well that a coupling
    next to it has the same energy to a thousandth."""
    tol = max(1e-4 * abs(energy) / problem.unit, 100 * torch.finfo(problem.a.dtype).eps)
    if problem.relaxed or duals.f.ndim > 1 or problem.pairs > TIGHT_PAIRS or tol >= options.marginal_tol:
        return duals
    rows = problem.rows
    g = rows.from_first(newton(whole(rows, score), rows.joined(problem.log_a), problem.log_b, duals.g, tol))
    return Potentials(half_step(score, problem.log_b, g), g, steps=duals.steps)


def _status(
    events: list[Event],
    options: Loop,
    energy_tol: float,
    finite: Any,
    settled: bool,
    feasible: bool,
    inner: int,
    stop: bool,
) -> Status | None:
    """The stop rule: how the loop ends after these steps, or None where it goes on."""
    if not finite:
        return Status.NOT_FINITE
    fixed = not options.adaptive and len(events) > 1
    if settled and (feasible or fixed or inner >= options.max_steps):
        return Status.CONVERGED if feasible else Status.MARGINALS
    if stop:
        return Status.STOPPED
    if len(events) >= options.max_iter:
        return Status.OSCILLATES if _oscillates(events, options, energy_tol) else Status.MAX_ITER
    return None


def _closer(marginal_tol: float | None, inner: int, options: Loop) -> tuple[float | None, int]:
    """Half the tolerance of Sinkhorn, and more steps, to tell energies apart."""
    if marginal_tol is None:
        return None, inner
    return max(marginal_tol / 2, STILL * options.marginal_tol), min(2 * inner, options.max_steps)


def _leaves(events: list[Event], energy_tol: float) -> bool:
    """Whether the last step moved farther than the one before: so it does near a saddle, however
    little that is."""
    before, last = (abs(e.gamma_change) for e in events[-2:])
    return last > max(before, STILL * energy_tol)


def _oscillates(events: list[Event], options: Loop, energy_tol: float) -> bool:
    """Whether the energy stopped falling between the last two quarters of the run although Γ
    moves and Sinkhorn converged."""
    if len(events) < 8:
        return False
    quarter, end = len(events) // 4, events[-1]
    before, after = (min(e.value for e in part) for part in (events[-2 * quarter : -quarter], events[-quarter:]))
    return (
        after > before - energy_tol
        and abs(end.gamma_change) > energy_tol
        and end.marginal_error <= options.marginal_tol
    )


def _read(*numbers: Tensor) -> tuple[np.ndarray, ...]:
    """Some numbers of each start of a batch, in one transfer: each waits for the device.  (B,)
    each"""
    return tuple(torch.stack([z.double().reshape(-1) for z in numbers]).cpu().numpy())


def run_steps(problem: Stepping, begin: Begin, options: Loop, callback: Callback | None = None) -> Outcome:
    """Take the steps of a `Stepping` problem, with the stop rule, the callback and the
    interruption of `alternate`.

    Its scores are whole plans: the potentials are zero, whatever is given.
    """
    gamma, events, duals, status = begin.gamma, list[Event](), problem.zero_potentials(), None
    try:
        for event, here in problem.steps(gamma, options):
            gamma = here
            events.append(event)
            stop = callback is not None and bool(callback(event))
            tol = options.tol * min(problem.unit, SMALL_ENERGY * abs(event.value))
            moved = abs(events[-2].value - event.value) if len(events) > 1 else math.inf
            settled = max(abs(event.gamma_change), moved) <= tol
            feasible = event.marginal_error <= options.marginal_tol
            finite = math.isfinite(event.value)
            status = _status(events, options, tol, finite, settled, feasible, options.max_steps, stop)
            if status is not None:
                break
    except KeyboardInterrupt:
        raise Interrupted(state_of(problem, gamma, duals, torch.tensor(torch.inf))) from None
    assert status is not None  # steps go on without end
    end = torch.tensor(events[-1].value)
    return Outcome(gamma, problem.score(gamma), duals, end, status, events, minima=begin.minima)


def state_of(problem: Problem, gamma: Any, duals: Potentials, energy: Tensor) -> State:
    """What is known so far; of a batch of starts, the best Γ."""
    if duals.f.ndim > 1:
        return State(gamma[int(energy.argmin()) if energy.ndim else 0])
    f, g = duals.f, duals.g
    matrix = problem.matrix(gamma, problem.plan(problem.score(gamma), f, g))
    return State(matrix) if problem.primal else State(matrix, problem.eps * f, problem.eps * g, problem.moments(gamma))

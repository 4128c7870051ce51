"""The one outer loop (Alg. dual_kernelpca, kernel_gw, kernel_gw_adaptive): alternate between π and Γ.

    1  s   <- score of C_Γ                     problem.score
    2  f,g <- Sinkhorn(a, b, s | f, g)         warm-started
    3  Γ'  <- Σ π_ij φ(x_i) ψ(y_j)ᵀ            problem.correlate
    4  E   <- C + 8 |Γ|² + <a, f> + <b, g> - 8 |Γ - Γ'|²        problem.energy
    5  if E rose or settled while the marginals are off: double the Sinkhorn steps

Line 4 is the value of (Γ', π) with OT_ε evaluated by its dual, so that an unfinished Sinkhorn costs a second-order error only.
For CNT costs E falls by at least 8 |Γ - Γ'|² per step (Thm. altmin_convergence_reg): a step that stalls E while Γ still moves
is not converged but oscillating. `follow` runs the solvers whose steps are not transport problems, under the same rules.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gromap.engine import Pairs, Replay, Score, focus
from gromap.plan import Plan
from gromap.sinkhorn import Potentials, Sinkhorn, sinkhorn
from gromap.solution import Interrupted, State, Status


class Problem(Protocol):
    """What a solver gives to the loop. Γ is whatever the solver represents the linear map, or the last plan, by."""

    eps: float
    log_a: Tensor
    log_b: Tensor
    primal: bool  # Γ stands for a plan, from which the solver starts, and the potentials are not those of C_Γ

    def score(self, gamma: Any) -> Pairs: ...
    def correlate(self, gamma: Any, score: Any, u: Tensor, v: Tensor) -> tuple[Any, Tensor]: ...  # next Γ, row sums of π
    def energy(self, old: Any, new: Any, transport: Tensor) -> tuple[Tensor, Tensor]: ...  # of π, and how far Γ moved
    def matrix(self, gamma: Any, plan: Plan) -> Tensor: ...


class Bilinear(ABC):
    """Line 4 for a cost that is linear in Γ, from a constant and a squared norm of Γ."""

    constant: float

    @abstractmethod
    def norm2(self, gamma: Any) -> Tensor: ...

    @abstractmethod
    def distance2(self, old: Any, new: Any) -> Tensor: ...

    def energy(self, old: Any, new: Any, transport: Tensor) -> tuple[Tensor, Tensor]:
        """L(π) + ε KL(π | α⊗β), and 8 |Γ - Γ'|², with transport = OT_ε(C_Γ).  (...)"""
        change = 8 * self.distance2(old, new)
        return self.constant + 8 * self.norm2(old) + transport - change, change


class Step(NamedTuple):
    """What a callback sees after each outer step (the best of a batch)."""

    iteration: int
    energy: float
    gamma_change: float  # 8 |Γ - Γ'|², in units of the energy
    marginal_error: float
    inner_steps: int
    seconds: float


@dataclass(frozen=True)
class Loop:
    """Options of the outer loop.

    tol: the energy, and 8 |Γ - Γ'|², must change by less than this in one step.  marginal_tol: misplaced mass allowed at
    the end.  adaptive: Alg. kernel_gw_adaptive, from `sinkhorn.steps` up to `max_steps`, each Sinkhorn ending early once it is
    within `marginal_tol`; else always `sinkhorn` as given.
    """

    sinkhorn: Sinkhorn = Sinkhorn(steps=50)
    adaptive: bool = True
    max_steps: int = 800
    max_iter: int = 100
    tol: float = 1e-5
    marginal_tol: float = 1e-3

    def __post_init__(self) -> None:
        if self.max_iter < 1 or self.max_steps < self.sinkhorn.steps:
            raise ValueError(f"Loop needs max_iter >= 1 and max_steps >= {self.sinkhorn.steps} (sinkhorn.steps), got {self}.")
        if not (self.tol > 0 and self.marginal_tol > 0):
            raise ValueError(f"Loop needs tol > 0 and marginal_tol > 0, got {self.tol} and {self.marginal_tol}.")


PUBLISHED = Loop(Sinkhorn(100, update="standard"), adaptive=False)  # of the solvers that came before (App. A)


class Outcome(NamedTuple):
    gamma: Any
    score: Score
    duals: Potentials
    energy: Tensor  # (...)
    status: Status
    steps: list[Step]


def alternate(
    problem: Problem,
    gamma: Any,
    duals: Potentials,
    options: Loop,
    callback: Callable[[Step], Any] | None = None,
    replay: Replay | None = None,
) -> Outcome:
    """Run the loop from Γ and from potentials in nats. A batch of starts runs until all have settled.

    replay: kept by who runs the same problem again.
    """
    inner, begin, steps, status = options.sinkhorn.steps, time.perf_counter(), [], None
    tol = options.sinkhorn.tol or (options.marginal_tol if options.adaptive else None)
    energy, known, replay = torch.tensor(torch.inf), np.array([np.inf]), replay or Replay()
    try:
        while status is None:
            score = problem.score(gamma)
            asked = replace(options.sinkhorn, steps=inner, tol=tol)
            duals = sinkhorn(score, problem.log_a, problem.log_b, duals, asked, replay)
            score = focus(score, duals.f, duals.g, problem.log_a, problem.log_b)
            new, rows = problem.correlate(gamma, score, duals.f + problem.log_a, duals.g + problem.log_b)
            last = known
            energy, change = problem.energy(gamma, new, transport_value(problem, duals, rows))
            known, moved, error = _read(energy, change, duals.error)
            best = int(known.argmin())
            steps.append(
                Step(
                    iteration=len(steps),
                    energy=float(known[best]),
                    gamma_change=float(moved[best]),
                    marginal_error=float(error.max()),
                    inner_steps=duals.steps,
                    seconds=time.perf_counter() - begin,
                )
            )
            stop = callback is not None and bool(callback(steps[-1]))
            settled = bool((np.abs(moved) <= options.tol).all())  # from a converged start the first step is the last
            settled = settled and (len(steps) == 1 or bool((np.abs(last - known) <= options.tol).all()))
            feasible = steps[-1].marginal_error <= options.marginal_tol
            if not np.isfinite(known).any():
                status = Status.NOT_FINITE
            elif settled and (feasible or (not options.adaptive and len(steps) > 1) or inner >= options.max_steps):
                status = Status.CONVERGED if feasible else Status.MARGINALS
            elif stop:
                status = Status.STOPPED
            elif len(steps) >= options.max_iter:
                status = Status.OSCILLATES if _oscillates(steps, options) else Status.MAX_ITER
            else:
                if options.adaptive and not feasible and (settled or bool((known > last).any())):
                    inner = min(2 * inner, options.max_steps)
                gamma = new
    except KeyboardInterrupt:
        raise Interrupted(_state(problem, gamma, duals, energy)) from None
    return Outcome(gamma, score, duals, energy, status, steps)


def _read(*numbers: Tensor) -> tuple[np.ndarray, ...]:
    """Some numbers of each start of a batch, in one transfer: each waits for the device.  (B,) each"""
    return tuple(torch.stack([z.double().reshape(-1) for z in numbers]).cpu().numpy())


class Walk(Protocol):
    """What a solver gives to `follow`, whose steps are not those of `alternate`."""

    eps: float
    log_a: Tensor
    log_b: Tensor
    primal: bool

    def walk(self, gamma: Any, options: Loop) -> Iterator[tuple[Step, Any]]: ...  # without end
    def score(self, gamma: Any) -> Score: ...  # log π_ij / a_i b_j
    def matrix(self, gamma: Any, plan: Plan) -> Tensor: ...


def follow(
    problem: Walk, gamma: Any, duals: Potentials, options: Loop, callback: Callable[[Step], Any] | None = None
) -> Outcome:
    """Take the steps of a solver of its own kind, with the stop rule, the callback and the interruption of `alternate`.

    Its scores are whole plans: the potentials are zero, whatever is given.
    """
    steps: list[Step] = []
    duals = Potentials(torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b))
    try:
        for step, here in problem.walk(gamma, options):
            gamma = here
            steps.append(step)
            stop = callback is not None and bool(callback(step))
            moved = abs(steps[-2].energy - step.energy) if len(steps) > 1 else math.inf
            settled = max(abs(step.gamma_change), moved) <= options.tol
            if not math.isfinite(step.energy):
                status = Status.NOT_FINITE
            elif settled:
                status = Status.CONVERGED if step.marginal_error <= options.marginal_tol else Status.MARGINALS
            elif stop:
                status = Status.STOPPED
            elif len(steps) >= options.max_iter:
                status = Status.MAX_ITER
            else:
                continue
            break
    except KeyboardInterrupt:
        raise Interrupted(_state(problem, gamma, duals, torch.tensor(torch.inf))) from None
    return Outcome(gamma, problem.score(gamma), duals, torch.tensor(steps[-1].energy), status, steps)


def transport_value(problem: Problem, duals: Potentials, rows: Tensor) -> Tensor:
    """OT_ε(C_Γ) by its dual, with the row sums of π: an unfinished Sinkhorn costs a second-order error.  (...)"""
    a, b = problem.log_a.exp().double(), problem.log_b.exp().double()
    return problem.eps * (duals.f.double() @ a + duals.g.double() @ b - (rows.double().sum(-1) - 1))


def _state(problem: Problem | Walk, gamma: Any, duals: Potentials, energy: Tensor) -> State:
    """What is known so far; of a batch of starts, the best Γ."""
    if duals.f.ndim > 1:
        return State(gamma[int(energy.argmin()) if energy.ndim else 0])
    f, g = duals.f, duals.g
    plan = Plan(problem.score(gamma), f + problem.log_a, g + problem.log_b, problem.log_a.exp(), problem.log_b.exp())
    matrix = problem.matrix(gamma, plan)
    return State(matrix) if problem.primal else State(matrix, problem.eps * f, problem.eps * g)


def _oscillates(steps: list[Step], options: Loop) -> bool:
    """Whether the energy stopped falling between the last two quarters of the run although Γ moves and Sinkhorn converged."""
    if len(steps) < 8:
        return False
    quarter, end = len(steps) // 4, steps[-1]
    before, after = (min(s.energy for s in part) for part in (steps[-2 * quarter : -quarter], steps[-quarter:]))
    return after > before - options.tol and abs(end.gamma_change) > options.tol and end.marginal_error <= options.marginal_tol

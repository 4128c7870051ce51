"""What `init=` accepts, as Γ_0 and potentials; and the coarse levels of a pyramid, down which they are carried."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap.chirality import handedness
from gromap.engine import LowRank, apply, focus
from gromap.plan import Plan
from gromap.search import Landmarks, Minima, Search, best_start, landmark_start, random_starts
from gromap.sinkhorn import Potentials, Sinkhorn, half_step, sinkhorn
from gromap.solution import Solution, State
from gromap.solvers import CntGW, Loop, Multiscale, Solver
from gromap.solvers.cnt import CntProblem, scaled_features
from gromap.solvers.loop import alternate
from gromap.solvers.multiscale import interpolate
from gromap.space import Space

SETTLE = 500  # Sinkhorn steps at most, for the plan of a linear map that a solver is to start from
CLOSER = {"cpu": 5, "cuda": 2}  # how much, marginals of coarse levels are met: cheap there, and it saves steps on all points


@dataclass(frozen=True)
class Start:
    gamma: Tensor
    duals: Potentials
    plan: Plan | None = None  # of an earlier solution
    minima: Minima | None = None  # that the search met
    levels: tuple[int, ...] = ()  # points of each level of the pyramid


def start(
    init: Any, problem: Any, x: Space, y: Space, units: tuple[float, float], solver: Solver, loop: Loop, seed: int
) -> Start:
    """Γ_0 and the potentials for the problem; or a plan, for the solvers that start from one."""
    if problem.primal and isinstance(init, str) and init == "zero":
        return Start(torch.empty(0), _zeros(problem))
    embedded = problem
    if type(problem) is not CntProblem:
        features = scaled_features(x, units[0]), scaled_features(y, units[1])
        embedded = CntProblem(*features, problem.a, problem.b, problem.eps)
    if problem.primal:
        return _start_plan(init, embedded, x, y, units, solver, loop, seed)
    search = Search() if isinstance(init, str) and init == "auto" else init if isinstance(init, Search) else None
    state = State(torch.empty(0)) if search else _state(init, embedded, seed)
    if state.f is not None and state.g is not None and (len(state.f), len(state.g)) == (len(x), len(y)):
        last = problem if isinstance(problem, CntProblem) else embedded
        gamma, duals = _next(last, state.gamma, (state.g / problem.eps).to(problem.log_b))
        return Start(gamma, duals, init.plan if isinstance(init, Solution) else None)

    levels = solver.pyramid(embedded) if isinstance(solver, Multiscale) else [embedded]
    first, minima = levels[0], None
    gamma, duals = state.gamma.to(x.device).double(), _zeros(first)
    if search:
        hand = handedness(x, y, embedded) if search.chirality else None
        gamma, duals, minima = best_start(first, loop, seed, search, hand)
    for coarse, fine in itertools.pairwise(levels):
        end = alternate(coarse, gamma, duals, replace(loop, marginal_tol=loop.marginal_tol / CLOSER[x.device.type]))
        gamma, duals = end.gamma, interpolate(coarse, end.gamma, end.duals, fine)
    sizes = tuple(max(len(p.a), len(p.b)) for p in levels) if len(levels) > 1 else ()
    return Start(gamma, duals, minima=minima, levels=sizes)


def _zeros(problem: Any) -> Potentials:
    return Potentials(torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b))


def _start_plan(
    init: Any, embedded: CntProblem, x: Space, y: Space, units: tuple[float, float], solver: Solver, loop: Loop, seed: int
) -> Start:
    """A plan to start from: the one that is given, or that of the linear map which `init` stands for."""
    plan, duals = _given_plan(init, embedded), _zeros(embedded)
    goes_on = isinstance(init, Solution) and (init.info.get("method"), init.epsilon) == (solver.name, embedded.eps)
    if plan is not None and goes_on:
        f, g = ((z - w).nan_to_num(nan=0.0).to(w) for z, w in ((plan.u, embedded.log_a), (plan.v, embedded.log_b)))
        duals = Potentials(f, g)
    if plan is not None:
        return Start(torch.empty(0), duals, plan)
    found = start(init, embedded, x, y, units, CntGW(loop), loop, seed)
    if not bool(found.gamma.any()):
        return replace(found, duals=duals)
    score = embedded.score(found.gamma)
    ends = sinkhorn(score, embedded.log_a, embedded.log_b, found.duals, Sinkhorn(SETTLE, tol=loop.marginal_tol))
    f = half_step(score, embedded.log_b, ends.g)
    plan = Plan(score, f + embedded.log_a, ends.g + embedded.log_b, embedded.a, embedded.b)
    return replace(found, duals=duals, plan=plan)


def _given_plan(init: Any, problem: CntProblem) -> Plan | None:
    """The plan of mass 1 that `init` is, or holds; None for everything that stands for a linear map."""
    if isinstance(init, Solution | Plan):
        plan = init.plan if isinstance(init, Solution) else init
        if plan.shape != (len(problem.a), len(problem.b)):
            return None
        if plan.u.device != problem.x.device:
            raise ValueError(
                f"init is a plan on {plan.u.device}, the clouds are on {problem.x.device}: load(path, device=...)."
            )
        return plan
    if isinstance(init, State | Landmarks | Search | str):
        return None
    given = _check.as_tensor(init, "init")
    if tuple(given.shape) != (len(problem.x), len(problem.y)) or given.shape == (problem.x.shape[1], problem.y.shape[1]):
        return None
    pi = _check.tensor(given, "init").to(problem.x)
    if bool((pi < 0).any()) or not float(pi.sum()) > 0:
        raise ValueError(
            f"init is a plan with entries from {float(pi.min()):.3g} that sum to {float(pi.sum()):.3g}: masses are >= 0."
        )
    u, v = (torch.zeros_like(w) for w in (problem.a, problem.b))
    return Plan((pi / pi.sum()).log(), u, v, problem.a, problem.b)


def _state(init: Any, problem: CntProblem, seed: int) -> State:
    """Everything but a search: a name, an earlier solution or state, landmarks, a linear map, a point map, or a plan."""
    x, y = problem.x, problem.y
    shape, points = (x.shape[1], y.shape[1]), (len(x), len(y))
    if isinstance(init, Solution | State):
        state = init.state if isinstance(init, Solution) else init
        if not bool(torch.isfinite(state.gamma).all()):
            raise ValueError(
                "init is a solution whose numbers are not finite: start anew with a larger epsilon, or in float64."
            )
    elif isinstance(init, Landmarks):
        state = State(landmark_start(init, x, y))
    elif isinstance(init, str):
        name = _check.choice(init, ["auto", "zero", "random"], "init")
        state = State(random_starts(*problem.spread, 1, seed)[0] if name == "random" else x.new_zeros(shape))
    elif isinstance(init, Plan):
        state = State(_gamma_of_plan(init, problem))
    else:
        given = _check.as_tensor(init, "init")
        if given.ndim == 1 and not given.is_floating_point() and len(given) == points[0]:
            return State(_gamma_of_map(given.to(x.device).long(), problem))
        given = _check.tensor(given, "init")
        state = State(_gamma_of_plan(given, problem) if tuple(given.shape) == points != shape else given)
    if tuple(state.gamma.shape) != shape:
        raise ValueError(
            f"init must be a linear map of shape {shape} (dim of X, dim of Y), a plan of shape {points}, a map of {points[0]} "
            "integers, landmarks(...), Search(...), an earlier Solution, 'auto', 'zero' or 'random'; "
            f"got {tuple(state.gamma.shape)}."
        )
    return state


def _next(problem: CntProblem, gamma: Tensor, g: Tensor) -> tuple[Tensor, Potentials]:
    """The linear map of the plan that Γ and one potential give: where the loop would have gone on, at any temperature."""
    gamma = gamma.to(problem.x.device)
    score = problem.score(gamma)
    duals = Potentials(half_step(score, problem.log_b, g), g)  # rows exact: a plan of mass one
    score = focus(score, duals.f, duals.g, problem.log_a, problem.log_b)
    assert isinstance(score, LowRank)
    return problem.correlate(gamma, score, duals.f + problem.log_a, duals.g + problem.log_b)[0], duals


def _gamma_of_plan(pi: Tensor | Plan, problem: CntProblem) -> Tensor:
    """Γ = Σ π_ij X_i Y_jᵀ, for a plan of any mass; a lazy one stays lazy.  (D, E)"""
    if tuple(pi.shape) != (len(problem.x), len(problem.y)):
        raise ValueError(
            f"init is a plan of shape {tuple(pi.shape)}, the clouds have {len(problem.x)} and {len(problem.y)} points."
        )
    ones = torch.cat([problem.y, torch.ones_like(problem.y[:, :1])], 1)
    moved = apply(pi.score, pi.u, pi.v, ones.to(pi.u)).to(problem.x) if isinstance(pi, Plan) else pi.to(problem.x) @ ones
    return problem.x.double().mT @ (moved[:, :-1] / moved[:, -1].sum()).double()


def _gamma_of_map(match: Tensor, problem: CntProblem) -> Tensor:
    """Γ = Σ a_i X_i Y_T(i)ᵀ.  (D, E)"""
    m = len(problem.y)
    if int(match.min()) < 0 or int(match.max()) >= m:
        bad = int(match.min()) if int(match.min()) < 0 else int(match.max())
        raise ValueError(f"init maps a point of X to point {bad} of Y, which has the points 0 to {m - 1}.")
    return problem.x.double().mT @ (problem.a[:, None] * problem.y[match]).double()


def told(start: Start) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a solution tells of its start: for its info, and for its history."""
    info: dict[str, Any] = {"levels": list(start.levels)} if start.levels else {}
    if start.minima is None:
        return info, {}
    energy, count = start.minima.energy.cpu().numpy(), start.minima.count.cpu().numpy()
    info["minima"] = len(energy)
    if len(energy) > 1:
        info["runner_up"] = float(energy[1] / energy[0] - 1)
    return info, {"minima": energy, "minima_starts": count}

"""What `init=` accepts, one class each: where a loop begins.

    "zero", "random"       Zero, Random     a linear map
    (D, E) matrix          LinearMap
    landmarks(pairs)       Landmarks        Γ = Σ_k w_k X_k Y_kᵀ
    N integers             PointMap         Γ = Σ_i a_i X_i Y_T(i)ᵀ
    (N, M) plan            GivenPlan        Γ = Σ_ij π_ij X_i Y_jᵀ, or the plan for primal solvers
    Solution, State        Continued        Γ and the potentials of an earlier solve
    either, marginals free Moved            the plan, and potentials of an earlier solve
    "auto", Search(...)    Search           the lowest minimum of many starts (search.py)

Γ is computed on all points; a solver with a pyramid then begins with it on the coarsest level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap._pair import Pair
from gromap._plan import Plan
from gromap._solution import Solution, State
from gromap._torch import from_numpy
from gromap.search.proposals import random_starts
from gromap.search.search import Search
from gromap.search.start_plan import start_plan
from gromap.solvers.embedded import CntProblem, map_of_plan
from gromap.solvers.protocol import Begin, Loop, Problem, Start
from gromap.solvers.relaxed import Moments, RelaxedProblem
from gromap.transport import Dense
from gromap.transport.marginals import half_step
from gromap.transport.sinkhorn import Potentials


class LinearStart(ABC):
    """A start that stands for a linear map between the embeddings."""

    on_all_points = False

    @abstractmethod
    def linear_map(self, problem: CntProblem) -> Tensor:
        """Γ_0, given the problem on all points.  (D, E)"""

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        gamma = self.linear_map(problem.embedded).to(problem.a.device).double()
        if problem.primal:
            plan = start_plan(problem.embedded, gamma, problem.zero_potentials(), loop)
            return Begin(problem.start(gamma, plan), problem.zero_potentials())
        return Begin(coarse.start(gamma), coarse.zero_potentials())


@dataclass(frozen=True)
class Zero(LinearStart):
    def linear_map(self, problem: CntProblem) -> Tensor:
        return problem.x.new_zeros(problem.x.shape[1], problem.y.shape[1])

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        if problem.primal:  # α⊗β: nothing needs to be embedded
            return Begin(problem.start(problem.a.new_zeros(0), None), problem.zero_potentials())
        return super().begin(problem, coarse, loop)


@dataclass(frozen=True)
class Random(LinearStart):
    seed: int = 0

    def linear_map(self, problem: CntProblem) -> Tensor:
        return random_starts(*problem.spread, 1, self.seed)[0]


@dataclass(frozen=True, eq=False)
class LinearMap(LinearStart):
    gamma: Tensor  # (D, E)

    def linear_map(self, problem: CntProblem) -> Tensor:
        shape, points = (problem.x.shape[1], problem.y.shape[1]), (len(problem.x), len(problem.y))
        if tuple(self.gamma.shape) != shape:
            raise ValueError(
                f"init must be a linear map of shape {shape} (dim of X, dim of Y), a plan of shape {points}, a map of "
                f"{points[0]} integers, landmarks(...), Search(...), an earlier Solution, 'auto', 'zero' or 'random'; "
                f"got {tuple(self.gamma.shape)}."
            )
        if not bool(torch.isfinite(self.gamma).all()):
            raise ValueError(
                "init is a solution whose numbers are not finite: start anew with a larger epsilon, or in float64."
            )
        return self.gamma


@dataclass(frozen=True, eq=False)
class Landmarks(LinearStart):
    """Pairs of points that belong together, as a start: Γ = Σ_k w_k X_k Y_kᵀ. Made by
    `landmarks`."""

    pairs: np.ndarray  # (k, 2) indices into X and Y
    weights: np.ndarray  # (k,) that sum to one

    def linear_map(self, problem: CntProblem) -> Tensor:
        sides = ("X", problem.x), ("Y", problem.y)
        for k, (name, z) in enumerate(sides):
            index = self.pairs[:, k]
            if index.min() < 0 or index.max() >= len(z):
                bad = int(index.min() if index.min() < 0 else index.max())
                raise ValueError(f"landmark {bad} of {name} is out of range: {name} has the points 0 to {len(z) - 1}.")
        left, right = (z[from_numpy(self.pairs[:, k]).to(z.device)].double() for k, (_, z) in enumerate(sides))
        return left.mT @ (from_numpy(self.weights).to(left)[:, None] * right)


def landmarks(pairs: Any, weights: Any = None) -> Landmarks:
    """Start a match from pairs of points that belong together: `solve(X, Y, init=landmarks([[0,
    5], [7, 2]]))`.

    pairs: (k, 2) indices, one of X and one of Y.  weights: how much each pair counts, None =
    equally.

    >>> landmarks([[0, 5], [7, 2]]).weights
    array([0.5, 0.5])
    """
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1:] != (2,) or len(array) == 0 or array.dtype.kind not in "iu":
        raise ValueError(
            f"landmarks are (k, 2) integer indices, one of X and one of Y, got {array.dtype} {array.shape}."
        )
    for side, name in enumerate("XY"):
        index, count = np.unique(array[:, side], return_counts=True)
        if count.max() > 1:
            raise ValueError(
                f"landmark {int(index[count.argmax()])} of {name} is used {count.max()} times: use each point once."
            )
    if weights is None:
        return Landmarks(array.astype(np.int64), np.full(len(array), 1 / len(array)))
    w = _check.tensor(weights, "the weights of the landmarks").double().numpy()
    if w.shape != (len(array),) or not (w > 0).all():
        raise ValueError(f"{len(array)} landmarks need as many weights > 0, got {w}.")
    return Landmarks(array.astype(np.int64), w / w.sum())


@dataclass(frozen=True, eq=False)
class PointMap(LinearStart):
    match: Tensor  # (N,) indices into Y

    def checked(self, problem: Problem) -> Tensor:
        match, m = self.match.to(problem.a.device).long(), len(problem.b)
        if int(match.min()) < 0 or int(match.max()) >= m:
            bad = int(match.min()) if int(match.min()) < 0 else int(match.max())
            raise ValueError(f"init maps a point of X to point {bad} of Y, which has the points 0 to {m - 1}.")
        return match

    def linear_map(self, problem: CntProblem) -> Tensor:
        return problem.x.double().mT @ (problem.a[:, None] * problem.y[self.checked(problem)]).double()

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        if problem.primal or not problem.dense:  # a primal solver would keep what a map leaves empty
            return super().begin(problem, coarse, loop)
        pi = problem.a.new_zeros(len(problem.a), len(problem.b))  # all of it, not what a few axes see
        pi[torch.arange(len(pi), device=pi.device), self.checked(problem)] = problem.a
        return GivenPlan(_dense_plan(pi, problem.a, problem.b)).begin(problem, coarse, loop)


@dataclass(frozen=True, eq=False)
class GivenPlan(LinearStart):
    """goes_on: the plan is that of the same problem by the same method, whose potentials serve
    too."""

    plan: Plan
    goes_on: bool = False

    def linear_map(self, problem: CntProblem) -> Tensor:
        plan, shape = self.plan, (len(problem.x), len(problem.y))
        if plan.shape != shape:
            raise ValueError(f"init is a plan of shape {plan.shape}, the clouds have {shape[0]} and {shape[1]} points.")
        ones = torch.cat([problem.y, torch.ones_like(problem.y[:, :1])], 1)
        moved = plan.score.apply(plan.u, plan.v, ones.to(plan.u)).to(problem.x)  # π [Y, 1], of any mass
        return problem.x.double().mT @ (moved[:, :-1] / moved[:, -1].sum()).double()

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        fits = self.plan.shape == (len(problem.a), len(problem.b))
        if not fits or not (problem.primal or problem.dense):
            return super().begin(problem, coarse, loop)
        if self.plan.u.device != problem.a.device:
            raise ValueError(
                f"init is a plan on {self.plan.u.device}, the clouds are on {problem.a.device}: load(path, device=...)."
            )
        f, g = self.plan.potentials
        duals = Potentials(f.to(problem.a), g.to(problem.b)) if self.goes_on else problem.zero_potentials()
        return Begin(problem.start(problem.a.new_zeros(0), self.plan), duals, settled=self.goes_on)


@dataclass(frozen=True, eq=False)
class Continued:
    """Γ and the potentials on all points, of an earlier solve of the same clouds, at any
    temperature."""

    state: State
    plan: Plan | None = None

    on_all_points = True

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        """The linear map of the plan that Γ and one potential give: where the loop would have
        gone on."""
        if problem.primal and self.plan is not None:
            return GivenPlan(self.plan).begin(problem, coarse, loop)
        last, known, g = problem.embedded, self.state.gamma, self.state.g
        assert g is not None
        if known is None:
            assert self.plan is not None
            assert problem.pair is not None
            known = map_of_plan(self.plan, problem.pair)
        gamma = LinearMap(known).linear_map(last).to(last.x.device)
        score = last.score(gamma)
        g = (g / problem.eps).to(problem.log_b)
        duals = Potentials(half_step(score, last.log_b, g), g)  # rows exact: a plan of mass one
        score = score.truncate(duals.f, duals.g, last.log_a, last.log_b)
        gamma = last.correlate(gamma, score, duals.f + last.log_a, duals.g + last.log_b)[0]
        if problem.primal:
            plan = start_plan(last, gamma, duals, loop)
            return Begin(problem.start(gamma, plan), problem.zero_potentials())
        return Begin(problem.start(gamma, self.plan), duals, settled=True)


@dataclass(frozen=True, eq=False)
class Moved:
    """A plan on all points, where marginals are not fixed: a linear map does not know what it
    matches."""

    plan: Plan
    duals: Potentials | None = None  # in units of energy, of such a problem

    on_all_points = True

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        duals = problem.zero_potentials()
        if self.duals is not None and not problem.dense:
            f, g = self.duals.f / problem.eps, self.duals.g / problem.eps
            duals = Potentials(f.to(problem.a), g.to(problem.b))
        return Begin(problem.start(problem.a.new_zeros(0), self.plan), duals, settled=self.duals is not None)


@dataclass(frozen=True, eq=False)
class Resumed:
    """Where a solve of the same points was interrupted whose marginals are not fixed."""

    state: State

    on_all_points = True

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        state = self.state
        assert state.moments is not None
        assert state.f is not None
        assert state.g is not None
        gamma = Moments(*(z.to(problem.a.device) for z in state.moments))
        if not isinstance(problem, RelaxedProblem) or not problem.holds(gamma):
            assert state.gamma is not None
            return LinearMap(state.gamma).begin(problem, coarse, loop)
        duals = Potentials((state.f / problem.eps).to(problem.a), (state.g / problem.eps).to(problem.b))
        return Begin(gamma, duals, settled=True)


def as_start(init: Any, pair: Pair, method: str = "") -> Start:
    """The start that `init=` stands for.  method: the name of the solver that is to go on from
    it."""
    if isinstance(init, str):
        name = _check.choice(init, ["auto", "zero", "random"], "init")
        return {"auto": Search(), "zero": Zero(), "random": Random(pair.seed)}[name]
    if isinstance(init, Search | LinearStart):
        return init
    if isinstance(init, Solution | State):
        return _of_solution(init, pair, method)
    if isinstance(init, Plan):
        return Moved(init) if pair.relaxed and init.shape == pair.shape else GivenPlan(init)
    return _of_array(_check.as_tensor(init, "init"), pair)


def _of_solution(init: Solution | State, pair: Pair, method: str) -> Start:
    """From its potentials if there are as many points, else from its plan or its linear map."""
    state, plan = (init.state, init.plan) if isinstance(init, Solution) else (init, None)
    if plan is None and state.is_empty:
        return Search()
    fits = plan is not None and plan.shape == pair.shape
    duals = None if state.f is None or state.g is None else Potentials(state.f, state.g)
    if pair.relaxed and plan is not None and fits:
        return Moved(plan, None if plan.wanted is None else duals)
    if pair.relaxed and state.moments is not None and tuple(map(len, state.moments[1:])) == pair.shape:
        return Resumed(state)
    if not pair.relaxed and duals is not None and (len(duals.f), len(duals.g)) == pair.shape:
        return Continued(state, plan if fits else None)
    if not pair.relaxed and isinstance(init, Solution) and fits:
        return GivenPlan(init.plan, (init.stats.method, init.epsilon) == (method, pair.eps))
    if state.gamma is None:
        raise ValueError("init is a solution without a linear map, between other points: it says nothing about these.")
    return LinearMap(state.gamma)


def _of_array(given: Tensor, pair: Pair) -> Start:
    """A map of N integers, an (N, M) plan, or a (D, E) linear map."""
    if given.ndim == 1 and not given.is_floating_point() and len(given) == pair.shape[0]:
        return PointMap(given)
    given = _check.tensor(given, "init")
    if tuple(given.shape) != pair.shape:
        return LinearMap(given)
    a, b = pair.weights
    pi = given.to(a)
    axes = tuple(s.dim if isinstance(s.dim, int) else s.embedding.features.shape[1] for s in (pair.x, pair.y))
    if axes == pair.shape and not _is_plan(pi, a, b):  # as many axes as points
        return LinearMap(given)
    if bool((pi < 0).any()) or not float(pi.sum()) > 0:
        raise ValueError(
            f"init is a plan with entries from {float(pi.min()):.3g} that sum to {float(pi.sum()):.3g}: "
            "masses are >= 0."
        )
    plan = _dense_plan(pi, a, b)
    return Moved(plan) if pair.relaxed else GivenPlan(plan)


def _is_plan(pi: Tensor, a: Tensor, b: Tensor) -> bool:
    """Whether a matrix is about a coupling of two measures, of any mass."""
    if bool((pi < 0).any()) or not float(pi.sum()) > 0:
        return False
    pi = pi / pi.sum()
    return float((pi.sum(1) - a).abs().sum() + (pi.sum(0) - b).abs().sum()) < 0.1


def _dense_plan(pi: Tensor, a: Tensor, b: Tensor) -> Plan:
    return Plan(Dense((pi / pi.sum()).log()), torch.zeros_like(a), torch.zeros_like(b), a, b)

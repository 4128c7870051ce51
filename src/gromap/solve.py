"""gromap.solve: check, embed, search, run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gromap import _check
from gromap.engine import LowRank, engine_name, whole
from gromap.plan import Plan
from gromap.prepare import LARGE, spaces_of, units_of
from gromap.progress import Progress
from gromap.sinkhorn import half_step
from gromap.solution import Solution, State
from gromap.solvers import METHODS, CntGW, DualGW, Multiscale, Solver, Step
from gromap.solvers.lowrank import LowRankProblem
from gromap.solvers.lowrank_cost import LowRankCostProblem
from gromap.solvers.sampled import SampledProblem
from gromap.space import Space
from gromap.start import start, told


def solve(
    X: Any,
    Y: Any,
    a: Any = None,
    b: Any = None,
    cost: Any = "euclidean",
    epsilon: float = 1e-3,
    scale: str | None = "each",
    method: str | Solver = "auto",
    dim: Any = None,
    init: Any = "auto",
    max_iter: int | None = None,
    tol: float | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
    callback: Callable[[Step], Any] | None = None,
) -> Solution:
    """Match two weighted clouds by entropic Gromov-Wasserstein:

        min_π  Σ (c_X(x_i, x_k) - c_Y(y_j, y_l))² π_ij π_kl + ε KL(π | a⊗b)

    X, Y: (N, d) and (M, e) points, numpy or torch, or prepared `Space`s.  a, b: weights >= 0, None = uniform.
    cost: a name, a cost, a function, or a pair of them for X and for Y.
    epsilon: temperature, in units of the scaled costs, squared.
    scale: "each" divides each cost by its own unit (`Space.scale`: radius 1, as in the paper), "joint" divides both by the
        larger unit, None takes the costs as given.
    method: "cnt", "kernel", "multiscale", or a solver object with options; "auto" is "multiscale" from 3000 points, or "cnt".
        Those before: "entropic", "lowrank-cost", "lowrank", "sampled", "dual", "proximal", "proximal-kernel",
        "conditional-gradient". One epsilon means the same for all that have an entropy.
    dim: axes of the embedding, a share of variance in (0, 1), or a pair; None = 20, or N if there are fewer points.
    init: "auto" or `Search(...)` (a global search on coarse clouds), "zero", "random", `landmarks(pairs)`, a (D, E) matrix, an
        (N, M) plan, a map of N integers, an earlier Solution.
    max_iter, tol: outer steps (100), and the change of energy below which the loop stops (1e-5, in units of the scaled
        costs, squared, as epsilon); None = those of the method.
    device: where to compute. None: where the tensors are; numpy float32 arrays from 3000 points go to a GPU if there is one.
    callback: called with a `Step` after each outer step; return True to stop.

    Ctrl-C raises `Interrupted`, whose `state` is a start for another call: `solve(X, Y, init=error.state)`.

    >>> import numpy as np, gromap
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3)) * [3, 2, 1]
    >>> turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    >>> sol = gromap.solve(X, X[::-1] @ turn)            # a reversed, rotated copy
    >>> bool((sol.p2p_12 == np.arange(100)[::-1]).mean() > 0.95)
    True
    """
    eps = _check.positive(epsilon, "epsilon")
    x, y = spaces_of(X, Y, a, b, cost, dim, device, seed)
    solver = _solver(method, min(len(x), len(y)), max_iter, tol)
    needed = solver.memory(x, y)
    _check.memory(needed, x.device, f"{type(solver).__name__} on {len(x)} x {len(y)} points", solver.frugal)
    try:
        return _solve(x, y, eps, units_of(x, y, scale), solver, init, seed, Progress() if progress else None, callback, needed)
    except RuntimeError as error:
        if not isinstance(error, torch.cuda.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise MemoryError(
            f"out of memory on {x.device}: {len(x)} x {len(y)} points were to take about {needed / 2**30:.1f} GiB. Free some "
            f"memory there, pass another device=, or {solver.frugal}"
        ) from error


def _solve(
    x: Space,
    y: Space,
    eps: float,
    units: tuple[float, float],
    solver: Solver,
    init: Any,
    seed: int,
    show: Progress | None,
    callback: Callable[[Step], Any] | None,
    needed: int,
) -> Solution:
    """Embed, search, run, evaluate."""
    relative = x.scale * y.scale / (units[0] * units[1])
    loop = replace(solver.loop, tol=solver.loop.tol * relative)
    if isinstance(solver, CntGW | Multiscale | DualGW):
        x.warn_if_not_cnt()
        y.warn_if_not_cnt()
    clock = {"embed": -time.perf_counter()}
    if show:
        show(f"embedding {len(x)} and {len(y)} points on {x.device}, about {needed / 2**20:.0f} MiB")
    problem: Any = solver.problem(x, y, units, eps, seed)
    clock["embed"] += time.perf_counter()
    clock["search"] = -time.perf_counter()
    if show:
        show("looking for a good start")
    begin = start(init, problem, x, y, units, solver, loop, seed)
    clock["search"] += time.perf_counter()
    clock["solve"] = -time.perf_counter()

    def watch(step: Step) -> Any:
        if show:
            show.step(step, loop.max_iter)
        return callback(step) if callback is not None else None

    end = solver.descend(problem, problem.start(begin.gamma, begin.plan), begin.duals, loop, watch)
    g = end.duals.g
    f = half_step(end.score, problem.log_b, g)  # rows exact, columns reported
    near = end.score.near if isinstance(end.score, LowRank) else None
    if near and not bool(torch.isfinite(f).all()):
        f = half_step(whole(end.score), problem.log_b, g)  # points without mass may have no tiles
    if bool((problem.b == 0).any()):
        g = torch.where(problem.b > 0, g, half_step(whole(end.score).mT, problem.log_a, f))
    plan = Plan(end.score, f + problem.log_a, g + problem.log_b, problem.a, problem.b, x.numpy or y.numpy)
    loss, inner = problem.evaluate(end.gamma, plan)
    rows, cols = (s.double() for s in plan.sums)
    kl = inner + float(rows @ f.double() + cols @ g.double())
    clock["solve"] += time.perf_counter()
    gamma = problem.matrix(end.gamma, plan).to(x.dtype)
    if show:
        show.close()
    info: dict[str, Any] = {"method": solver.name, "engine": engine_name(end.score), "device": str(x.device)}
    found, minima = told(begin)
    info |= {"dtype": str(x.dtype), "memory": needed, "seconds": clock} | found
    if "embedding" in x.__dict__:
        info["explained"] = [x.explained, y.explained]
        info["spectrum"] = [[round(float(v), 9) for v in s.embedding.spectrum] for s in (x, y)]
    if isinstance(problem, LowRankCostProblem | SampledProblem | LowRankProblem):
        info["cost_error"] = problem.cost_error
    if near:
        info |= {"tiles": near.share, "neglected_mass": float(near.neglected)}
    return Solution(
        plan=plan,
        state=State(gamma) if problem.primal else State(gamma, eps * f, eps * g),
        value=loss + eps * kl,
        value_gw=loss,
        epsilon=eps,
        scale=units,
        status=end.status,
        history=_history(end.steps) | minima,
        info=info,
    )


def _solver(method: Any, points: int, max_iter: int | None, tol: float | None) -> Solver:
    if not isinstance(method, Solver):
        name = _check.choice(method, ["auto", *METHODS], "method")
        solver = (Multiscale if points >= LARGE else CntGW)() if name == "auto" else METHODS[name]
    else:
        solver = method
    loop = solver.loop
    if max_iter is not None:
        if not isinstance(max_iter, int | np.integer) or max_iter < 1:
            raise ValueError(f"max_iter must be an integer >= 1, got {max_iter!r}.")
        loop = replace(loop, max_iter=int(max_iter))
    if tol is not None:
        loop = replace(loop, tol=_check.positive(tol, "tol"))
    return (
        replace(solver, solver=replace(solver.solver, loop=loop))
        if isinstance(solver, Multiscale)
        else replace(solver, loop=loop)
    )


def _history(steps: list[Step]) -> dict[str, np.ndarray]:
    names = ("energy", "gamma_change", "marginal_error", "inner_steps", "seconds")
    return {name: np.array([getattr(step, name) for step in steps]) for name in names}

"""What `method=` accepts, as a solver."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from gromap import _check, _options
from gromap._pair import LARGE, Pair
from gromap.geometry.indexed_costs import Precomputed
from gromap.solvers import METHODS, CntGW, KernelGW, Multiscale, Solver
from gromap.solvers.sharpened import Sharpened

QUICK = 1000  # points between which linear programs take about a second


def sharpens(sharpen: Any, pair: Pair, plain: bool) -> bool:
    """Whether `sharpen=` asks for a sharp coupling, or None stands for one: between matrices,
    where the call is plain, without an epsilon and a method."""
    if sharpen is not None and not isinstance(sharpen, bool):
        raise TypeError(f"sharpen must be True, False, or None for those of matrices, got {sharpen!r}.")
    if sharpen is not None:
        return sharpen
    matrices = all(isinstance(s.cost, Precomputed) for s in (pair.x, pair.y))
    known = pair.fused is None and not pair.relaxed and find_spec("ot") is not None
    return plain and matrices and max(pair.shape) <= QUICK and known


def as_solver(
    method: Any, pair: Pair, max_iter: int | None = None, tol: float | None = None, sharpen: bool = False
) -> Solver:
    """A solver from its name or from itself, with the outer steps and the tolerance that are
    asked for."""
    if isinstance(method, str):
        name = _check.choice(method, ["auto", *METHODS], "method")
        solver = _auto(pair) if name == "auto" else METHODS[name]
    elif isinstance(method, Solver) and not isinstance(method, type):
        solver = method
    else:
        kind = f"the class {method.__name__}" if isinstance(method, type) else f"a {type(method).__name__}"
        known = ", ".join(map(repr, ["auto", *METHODS]))
        raise TypeError(f"method must be one of {known}, or a solver such as gromap.CntGW(...), got {kind}.")
    loop = solver.loop
    if max_iter is not None:
        loop = replace(loop, max_iter=_options.whole(max_iter, "max_iter"))
    if tol is not None:
        loop = replace(loop, tol=_check.positive(tol, "tol"))
    solver = solver if loop is solver.loop else solver.with_loop(loop)
    return Sharpened(solver) if sharpen else solver


def _auto(pair: Pair) -> Solver:
    """By size; and the exact costs where an embedding would leave out some of one."""
    if min(pair.shape) >= LARGE:
        return Multiscale()
    whole = all(s.is_cnt or s.axes_given for s in (pair.x, pair.y))
    return CntGW() if whole else KernelGW()

"""What `method=` accepts, as a solver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gromap import _check
from gromap._pair import LARGE, Pair
from gromap.solvers import METHODS, CntGW, Multiscale, Solver


def as_solver(method: Any, pair: Pair, max_iter: int | None = None, tol: float | None = None) -> Solver:
    """A solver from its name or from itself, with the outer steps and the tolerance that are
    asked for."""
    if isinstance(method, str):
        name = _check.choice(method, ["auto", *METHODS], "method")
        auto = Multiscale() if min(pair.shape) >= LARGE else CntGW()
        solver = auto if name == "auto" else METHODS[name]
    elif isinstance(method, Solver) and not isinstance(method, type):
        solver = method
    else:
        kind = f"the class {method.__name__}" if isinstance(method, type) else f"a {type(method).__name__}"
        known = ", ".join(map(repr, ["auto", *METHODS]))
        raise TypeError(f"method must be one of {known}, or a solver such as gromap.CntGW(...), got {kind}.")
    loop = solver.loop
    if max_iter is not None:
        if not _check.is_count(max_iter):
            raise ValueError(f"max_iter must be an integer >= 1, got {max_iter!r}.")
        loop = replace(loop, max_iter=int(max_iter))
    if tol is not None:
        loop = replace(loop, tol=_check.positive(tol, "tol"))
    return solver if loop is solver.loop else solver.with_loop(loop)

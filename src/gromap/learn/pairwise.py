"""All Gromov-Wasserstein values of a collection: one embedding and one self term per space, one
solve per pair.

    S_ij = GW_ε(i, j) - ½ GW_ε(i, i) - ½ GW_ε(j, j)      debiased: zero for equal shapes

All pairs share one unit of cost and one temperature, or their values could not be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gromap.learn.collection import Collection
from gromap.solvers.protocol import Callback


def pairwise(
    spaces: Sequence[Any],
    *,
    debias: bool = True,
    n_jobs: int | None = None,
    cost: Any = "euclidean",
    epsilon: float = 1e-3,
    scale: str | float | None = "joint",
    method: Any = "auto",
    dim: int | float | str = "auto",
    init: Any = "auto",
    tol: float | None = None,
    seed: int = 0,
    errors: str = "warn",
    path: str | Path | None = None,
    callback: Callback | None = None,
) -> np.ndarray:
    """The (K, K) matrix of GW values between all pairs, symmetric with a zero diagonal.

    The values are GW_ε, no root taken, in the data's own units: those of the cost, squared. Their
    roots are distances: ``np.sqrt(values.clip(min=0))``, as `gromap pairwise` writes them.

    Parameters
    ----------
    spaces
        `Space`s, or (N, d) arrays, for which `cost` and `dim` are used.
    debias
        Take half of each self term away, so that equal shapes are at 0; without it values keep
        the blur of the plan.
    n_jobs
        Processes, through joblib; -1 = one per core. None: as many as
        ``joblib.parallel_config`` says, else one. Its backends ("dask", "ray") are used too.
    epsilon
        Temperature, in units of the scaled costs, squared, as in `solve`.
    scale
        What all costs are divided by for that: "joint" = the largest unit among all spaces, a
        number, or None = 1. Values come back in the units of the data all the same.
    method, tol, seed
        As in `solve`, for all pairs.
    init
        "auto", `Search(...)`, "zero" or "random", for all pairs; self terms start from the
        identity.
    errors
        "warn": what fails, a space or a pair, is NaN, and named in a warning at the end. "raise":
        the first failure ends the call.
    path
        A .safetensors file that keeps what is finished; called again with it, the work goes on
        from there, and pairs that failed are tried again.
    callback
        Called with an `Event` after each pair; return True to stop, with NaN for the pairs that
        are left.

    Returns
    -------
    array
        (K, K) values, float64.

    Examples
    --------
    >>> import gromap
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 3)) * [3, 2, 1]
    >>> turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    >>> D = gromap.pairwise([X, X[::-1] @ turn, X * [1, 1, 2]], epsilon=0.01)
    >>> bool(D[0, 1] < 1e-3 * D[0, 2]), float(D.diagonal().max()), np.array_equal(D, D.T)
    (True, 0.0, True)
    """
    given: dict[str, Any] = {"cost": cost, "dim": dim, "epsilon": epsilon, "scale": scale, "method": method}
    given |= {"init": init, "tol": tol, "seed": seed, "debias": debias, "n_jobs": n_jobs, "errors": errors}
    return all_values(Collection.of(spaces, **given, path=path, callback=callback))


def all_values(collection: Collection) -> np.ndarray:
    """The values of all pairs of a collection, with a warning of what failed.  (K, K)"""
    wanted = np.concatenate([collection.own(), collection.pairs()])
    collection.solve(wanted, len(wanted))
    collection.warn()
    return collection.debiased()

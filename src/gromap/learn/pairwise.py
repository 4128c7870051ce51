"""All Gromov-Wasserstein values of a collection: one embedding and one self term per space, one
solve per pair.

    S_ij = GW_ε(i, j) - ½ GW_ε(i, i) - ½ GW_ε(j, j)      debiased: zero for equal shapes

All pairs share one unit of cost and one temperature, or their values could not be compared.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap._files import read, write
from gromap._progress import Event
from gromap._solve import solve
from gromap._space import Space
from gromap._stored import Stored
from gromap._torch import from_numpy
from gromap.solvers.protocol import Callback

SAVE_EVERY = 2.0  # seconds between two savings of what is finished


def pairwise(
    spaces: Sequence[Any],
    *,
    debias: bool = True,
    n_jobs: int = 1,
    cost: Any = "euclidean",
    epsilon: float = 1e-3,
    scale: str | float | None = "joint",
    dim: int | float | str = "auto",
    seed: int = 0,
    path: str | Path | None = None,
    callback: Callback | None = None,
) -> np.ndarray:
    """The (K, K) matrix of GW values between all pairs, symmetric with a zero diagonal.

    The values are GW_ε, no root taken, in the data's own units: those of the cost, squared. Their
    root is a distance.

    spaces: `Space`s, or (N, d) arrays, for which `cost` and `dim` are used.
    debias: take half of each self term away, so that equal shapes are at 0; without it values keep
    the blur of the plan.
    n_jobs: processes, through joblib; -1 = one per core.
    epsilon: temperature, in units of the scaled costs, squared, as in `solve`.
    scale: what all costs are divided by for that: "joint" = the largest unit among all spaces, a
        number, or None = 1. Values come back in the units of the data all the same.
    path: a .safetensors file that keeps what is finished; called again with it, the work goes on
    from there.
    callback: called with an `Event` after each pair; return True to stop, with NaN for the pairs
    that are left.

    >>> import gromap
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 3)) * [3, 2, 1]
    >>> turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    >>> D = gromap.pairwise([X, X[::-1] @ turn, X * [1, 1, 2]], epsilon=0.01)
    >>> bool(D[0, 1] < 1e-3 * D[0, 2]), float(D.diagonal().max()), np.array_equal(D, D.T)
    (True, 0.0, True)
    """
    eps = _check.positive(epsilon, "epsilon")
    all_spaces = [
        s if isinstance(s, Space) else Space(s, cost=cost, dim=dim, seed=seed, name=f"space {k}")
        for k, s in enumerate(spaces)
    ]
    if len(all_spaces) < 2:
        raise ValueError(f"pairwise compares at least 2 spaces, got {len(all_spaces)}.")
    if n_jobs != 1 and any(s.device.type != "cpu" for s in all_spaces):
        raise ValueError("spaces on a GPU are matched one after another, which keeps it busy: use n_jobs=1.")
    eps *= _common_unit(all_spaces, scale) ** 2
    count = len(all_spaces)
    wanted = [(i, j) for i, j in itertools.combinations_with_replacement(range(count), 2) if i != j or debias]
    key = _key(all_spaces, eps, debias, seed)
    values, settled = _resume(path, key, count)
    left = [(i, j) for i, j in wanted if np.isnan(values[i, j])]
    for k in sorted({k for pair in left for k in pair}):
        all_spaces[k].embedding  # noqa: B018 - computed here, once, and kept
    begin = saved = time.monotonic()
    try:
        for done, (i, j, value, converged) in enumerate(
            _solved(all_spaces, left, eps, seed, n_jobs), len(wanted) - len(left) + 1
        ):
            values[i, j] = values[j, i] = value
            settled[i, j] = settled[j, i] = converged
            if callback and callback(Event("pairwise", done, len(wanted), time.monotonic() - begin)):
                break
            if path is not None and time.monotonic() - saved > SAVE_EVERY:
                _keep(path, values, settled, key)
                saved = time.monotonic()
    finally:
        if path is not None and left:
            _keep(path, values, settled, key)
    unsettled = [pair for pair in wanted if not settled[pair] and not np.isnan(values[pair])]
    if unsettled:
        _check.warn(
            f"{len(unsettled)} of {len(wanted)} matches did not converge, the first is {unsettled[0]}: raise epsilon."
        )
    if debias:
        own = values.diagonal().copy()
        values = values - (own[:, None] + own) / 2
    np.fill_diagonal(values, 0.0)
    return values


def _common_unit(spaces: list[Space], scale: str | float | None) -> float:
    """What all costs are divided by."""
    if scale is None:
        return 1.0
    if isinstance(scale, str):
        _check.choice(scale, ["joint"], "scale (or None, or a number)")
        return max(s.scale for s in spaces)
    return _check.positive(scale, "scale")


def _solved(
    spaces: list[Space], pairs: list[tuple[int, int]], eps: float, seed: int, n_jobs: int
) -> Iterator[tuple[int, int, float, bool]]:
    if n_jobs == 1:
        yield from (_value(i, j, spaces[i], spaces[j], eps, seed) for i, j in pairs)
        return
    joblib = _check.extra("joblib", "cluster")
    tasks = (joblib.delayed(_value)(i, j, spaces[i], spaces[j], eps, seed) for i, j in pairs)
    yield from joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")(tasks)


def _value(i: int, j: int, x: Space, y: Space, eps: float, seed: int) -> tuple[int, int, float, bool]:
    """GW_ε of one pair; a space is matched with itself from the identity."""
    sol = solve(x, y, epsilon=eps, scale=None, init=np.arange(len(x)) if i == j else "auto", seed=seed)
    return i, j, sol.value, sol.converged


def _key(spaces: list[Space], eps: float, debias: bool, seed: int) -> str:
    """What tells two collections apart: points, weights, costs, options."""
    digest = hashlib.sha256(f"{eps:.6g} {debias} {seed}".encode())
    for space in spaces:
        few = space.measure.points[:64]
        facts = f"{type(space.cost).__name__} {space.dim} {space.scale:.6g} {float(space.cost(few, few).sum()):.6g}"
        digest.update(facts.encode())
        for t in (space.measure.points, space.measure.weights):
            digest.update(t.cpu().numpy().tobytes())
    return digest.hexdigest()


def _keep(path: str | Path, values: np.ndarray, settled: np.ndarray, key: str) -> None:
    """Save what is finished, with what another process has saved meanwhile."""
    try:
        saved, sure = _resume(path, key, len(values))
    except ValueError:  # of other spaces, or broken: the last to write wins
        saved, sure = values, settled
    missing = np.isnan(values)
    tensors = {"values": np.where(missing, saved, values), "settled": np.where(missing, sure, settled)}
    write(path, "pairwise", {name: from_numpy(array) for name, array in tensors.items()}, {"key": key})


def _resume(path: str | Path | None, key: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """What was finished before; NaN elsewhere."""
    if path is None or not Path(path).exists():
        return np.full((count, count), np.nan), np.zeros((count, count), bool)

    def build(tensors: dict[str, Tensor], facts: dict[str, Any]) -> tuple[np.ndarray, np.ndarray] | None:
        if Stored(tensors, facts).text("key") != key:
            return None
        values, settled = tensors["values"], tensors["settled"]
        if (values.dtype, settled.dtype) != (torch.float64, torch.bool):
            raise ValueError(f"its values are {values.dtype} and {settled.dtype}")
        if not tuple(values.shape) == tuple(settled.shape) == (count, count) or bool(values.isinf().any()):
            raise ValueError(f"its values are infinite or of shape {tuple(values.shape)}, expected {(count, count)}")
        return values.numpy().copy(), settled.numpy().copy()

    found = read(path, "pairwise", "cpu", build)
    if found is None:
        raise ValueError(f"{path} belongs to other spaces or other options: choose another path, or delete it.")
    return found

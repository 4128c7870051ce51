"""The nearest spaces of each in a collection, of which most pairs are never solved: a pair matters
only while what it cannot fall below (`bounds`) is no more than the k-th smallest value that one of
its two spaces has so far.

In each round every space asks for the pair that may be nearest; its bound is made tighter first,
and the pair is solved if it is asked for again (multi-step search, Seidl & Kriegel 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gromap import _check, _options
from gromap.learn.bounds import SLACK, profile, sorted_bounds, transport_bounds
from gromap.learn.collection import Collection
from gromap.solvers.protocol import Callback

BOUNDED = ("auto", "cnt", "multiscale", "kernel")  # methods whose values are of the costs that bounds know
REFINED = 8  # pairs of each space whose bounds are made tighter in one round


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The k nearest spaces of each, the nearest first."""

    indices: np.ndarray  #: (K, k) -1 where there are fewer, since pairs failed
    values: np.ndarray  #: (K, k) as of `pairwise`, NaN there
    solved: int  #: pairs that were solved, of
    pairs: int  #: so many
    failures: dict[tuple[int, ...], str] = field(default_factory=dict[tuple[int, ...], str])  #: as `pairwise` warns of

    @property
    def distances(self) -> np.ndarray:
        """The roots of the values.  (K, k)"""
        return np.sqrt(self.values.clip(min=0))

    @property
    def share(self) -> float:
        """Of all pairs, what was solved."""
        return self.solved / self.pairs

    def __repr__(self) -> str:
        spaces, k = self.indices.shape
        found = f"the {k} nearest of each of {spaces} spaces" if k > 1 else f"the nearest of each of {spaces} spaces"
        return f"gromap.Neighbors: {found}, {self.solved} of {self.pairs} pairs solved ({100 * self.share:.3g} %)"


def nearest(
    spaces: Sequence[Any],
    k: int = 5,
    *,
    debias: bool = True,
    n_jobs: int | None = None,
    cost: Any = "euclidean",
    epsilon: float = 1e-3,
    scale: str | float | None = "joint",
    method: str = "auto",
    dim: int | float | str = "auto",
    init: Any = "auto",
    tol: float | None = None,
    seed: int = 0,
    errors: str = "warn",
    path: str | Path | None = None,
    callback: Callback | None = None,
) -> Neighbors:
    """The k nearest spaces of each, as the whole matrix of `pairwise` would give them, of which
    only the pairs are solved that lower bounds cannot exclude.

    The bounds are those of `gromap.learn.bounds`, for the very values that `pairwise` gives: with
    weights, for any numbers of points, with the entropy and self terms.

    Parameters
    ----------
    spaces
        `Space`s, or (N, d) arrays.
    k
        How many neighbors each has; fewer than there are spaces.
    method
        "auto", "cnt", "multiscale" or "kernel".
    debias, n_jobs, cost, epsilon, scale, dim, init, tol, seed, errors, callback
        As in `pairwise`.
    path
        As in `pairwise`, which can go on from the same file.

    Returns
    -------
    Neighbors
        `indices`, `values`, `distances`, and the `share` of the pairs that were solved. After a
        callback that stopped it, the nearest among those that were.

    Examples
    --------
    >>> import gromap
    >>> rng = np.random.default_rng(0)
    >>> shapes = [rng.normal(size=(30, 3)) * [size, 1, 1] for size in (1, 1.1, 4, 4.4)]
    >>> found = gromap.nearest(shapes, 1, epsilon=0.01)
    >>> found.indices[:, 0], found.solved < 6
    (array([1, 0, 3, 2]), True)
    """
    _check.choice(method, BOUNDED, "method")
    given: dict[str, Any] = {"cost": cost, "dim": dim, "epsilon": epsilon, "scale": scale, "method": method}
    given |= {"init": init, "tol": tol, "seed": seed, "debias": debias, "n_jobs": n_jobs, "errors": errors}
    return find_nearest(Collection.of(spaces, **given, path=path, callback=callback), k)


def find_nearest(collection: Collection, k: int) -> Neighbors:
    """The k nearest of each space of a collection, with a warning of what failed."""
    k, count = _options.whole(k, "k"), len(collection)
    if k >= count:
        raise ValueError(f"k = {k} neighbors of each of {count} spaces: choose 1 <= k <= {count - 1}.")
    collection.embed(np.arange(count))
    total = len(collection.own()) + len(collection.pairs())
    collection.solve(collection.own(), total)
    bounds = Bounds(collection)
    while not collection.stopped:
        known = bounds.known()
        kth = np.partition(known, k - 1, axis=1)[:, k - 1]
        possible = np.where(bounds.open & (bounds.low <= kth[:, None]), bounds.low, np.inf)
        wanted = lowest(possible, np.maximum(1, k - np.isfinite(known).sum(1)))
        if not len(wanted):
            break
        if not bounds.refined[tuple(wanted.T)].all():
            bounds.refine(lowest(np.where(bounds.refined, np.inf, possible), np.full(count, REFINED)))
        else:
            collection.solve(wanted, total)
            bounds.open[tuple(wanted.T)] = bounds.open[tuple(wanted.T[::-1])] = False
    collection.warn()
    known = bounds.known()
    order = known.argsort(1, kind="stable")[:, :k]
    values = np.take_along_axis(known, order, 1)
    missing = np.isinf(values)
    off = ~np.isnan(collection.values[np.triu_indices(count, 1)])
    return Neighbors(
        np.where(missing, -1, order),
        np.where(missing, np.nan, values),
        int(off.sum()),
        count * (count - 1) // 2,
        collection.failures,
    )


def lowest(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """So many of the lowest finite entries of each row of a symmetric matrix, as pairs i < j, each
    once.  (P, 2)"""
    order = values.argsort(1, kind="stable")
    found = np.isfinite(np.take_along_axis(values, order, 1))
    found[np.arange(values.shape[1]) >= counts[:, None]] = False
    rows, places = np.nonzero(found)
    pairs = np.sort(np.stack([rows, order[rows, places]], 1), axis=1)
    return np.unique(pairs, axis=0)


class Bounds:
    """What the values of all pairs cannot fall below, tighter where it was asked for."""

    def __init__(self, collection: Collection):
        self.collection, count = collection, len(collection)
        self.eps = collection.options.eps
        alive = [k for k, s in enumerate(collection.spaces) if s is not None]
        self.open = np.zeros((count, count), bool)  # pairs that may still be solved
        self.open[np.ix_(alive, alive)] = True
        self.open &= np.isnan(collection.values) & ~np.eye(count, dtype=bool)
        self.own = np.zeros((count, count))
        if collection.debias:
            own = collection.values.diagonal()
            self.own = (own[:, None] + own) / 2
            self.open &= ~np.isnan(self.own)
        self.refined = ~self.open
        self.profiles = [
            {k: profile(s, exact) for k, s in enumerate(collection.spaces) if s is not None}
            for exact in self._costs(alive)
        ]
        raw = np.full((count, count), np.inf)
        for profiles in self.profiles:
            found = sorted_bounds(list(profiles.values())).cpu().numpy()
            raw[np.ix_(alive, alive)] = np.minimum(raw[np.ix_(alive, alive)], found)
        self.low = self._shifted(raw, self.own)

    def _costs(self, alive: list[int]) -> list[bool]:
        """Of which costs values may be: the exact ones, or those of the kept axes, or both."""
        method = self.collection.options.method
        spaces = [s for k in alive if (s := self.collection.spaces[k]) is not None]
        if method == "kernel":
            return [True]
        whole = all(s.is_cnt or s.axes_given for s in spaces)
        return [False] if whole or method != "auto" else [False, True]

    def refine(self, pairs: np.ndarray) -> None:
        """Tighter bounds for these pairs, (P, 2)."""
        i, j = pairs.T
        found = [
            transport_bounds([(profiles[i], profiles[j]) for i, j in pairs.tolist()], self.eps).numpy()
            for profiles in self.profiles
        ]
        better = np.maximum(self.low[i, j], self._shifted(np.minimum.reduce(found), self.own[i, j]))
        self.low[i, j] = self.low[j, i] = better
        self.refined[i, j] = self.refined[j, i] = True

    def known(self) -> np.ndarray:
        """The values that are known, infinite elsewhere and on the diagonal.  (K, K)"""
        values = self.collection.values - self.own
        np.fill_diagonal(values, np.inf)
        return np.where(np.isnan(values), np.inf, values)

    @staticmethod
    def _shifted(raw: np.ndarray, own: np.ndarray) -> np.ndarray:
        return (1 - SLACK) * raw - own

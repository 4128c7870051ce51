"""Gromov-Wasserstein by the conventions of scikit-learn (pip install 'gromap[sklearn]').

GromovAligner    a transformer that maps the points of a cloud into another one
GromovDistance   a transformer from clouds to their distances, for `metric="precomputed"`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch

from gromap import _check
from gromap._solve import solve
from gromap._space import Space
from gromap._torch import split
from gromap.geometry.costs import as_cost
from gromap.learn.collection import Collection
from gromap.learn.pairwise import all_values

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.validation import (  # pyright: ignore[reportMissingModuleSource]
        _check_sample_weight,
        check_is_fitted,
        validate_data,
    )
except ImportError as error:
    raise ImportError(f"gromap.sklearn needs scikit-learn ({error}): pip install 'gromap[sklearn]'") from error

FLOATS: Any = (np.float64, np.float32)
ROWS = 1 << 22  # pairs of points whose distances are compared at a time


class GromovAligner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Map the points of a cloud into another one, whose distances they match.

    Parameters
    ----------
    target
        (M, e) points; None takes the `y` of `fit`.
    cost, epsilon, scale, method, dim, init, reach
        As in `gromap.solve`.
    n_neighbors
        How many fitted points say where a new point goes, the nearest ones, by the inverse of their
        distance; a fitted point goes where it went.
    random_state
        Of the random starts.

    Attributes
    ----------
    solution_
        The `gromap.Solution` of the fit: `solution_.plan`, `.map()`, `.value`.
    images_
        Where the fitted points go: means of where their mass goes.  (N, e)

    Examples
    --------
    >>> import numpy as np
    >>> from gromap.sklearn import GromovAligner
    >>> X = np.random.default_rng(0).normal(size=(80, 3)) * [3, 2, 1]
    >>> turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    >>> aligner = GromovAligner(target=X[::-1] @ turn).fit(X)
    >>> bool(np.abs(aligner.transform(X) - X @ turn).mean() < 0.1)
    True
    """

    def __init__(
        self,
        target: Any = None,
        *,
        cost: Any = "euclidean",
        epsilon: float | None = None,
        scale: str | float | None = "auto",
        method: Any = "auto",
        dim: Any = "auto",
        init: Any = "auto",
        reach: Any = None,
        n_neighbors: int = 5,
        random_state: Any = 0,
    ):
        self.target = target
        self.cost = cost
        self.epsilon = epsilon
        self.scale = scale
        self.method = method
        self.dim = dim
        self.init = init
        self.reach = reach
        self.n_neighbors = n_neighbors
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Match X to the target.  sample_weight: of the points of X, (N,)."""
        X = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        target = y if self.target is None else self.target
        if target is None:
            raise ValueError("GromovAligner has no target: pass target=Y to it, or call fit(X, Y).")
        target = check_array(target, dtype=FLOATS, ensure_min_samples=2, input_name="target")
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        names = "cost", "epsilon", "scale", "method", "dim", "init", "reach"
        options: dict[str, Any] = {name: getattr(self, name) for name in names}
        self._costs = tuple(as_cost(cost) for cost in _check.pair(self.cost))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.solution_ = solve(X, target, weights, seed=seed, **options)
        self.images_ = self.solution_.plan.conditional_mean(target).astype(X.dtype)
        self._forth = self._regressor(X, self.images_)
        self._back = self._regressor(target, self.solution_.plan.T.conditional_mean(X).astype(X.dtype))
        self._n_features_out = target.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Points of the space of X in that of the target.  (n, e)"""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        return self._forth.predict(X).astype(X.dtype)

    def inverse_transform(self, Y: Any) -> np.ndarray:
        """Points of the target's space in that of X.  (n, d)"""
        check_is_fitted(self)
        Y = check_array(Y, dtype=FLOATS, input_name="Y")
        if Y.shape[1] != self._n_features_out:
            raise ValueError(f"Y has {Y.shape[1]} features, the target {self._n_features_out}.")
        return self._back.predict(Y).astype(Y.dtype)

    def score(self, X: Any, y: Any = None) -> float:
        """How well `transform` keeps the distances within X: -E (c(x, x') - c(Tx, Tx'))², in the
        units of the scaled costs; higher is better, 0 is an isometry."""
        images = torch.as_tensor(self.transform(X)).double()
        points = torch.as_tensor(validate_data(self, X, dtype=FLOATS, reset=False)).double()
        (cx, cy), (ux, uy), total = self._costs, self.solution_.scale, 0.0
        for i in split(torch.arange(len(points)), max(1, ROWS // len(points))):
            gap = cx(points[i], points) / ux - cy(images[i], images) / uy
            total += float(gap.square().sum())
        return -total / len(points) ** 2

    def _regressor(self, X: np.ndarray, images: np.ndarray) -> KNeighborsRegressor:
        return KNeighborsRegressor(min(self.n_neighbors, len(X)), weights="distance").fit(X, images)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.target_tags.required = self.target is None
        return tags


class GromovDistance(TransformerMixin, BaseEstimator):
    """Gromov-Wasserstein distances of clouds to those of the fit: roots of the debiased values of
    `gromap.pairwise`, in the units of the data.

    X is a list of (N_i, d_i) arrays or `Space`s, of any lengths and dimensions.

    Parameters
    ----------
    cost, epsilon, method, dim
        As in `gromap.pairwise`; its unit is that of the fitted clouds.
    random_state
        An integer, for the random starts.
    n_jobs
        Processes, through joblib.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from gromap.sklearn import GromovDistance
    >>> rng = np.random.default_rng(0)
    >>> clouds = [rng.normal(size=(30, 2)) * [size, 1] for size in (1, 1.1, 4, 4.4)]
    >>> nearest = KNeighborsClassifier(1, metric="precomputed")
    >>> model = make_pipeline(GromovDistance(epsilon=0.01), nearest).fit(clouds, [0, 0, 1, 1])
    >>> model.predict([rng.normal(size=(25, 2)) * [4, 1]])
    array([1])
    """

    def __init__(
        self,
        *,
        cost: Any = "euclidean",
        epsilon: float = 1e-3,
        method: Any = "auto",
        dim: Any = "auto",
        random_state: int = 0,
        n_jobs: int | None = None,
    ):
        self.cost = cost
        self.epsilon = epsilon
        self.method = method
        self.dim = dim
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Sequence[Any], y: Any = None) -> Self:
        """Keep the clouds, and their largest unit."""
        self.spaces_ = self._spaces(X)
        self.unit_ = max(space.scale for space in self.spaces_)
        return self

    def transform(self, X: Sequence[Any]) -> np.ndarray:
        """The distances of these clouds to those of the fit.  (k, K)"""
        check_is_fitted(self)
        new, old = self._spaces(X), self.spaces_
        collection = self._collection([*new, *old])
        i, j = np.indices((len(new), len(old))).reshape(2, -1)
        wanted = np.concatenate([collection.own(), np.stack([i, j + len(new)], 1)])
        collection.solve(wanted, len(wanted))
        return _roots(collection.debiased()[: len(new), len(new) :])

    def fit_transform(self, X: Sequence[Any], y: Any = None) -> np.ndarray:
        """The distances between all clouds, symmetric with a zero diagonal.  (K, K)"""
        self.fit(X)
        return _roots(all_values(self._collection(self.spaces_)))

    def _spaces(self, X: Sequence[Any]) -> list[Space]:
        given = enumerate(X)
        how: dict[str, Any] = {"cost": self.cost, "dim": self.dim, "seed": self.random_state}
        return [z if isinstance(z, Space) else Space(z, name=f"cloud {k}", **how) for k, z in given]

    def _collection(self, spaces: list[Space]) -> Collection:
        how: dict[str, Any] = {"cost": self.cost, "dim": self.dim, "epsilon": self.epsilon, "scale": self.unit_}
        how |= {"method": self.method, "init": "auto", "tol": None, "seed": self.random_state}
        return Collection.of(spaces, **how, n_jobs=self.n_jobs, errors="raise")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # a list of clouds
        tags.no_validation = True
        return tags


def _roots(values: np.ndarray) -> np.ndarray:
    """Distances; rounding errors may leave values of equal clouds below zero."""
    return np.sqrt(values.clip(min=0.0))

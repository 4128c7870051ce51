"""Random pairs of weighted spaces, with costs, methods and temperatures that fit together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import gromap
from gromap.solvers import METHODS

COSTS: dict[str, Any] = {
    "euclidean": "euclidean",
    "sqeuclidean": "sqeuclidean",
    "root": gromap.Power(0.5),
    "cubic": gromap.Power(3),
    "gaussian": gromap.Gaussian(1.5),
    "exponential": gromap.Exponential(1.0),
    "spherical": "spherical",
    "hyperbolic": "hyperbolic",
    "precomputed": "precomputed",
}
HOMOGENEOUS = ("euclidean", "sqeuclidean", "root", "cubic")  # c(t x, t x') = t^p c(x, x')
NOT_CNT = ("cubic", "precomputed")


@dataclass(frozen=True)
class Problem:
    x: np.ndarray
    y: np.ndarray
    a: np.ndarray
    b: np.ndarray
    cost: str
    method: str
    epsilon: float

    def solve(self, **options: Any) -> gromap.Solution:
        base = {
            "cost": COSTS[self.cost],
            "epsilon": self.epsilon,
            "method": self.method,
            "init": "zero",
            "max_iter": 12,
        }
        return gromap.solve(self.x, self.y, self.a, self.b, **base | options)

    def with_(self, **parts: Any) -> Problem:
        return replace(self, **parts)


def points(rng: np.random.Generator, n: int, d: int, cost: str) -> np.ndarray:
    """A cloud without symmetries, in the domain of a cost; a matrix for "precomputed"."""
    z = rng.normal(size=(n, d)) * np.linspace(2.0, 0.7, d) + 0.4
    z[:, 0] += 0.3 * z[:, -1] ** 2
    if cost == "spherical":
        return z / np.linalg.norm(z, axis=1, keepdims=True)
    if cost == "hyperbolic":
        return 0.9 * z / (1 + np.linalg.norm(z, axis=1, keepdims=True))
    if cost == "precomputed":
        return np.abs(z[:, None] - z).sum(-1) ** 0.8
    return z


@st.composite
def problems(
    draw: st.DrawFn, costs: tuple[str, ...] = tuple(COSTS), methods: tuple[str, ...] = tuple(METHODS)
) -> Problem:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m = draw(st.integers(2, 14)), draw(st.integers(2, 14))
    cost, epsilon = draw(st.sampled_from(costs)), draw(st.sampled_from([0.05, 0.2, 1.0]))
    x, y = (points(rng, k, draw(st.integers(2, 3)), cost) for k in (n, m))
    a, b = (0.2 + rng.random(k) for k in (n, m))
    return Problem(x, y, a, b, cost, draw(st.sampled_from(methods)), epsilon)

"""Problems whose answer is known in closed form, each a generator: `for problem in two_points():
...`"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from tests.conftest import cloud, rotation


@dataclass(frozen=True)
class Known:
    """Clouds and weights, what to pass to `solve`, and the answer."""

    name: str
    X: np.ndarray
    Y: np.ndarray
    a: np.ndarray
    b: np.ndarray
    options: dict[str, Any]
    value: float | None = None  #: GW_ε
    value_gw: float | None = None  #: L(π) as ε -> 0
    match: np.ndarray | None = None  #: where each point of X goes


def two_points() -> Iterator[Known]:
    """{0, d} and {0, e} with weights (p, 1-p), (q, 1-q): couplings have one parameter t = π_00,
    so that

    L = d² P(x≠x') + e² P(y≠y') - 4 d e (π_00 π_11 + π_01 π_10),     GW_ε = min_t L + ε KL(π | a⊗b)
    """
    for (d, e), (p, q), eps in itertools.product(((1.0, 1.0), (2.0, 0.5)), ((0.5, 0.5), (0.3, 0.6)), (0.5, 0.05)):
        a, b = np.array([p, 1 - p]), np.array([q, 1 - q])

        def energy(t: float, a=a, b=b, d=d, e=e, eps=eps) -> float:
            pi = np.array([[t, a[0] - t], [b[0] - t, 1 - a[0] - b[0] + t]])
            both = 2 * (pi[0, 0] * pi[1, 1] + pi[0, 1] * pi[1, 0])
            loss = 2 * d**2 * a.prod() + 2 * e**2 * b.prod() - 2 * d * e * both
            alive = pi > 0
            return loss + eps * float((pi[alive] * np.log(pi[alive] / np.outer(a, b)[alive])).sum())

        low, high = max(0.0, p + q - 1), min(p, q)
        grid = np.linspace(low, high, 2001)
        start = grid[np.argmin([energy(t) for t in grid])]
        width = (high - low) / 1000
        bounds = max(low, start - width), min(high, start + width)
        best = minimize_scalar(energy, bounds=bounds, method="bounded", options={"xatol": 1e-12})
        x, y = np.array([[0.0], [d]]), np.array([[0.0], [e]])
        yield Known(
            f"d={d} e={e} p={p} q={q} eps={eps}", x, y, a, b, {"epsilon": eps, "scale": None}, value=float(best.fun)
        )


def isometric_copies() -> Iterator[Known]:
    """A turned, shifted, reordered copy: the map is known, and L vanishes with ε."""
    for cost, d in itertools.product(("euclidean", "sqeuclidean"), (2, 3)):
        x, a = cloud(30, d, seed=d)
        order = np.random.default_rng(d).permutation(30)
        y = (x @ rotation(d) + 5.0)[order]
        options = {"cost": cost, "epsilon": 1e-4}
        yield Known(f"{cost} in {d}-d", x, y, a, a[order], options, value_gw=0.0, match=np.argsort(order))


def scaled_copies() -> Iterator[Known]:
    """y = s x under |x - x'|^p: L(π) >= (|c_X| - |c_Y|)² in L²(π⊗π), which the copy reaches: L =
    (1 - s^p)² E c²."""
    for p, s in itertools.product((1.0, 2.0), (0.5, 1.5)):
        x, a = cloud(25, 3, seed=4)
        order = np.random.default_rng(0).permutation(25)
        weights = a / a.sum()
        c = np.linalg.norm(x[:, None] - x, axis=2) ** p
        unit = float(weights @ c**2 @ weights)
        options = {"cost": "euclidean" if p == 1 else "sqeuclidean", "epsilon": 2e-4 * unit, "scale": None}
        known = (1 - s**p) ** 2 * unit
        yield Known(f"p={p} s={s}", x, (s * x)[order], a, a[order], options, value_gw=known, match=np.argsort(order))


def gaussians() -> Iterator[Known]:
    """Gaussian quadratures N(0, D₀) and N(0, D₁) under squared norms (Delon, Desolneux & Salmona
    2022):

        GW >= 4 (tr D₀ - tr D₁)² + 4 (|D₀| - |D₁|)² + 4 |D₀ - D₁|²
        GW <= 4 (tr D₀ - tr D₁)² + 8 |D₀ - D₁|²

    Both agree where D₁ = s² D₀; here the upper bound is the value of the linear map, up to ε.
    """
    nodes, mass = np.polynomial.hermite_e.hermegauss(7)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    weights = np.outer(mass, mass).ravel()
    for d0, d1 in (((2.0, 1.0), (1.0, 0.5)), ((3.0, 1.0), (1.5, 0.5))):
        before, after = np.array(d0), np.array(d1)
        value = 4 * (before.sum() - after.sum()) ** 2 + 8 * ((before - after) ** 2).sum()
        x, y = grid * np.sqrt(before), (grid * np.sqrt(after)) @ rotation(2)
        options = {"cost": "sqeuclidean", "scale": None, "epsilon": 0.02}
        yield Known(f"{d0} to {d1}", x, y, weights, weights, options, value_gw=float(value), match=np.arange(49))

"""Scores that put solvers on the same footing: exact losses of couplings with exact marginals, in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from gromap import Solution, Space

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def pairwise_distances(x: Array, y: Array) -> Array:
    """|x_i - y_j|, from the differences themselves: exact zeros on the diagonal.  (N, M)"""
    return cdist(x, y).astype(np.float64, copy=False)


def round_to_marginals(pi: Array, a: Array, b: Array) -> Array:
    """The coupling of a and b nearest to a non-negative matrix, up to a factor (Altschuler, Weed & Rigollet 2017, Alg. 2)."""
    rows = pi.sum(1)
    pi = pi * np.divide(a, rows, out=np.ones_like(a), where=rows > a)[:, None]
    cols = pi.sum(0)
    pi = pi * np.divide(b, cols, out=np.ones_like(b), where=cols > b)
    missing_a, missing_b = a - pi.sum(1), b - pi.sum(0)
    mass = np.abs(missing_a).sum()
    return pi + np.outer(missing_a, missing_b) / mass if mass > 0 else pi


def gw_loss(cx: Array, cy: Array, pi: Array) -> float:
    """L(π) = Σ (cx_ik - cy_jl)² π_ij π_kl, in float64.  O(N M (N + M))"""
    a, b = pi.sum(1), pi.sum(0)
    return float(a @ cx**2 @ a + b @ cy**2 @ b - 2 * ((cx @ pi @ cy) * pi).sum())


def marginal_error(pi: Array, a: Array, b: Array) -> float:
    """Misplaced mass, rows plus columns, in L1."""
    return float(np.abs(pi.sum(1) - a).sum() + np.abs(pi.sum(0) - b).sum())


def exact_objective(sol: Solution, x: Space, y: Space) -> float:
    """L + ε KL of the coupling next to the plan, with the Euclidean distances themselves."""
    a, b = (np.asarray(s.measure.weights.cpu(), dtype=np.float64) for s in (x, y))
    points = (s.measure.points.double().cpu().numpy() for s in (x, y))
    cx, cy = (pairwise_distances(p, p) / t for p, t in zip(points, sol.scale, strict=True))
    pi = round_to_marginals(sol.plan.matrix().double().cpu().numpy(), a / a.sum(), b / b.sum())
    alive = pi > 0
    return gw_loss(cx, cy, pi) + sol.epsilon * float((pi[alive] * np.log(pi[alive] / np.outer(a, b)[alive])).sum())

"""Scores that put solvers on the same footing: exact losses of couplings with exact marginals, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from gromap import Plan, Solution, Space
from gromap.engine import whole
from gromap.sinkhorn import Potentials, Sinkhorn, half_step, sinkhorn

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


def settled(plan: Plan, steps: int = 1000, tol: float = 1e-4) -> Plan:
    """The plan of the same score after further Sinkhorn steps, until it misplaces less than `tol` of the mass.

    A plan that stops short of its marginals looks better than any coupling, and pays for it when it is rounded to one: both
    hide which minimum a solver found.

    >>> import gromap
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> sol = gromap.solve(X, X[:30], method="entropic", init="zero", max_iter=2)
    >>> settled(sol.plan).marginal_error <= 2e-4
    True
    """
    log_a, log_b = plan.a.log(), plan.b.log()
    f, g = (torch.where(w > 0, z - w.log(), 0.0) for z, w in ((plan.u, plan.a), (plan.v, plan.b)))
    score: Any = whole(plan.score)
    end = sinkhorn(score, log_a, log_b, Potentials(f, g), Sinkhorn(steps, tol))
    return replace(plan, score=score, u=half_step(score, log_b, end.g) + log_a, v=end.g + log_b)


def exact_objective(sol: Solution, x: Space, y: Space) -> float:
    """L + ε KL of the coupling that the plan settles to, with the Euclidean distances themselves."""
    a, b = (np.asarray(s.measure.weights.cpu(), dtype=np.float64) for s in (x, y))
    points = (s.measure.points.double().cpu().numpy() for s in (x, y))
    cx, cy = (pairwise_distances(p, p) / t for p, t in zip(points, sol.scale, strict=True))
    pi = round_to_marginals(settled(sol.plan).matrix().double().cpu().numpy(), a / a.sum(), b / b.sum())
    alive = pi > 0
    return gw_loss(cx, cy, pi) + sol.epsilon * float((pi[alive] * np.log(pi[alive] / np.outer(a, b)[alive])).sum())

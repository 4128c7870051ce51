"""Figures by which solvers can be compared: exact objectives of couplings with exact marginals,
in float64."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from gromap import Plan, Solution, Space
from gromap._plan import round_to
from gromap.transport.marginals import Marginals, half_step
from gromap.transport.sinkhorn import Potentials, Sinkhorn, sinkhorn

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def pairwise_distances(x: Array, y: Array) -> Array:
    """|x_i - y_j|, from the differences themselves: exact zeros on the diagonal.  (N, M)"""
    return cdist(x, y).astype(np.float64, copy=False)


def feasible(pi: Array, a: Array, b: Array) -> Array:
    """A coupling of a and b next to a plan of about these marginals (`gromap._plan.round_to`)."""
    return round_to(*map(torch.from_numpy, (pi, a, b))).numpy()


def dense_objective(cx: Array, cy: Array, pi: Array) -> float:
    """L(π) = Σ (cx_ik - cy_jl)² π_ij π_kl, in float64.  O(N M (N + M))"""
    a, b = pi.sum(1), pi.sum(0)
    return float(a @ cx**2 @ a + b @ cy**2 @ b - 2 * ((cx @ pi @ cy) * pi).sum())


def marginal_error(pi: Array, a: Array, b: Array) -> float:
    """Misplaced mass, rows plus columns, in L1."""
    return float(np.abs(pi.sum(1) - a).sum() + np.abs(pi.sum(0) - b).sum())


def settled(plan: Plan, steps: int = 1000, tol: float = 1e-4) -> Plan:
    """The plan of the same score after further Sinkhorn steps, until it misplaces less than
    `tol` of the mass.

    A plan that misses its marginals has a lower energy than any coupling, and a higher one once it
    is rounded to a coupling: either way one cannot see which minimum a solver found.

    >>> import gromap
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> sol = gromap.solve(X, X[:30], method="entropic", init="zero", max_iter=2)
    >>> settled(sol.plan).marginal_error <= 2e-4
    True
    """
    log_a, log_b = plan.a.log(), plan.b.log()
    score = plan.score.full
    end = sinkhorn(score, Marginals(log_a, log_b), Potentials(*plan.potentials), Sinkhorn(steps, tol))
    return Plan.from_potentials(score, half_step(score, log_b, end.g), end.g, plan.a, plan.b, plan.numpy)


def exact_objective(sol: Solution, x: Space, y: Space) -> float:
    """L + ε KL of the coupling that the plan settles to, with the Euclidean distances
    themselves."""
    a, b = (np.asarray(s.measure.weights.cpu(), dtype=np.float64) for s in (x, y))
    points = (s.measure.points.double().cpu().numpy() for s in (x, y))
    cx, cy = (pairwise_distances(p, p) / t for p, t in zip(points, sol.scale, strict=True))
    pi = feasible(settled(sol.plan).matrix().double().cpu().numpy(), a / a.sum(), b / b.sum())
    alive = pi > 0
    kl = float((pi[alive] * np.log(pi[alive] / np.outer(a, b)[alive])).sum())
    return dense_objective(cx, cy, pi) + sol.epsilon * kl

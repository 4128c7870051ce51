"""The last digits of a small transport problem: Newton's method on the semi-dual.

Where the plan is almost a permutation, mass crosses from one part of it to another through entries
that are next to zero, and Sinkhorn takes thousands of steps to move the last thousandth. With the
rows of π exact, f = f(g), the dual is concave in g alone, with

    gradient   b - c                         c: the column sums of π
    Hessian    -(diag(c) - πᵀ diag(1/a) π)   singular along constants, which change nothing

and a handful of dense factorizations finishes it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gromap._torch import untyped
from gromap.transport.score import Score

MAX_STEPS = 30
FARTHEST = 5.0  # nats that a potential may move in one step
HALVINGS = 6


def newton(score: Score, log_a: Tensor, log_b: Tensor, g: Tensor, tol: float) -> Tensor:
    """g with which rows are exact and columns misplace less than `tol`, or as little as can be
    reached. For one problem, whose (N, M) plan is written down in float64.  (M,)

    >>> from gromap.transport import Dense
    >>> log = torch.full((3,), 1 / 3, dtype=torch.float64).log()
    >>> g = newton(Dense(torch.arange(9.0).view(3, 3)), log, log, torch.zeros_like(log), 1e-12)
    >>> (g - g.mean()).numpy().round(6) + 0.0
    array([ 1.,  0., -1.])
    """
    alive = torch.isfinite(log_a)[:, None] & torch.isfinite(log_b)
    s = (score.dense().double() + log_a.double()[:, None] + log_b.double()).masked_fill(~alive, -torch.inf)
    a, b, best = log_a.double().exp(), log_b.double().exp(), g.double()
    plan, error = _plan(s, a, b, best)
    for _ in range(MAX_STEPS):
        if error <= tol:
            break
        c = plan.sum(0)
        inverse = torch.where(a > 0, 1 / a, 0.0)
        curvature = -(plan.mT @ (inverse[:, None] * plan))
        curvature.diagonal().add_(c + 1e-14 + (b == 0))
        curvature.add_(torch.outer(c, c))  # holds the constant
        factor, failed = untyped.linalg.cholesky_ex(curvature)
        if bool(failed):
            break
        move: Tensor = untyped.cholesky_solve((b - c)[:, None], factor)[:, 0]
        size = min(1.0, FARTHEST / max(float(move.abs().max()), 1e-300))
        for _ in range(HALVINGS):
            there = best + size * move
            other, worse = _plan(s, a, b, there)
            if worse < error:
                break
            size /= 2
        else:
            break
        best, plan, error = there, other, worse
    return best.to(g)


def _plan(s: Tensor, a: Tensor, b: Tensor, g: Tensor) -> tuple[Tensor, float]:
    """The plan with exact rows, and the mass that its columns misplace."""
    plan = torch.softmax(s + g, 1).nan_to_num(nan=0.0) * a[:, None]
    return plan, float((plan.sum(0) - b).abs().sum())

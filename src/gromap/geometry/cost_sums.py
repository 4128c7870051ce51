"""Sums over all pairs of one cloud's costs, tile by tile: no N x N array.

    cost_apply(cost, x, y, w)     (N, w)  Σ_j c(x_i, y_j) w_j                   Kernel-PCA, -Proj
    cost_gradient(cost, x, a, w)  (N, d)  Σ_k (a_i a_k c_ik + w_ik) ∂c_ik/∂x_i  EGW-Grad

On a CUDA device the sums of radial costs of float32 points go to a fused kernel.

A cost that is NaN or infinite for one pair shows in the sums: `check_sums` looks there, and for the
pair only if it has to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gromap._threads import side_by_side
from gromap.geometry.costs import Radial, distances
from gromap.transport.backend import fused_for
from gromap.transport.score import Score
from gromap.transport.tiles import shared, tiling

TEMPORARIES = 6  # of the size of a block, in the gradient of a sum

CostFunction = Callable[[Tensor, Tensor], Tensor]  # (n, d) and (m, d) points to an (n, m) block
Pullback = Callable[[Tensor], Tensor]  # from (n, m) weights to Σ_k weight_ik ∂c(x_i, y_k)/∂x_i, (n, d)


def cost_apply(cost: CostFunction, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Σ_j c(x_i, y_j) w_j.  (N, w)

    Blocks are computed in the precision of the cost and added up in that of w.
    """
    radial = getattr(cost, "radial", None)
    if radial is not None and fused_for(x):
        from gromap.geometry import kernels

        return kernels.cost_apply(radial[0], radial[1], x, y, w)
    out = w.new_zeros(len(x), w.shape[-1])
    _, rows, cols = tiling(1, len(x), len(y), w)

    def work(mine: Sequence[slice]) -> None:
        for i, j in itertools.product(mine, cols):
            block = cost(x[i], y[j])
            out[i] += block @ w[j].to(block.dtype)

    side_by_side(work, shared(rows, w))
    return out


class BadCostError(ValueError):
    """A cost is NaN or infinite between a point and one or more others."""

    def __init__(self, point: Tensor, other: Tensor, pairs: int):
        """other: the first of those.  pairs: how many there are."""
        self.point, self.other, self.pairs = point, other, pairs
        super().__init__(f"the cost is NaN or infinite for {pairs} pairs of the point {point.cpu().numpy()}.")


def check_sums(sums: Tensor, cost: CostFunction, x: Tensor, y: Tensor) -> None:
    """Raise BadCostError for the point with the most bad costs if the sums of c(x_i, y_j) over j
    show that there are any."""
    if bool(torch.isfinite(sums).all()):
        return
    ones = torch.ones(len(y), 1, dtype=torch.float64, device=y.device)
    bad = cost_apply(lambda x, y: (~torch.isfinite(cost(x, y))).double(), x, y, ones)[:, 0]
    if not bool(bad.any()):
        raise ValueError("the costs are finite, but so large that their sums are not: divide them, or the points.")
    worst = x[bad.argmax()]
    raise BadCostError(worst, y[(~torch.isfinite(cost(worst[None], y))[0]).nonzero()[0, 0]], int(bad.max()))


def cost_gradient(cost: CostFunction, x: Tensor, a: Tensor, w: Score) -> Tensor:
    """Σ_k (a_i a_k c_ik + w_ik) ∂c(x_i, x_k)/∂x_i.  (N, d)"""
    out = torch.zeros_like(x)
    _, rows, cols = tiling(1, len(x), len(x), x, TEMPORARIES)
    for i in rows:
        for j in cols:
            c, pullback = _radial(cost, x[i], x[j]) if isinstance(cost, Radial) else _by_autograd(cost, x[i], x[j])
            weight = w.entries(slice(None), i, j)[0]
            out[i] += pullback(torch.addcmul(weight, c * a[i, None], a[j]).to(c.dtype))
    return out


def _radial(cost: Radial, x: Tensor, y: Tensor) -> tuple[Tensor, Pullback]:
    """The derivative φ'(d) (x - y) / d, coordinate by coordinate, from differences; zero where
    two points coincide.

    Written out: the backward pass of torch.cdist is less precise in float32.
    """
    d = distances(x, y)
    c = cost.profile(d)
    apart = d.clamp(min=torch.finfo(d.dtype).tiny ** 0.5)  # squares below are not numbers any more

    def pullback(weight: Tensor) -> Tensor:
        force = cost.slope(apart, c).div_(apart).mul_(weight)
        return torch.stack([(s[:, None] - t).mul_(force).sum(1) for s, t in zip(x.mT, y.mT, strict=True)], 1)

    return c, pullback


def _by_autograd(cost: CostFunction, x: Tensor, y: Tensor) -> tuple[Tensor, Pullback]:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        c = cost(x, y)
    if not c.requires_grad:
        raise TypeError(
            "the cost has no derivative with respect to the points: compute it with differentiable torch operations, "
            "or detach the points if you do not need their gradient."
        )
    return c.detach(), lambda weight: torch.autograd.grad(c, x, weight)[0]

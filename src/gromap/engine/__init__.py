"""The engine: every N x M object of the paper, seen through a few reductions. Nothing above knows about tiles.

    lse(score, v)              (N,)       log Σ_j exp(s_ij + v_j)        Sinkhorn half step, Interpolate, EOT-DualLoss
    sums(score, u, v)          (N,), (M,) row and column sums of π       Sinkhorn-symm with one exp per pair
    apply(score, u, v, w)      (N, w)     Σ_j π_ij w_j                   Γ update, transfer, marginals
    topk(score, v, k)          (N, k) x2  largest s_ij + v_j, columns    sparse plans
    argmax(score, v)           (N,)       column of the largest          hard matching, k-means assignment
    cost_apply(cost, x, y, w)  (N, w)     Σ_j c(x_i, y_j) w_j            kernel PCA, Kernel-Proj
    cost_gradient(cost, x, a, w) (N, d)   Σ_k (a_i a_k c_ik + w_ik) ∂c_ik/∂x_i    EGW-Grad

with π_ij = exp(s_ij + u_i + v_j) and a score that is `LowRank(q, k)`, a dense tensor, or a `Mixture(q, k)`. For sums
over i, hand in `score.mT`. Only `lse` is differentiable: its backward is `apply`, to first order.

Low-rank float32 scores on a CUDA device go to the fused kernels of triton.py where Triton is there, mixtures to the closed
forms of mixture.py, all else to tiles.py.
`focus(score, f, g, ...)` finds the tiles that matter at given potentials (truncation.py); `lse`, `sums` and `apply` then visit
these alone. `kept(score)` is a small score on a CPU whose `sums` are asked for again and again (kept.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gromap.engine import mixture, tiles
from gromap.engine.backend import backend, fused_for
from gromap.engine.kept import Kept, kept
from gromap.engine.replay import Replay
from gromap.engine.score import Grid, LowRank, Mixture, Pairs, Score
from gromap.engine.tiles import cost_gradient
from gromap.engine.truncation import focus, split_cells, whole

__all__ = [
    "Grid",
    "Kept",
    "LowRank",
    "Mixture",
    "Pairs",
    "Replay",
    "Score",
    "apply",
    "argmax",
    "cost_apply",
    "cost_gradient",
    "engine_name",
    "focus",
    "fused_move",
    "kept",
    "lse",
    "once",
    "small_descents",
    "small_farthest",
    "split_cells",
    "sums",
    "topk",
    "whole",
]

ALONE = 10_000  # points that one program on a GPU walks over faster than many can be launched


def engine_name(score: Score) -> str:
    """Which file reduces this score."""
    return backend(score).__name__.rsplit(".", 1)[1]


def cost_apply(cost: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Σ_j c(x_i, y_j) w_j for a cost that maps (n, d) and (m, d) points to an (n, m) block.  (N, w)"""
    radial = getattr(cost, "radial", None)
    if radial is not None and fused_for(x):
        from gromap.engine import triton as fused

        return fused.cost_apply(radial[0], radial[1], x, y, w)
    return tiles.cost_apply(cost, x, y, w)


def small_farthest(x: Tensor, k: int) -> Tensor | None:
    """Indices of k points, each the farthest from those before, the first from the origin; None without such a kernel."""
    if not fused_for(x) or len(x) > ALONE:
        return None
    from gromap.engine import triton as fused

    return fused.farthest(x, k)


def small_descents(x: Tensor, y: Tensor, *problem: Any) -> Any:
    """Outer steps of a batch of starts between small clouds, in one launch (descent.py); None where there is no such kernel."""
    if not fused_for(x):
        return None
    from gromap.engine import descent

    return descent.descents(x, y, *problem) if descent.serves(x, y) else None


def fused_move(sums: tuple[Tensor, Tensor], log_mass: Tensor, old: Tensor, ahead: Tensor, *momentum: Any) -> Any:
    """The step of both potentials after such sums, in place, in two launches (move.py); None where there is no such kernel."""
    if not fused_for(ahead):
        return None
    from gromap.engine import move

    return move.move(sums, log_mass, old, ahead, *momentum)


def sums(score: Score | Kept, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column sums of exp(s_ij + u_i + v_j).  (..., N) and (..., M)"""
    if isinstance(score, Kept):
        return score.sums(u, v)
    if isinstance(score, LowRank) and score.near and score.grid:
        rows, cols, _ = score.grid
        r, c = backend(score).sums(score.near.ordered, u[rows.order], v[cols.order], score.near)
        return r[rows.place], c[cols.place]
    return backend(score).sums(score, u, v)


def apply(score: Score, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Σ_j exp(s_ij + u_i + v_j) w_j for the rows w_j of a (..., M, w) tensor.  (..., N, w)"""
    if isinstance(score, LowRank) and score.near and score.grid:
        rows, cols, _ = score.grid
        return backend(score).apply(score.near.ordered, u[rows.order], v[cols.order], w[cols.order], score.near)[rows.place]
    return backend(score).apply(score, u, v, w)


def topk(score: Score, v: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest s_ij + v_j of each row, best first, and their columns.  (..., N, k) twice"""
    return mixture.topk(score, v, k) if isinstance(score, Mixture) else tiles.topk(score, v, k)


def argmax(score: Score, v: Tensor) -> Tensor:
    """The column of the largest s_ij + v_j of each row.  (..., N)"""
    return backend(score).argmax(score, v)


def lse(score: Score, v: Tensor) -> Tensor:
    """log Σ_j exp(s_ij + v_j), differentiable once with respect to the score and to v, unless it is truncated.  (..., N)

    >>> lse(torch.zeros(2, 3), torch.zeros(3)).exp()
    tensor([3., 3.])
    """
    if isinstance(score, Mixture):
        return mixture.lse(score, v)
    if not isinstance(score, LowRank):
        return _DenseLse.apply(score, v)
    if score.near and score.grid:
        rows, cols, _ = score.grid
        return backend(score).lse(score.near.ordered, v[cols.order], score.near)[rows.place]
    if torch.is_grad_enabled() and any(t.requires_grad for t in (score.q, score.k, v)):
        return _LowRankLse.apply(score.q, score.k, v)
    return backend(score).lse(score, v)


class _LowRankLse(torch.autograd.Function):
    """With P_ij = exp(s_ij + v_j - lse_i):  dq_i = w_i Σ_j P_ij k_j,  dk_j = Σ_i w_i P_ij q_i,  dv_j = Σ_i w_i P_ij."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        score = LowRank(q, k)
        out = backend(score).lse(score, v)
        ctx.save_for_backward(q, k, v, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        q, k, v, out = ctx.saved_tensors
        with torch.no_grad():
            w = grads[0][..., None]
            dq = w * apply(LowRank(q, k), -out, v, k)
            dk = apply(LowRank(k, q), v, -out, torch.cat([w * q, w], -1))
            dq, dk, dv = dq.sum_to_size(q.shape), dk[..., :-1].sum_to_size(k.shape), dk[..., -1].sum_to_size(v.shape)
        return once(q, dq), once(k, dk), once(v, dv)


class _DenseLse(torch.autograd.Function):
    """The gradient of a dense score is dense: ds_ij = w_i P_ij."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, v: Tensor) -> Tensor:
        out = tiles.lse(score, v)
        ctx.save_for_backward(score, v, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        score, v, out = ctx.saved_tensors
        with torch.no_grad():
            ds = (score + v[..., None, :]).sub_(out[..., None]).exp_().mul_(grads[0][..., None])
            ds, dv = ds.sum_to_size(score.shape), ds.sum(-2).sum_to_size(v.shape)
        return once(score, ds), once(v, dv)


def once(source: Tensor, gradient: Tensor) -> Tensor:
    """A gradient that hangs in the graph of its input, and says so when asked for its own gradient."""
    return _Once.apply(source, gradient)  # type: ignore[return-value]


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("gromap is differentiable once: second derivatives (double backward) are not available.")

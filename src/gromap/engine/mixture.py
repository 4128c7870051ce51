"""The reductions of a mixture, in closed form: exp(s) is a product of two thin matrices, so that none of them is quadratic.

    Σ_j exp(s_ij + v_j) w_j = Σ_r exp(q_ir) Σ_j exp(k_jr + v_j) w_j            O((N + M) R)

`topk` and `argmax` alone look at all pairs, a few rows at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gromap.engine.score import Mixture

PIECE = 1 << 22  # entries of the rows that `topk` makes at a time


def lse(score: Mixture, v: Tensor) -> Tensor:
    """log Σ_j exp(s_ij + v_j).  (N,)"""
    return (score.q + (score.k + v[:, None]).logsumexp(0)).logsumexp(-1)


def sums(score: Mixture, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column sums of exp(s_ij + u_i + v_j).  (N,) and (M,)"""
    return (u + lse(score, v)).exp(), (v + lse(score.mT, u)).exp()


def apply(score: Mixture, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Σ_j exp(s_ij + u_i + v_j) w_j for the rows w_j of an (M, w) tensor.  (N, w)"""
    right = score.k + v[:, None]
    top = right.amax(0).clamp(min=torch.finfo(right.dtype).min)  # a part without mass has none anywhere
    return (score.q + u[:, None] + top).exp() @ ((right - top).exp().mT @ w)


def topk(score: Mixture, v: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest s_ij + v_j of each row, best first, and their columns.  (N, k) twice"""
    found = [(Mixture(q, score.k).dense() + v).topk(k, -1) for q in score.q.split(max(1, PIECE // len(v)))]
    return torch.cat([f.values for f in found]), torch.cat([f.indices for f in found])


def argmax(score: Mixture, v: Tensor) -> Tensor:
    """The column of the largest s_ij + v_j of each row.  (N,)"""
    return topk(score, v, 1)[1][:, 0]

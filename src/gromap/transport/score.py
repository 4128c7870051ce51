"""Scores: the N x M matrices of the paper, in nats, seen through a few reductions of π_ij =
exp(s_ij + u_i + v_j).

    score.lse(v)          (N,)       log Σ_j exp(s_ij + v_j)       Sinkhorn half step, Interpolate
    score.sums(u, v)      (N,), (M,) row and column sums of π      Sinkhorn-symm, one exp per pair
    score.apply(u, v, w)  (N, w)     Σ_j π_ij w_j                  Γ update, transfer, marginals
    score.topk(v, k)      (N, k) x2  largest s_ij + v_j, columns   sparse plans
    score.argmax(v)       (N,)       column of the largest         hard matching, k-means

    LowRank(q, k)    s_ij = <q_i, k_j>, never formed: O(N + M) memory       CNT-GW
    Truncated        the same, without the tiles that hold no mass          truncation.py
    Dense(matrix)    s_ij                                                   Kernel-GW
    Mixture(q, k)    s_ij = log Σ_r exp(q_ir + k_jr), a plan of low rank    mixture.py

For sums over i take `score.mT`. All reductions take leading batch axes. `lse` alone is
differentiable, once: its backward is `apply`. Low-rank float32 scores on a CUDA device go to the
fused kernels of triton.py, all others through tiles.py. A new kind of score defines `shape`,
`like`, `mT` and `entries`, and inherits the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gromap.transport import tiles
from gromap.transport.gradient import once
from gromap.transport.rows import HERE, Rows
from gromap.transport.tiles import LOG2E, Block, Blocks, Fill, flat

Held = tuple[Tensor, Tensor] | None  # of `truncate`
GRAPH_ENTRIES = 1 << 24  # of a dense score that a CUDA graph may copy: with more, a step outlasts its launch anyway


class Score(Blocks):
    """A lazy (..., N, M) matrix; the reductions here go tile by tile."""

    engine = "tiles"  # which file reduces it

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """A tensor of the same precision, on the same device."""

    @property
    @abstractmethod
    def mT(self) -> Score: ...

    @abstractmethod
    def entries(self, b: Any, i: Any, j: Any) -> Tensor:
        """Some entries, with one batch axis: slices or indices of problems, rows and columns.
        (b, i, j)"""

    @property
    def axes(self) -> tuple[Rows, Rows]:
        """Who sums over its rows, and over its columns."""
        return HERE, HERE

    @property
    def dtype(self) -> torch.dtype:
        return self.like.dtype

    @property
    def device(self) -> torch.device:
        return self.like.device

    @property
    def batch(self) -> torch.Size:
        return self.shape[:-2]

    def parts(self, u: Tensor | None, v: Tensor | None) -> list[Iterator[Block]]:
        *_, n, m = self.shape
        u, v = self.biases(u, v)
        return tiles.walk(len(u), n, m, self.like, self.fill(u, v))

    def fill(self, u: Tensor, v: Tensor) -> Fill:
        """A function that writes a block of s + u + v, given biases (B, N, 1) and (B, M, 1) in
        bits."""
        return lambda b, i, j, out: torch.add(u[b, i], self.entries(b, i, j), alpha=LOG2E, out=out).add_(v[b, j].mT)

    def biases(self, u: Tensor | None, v: Tensor | None) -> tuple[Tensor, Tensor]:
        """Both biases in bits, with one batch axis.  (B, N, 1) and (B, M, 1)"""
        *_, n, m = self.shape
        u = LOG2E * flat(self.like.new_zeros(n) if u is None else u, self.batch, 1)[..., None]
        v = LOG2E * flat(self.like.new_zeros(m) if v is None else v, self.batch, 1)[..., None]
        return u, v

    def lse(self, v: Tensor) -> Tensor:
        """log Σ_j exp(s_ij + v_j).  (..., N)"""
        return tiles.lse(self, v)

    def sums(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Row and column sums of exp(s_ij + u_i + v_j).  (..., N) and (..., M)"""
        return tiles.sums(self, u, v)

    def apply(self, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        """Σ_j exp(s_ij + u_i + v_j) w_j for the rows w_j of a (..., M, w) tensor.  (..., N, w)"""
        return tiles.apply(self, u, v, w)

    def topk(self, v: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k largest s_ij + v_j of each row, best first, and their columns.  (..., N, k)
        twice"""
        return tiles.topk(self, v, k)

    def argmax(self, v: Tensor) -> Tensor:
        """The column of the largest s_ij + v_j of each row.  (..., N)"""
        return self.topk(v, 1)[1][..., 0]

    def dense(self) -> Tensor:
        """The matrix itself.  (..., N, M)"""
        *batch, n, m = self.shape
        whole = slice(None)
        return self.entries(whole, whole, whole).view(*batch, n, m)

    def rows(self, index: Tensor) -> Tensor:
        """Some rows of a score without batch axes.  (S, M)"""
        return self.entries(slice(None), index, slice(None))[0]

    def diagonal(self) -> Tensor:
        """s_ii  (N,)"""
        return self.dense().diagonal(dim1=-2, dim2=-1)

    def __mul__(self, factor: float) -> Score:
        """The score at another temperature."""
        raise TypeError(f"a {type(self).__name__} score has no other temperature.")

    # What Sinkhorn asks for: fewer tiles (truncation.py), or the same step many times
    # (plan_cache.py, cuda_graph.py).

    @property
    def truncates(self) -> bool:
        """Whether `truncate` may leave out tiles."""
        return False

    def truncate(self, f: Tensor, g: Tensor, log_a: Tensor, log_b: Tensor, held: Held = None) -> Score:
        """The same score without the tiles that hold no mass at the potentials f and g, in nats.

        held: log of the share of its weight that each row and column holds, None = all of it.
        """
        return self

    @property
    def full(self) -> Score:
        """The same score with all its tiles."""
        return self

    @property
    def tile_share(self) -> float | None:
        """The share of its tiles that sums visit; None where they visit all."""
        return None

    @property
    def neglected_mass(self) -> float | None:
        """A bound on the mass of the tiles left out, at the potentials it was truncated for."""
        return None

    def flatten(self) -> Score:
        """The same score with one batch axis, or none."""
        return self

    def take(self, some: Any) -> Score:
        """Some problems of a score with one batch axis."""
        return self

    def graph_copy(self) -> Score | None:
        """A copy that a CUDA graph may read from; None where that takes more than it saves."""
        return None

    @property
    def factors(self) -> tuple[Tensor, ...]:
        """What the reductions read: those of another score of this shape may be written there."""
        return (self.like,)

    def tensors(self) -> dict[str, Tensor]:
        """What a result file keeps of it."""
        raise TypeError(f"a {type(self).__name__} score has no place in a result file.")


@dataclass(frozen=True, eq=False)
class Dense(Score):
    """A matrix that is there.

    >>> Dense(torch.zeros(2, 3)).lse(torch.zeros(3)).exp()
    tensor([3., 3.])
    """

    matrix: Tensor  # (..., N, M)

    @property
    def shape(self) -> torch.Size:
        return self.matrix.shape

    @property
    def like(self) -> Tensor:
        return self.matrix

    @property
    def mT(self) -> Dense:
        return Dense(self.matrix.mT)

    def entries(self, b: Any, i: Any, j: Any) -> Tensor:
        return flat(self.matrix, self.batch, 2)[b, i, j]

    def fill(self, u: Tensor, v: Tensor) -> Fill:
        s = flat(self.matrix, self.batch, 2)
        return lambda b, i, j, out: torch.add(u[b, i], s[b, i, j], alpha=LOG2E, out=out).add_(v[b, j].mT)

    def lse(self, v: Tensor) -> Tensor:
        return _DenseLse.apply(self.matrix, v)  # type: ignore[return-value]

    def dense(self) -> Tensor:
        return self.matrix

    def __mul__(self, factor: float) -> Dense:
        return Dense(self.matrix * factor)

    def __add__(self, other: Dense) -> Dense:
        return Dense(self.matrix + other.matrix)

    def __matmul__(self, w: Tensor) -> Tensor:
        return self.matrix @ w

    def flatten(self) -> Dense:
        return Dense(flat(self.matrix, self.batch, 2))

    def take(self, some: Any) -> Dense:
        return Dense(self.matrix[some])

    def graph_copy(self) -> Dense | None:
        return Dense(self.matrix.clone()) if self.matrix.numel() <= GRAPH_ENTRIES else None

    def tensors(self) -> dict[str, Tensor]:
        return {"score": self.matrix}


class _DenseLse(torch.autograd.Function):
    """The gradient of a dense score is dense: ds_ij = w_i P_ij."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, v: Tensor) -> Tensor:
        out = tiles.lse(Dense(matrix), v)
        ctx.save_for_backward(matrix, v, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        matrix, v, out = ctx.saved_tensors
        with torch.no_grad():
            ds = (matrix + v[..., None, :]).sub_(out[..., None]).exp_().mul_(grads[0][..., None])
            ds, dv = ds.sum_to_size(matrix.shape), ds.sum(-2).sum_to_size(v.shape)
        return once(matrix, ds), once(v, dv)

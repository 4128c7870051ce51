"""Scores: the N x M matrices the engine reduces, in nats.

    s_ij = <q_i, k_j>          LowRank(q, k): never formed, O(N + M) memory       (CNT-GW)
    s_ij                       a dense (..., N, M) tensor                         (Kernel-GW)
    s_ij = log Σ_r exp(q_ir + k_jr)     Mixture(q, k): a plan of low rank        (LowRank-GW)

All answer to `.shape`, `.dtype`, `.device` and `.mT`, and the first two, `Pairs`, to `* number`: the library asks for no more.
A low-rank score may know the spatial order of its points (`grid`), and then which of its tiles are worth a visit (`near`, from
truncation.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor


class Cells(NamedTuple):
    """A cloud in an order where every run of `size` points, a cell, is tight."""

    order: Tensor  # (N,) which point comes n-th
    place: Tensor  # (N,) where point i went
    size: int


class Grid(NamedTuple):
    """The cells of rows and columns, and the share of its mass that a row may lose to tiles left out."""

    rows: Cells
    cols: Cells
    loss: float

    @property
    def mT(self) -> Grid:
        return Grid(self.cols, self.rows, self.loss)


class Lists(NamedTuple):
    """For each cell of one side, the cells of the other to visit: items[starts[c] : starts[c + 1]]."""

    starts: Tensor  # (cells + 1,) int32
    items: Tensor  # int32


@dataclass(frozen=True, eq=False)
class Near:
    """The tiles of a score that matter at some potentials."""

    ordered: LowRank  # the same score, its rows and columns in the order of their cells
    by_row: Lists
    by_col: Lists
    sizes: tuple[int, int]  # points of a cell of rows and of a cell of columns
    share: float  # of all tiles
    neglected: Tensor  # bound on the mass of the tiles left out

    @cached_property
    def mT(self) -> Near:
        return Near(self.ordered.mT, self.by_col, self.by_row, (self.sizes[1], self.sizes[0]), self.share, self.neglected)


@dataclass(frozen=True, eq=False)
class LowRank:
    """The matrix `q @ k.mT`, kept as its two factors.

    >>> score = LowRank(torch.ones(3, 2), torch.ones(4, 2))
    >>> score.shape, score.mT.shape, score.dense()[0, 0].item()
    (torch.Size([3, 4]), torch.Size([4, 3]), 2.0)
    """

    q: Tensor  # (..., N, R)
    k: Tensor  # (..., M, R)
    grid: Grid | None = None
    near: Near | None = None

    @cached_property
    def shape(self) -> torch.Size:
        batch, other = self.q.shape[:-2], self.k.shape[:-2]
        if batch != other:
            batch = torch.broadcast_shapes(batch, other)
        return torch.Size((*batch, self.q.shape[-2], self.k.shape[-2]))

    @property
    def dtype(self) -> torch.dtype:
        return self.q.dtype

    @property
    def device(self) -> torch.device:
        return self.q.device

    @cached_property
    def mT(self) -> LowRank:
        return LowRank(self.k, self.q, self.grid.mT if self.grid else None, self.near.mT if self.near else None)

    @cached_property
    def full(self) -> LowRank:
        """All tiles again."""
        return replace(self, near=None) if self.near else self

    @cached_property
    def ordered(self) -> LowRank:
        """Rows and columns in the order of their cells."""
        assert self.grid is not None
        return LowRank(self.q[self.grid.rows.order], self.k[self.grid.cols.order])

    def __mul__(self, factor: float) -> LowRank:
        return LowRank(self.q * factor, self.k, self.grid)

    def dense(self) -> Tensor:
        return self.q @ self.k.mT


@dataclass(frozen=True, eq=False)
class Mixture:
    """The matrix log(exp(q) @ exp(k).mT), kept as its two factors: a plan that is a mixture of R product measures.

    >>> Mixture(torch.zeros(3, 2), torch.zeros(4, 2)).dense().exp()[0]
    tensor([2., 2., 2., 2.])
    """

    q: Tensor  # (N, R)
    k: Tensor  # (M, R)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.q), len(self.k)))

    @property
    def dtype(self) -> torch.dtype:
        return self.q.dtype

    @property
    def device(self) -> torch.device:
        return self.q.device

    @property
    def mT(self) -> Mixture:
        return Mixture(self.k, self.q)

    def dense(self) -> Tensor:
        q, k = self.q.amax(-1, keepdim=True), self.k.amax(-1, keepdim=True)
        return ((self.q - q).exp() @ (self.k - k).exp().mT).log() + q + k.mT


Pairs = LowRank | Tensor
Score = Pairs | Mixture


def flat(x: Tensor, batch: torch.Size, keep: int) -> Tensor:
    """`x` broadcast over the batch axes, which become one; the last `keep` axes stay."""
    tail = x.shape[-keep:]
    return x.expand(*batch, *tail).reshape(-1, *tail)

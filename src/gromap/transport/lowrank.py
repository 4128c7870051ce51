"""Scores of low rank: s = q kᵀ is never formed, and tiles that hold no mass may be left out.

Float32 scores on a CUDA device go to the fused kernels of triton.py, all others through tiles.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gromap._torch import split, tolist, untyped
from gromap.transport import tiles
from gromap.transport.backend import fused_for
from gromap.transport.gradient import once
from gromap.transport.score import Held, Score
from gromap.transport.tiles import LOG2E, Block, Blocks, Fill, flat
from gromap.transport.truncation import Grid, Tiles, active_tiles


@dataclass(frozen=True, eq=False)
class LowRank(Score):
    """The matrix `q @ k.mT`, kept as its two factors.

    >>> score = LowRank(torch.ones(3, 2), torch.ones(4, 2))
    >>> score.shape, score.mT.shape, score.dense()[0, 0].item()
    (torch.Size([3, 4]), torch.Size([4, 3]), 2.0)
    """

    q: Tensor  # (..., N, R)
    k: Tensor  # (..., M, R)
    grid: Grid | None = None  # the spatial order of both clouds, where tiles may be left out

    @cached_property
    def shape(self) -> torch.Size:  # pyright: ignore[reportIncompatibleMethodOverride] - a property, kept
        batch, other = self.q.shape[:-2], self.k.shape[:-2]
        if batch != other:
            batch: torch.Size = untyped.broadcast_shapes(batch, other)
        return torch.Size((*batch, self.q.shape[-2], self.k.shape[-2]))

    @property
    def like(self) -> Tensor:
        return self.q

    @property
    def engine(self) -> str:  # type: ignore[override]
        return "triton" if fused_for(self.q) else "tiles"

    @cached_property
    def mT(self) -> LowRank:  # pyright: ignore[reportIncompatibleMethodOverride] - a property, kept
        return LowRank(self.k, self.q, self.grid.mT if self.grid else None)

    def entries(self, b: Any, i: Any, j: Any) -> Tensor:
        return flat(self.q, self.batch, 2)[b, i] @ flat(self.k, self.batch, 2)[b, j].mT

    def fill(self, u: Tensor, v: Tensor) -> Fill:
        """Both biases are folded into the product: [q, u, 1] @ [k, 1, v].mT"""
        q, k = self.biased(u, v)
        k = k.mT.contiguous()
        return lambda b, i, j, out: torch.bmm(q[b, i], k[b, :, j], out=out)

    def biased(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Factors of s + u + v, in bits.  (B, N, R + 2) and (B, M, R + 2)"""
        q = torch.cat([LOG2E * flat(self.q, self.batch, 2), u, torch.ones_like(u)], -1)
        return q, torch.cat([flat(self.k, self.batch, 2), torch.ones_like(v), v], -1)

    def lse(self, v: Tensor) -> Tensor:
        if torch.is_grad_enabled() and any(t.requires_grad for t in (self.q, self.k, v)):
            return _LowRankLse.apply(self.q, self.k, v)  # type: ignore[return-value]
        return _fused().lse(self, v) if fused_for(self.q) else tiles.lse(self, v)

    def sums(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return _fused().sums(self, u, v) if fused_for(self.q) else tiles.sums(self, u, v)

    def apply(self, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return _fused().apply(self, u, v, w) if fused_for(self.q) else tiles.apply(self, u, v, w)

    def argmax(self, v: Tensor) -> Tensor:
        return _fused().argmax(self, v) if fused_for(self.q) else super().argmax(v)

    def dense(self) -> Tensor:
        return self.q @ self.k.mT

    def diagonal(self) -> Tensor:
        return (self.q * self.k).sum(-1)

    def __mul__(self, factor: float) -> LowRank:
        return LowRank(self.q * factor, self.k, self.grid)

    def __add__(self, other: LowRank) -> LowRank:
        pairs = (self.q, other.q), (self.k, other.k)  # one for a whole batch counts for all of it
        q, k = (torch.cat([z, w.expand(*z.shape[:-1], -1)], -1) for z, w in pairs)
        return LowRank(q, k, self.grid)

    def __matmul__(self, w: Tensor) -> Tensor:
        return self.q @ (self.k.mT @ w)

    @property
    def truncates(self) -> bool:
        return self.grid is not None

    @cached_property
    def ordered(self) -> LowRank:
        """Rows and columns in the order of their cells."""
        assert self.grid is not None
        return LowRank(self.q[self.grid.rows.order], self.k[self.grid.cols.order])

    def truncate(self, f: Tensor, g: Tensor, log_a: Tensor, log_b: Tensor, held: Held = None) -> LowRank:
        if self.grid is None:
            return self
        found = active_tiles(self.ordered.q, self.ordered.k, self.grid, f, g, log_a, log_b, held)
        return self if found is None else Truncated(self.q, self.k, self.grid, self, found)

    def flatten(self) -> LowRank:
        return LowRank(flat(self.q, self.batch, 2), flat(self.k, self.batch, 2))

    def take(self, some: Any) -> LowRank:
        return LowRank(self.q[some], self.k[some])

    def graph_copy(self) -> LowRank | None:
        return LowRank(self.q.clone(), self.k.clone())

    @property
    def factors(self) -> tuple[Tensor, ...]:
        return _fused().factors(self) if fused_for(self.q) else (self.q, self.k)

    def tensors(self) -> dict[str, Tensor]:
        return {"q": self.q, "k": self.k}


@dataclass(frozen=True, eq=False)
class Truncated(LowRank):
    """A low-rank score whose sums visit some of its tiles alone; `topk` and `argmax` visit all.
    Made by `LowRank.truncate`."""

    whole: LowRank | None = None
    active: Tiles | None = None

    @property
    def _parts(self) -> tuple[LowRank, Tiles, Grid]:
        assert self.whole is not None
        assert self.active is not None
        assert self.grid is not None
        return self.whole, self.active, self.grid

    @property
    def full(self) -> LowRank:
        return self._parts[0]

    def truncate(self, f: Tensor, g: Tensor, log_a: Tensor, log_b: Tensor, held: Held = None) -> LowRank:
        return self.full.truncate(f, g, log_a, log_b, held)

    @property
    def tile_share(self) -> float:
        return self._parts[1].share

    @property
    def neglected_mass(self) -> float:
        return float(self._parts[1].neglected)

    @cached_property
    def mT(self) -> LowRank:
        whole, found, grid = self._parts
        return Truncated(self.k, self.q, grid.mT, whole.mT, found.mT)

    def lse(self, v: Tensor) -> Tensor:
        whole, found, (rows, cols, _) = self._parts
        v = v[cols.order]
        if fused_for(self.q):
            return _fused().lse(whole.ordered, v, found)[rows.place]
        return tiles.lse(_Listed(whole.ordered, found), v)[rows.place]

    def sums(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        whole, found, (rows, cols, _) = self._parts
        u, v = u[rows.order], v[cols.order]
        if fused_for(self.q):
            r, c = _fused().sums(whole.ordered, u, v, found)
        else:
            r, c = tiles.sums(_Listed(whole.ordered, found), u, v)
        return r[rows.place], c[cols.place]

    def apply(self, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        whole, found, (rows, cols, _) = self._parts
        u, v, w = u[rows.order], v[cols.order], w[cols.order]
        if fused_for(self.q):
            return _fused().apply(whole.ordered, u, v, w, found)[rows.place]
        return tiles.apply(_Listed(whole.ordered, found), u, v, w)[rows.place]


class _Listed(Blocks):
    """The blocks of an ordered score that are in its lists: one cell of rows at a time, against
    all points of its list."""

    def __init__(self, ordered: LowRank, found: Tiles):
        self.ordered, self.found = ordered, found

    @property
    def shape(self) -> torch.Size:
        return self.ordered.shape

    def parts(self, u: Tensor | None, v: Tensor | None) -> list[Iterator[Block]]:
        q, k = (z[0] for z in self.ordered.biased(*self.ordered.biases(u, v)))
        starts = tolist(self.found.by_row.starts)
        cells = list(enumerate(itertools.pairwise(starts)))
        return [self._blocks(q, k, part) for part in tiles.shared(cells, q)]

    def _blocks(self, q: Tensor, k: Tensor, cells: Sequence[tuple[int, tuple[int, int]]]) -> Iterator[Block]:
        (n, m), (tall, wide), items = self.shape, self.found.sizes, self.found.by_row.items
        most = max(1, tiles.CPU_TILE_BYTES // (tall * q.element_size()))
        within = torch.arange(wide, device=q.device)
        for cell, (begin, end) in cells:
            i = slice(cell * tall, min(n, (cell + 1) * tall))
            points = (items[begin:end, None].long() * wide + within).view(-1)
            for j in split(points, most) if end > begin else ():
                j = j[j < m]  # the last cell may be short
                yield slice(0, 1), i, j, (q[i] @ k[j].mT)[None]


def _fused() -> Any:
    """The kernels, imported where Triton is there and a score needs them."""
    from gromap.transport import triton

    return triton


class _LowRankLse(torch.autograd.Function):
    """With P_ij = exp(s_ij + v_j - lse_i):  dq_i = w_i Σ_j P_ij k_j,  dk_j = Σ_i w_i P_ij q_i,
    dv_j = Σ_i w_i P_ij."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = LowRank(q, k).lse(v)
        ctx.save_for_backward(q, k, v, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        q, k, v, out = ctx.saved_tensors
        with torch.no_grad():
            w = grads[0][..., None]
            dq = w * LowRank(q, k).apply(-out, v, k)
            dk = LowRank(k, q).apply(v, -out, torch.cat([w * q, w], -1))
            dq, dk, dv = dq.sum_to_size(q.shape), dk[..., :-1].sum_to_size(k.shape), dk[..., -1].sum_to_size(v.shape)
        return once(q, dq), once(k, dk), once(v, dv)

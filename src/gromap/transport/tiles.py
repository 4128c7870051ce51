"""The reductions, tile by tile, in plain torch: any score, any device, float32 and float64, O(N
+ M) memory.

             cols J
          +----+----+--       block = s_IJ + u_I + v_J     in bits, by `Score.blocks`
          |    |    |         exp2_ in place, while the block is in cache
   rows I +----+----+--       then its sums, or its product with W_J, or its maxima
          |    |    |

Every function takes leading batch axes: small problems share a block, large ones take several
blocks each. On a CPU the blocks come in parts without common rows, which run side by side.

Two facts of CPUs shape this file: exp2 is twice as fast as exp, and both are ten times slower when
they underflow, which on real shapes is what most pairs do. So scores are in bits and are clamped at
FLOOR first; what lies there counts as zero.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from gromap._threads import allowed, side_by_side

CPU_TILE_BYTES = 8 << 20  # inside the last-level cache, yet large enough to hide Python
GPU_TILE_BYTES = 256 << 20
CPU_TILE_ROWS = 1024
FLOOR = {torch.float32: -120.0, torch.float64: -1000.0}  # bits: 1e-36 and 1e-301
LOG2E, LN2 = math.log2(math.e), math.log(2)

T = TypeVar("T")
Block = tuple[slice, slice, slice | Tensor, Tensor]  # problems of the batch, rows, columns, (b, i, j) entries
Fill = Callable[[slice, slice, slice, Tensor], object]  # writes the entries of a block


class Blocks(ABC):
    """What the reductions ask of a score."""

    @property
    @abstractmethod
    def shape(self) -> torch.Size: ...

    @abstractmethod
    def parts(self, u: Tensor | None, v: Tensor | None) -> list[Iterator[Block]]:
        """s + u + v in bits, block by block, in parts without common rows; None is a bias of
        zero."""


def flat(x: Tensor, batch: torch.Size, keep: int) -> Tensor:
    """`x` broadcast over the batch axes, which become one; the last `keep` axes stay."""
    tail = x.shape[-keep:]
    return x.expand(*batch, *tail).reshape(-1, *tail)


def tiling(batch: int, n: int, m: int, like: Tensor, at_once: int = 1) -> tuple[list[slice], list[slice], list[slice]]:
    """Batch, row and column slices such that so many tensors of the size of one block fit the
    budget of the device."""
    on_cpu = like.device.type == "cpu"
    budget = (CPU_TILE_BYTES if on_cpu else GPU_TILE_BYTES) // (at_once * like.element_size())
    rows = min(n, CPU_TILE_ROWS if on_cpu else math.isqrt(budget))
    cols = min(m, max(1, budget // rows))
    return _cuts(batch, max(1, budget // (rows * cols))), _cuts(n, rows), _cuts(m, cols)


def _cuts(n: int, size: int) -> list[slice]:
    """Even pieces of range(n), none longer than `size`: no thin last tile."""
    return cuts(n, max(1, math.ceil(n / size)))


def cuts(n: int, pieces: int) -> list[slice]:
    """So many even pieces of range(n)."""
    edges = [n * p // pieces for p in range(pieces + 1)]
    return [slice(lo, hi) for lo, hi in itertools.pairwise(edges)]


def walk(batch: int, n: int, m: int, like: Tensor, fill: Fill) -> list[Iterator[Block]]:
    """All blocks of a matrix, row by row, in one part for each thread."""
    over, rows, cols = tiling(batch, n, m, like)
    return [_blocks(over, part, cols, like, fill) for part in shared(rows, like)]


def shared(pieces: Sequence[T], like: Tensor) -> list[Sequence[T]]:
    """Runs of pieces of work, one for each thread that may take some on a CPU."""
    count = min(len(pieces), allowed()) if like.device.type == "cpu" else 1
    return [pieces[s] for s in cuts(len(pieces), max(1, count))]


def _blocks(over: list[slice], rows: Sequence[slice], cols: list[slice], like: Tensor, fill: Fill) -> Iterator[Block]:
    """Those of some rows, in one reused buffer."""
    buffer = like.new_empty(max(map(_length, over)) * max(map(_length, rows)) * max(map(_length, cols)))
    for b, i, j in itertools.product(over, rows, cols):
        size = (_length(b), _length(i), _length(j))
        block = buffer[: math.prod(size)].view(size)
        fill(b, i, j, block)
        yield b, i, j, block


def _length(s: slice) -> int:
    return s.stop - s.start


def _exp2(block: Tensor) -> Tensor:
    return block.clamp_(min=FLOOR[block.dtype]).exp2_()


def lse(score: Blocks, v: Tensor) -> Tensor:
    """log Σ_j exp(s_ij + v_j), with a running maximum: safe for any finite score.  (..., N)"""
    *batch, n, _ = score.shape
    top = v.new_full((math.prod(batch), n), -math.inf)
    total = torch.zeros_like(top)

    def work(blocks: Iterator[Block]) -> None:
        for b, i, _, block in blocks:
            new = torch.maximum(top[b, i], block.amax(-1))
            shift = new.masked_fill(new == -math.inf, 0.0)  # a row without any mass yet
            total[b, i] = total[b, i] * (top[b, i] - shift).exp2_() + _exp2(block.sub_(shift[..., None])).sum(-1)
            top[b, i] = new

    side_by_side(work, score.parts(None, v))
    return (LN2 * top + total.log()).view(*batch, n)


def sums(score: Blocks, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column sums of exp(s_ij + u_i + v_j), one exp per pair.  (..., N) and (..., M)"""
    *batch, n, m = score.shape
    r = u.new_zeros(math.prod(batch), n)

    def work(blocks: Iterator[Block]) -> Tensor:
        c = v.new_zeros(len(r), m)
        for b, i, j, block in blocks:
            _exp2(block)
            r[b, i] += block.sum(-1)
            c[b, j] += block.sum(-2)
        return c

    c, *others = side_by_side(work, score.parts(u, v))
    for other in others:
        c += other
    zero = 2.0 ** FLOOR[r.dtype]  # sums of zeros are exact, hence exactly zero again
    return r.sub_(m * zero).clamp_(min=0.0).view(*batch, n), c.sub_(n * zero).clamp_(min=0.0).view(*batch, m)


def plan(score: Blocks, u: Tensor, v: Tensor) -> Tensor:
    """exp(s_ij + u_i + v_j), all of it, with one batch axis; zero where it is as good as zero.
    (B, N, M)"""
    *batch, n, m = score.shape
    out = u.new_empty(math.prod(batch), n, m)

    def work(blocks: Iterator[Block]) -> None:
        for b, i, j, block in blocks:
            out[b, i, j] = _exp2(block)

    side_by_side(work, score.parts(u, v))
    return out.sub_(2.0 ** FLOOR[out.dtype])


def apply(score: Blocks, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Σ_j exp(s_ij + u_i + v_j) w_j for the rows w_j of a (..., M, w) tensor.  (..., N, w)"""
    *batch, n, _ = score.shape
    w = flat(w, torch.Size(batch), 2)
    out = w.new_zeros(len(w), n, w.shape[-1])

    def work(blocks: Iterator[Block]) -> None:
        for b, i, j, block in blocks:
            out[b, i] += _exp2(block) @ w[b, j]

    side_by_side(work, score.parts(u, v))
    return out.view(*batch, n, -1)


def topk(score: Blocks, v: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest s_ij + v_j of each row, best first, and their columns.  (..., N, k) twice"""
    *batch, n, _ = score.shape
    best = v.new_full((math.prod(batch), n, k), -math.inf)
    where = torch.zeros(best.shape, dtype=torch.long, device=v.device)

    def work(blocks: Iterator[Block]) -> None:
        for b, i, j, block in blocks:
            if k == 1:
                value, index = block.max(-1, keepdim=True)
            else:
                value, index = block.topk(min(k, block.shape[-1]), -1)
            column = index + j.start if isinstance(j, slice) else j[index]
            value, index = torch.cat([best[b, i], value], -1), torch.cat([where[b, i], column], -1)
            best[b, i], pick = value.topk(k, -1)
            where[b, i] = index.gather(-1, pick)

    side_by_side(work, score.parts(None, v))
    return LN2 * best.view(*batch, n, k), where.view(*batch, n, k)

"""The reductions, tile by tile, in plain torch: any device, float32 and float64, O(N + M) memory.

             cols J
          +----+----+--       block = s_IJ + u_I + v_J     one product [q, u, 1] @ [k, 1, v].T, in bits
          |    |    |         exp2_ in place, while the block is in cache
   rows I +----+----+--       then its sums, or its product with W_J, or its maxima
          |    |    |

Every function takes leading batch axes: small problems share a block, large ones take several blocks each. Where `near` lists
the tiles that matter (truncation.py), a block is one cell of rows against all cells of columns in its list.

Two facts of CPUs shape this file: exp2 is twice as fast as exp, and both are ten times slower when they underflow, which
on real shapes is what most pairs do. So scores are in bits and are clamped at FLOOR first; what lies there counts as zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gromap.costs import Radial, distances
from gromap.engine.score import LowRank, Near, Pairs, flat

CPU_TILE_BYTES = 8 << 20  # inside the last-level cache, yet large enough to hide Python
GPU_TILE_BYTES = 256 << 20
CPU_TILE_ROWS = 1024
FLOOR = {torch.float32: -120.0, torch.float64: -1000.0}  # bits: 1e-36 and 1e-301
LOG2E, LN2 = math.log2(math.e), math.log(2)


def factors(score: Pairs) -> tuple[Tensor, ...]:
    """What the blocks are made of."""
    return (score.q, score.k) if isinstance(score, LowRank) else (score,)


def _cuts(n: int, size: int) -> list[slice]:
    """Even pieces of range(n), none longer than `size`: no thin last tile."""
    pieces = max(1, math.ceil(n / size))
    edges = [n * p // pieces for p in range(pieces + 1)]
    return [slice(lo, hi) for lo, hi in itertools.pairwise(edges)]


def _tiling(batch: int, n: int, m: int, like: Tensor) -> tuple[list[slice], list[slice], list[slice]]:
    """Batch, row and column slices such that one block fits the budget of the device."""
    on_cpu = like.device.type == "cpu"
    budget = (CPU_TILE_BYTES if on_cpu else GPU_TILE_BYTES) // like.element_size()
    rows = min(n, CPU_TILE_ROWS if on_cpu else math.isqrt(budget))
    cols = min(m, max(1, budget // rows))
    return _cuts(batch, max(1, budget // (rows * cols))), _cuts(n, rows), _cuts(m, cols)


def _blocks(
    score: Pairs, u: Tensor | None, v: Tensor | None, near: Near | None = None
) -> Iterator[tuple[slice, slice, slice | Tensor, Tensor]]:
    """Yield (batch, rows, cols, block) with block = s + u + v in bits, row by row, in one reused buffer."""
    *lead, n, m = score.shape
    batch = torch.Size(lead)
    like = score.q if isinstance(score, LowRank) else score
    u = LOG2E * flat(like.new_zeros(n) if u is None else u, batch, 1)[..., None]  # (B, N, 1)
    v = LOG2E * flat(like.new_zeros(m) if v is None else v, batch, 1)[..., None]  # (B, M, 1)
    if isinstance(score, LowRank):
        q = torch.cat([LOG2E * flat(score.q, batch, 2), u, torch.ones_like(u)], -1)  # (B, N, R + 2)
        k = torch.cat([flat(score.k, batch, 2), torch.ones_like(v), v], -1)  # (B, M, R + 2)
        if near is not None:
            yield from _near_blocks(q, k, near)
            return
        k = k.mT.contiguous()
    else:
        s = flat(score, batch, 2)
    over, rows, cols = _tiling(len(u), n, m, like)
    buffer = like.new_empty(max(_length(b) for b in over) * max(map(_length, rows)) * max(map(_length, cols)))
    for b in over:
        for i in rows:
            for j in cols:
                size = (_length(b), _length(i), _length(j))
                block = buffer[: math.prod(size)].view(size)
                if isinstance(score, LowRank):
                    torch.bmm(q[b, i], k[b, :, j], out=block)
                else:
                    torch.add(u[b, i], s[b, i, j], alpha=LOG2E, out=block).add_(v[b, j].mT)
                yield b, i, j, block


def _near_blocks(q: Tensor, k: Tensor, near: Near) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """One cell of rows at a time, against the points of the cells in its list, gathered."""
    n, m, (tall, wide) = q.shape[1], k.shape[1], near.sizes
    most = max(1, CPU_TILE_BYTES // (tall * q.element_size()))
    starts, items = near.by_row.starts.tolist(), near.by_row.items
    within = torch.arange(wide, device=q.device)
    for cell, (begin, end) in enumerate(itertools.pairwise(starts)):
        i = slice(cell * tall, min(n, (cell + 1) * tall))
        points = (items[begin:end, None].long() * wide + within).view(-1)
        for j in points.split(most) if end > begin else ():
            j = j[j < m]  # the last cell may be short
            yield slice(0, 1), i, j, (q[0, i] @ k[0, j].mT)[None]


def _length(s: slice) -> int:
    return s.stop - s.start


def _exp2(block: Tensor) -> Tensor:
    return block.clamp_(min=FLOOR[block.dtype]).exp2_()


def lse(score: Pairs, v: Tensor, near: Near | None = None) -> Tensor:
    """log Σ_j exp(s_ij + v_j), with a running maximum: safe for any finite score.  (..., N)"""
    *batch, n, _ = score.shape
    top = v.new_full((math.prod(batch), n), -math.inf)
    total = torch.zeros_like(top)
    for b, i, _, block in _blocks(score, None, v, near):
        new = torch.maximum(top[b, i], block.amax(-1))
        shift = new.masked_fill(new == -math.inf, 0.0)  # a row without any mass yet
        total[b, i] = total[b, i] * (top[b, i] - shift).exp2_() + _exp2(block.sub_(shift[..., None])).sum(-1)
        top[b, i] = new
    return (LN2 * top + total.log()).view(*batch, n)


def sums(score: Pairs, u: Tensor, v: Tensor, near: Near | None = None) -> tuple[Tensor, Tensor]:
    """Row and column sums of exp(s_ij + u_i + v_j), one exp per pair.  (..., N) and (..., M)"""
    *batch, n, m = score.shape
    r, c = u.new_zeros(math.prod(batch), n), v.new_zeros(math.prod(batch), m)
    for b, i, j, block in _blocks(score, u, v, near):
        _exp2(block)
        r[b, i] += block.sum(-1)
        c[b, j] += block.sum(-2)
    zero = 2.0 ** FLOOR[r.dtype]  # sums of zeros are exact, hence exactly zero again
    return r.sub_(m * zero).clamp_(min=0.0).view(*batch, n), c.sub_(n * zero).clamp_(min=0.0).view(*batch, m)


def plan(score: Pairs, u: Tensor, v: Tensor) -> Tensor:
    """exp(s_ij + u_i + v_j), all of it, with one batch axis; zero where it is as good as zero.  (B, N, M)"""
    *batch, n, m = score.shape
    out = u.new_empty(math.prod(batch), n, m)
    for b, i, j, block in _blocks(score, u, v):
        out[b, i, j] = _exp2(block)
    return out.sub_(2.0 ** FLOOR[out.dtype])


def apply(score: Pairs, u: Tensor, v: Tensor, w: Tensor, near: Near | None = None) -> Tensor:
    """Σ_j exp(s_ij + u_i + v_j) w_j for the rows w_j of a (..., M, w) tensor.  (..., N, w)"""
    *batch, n, _ = score.shape
    w = flat(w, torch.Size(batch), 2)
    out = w.new_zeros(len(w), n, w.shape[-1])
    for b, i, j, block in _blocks(score, u, v, near):
        out[b, i] += _exp2(block) @ w[b, j]
    return out.view(*batch, n, -1)


def topk(score: Pairs, v: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest s_ij + v_j of each row, best first, and their columns.  (..., N, k) twice"""
    *batch, n, _ = score.shape
    best = v.new_full((math.prod(batch), n, k), -math.inf)
    where = torch.zeros(best.shape, dtype=torch.long, device=v.device)
    for b, i, j, block in _blocks(score, None, v):
        if k == 1:
            value, index = block.max(-1, keepdim=True)
        else:
            value, index = block.topk(min(k, block.shape[-1]), -1)
        assert isinstance(j, slice)
        value, index = torch.cat([best[b, i], value], -1), torch.cat([where[b, i], index + j.start], -1)
        best[b, i], pick = value.topk(k, -1)
        where[b, i] = index.gather(-1, pick)
    return LN2 * best.view(*batch, n, k), where.view(*batch, n, k)


def argmax(score: Pairs, v: Tensor) -> Tensor:
    """The column of the largest s_ij + v_j of each row.  (..., N)"""
    return topk(score, v, 1)[1][..., 0]


def cost_gradient(cost: Callable[[Tensor, Tensor], Tensor], x: Tensor, a: Tensor, w: Pairs) -> Tensor:
    """Σ_k (a_i a_k c_ik + w_ik) ∂c(x_i, x_k)/∂x_i for weights w that are low-rank or dense.  (N, d)"""
    out = torch.zeros_like(x)
    _, rows, cols = _tiling(1, len(x), len(x), x)
    for i in rows:
        for j in cols:
            c, pull = _radial(cost, x[i], x[j]) if isinstance(cost, Radial) else _any(cost, x[i], x[j])
            weight = w.q[i] @ w.k[j].mT if isinstance(w, LowRank) else w[i, j]
            out[i] += pull(torch.addcmul(weight, c * a[i, None], a[j]).to(c.dtype))
    return out


Pull = Callable[[Tensor], Tensor]  # from (n, m) weights to Σ_k weight_ik ∂c(x_i, y_k)/∂x_i, (n, d)


def _radial(cost: Radial, x: Tensor, y: Tensor) -> tuple[Tensor, Pull]:
    """The derivative φ'(d) (x - y) / d, coordinate by coordinate, from differences; zero where two points coincide.

    Written out: the backward pass of torch.cdist is less precise in float32.
    """
    d = distances(x, y)
    c = cost.profile(d)
    apart = d.clamp(min=torch.finfo(d.dtype).tiny ** 0.5)  # squares below are not numbers any more

    def pull(weight: Tensor) -> Tensor:
        force = cost.slope(apart, c).div_(apart).mul_(weight)
        return torch.stack([(s[:, None] - t).mul_(force).sum(1) for s, t in zip(x.mT, y.mT, strict=True)], 1)

    return c, pull


def _any(cost: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Pull]:
    """The derivative that autograd finds."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        c = cost(x, y)
    if not c.requires_grad:
        raise TypeError(
            "the cost has no derivative with respect to the points: compute it with differentiable torch operations, "
            "or detach the points if you do not need their gradient."
        )
    return c.detach(), lambda weight: torch.autograd.grad(c, x, weight)[0]


def cost_apply(cost: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Σ_j c(x_i, y_j) w_j for a cost that maps (n, d) and (m, d) points to an (n, m) block.  (N, w)

    Blocks are computed in the precision of the cost and added up in that of w.
    """
    out = w.new_zeros(len(x), w.shape[-1])
    _, rows, cols = _tiling(1, len(x), len(y), w)
    for i in rows:
        for j in cols:
            block = cost(x[i], y[j])
            out[i] += block @ w[j].to(block.dtype)
    return out

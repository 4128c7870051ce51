# pyright: reportCallIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false, reportIndexIssue=false, reportGeneralTypeIssues=false
"""The reductions as fused streaming kernels: CUDA, float32, low-rank scores, O(N + M) memory.

A program owns a block of rows I and walks over blocks of columns J:

    s = q_I k_Jᵀ        fp16 tensor cores, fp32 sums: q = hi + lo and k = hi + lo in fp16, and one product of
                        [hi, hi, lo] with [hi, lo, hi] is right to 2⁻²² |q| |k|, as fp32 is
    p = exp2(s + u + v) in bits
    then the sums of p, or p W_J, or maxima, in registers

Features come balanced from `objective.lifted_score`, so both halves fit fp16; where they do not, and on cards without tensor
cores, products are in fp32. Underflow is flushed to zero by the hardware. Where `near` lists the tiles that matter
(truncation.py), a program walks along its list.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gromap.engine.score import LowRank, Near, flat

LOG2E = math.log2(math.e)
SUMS = (128, 64, 4, 4)  # rows, columns, warps and stages of one block, as measured on an H200
LSE = (128, 64, 4, 3)
APPLY = (64, 64, 4, 3)
WIDE = (64, 64, 4, 2)  # where one block of features does not hold all of them, and for fp32
PROGRAMS = 132 * 64  # enough to fill a card evenly
CHUNK = 64  # features of one tensor-core product: 21 of them, split in three, fill it
HALF_MAX = 6e4  # the range of fp16


def split(x: Tensor, left: bool) -> Tensor:
    """[hi, hi, lo] or [hi, lo, hi] in fp16."""
    hi = x.half()
    lo = (x - hi.float()).half()
    return torch.cat([hi, hi, lo] if left else [hi, lo, hi], -1)


def _padded(x: Tensor) -> Tensor:
    """Zeros up to whole chunks of features.  (B, N, K)"""
    r = x.shape[-1]
    width = triton.next_power_of_2(max(16, r)) if r <= CHUNK else -(-r // CHUNK) * CHUNK
    return torch.nn.functional.pad(x, (0, width - r)).contiguous()


def has_tensor_cores(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


_factors: weakref.WeakKeyDictionary[LowRank, tuple[Tensor, Tensor]] = weakref.WeakKeyDictionary()  # once per score


def _prepare(score: LowRank) -> tuple[Tensor, Tensor]:
    """Both factors with one batch axis, in bits: split in fp16, or as they are if they do not fit."""
    root, batch = math.sqrt(LOG2E), score.shape[:-2]
    q, k = (root * flat(z, batch, 2) for z in (score.q, score.k))
    if has_tensor_cores(q.device) and float(torch.maximum(q.abs().max(), k.abs().max())) < HALF_MAX:
        q, k = split(q, True), split(k, False)
    return _padded(q), _padded(k)


def _aligned(x: Tensor) -> Tensor:
    """Contiguous, and at an address that does not make Triton compile a kernel anew."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


class _Operands:
    """The two factors, the biases in nats with one batch axis, and the lists of tiles."""

    def __init__(self, score: LowRank, u: Tensor | None, v: Tensor, near: Near | None, blocks: tuple[int, int, int, int]):
        *lead, self.n, self.m = score.shape
        self.batch = torch.Size(lead)
        self.count = math.prod(lead)
        if score not in _factors:
            _factors[score] = _prepare(score)
        self.q, self.k = _factors[score]
        self.v = _aligned(flat(v, self.batch, 1))
        self.u = self.v if u is None else _aligned(flat(u, self.batch, 1))
        self.near = near
        wide = self.q.shape[-1] > CHUNK or self.q.dtype == torch.float32
        self.BM, self.BN, warps, stages = WIDE if wide else blocks
        self.launch = {"num_warps": warps, "num_stages": stages}

    def walk(self, over_rows: bool = False) -> tuple[Any, ...]:
        """The arguments that all kernels share. A program owns a block of columns and walks over rows, or the other way."""
        near, width = self.near, self.q.shape[-1]
        if near is None:
            lists, own, other = (self.v, self.v), 0, 0
        else:
            lists = near.by_col if over_rows else near.by_row
            own, other = near.sizes[::-1] if over_rows else near.sizes
        return (*lists, self.n, self.m, own, other, width, min(CHUNK, width), self.BM, self.BN)


@triton.jit
def _points(X, batch, index, count, width: tl.constexpr):
    """Where the features of some points begin; past the last one, that of the last, which a bias of -inf turns into nothing."""
    return X + batch * count * width + tl.minimum(index, count - 1).to(tl.int64) * width


@triton.jit
def _scores(q, k, q_at, k_at, width: tl.constexpr, chunk: tl.constexpr, bias):
    """bias + Σ_chunks q kᵀ for one block, whose first chunk is loaded already; q_at (BM,) and k_at (BN,) are the points."""
    s = tl.dot(q, k, bias, input_precision="ieee")
    for c in tl.static_range(chunk, width, chunk):
        d = c + tl.arange(0, chunk)
        s = tl.dot(tl.load(q_at[:, None] + d[None, :]), tl.load(k_at[None, :] + d[:, None]), s, input_precision="ieee")
    return s


@triton.jit
def _bias(at, inside):
    """Potentials in nats, as bits."""
    return tl.load(at, mask=inside, other=-float("inf")) * 1.4426950408889634


@triton.jit
def _walk(STARTS, block, size: tl.constexpr, step: tl.constexpr, total, OWN: tl.constexpr, OTHER: tl.constexpr):
    """First and last step of a program that owns a block of `size` points: along the list of its cell, or over all."""
    if OWN > 0:
        cell = block * size // OWN
        first, last = tl.load(STARTS + cell) * (OTHER // step), tl.load(STARTS + cell + 1) * (OTHER // step)
    else:
        first, last = 0, tl.cdiv(total, step)
    return first, last


@triton.jit
def _visit(ITEMS, t, step: tl.constexpr, OTHER: tl.constexpr):
    """The first point of the t-th step."""
    if OTHER > 0:
        item = t // (OTHER // step)
        point = tl.load(ITEMS + item) * OTHER + (t - item * (OTHER // step)) * step
    else:
        point = t * step
    return point


@triton.jit(do_not_specialize=["n", "m"])
def _sums_kernel(
    Q, K, U, V, R, C, STARTS, ITEMS, n, m,
    OWN: tl.constexpr, OTHER: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Row and column sums: a program owns columns J, whose sums stay in registers, and walks over a share of the rows."""
    batch = tl.program_id(2).to(tl.int64)
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    cols_in = cols < m
    d = tl.arange(0, chunk)
    k_at = _points(K, batch, cols, m, width)
    k = tl.load(k_at[None, :] + d[:, None])
    v = _bias(V + batch * m + cols, cols_in)
    total = tl.zeros([BM, BN], tl.float32)
    first, last = _walk(STARTS, tl.program_id(0), BN, BM, n, OWN, OTHER)
    share = tl.cdiv(last - first, tl.num_programs(1))
    first += tl.program_id(1) * share
    for t in range(first, min(first + share, last)):
        rows = _visit(ITEMS, t, BM, OTHER) + tl.arange(0, BM)
        rows_in = rows < n
        u = _bias(U + batch * n + rows, rows_in)
        q_at = _points(Q, batch, rows, n, width)
        q = tl.load(q_at[:, None] + d[None, :])
        p = tl.exp2(_scores(q, k, q_at, k_at, width, chunk, u[:, None] + v[None, :]))
        total += p
        tl.atomic_add(R + batch * n + rows, tl.sum(p, 1), mask=rows_in, sem="relaxed")
    tl.atomic_add(C + batch * m + cols, tl.sum(total, 0), mask=cols_in, sem="relaxed")


@triton.jit(do_not_specialize=["n", "m"])
def _lse_kernel(
    Q, K, V, OUT, STARTS, ITEMS, n, m,
    OWN: tl.constexpr, OTHER: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """log2 Σ_j 2^(s_ij + v_j) with a running maximum."""
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    rows_in = rows < n
    d = tl.arange(0, chunk)
    q_at = _points(Q, batch, rows, n, width)
    q = tl.load(q_at[:, None] + d[None, :])
    top = tl.full([BM], -1e30, tl.float32)
    total = tl.zeros([BM], tl.float32)
    first, last = _walk(STARTS, tl.program_id(0), BM, BN, m, OWN, OTHER)
    for t in range(first, last):
        cols = _visit(ITEMS, t, BN, OTHER) + tl.arange(0, BN)
        cols_in = cols < m
        k_at = _points(K, batch, cols, m, width)
        k = tl.load(k_at[None, :] + d[:, None])
        bias = tl.zeros([BM, BN], tl.float32) + _bias(V + batch * m + cols, cols_in)[None, :]
        s = _scores(q, k, q_at, k_at, width, chunk, bias)
        new = tl.maximum(top, tl.max(s, 1))
        total = total * tl.exp2(top - new) + tl.sum(tl.exp2(s - new[:, None]), 1)
        top = new
    out = tl.where(total > 0, (top + tl.log2(tl.where(total > 0, total, 1.0))) * 0.6931471805599453, -float("inf"))
    tl.store(OUT + batch * n + rows, out, mask=rows_in)


@triton.jit(do_not_specialize=["n", "m", "columns"])
def _apply_kernel(
    Q, K, U, V, W, OUT, columns, STARTS, ITEMS, n, m,
    OWN: tl.constexpr, OTHER: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BW: tl.constexpr,
):  # fmt: skip
    """Σ_j p_ij w_j for BW columns of W: in fp32, or W = [hi, lo] in bfloat16, which has the range of p; p is split likewise."""
    half: tl.constexpr = W.dtype.element_ty
    parts: tl.constexpr = 1 if half == tl.float32 else 2  # pyright: ignore[reportAssignmentType]
    batch = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    rows_in = rows < n
    e = tl.program_id(1) * BW + tl.arange(0, BW)
    d = tl.arange(0, chunk)
    q_at = _points(Q, batch, rows, n, width)
    q = tl.load(q_at[:, None] + d[None, :])
    u = _bias(U + batch * n + rows, rows_in)
    total = tl.zeros([BM, BW], tl.float32)
    first, last = _walk(STARTS, tl.program_id(0), BM, BN, m, OWN, OTHER)
    for t in range(first, last):
        cols = _visit(ITEMS, t, BN, OTHER) + tl.arange(0, BN)
        cols_in = cols < m
        v = _bias(V + batch * m + cols, cols_in)
        k_at = _points(K, batch, cols, m, width)
        k = tl.load(k_at[None, :] + d[:, None])
        p = tl.exp2(_scores(q, k, q_at, k_at, width, chunk, u[:, None] + v[None, :]))
        at = W + batch * m * parts * columns + cols[:, None].to(tl.int64) * parts * columns + e[None, :]
        w_in = cols_in[:, None] & (e < columns)[None, :]
        high = tl.load(at, mask=w_in, other=0.0)
        if parts == 1:
            total += tl.dot(p, high, input_precision="ieee")
        else:
            low = tl.load(at + columns, mask=w_in, other=0.0)
            p_high = p.to(half)
            p_low = (p - p_high.to(tl.float32)).to(half)
            part = tl.dot(p_low, high)
            part = tl.dot(p_high, low, part)
            total += tl.dot(p_high, high, part)  # added outside: tensor cores round their sums towards zero
    out = OUT + batch * n * columns + rows[:, None].to(tl.int64) * columns + e[None, :]
    tl.store(out, total, mask=rows_in[:, None] & (e < columns)[None, :])


@triton.jit(do_not_specialize=["n", "m"])
def _argmax_kernel(
    Q, K, V, OUT, STARTS, ITEMS, n, m,
    OWN: tl.constexpr, OTHER: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The first column of the largest s_ij + v_j."""
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    rows_in = rows < n
    d = tl.arange(0, chunk)
    q_at = _points(Q, batch, rows, n, width)
    q = tl.load(q_at[:, None] + d[None, :])
    top = tl.full([BM], -float("inf"), tl.float32)
    where = tl.zeros([BM], tl.int64)
    for j in range(0, m, BN):
        cols = j + tl.arange(0, BN)
        cols_in = cols < m
        k_at = _points(K, batch, cols, m, width)
        k = tl.load(k_at[None, :] + d[:, None])
        bias = tl.zeros([BM, BN], tl.float32) + _bias(V + batch * m + cols, cols_in)[None, :]
        s = _scores(q, k, q_at, k_at, width, chunk, bias)
        here, index = tl.max(s, 1), tl.argmax(s, 1)
        where = tl.where(here > top, j + index.to(tl.int64), where)
        top = tl.maximum(top, here)
    tl.store(OUT + batch * n + rows, where, mask=rows_in)


@triton.jit(do_not_specialize=["n", "m", "dims", "columns"])
def _cost_kernel(
    X, Y, W, OUT, n, m, dims, columns, scale, power, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BW: tl.constexpr
):
    """Σ_j c(x_i, y_j) w_j for the radial costs, from the differences: exactly zero where x_i = y_j."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    e = tl.program_id(1) * BW + tl.arange(0, BW)
    rows_in = rows < n
    total = tl.zeros([BM, BW], tl.float32)
    for j in range(0, m, BN):
        cols = j + tl.arange(0, BN)
        cols_in = cols < m
        gap = tl.zeros([BM, BN], tl.float32)
        for d in range(dims):
            x = tl.load(X + rows.to(tl.int64) * dims + d, mask=rows_in, other=0.0)
            y = tl.load(Y + cols.to(tl.int64) * dims + d, mask=cols_in, other=0.0)
            gap += (x[:, None] - y[None, :]) * (x[:, None] - y[None, :])
        if KIND == "power":
            c = tl.where(gap > 0, tl.exp2(0.5 * power * tl.log2(tl.where(gap > 0, gap, 1.0))), 0.0)
        elif KIND == "euclidean":
            c = tl.sqrt(gap)
        else:
            z = gap if KIND == "gaussian" else tl.sqrt(gap)
            z = z * scale  # -z is the exponent, in nats; 1 - exp(-z) by its series where z is small
            c = tl.where(z < 1e-2, 2 * z * (1 - z * (0.5 - z * (0.16666667 - z * 0.041666668))), 2 - 2 * tl.exp(-z))
        w_at = W + cols[:, None].to(tl.int64) * columns + e[None, :]
        w = tl.load(w_at, mask=cols_in[:, None] & (e < columns)[None, :], other=0.0)
        total += tl.dot(c, w, input_precision="tf32x3")
    out = OUT + rows[:, None].to(tl.int64) * columns + e[None, :]
    tl.store(out, total, mask=rows_in[:, None] & (e < columns)[None, :])


def sums(score: LowRank, u: Tensor, v: Tensor, near: Near | None = None) -> tuple[Tensor, Tensor]:
    """Row and column sums of exp(s_ij + u_i + v_j), one exp per pair.  (..., N) and (..., M)"""
    z = _Operands(score, u, v, near, SUMS)
    half = -(-z.count * z.n // 32) * 32
    both = torch.zeros(half + z.count * z.m, device=z.v.device)
    r, c = both[: z.count * z.n], both[half:]
    blocks = triton.cdiv(z.m, z.BN)
    pieces = max(1, min(triton.cdiv(z.n, z.BM), PROGRAMS // (blocks * z.count)))
    _sums_kernel[(blocks, pieces, z.count)](z.q, z.k, z.u, z.v, r, c, *z.walk(over_rows=True), **z.launch)
    return r.view(*z.batch, z.n), c.view(*z.batch, z.m)


def lse(score: LowRank, v: Tensor, near: Near | None = None) -> Tensor:
    """log Σ_j exp(s_ij + v_j).  (..., N)"""
    z = _Operands(score, None, v, near, LSE)
    out = torch.empty(*z.batch, z.n, device=z.v.device)
    _lse_kernel[(triton.cdiv(z.n, z.BM), z.count)](z.q, z.k, z.v, out, *z.walk(), **z.launch)
    return out


def apply(score: LowRank, u: Tensor, v: Tensor, w: Tensor, near: Near | None = None) -> Tensor:
    """Σ_j exp(s_ij + u_i + v_j) w_j for the rows w_j of a (..., M, w) tensor.  (..., N, w)"""
    z = _Operands(score, u, v, near, APPLY)
    w = flat(w, z.batch, 2).contiguous()
    columns = w.shape[-1]
    if z.q.dtype == torch.float16:
        half = torch.bfloat16 if w.is_cuda else torch.float16  # Triton's interpreter has no bfloat16
        high = w.to(half)
        w = torch.cat([high, (w - high.float()).to(half)], -1)
    out = torch.empty(z.count, z.n, columns, device=w.device)
    BW = max(16, min(64, triton.next_power_of_2(columns)))
    grid = (triton.cdiv(z.n, z.BM), triton.cdiv(columns, BW), z.count)
    _apply_kernel[grid](z.q, z.k, z.u, z.v, w, out, columns, *z.walk(), BW, **z.launch)
    return out.view(*z.batch, z.n, columns)


def cost_apply(kind: str, parameter: float, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Σ_j c(x_i, y_j) w_j for a radial cost: |x - y|^p, or a Gaussian or exponential kernel of width σ.  (N, w)"""
    columns = w.shape[-1]
    out = torch.empty(len(x), columns, device=x.device)
    kind = "euclidean" if (kind, parameter) == ("power", 1.0) else kind
    scale = {"gaussian": 0.5 / parameter**2, "exponential": 1 / parameter}.get(kind, 1.0)
    BW = max(16, min(64, triton.next_power_of_2(columns)))
    grid = (triton.cdiv(len(x), 64), triton.cdiv(columns, BW))
    operands = x.contiguous(), y.contiguous(), w.float().contiguous(), out
    _cost_kernel[grid](
        *operands, len(x), len(y), x.shape[1], columns, scale, float(parameter), kind, 64, 64, BW, num_warps=4, num_stages=2
    )
    return out.to(w.dtype)


def argmax(score: LowRank, v: Tensor) -> Tensor:
    """The column of the largest s_ij + v_j of each row.  (..., N)"""
    z = _Operands(score, None, v, None, LSE)
    out = torch.empty(*z.batch, z.n, dtype=torch.long, device=z.v.device)
    _argmax_kernel[(triton.cdiv(z.n, z.BM), z.count)](z.q, z.k, z.v, out, *z.walk(), **z.launch)
    return out

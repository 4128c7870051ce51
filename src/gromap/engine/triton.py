# pyright: reportCallIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false, reportIndexIssue=false, reportGeneralTypeIssues=false
"""The reductions as fused streaming kernels: CUDA, float32, low-rank scores, O(N + M) memory.

A program owns a block of rows I and walks over blocks of columns J:

    s = q_I k_Jᵀ        fp16 tensor cores, fp32 sums: q = hi + lo and k = hi + lo in fp16, and one product of
                        [hi, hi, lo] with [hi, lo, hi] is right to 2⁻²² |q| |k|, as fp32 is
    p = exp2(s + u + v) in bits
    then the sums of p, or p W_J, or maxima, in registers

Features come balanced from `objective.lifted_score`, so both halves fit fp16. Underflow is flushed to zero by the hardware.
"""

from __future__ import annotations

import math
import weakref

import torch
import triton
import triton.language as tl
from torch import Tensor

from gromap.engine.score import LowRank

LOG2E, LN2 = math.log2(math.e), math.log(2)
SUMS = (128, 64, 4, 3)  # rows, columns, warps and stages of one block, as measured on an H200
LSE = (128, 64, 4, 3)
APPLY = (64, 64, 4, 3)
WIDE = (64, 64, 4, 2)  # where one block of features does not hold all of them
CHUNK = 64  # features of one tensor-core product: 21 of them, split in three, fill it


def split(x: Tensor, left: bool, scale: float = 1.0) -> Tensor:
    """[hi, hi, lo] or [hi, lo, hi] in fp16, padded with zeros to whole chunks.  (B, N, K)"""
    x = x * scale
    hi = x.half()
    lo = (x - hi.float()).half()
    parts = torch.cat([hi, hi, lo] if left else [hi, lo, hi], -1)
    width = (
        triton.next_power_of_2(max(16, parts.shape[-1])) if parts.shape[-1] <= CHUNK else -(-parts.shape[-1] // CHUNK) * CHUNK
    )
    return torch.nn.functional.pad(parts, (0, width - parts.shape[-1])).contiguous()


_halves: weakref.WeakKeyDictionary[LowRank, tuple[Tensor, Tensor]] = weakref.WeakKeyDictionary()  # split once per score


class _Operands:
    """The two factors in fp16, with one batch axis, and the biases in bits."""

    def __init__(self, score: LowRank, u: Tensor | None, v: Tensor | None):
        *lead, self.n, self.m = score.shape
        self.batch = torch.Size(lead)
        self.count = math.prod(lead)
        if score not in _halves:
            root = math.sqrt(LOG2E)
            _halves[score] = split(self.flat(score.q, 2), True, root), split(self.flat(score.k, 2), False, root)
        self.q, self.k = _halves[score]
        self.u = self._bias(u, self.n)
        self.v = self._bias(v, self.m)
        self.width = self.q.shape[-1]
        self.chunk = min(CHUNK, self.width)

    def flat(self, x: Tensor, keep: int) -> Tensor:
        tail = x.shape[-keep:]
        return x.expand(*self.batch, *tail).reshape(-1, *tail)

    def _bias(self, w: Tensor | None, size: int) -> Tensor:
        if w is None:
            return torch.zeros(self.count, size, device=self.q.device)
        return (LOG2E * self.flat(w, 1)).contiguous()


@triton.jit
def _scores(q_row, k_col, width: tl.constexpr, chunk: tl.constexpr, rows_in, cols_in, bias):
    """bias + Σ_chunks q k for one block; q_row (BM, 1) and k_col (1, BN) point at the first feature."""
    s = bias
    for c in tl.static_range(0, width, chunk):
        d = c + tl.arange(0, chunk)
        q = tl.load(q_row + d[None, :], mask=rows_in, other=0.0)
        k = tl.load(k_col + d[:, None], mask=cols_in, other=0.0)
        s = tl.dot(q, k, s)
    return s


@triton.jit
def _sums_kernel(Q, K, U, V, R, C, n, m, span, width: tl.constexpr, chunk: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Row and column sums: a program owns columns J and walks over a span of rows, so that column sums stay in registers."""
    batch = tl.program_id(2).to(tl.int64)
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    cols_in = cols < m
    k_col = K + batch * m * width + cols[None, :].to(tl.int64) * width
    v = tl.load(V + batch * m + cols, mask=cols_in, other=-float("inf"))
    total = tl.zeros([BM, BN], tl.float32)
    begin = tl.program_id(1) * span
    for i in range(begin, min(begin + span, n), BM):
        rows = i + tl.arange(0, BM)
        rows_in = rows < n
        u = tl.load(U + batch * n + rows, mask=rows_in, other=-float("inf"))
        q_row = Q + batch * n * width + rows[:, None].to(tl.int64) * width
        p = tl.exp2(_scores(q_row, k_col, width, chunk, rows_in[:, None], cols_in[None, :], u[:, None] + v[None, :]))
        total += p
        tl.atomic_add(R + batch * n + rows, tl.sum(p, 1), mask=rows_in, sem="relaxed")
    tl.atomic_add(C + batch * m + cols, tl.sum(total, 0), mask=cols_in, sem="relaxed")


@triton.jit
def _lse_kernel(Q, K, V, NEEDED, OUT, n, m, width: tl.constexpr, chunk: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """log2 Σ_j 2^(s_ij + v_j) with a running maximum; does nothing unless it is needed."""
    if tl.load(NEEDED) == 0:
        return
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    rows_in = rows < n
    q_row = Q + batch * n * width + rows[:, None].to(tl.int64) * width
    top = tl.full([BM], -1e30, tl.float32)
    total = tl.zeros([BM], tl.float32)
    for j in range(0, m, BN):
        cols = j + tl.arange(0, BN)
        cols_in = cols < m
        v = tl.load(V + batch * m + cols, mask=cols_in, other=-float("inf"))
        k_col = K + batch * m * width + cols[None, :].to(tl.int64) * width
        bias = tl.zeros([BM, BN], tl.float32) + v[None, :]
        s = _scores(q_row, k_col, width, chunk, rows_in[:, None], cols_in[None, :], bias)
        new = tl.maximum(top, tl.max(s, 1))
        total = total * tl.exp2(top - new) + tl.sum(tl.exp2(s - new[:, None]), 1)
        top = new
    tl.store(OUT + batch * n + rows, top + tl.log2(total), mask=rows_in)


@triton.jit
def _apply_kernel(
    Q,
    K,
    U,
    V,
    W,
    OUT,
    n,
    m,
    columns,
    width: tl.constexpr,
    chunk: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BW: tl.constexpr,
):
    """Σ_j p_ij w_j for a block of BW columns of W = [hi, lo] in bfloat16, which has the range of p; p is split likewise."""
    half: tl.constexpr = W.dtype.element_ty
    batch = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    rows_in = rows < n
    e = tl.program_id(1) * BW + tl.arange(0, BW)
    q_row = Q + batch * n * width + rows[:, None].to(tl.int64) * width
    u = tl.load(U + batch * n + rows, mask=rows_in, other=-float("inf"))
    total = tl.zeros([BM, BW], tl.float32)
    for j in range(0, m, BN):
        cols = j + tl.arange(0, BN)
        cols_in = cols < m
        v = tl.load(V + batch * m + cols, mask=cols_in, other=-float("inf"))
        k_col = K + batch * m * width + cols[None, :].to(tl.int64) * width
        p = tl.exp2(_scores(q_row, k_col, width, chunk, rows_in[:, None], cols_in[None, :], u[:, None] + v[None, :]))
        at = W + batch * m * 2 * columns + cols[:, None].to(tl.int64) * 2 * columns + e[None, :]
        w_in = cols_in[:, None] & (e < columns)[None, :]
        high, low = tl.load(at, mask=w_in, other=0.0), tl.load(at + columns, mask=w_in, other=0.0)
        p_high = p.to(half)
        p_low = (p - p_high.to(tl.float32)).to(half)
        part = tl.dot(p_low, high)
        part = tl.dot(p_high, low, part)
        total += tl.dot(p_high, high, part)  # added outside: tensor cores round their sums towards zero
    out = OUT + batch * n * columns + rows[:, None].to(tl.int64) * columns + e[None, :]
    tl.store(out, total, mask=rows_in[:, None] & (e < columns)[None, :])


@triton.jit
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


@triton.jit
def _argmax_kernel(Q, K, V, OUT, n, m, width: tl.constexpr, chunk: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """The first column of the largest s_ij + v_j."""
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    rows_in = rows < n
    q_row = Q + batch * n * width + rows[:, None].to(tl.int64) * width
    top = tl.full([BM], -float("inf"), tl.float32)
    where = tl.zeros([BM], tl.int64)
    for j in range(0, m, BN):
        cols = j + tl.arange(0, BN)
        cols_in = cols < m
        v = tl.load(V + batch * m + cols, mask=cols_in, other=-float("inf"))
        k_col = K + batch * m * width + cols[None, :].to(tl.int64) * width
        bias = tl.zeros([BM, BN], tl.float32) + v[None, :]
        s = _scores(q_row, k_col, width, chunk, rows_in[:, None], cols_in[None, :], bias)
        here, index = tl.max(s, 1), tl.argmax(s, 1)
        where = tl.where(here > top, j + index.to(tl.int64), where)
        top = tl.maximum(top, here)
    tl.store(OUT + batch * n + rows, where, mask=rows_in)


def sums(score: LowRank, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column sums of exp(s_ij + u_i + v_j), one exp per pair.  (..., N) and (..., M)"""
    z = _Operands(score, u, v)
    r, c = torch.zeros_like(z.u), torch.zeros_like(z.v)
    BM, BN, warps, stages = SUMS if z.width <= CHUNK else WIDE
    blocks = triton.cdiv(z.m, BN) * z.count
    pieces = max(1, min(triton.cdiv(z.n, BM), 132 * 8 // blocks))  # enough programs to fill the card
    span = triton.cdiv(triton.cdiv(z.n, pieces), BM) * BM
    grid = (triton.cdiv(z.m, BN), triton.cdiv(z.n, span), z.count)
    _sums_kernel[grid](z.q, z.k, z.u, z.v, r, c, z.n, z.m, span, z.width, z.chunk, BM, BN, num_warps=warps, num_stages=stages)
    return r.view(*z.batch, z.n), c.view(*z.batch, z.m)


def lse(score: LowRank, v: Tensor, needed: Tensor | None = None) -> Tensor:
    """log Σ_j exp(s_ij + v_j).  (..., N). Where `needed` is a false flag on the device, nothing is computed."""
    z = _Operands(score, None, v)
    out = torch.empty_like(z.u)
    flag = torch.ones((), dtype=torch.int32, device=out.device) if needed is None else needed.to(torch.int32)
    BM, BN, warps, stages = LSE if z.width <= CHUNK else WIDE
    grid = (triton.cdiv(z.n, BM), z.count)
    _lse_kernel[grid](z.q, z.k, z.v, flag, out, z.n, z.m, z.width, z.chunk, BM, BN, num_warps=warps, num_stages=stages)
    return (LN2 * out).view(*z.batch, z.n)


def apply(score: LowRank, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Σ_j exp(s_ij + u_i + v_j) w_j for the rows w_j of a (..., M, w) tensor.  (..., N, w)"""
    z = _Operands(score, u, v)
    w = z.flat(w, 2)
    columns = w.shape[-1]
    half = torch.bfloat16 if w.is_cuda else torch.float16  # Triton's interpreter has no bfloat16
    high = w.to(half)
    halves = torch.cat([high, (w - high.float()).to(half)], -1)
    out = w.new_empty(z.count, z.n, columns)
    BW = max(16, min(64, triton.next_power_of_2(columns)))
    BM, BN, warps, stages = APPLY if z.width <= CHUNK else WIDE
    grid = (triton.cdiv(z.n, BM), triton.cdiv(columns, BW), z.count)
    _apply_kernel[grid](
        z.q, z.k, z.u, z.v, halves, out, z.n, z.m, columns, z.width, z.chunk, BM, BN, BW, num_warps=warps, num_stages=stages
    )
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
    z = _Operands(score, None, v)
    out = torch.empty(z.count, z.n, dtype=torch.long, device=z.v.device)
    BM, BN, warps, stages = LSE if z.width <= CHUNK else WIDE
    grid = (triton.cdiv(z.n, BM), z.count)
    _argmax_kernel[grid](z.q, z.k, z.v, out, z.n, z.m, z.width, z.chunk, BM, BN, num_warps=warps, num_stages=stages)
    return out.view(*z.batch, z.n)

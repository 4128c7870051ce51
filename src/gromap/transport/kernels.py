# pyright: basic, reportCallIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""The streaming kernels behind triton.py, one for each reduction of a score.

    s_ij = q_i·k_j in bits,   p_ij = 2^(s_ij + u_i + v_j)

    sums_kernel     r_i = Σ_j p_ij,  c_j = Σ_i p_ij            Alg. sinkhorn_symm, both lines
    lse_kernel      log2 Σ_j 2^(s_ij + v_j)                    Alg. sinkhorn, either line
    apply_kernel    Σ_j p_ij w_j                               lines 6, 7 of Alg. dual_kernelpca
    argmax_kernel   argmax_j s_ij + v_j                        hard matching, Coarsen
    split_kernel    x = hi + lo in fp16, what the others read
    cell_max_kernel max_i f_i + q_i·d_J in a cell              bounds of truncation.py

All take the features Q, K of both sides, biases U, V in nats, lists of tiles (STARTS, ITEMS; none
if OWN = 0), the counts n, m, and blocks of BM rows and BN columns; OWN and OTHER are the sizes of
the cells that the lists speak of.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def points(X, batch, index, count, width: tl.constexpr):
    """Where the features of some points begin; past the last one, that of the last, which a bias
    of -inf turns into nothing."""
    return X + batch * count * width + tl.minimum(index, count - 1).to(tl.int64) * width


@triton.jit
def scores(q, k, q_at, k_at, width: tl.constexpr, chunk: tl.constexpr, bias):
    """bias + Σ_chunks q kᵀ for one block, whose first chunk is loaded already; q_at (BM,) and
    k_at (BN,) are the points. The last chunk may be shorter."""
    rest: tl.constexpr = width % chunk
    s = tl.dot(q, k, bias, input_precision="ieee")  # (BM, BN)
    for c in tl.static_range(chunk, width - rest, chunk):
        d = c + tl.arange(0, chunk)
        s = tl.dot(tl.load(q_at[:, None] + d[None, :]), tl.load(k_at[None, :] + d[:, None]), s, input_precision="ieee")
    if rest > 0:
        d = width - rest + tl.arange(0, rest)
        s = tl.dot(tl.load(q_at[:, None] + d[None, :]), tl.load(k_at[None, :] + d[:, None]), s, input_precision="ieee")
    return s


@triton.jit
def bits(at, inside):
    """Potentials in nats, as bits."""
    return tl.load(at, mask=inside, other=-float("inf")) * 1.4426950408889634


@triton.jit
def walk(STARTS, block, size: tl.constexpr, step: tl.constexpr, total, OWN: tl.constexpr, OTHER: tl.constexpr):
    """First and last step of a program that owns a block of `size` points: along the list of its
    cell, or over all."""
    if OWN > 0:
        cell = block * size // OWN
        first, last = tl.load(STARTS + cell) * (OTHER // step), tl.load(STARTS + cell + 1) * (OTHER // step)
    else:
        first, last = 0, tl.cdiv(total, step)
    return first, last


@triton.jit
def visit(ITEMS, t, step: tl.constexpr, OTHER: tl.constexpr):
    """The first point of the t-th step."""
    if OTHER > 0:
        item = t // (OTHER // step)
        point = tl.load(ITEMS + item) * OTHER + (t - item * (OTHER // step)) * step
    else:
        point = t * step
    return point


@triton.jit(do_not_specialize=["n", "m"])
def sums_kernel(
    Q, K, U, V, R, C, STARTS, ITEMS, n, m,
    OWN: tl.constexpr, OTHER: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Row and column sums: a program owns columns J, whose sums stay in registers, and walks
    over a share of the rows."""
    batch = tl.program_id(2).to(tl.int64)
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    cols_in = cols < m
    d = tl.arange(0, chunk)
    k_at = points(K, batch, cols, m, width)
    k = tl.load(k_at[None, :] + d[:, None])  # (chunk, BN)
    v = bits(V + batch * m + cols, cols_in)
    total = tl.zeros([BM, BN], tl.float32)
    first, last = walk(STARTS, tl.program_id(0), BN, BM, n, OWN, OTHER)
    share = tl.cdiv(last - first, tl.num_programs(1))
    first += tl.program_id(1) * share
    for t in range(first, min(first + share, last)):
        rows = visit(ITEMS, t, BM, OTHER) + tl.arange(0, BM)
        rows_in = rows < n
        u = bits(U + batch * n + rows, rows_in)
        q_at = points(Q, batch, rows, n, width)
        q = tl.load(q_at[:, None] + d[None, :])  # (BM, chunk)
        p = tl.exp2(scores(q, k, q_at, k_at, width, chunk, u[:, None] + v[None, :]))  # (BM, BN)
        total += p
        tl.atomic_add(R + batch * n + rows, tl.sum(p, 1), mask=rows_in, sem="relaxed")
    tl.atomic_add(C + batch * m + cols, tl.sum(total, 0), mask=cols_in, sem="relaxed")


@triton.jit(do_not_specialize=["n", "m"])
def lse_kernel(
    Q, K, V, OUT, STARTS, ITEMS, n, m,
    OWN: tl.constexpr, OTHER: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """log2 Σ_j 2^(s_ij + v_j) with a running maximum."""
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    rows_in = rows < n
    d = tl.arange(0, chunk)
    q_at = points(Q, batch, rows, n, width)
    q = tl.load(q_at[:, None] + d[None, :])  # (BM, chunk)
    top = tl.full([BM], -1e30, tl.float32)
    total = tl.zeros([BM], tl.float32)
    first, last = walk(STARTS, tl.program_id(0), BM, BN, m, OWN, OTHER)
    for t in range(first, last):
        cols = visit(ITEMS, t, BN, OTHER) + tl.arange(0, BN)
        cols_in = cols < m
        k_at = points(K, batch, cols, m, width)
        k = tl.load(k_at[None, :] + d[:, None])  # (chunk, BN)
        bias = tl.zeros([BM, BN], tl.float32) + bits(V + batch * m + cols, cols_in)[None, :]
        s = scores(q, k, q_at, k_at, width, chunk, bias)  # (BM, BN)
        new = tl.maximum(top, tl.max(s, 1))
        total = total * tl.exp2(top - new) + tl.sum(tl.exp2(s - new[:, None]), 1)
        top = new
    out = tl.where(total > 0, (top + tl.log2(tl.where(total > 0, total, 1.0))) * 0.6931471805599453, -float("inf"))
    tl.store(OUT + batch * n + rows, out, mask=rows_in)


@triton.jit(do_not_specialize=["n", "m", "columns"])
def apply_kernel(
    Q, K, U, V, W, OUT, columns, STARTS, ITEMS, n, m,
    OWN: tl.constexpr, OTHER: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BW: tl.constexpr,
):  # fmt: skip
    """Σ_j p_ij w_j for BW columns of W: in fp32, or W = [hi, lo] in bfloat16, which has the
    range of p; p is split likewise."""
    half: tl.constexpr = W.dtype.element_ty
    parts: tl.constexpr = 1 if half == tl.float32 else 2  # pyright: ignore[reportAssignmentType]
    batch = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    rows_in = rows < n
    e = tl.program_id(1) * BW + tl.arange(0, BW)
    d = tl.arange(0, chunk)
    q_at = points(Q, batch, rows, n, width)
    q = tl.load(q_at[:, None] + d[None, :])  # (BM, chunk)
    u = bits(U + batch * n + rows, rows_in)
    total = tl.zeros([BM, BW], tl.float32)
    first, last = walk(STARTS, tl.program_id(0), BM, BN, m, OWN, OTHER)
    for t in range(first, last):
        cols = visit(ITEMS, t, BN, OTHER) + tl.arange(0, BN)
        cols_in = cols < m
        v = bits(V + batch * m + cols, cols_in)
        k_at = points(K, batch, cols, m, width)
        k = tl.load(k_at[None, :] + d[:, None])  # (chunk, BN)
        p = tl.exp2(scores(q, k, q_at, k_at, width, chunk, u[:, None] + v[None, :]))  # (BM, BN)
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
def argmax_kernel(
    Q, K, V, OUT, STARTS, ITEMS, n, m,
    OWN: tl.constexpr, OTHER: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The first column of the largest s_ij + v_j."""
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    rows_in = rows < n
    d = tl.arange(0, chunk)
    q_at = points(Q, batch, rows, n, width)
    q = tl.load(q_at[:, None] + d[None, :])  # (BM, chunk)
    top = tl.full([BM], -float("inf"), tl.float32)
    where = tl.zeros([BM], tl.int64)
    for j in range(0, m, BN):
        cols = j + tl.arange(0, BN)
        cols_in = cols < m
        k_at = points(K, batch, cols, m, width)
        k = tl.load(k_at[None, :] + d[:, None])  # (chunk, BN)
        bias = tl.zeros([BM, BN], tl.float32) + bits(V + batch * m + cols, cols_in)[None, :]
        s = scores(q, k, q_at, k_at, width, chunk, bias)  # (BM, BN)
        here, index = tl.max(s, 1), tl.argmax(s, 1)
        where = tl.where(here > top, j + index.to(tl.int64), where)
        top = tl.maximum(top, here)
    tl.store(OUT + batch * n + rows, where, mask=rows_in)


@triton.jit(do_not_specialize=["m"])
def cell_max_kernel(Q, F, D, OUT, m, features, SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """max_i f_i + q_i·d_J over the points i of one cell, for a block of cells J."""
    cell = tl.program_id(0).to(tl.int64)
    cols, top = tl.program_id(1) * BN + tl.arange(0, BN), tl.full([BN], -float("inf"), tl.float32)
    for first in range(0, SIZE, BM):
        rows = first + tl.arange(0, BM)
        bias = tl.load(F + cell * SIZE + rows, mask=rows < SIZE, other=-float("inf"))
        s = tl.zeros([BM, BN], tl.float32) + bias[:, None]
        for c in range(0, features, 16):
            e = c + tl.arange(0, 16)
            q_in, d_in = (rows < SIZE)[:, None] & (e < features)[None, :], (cols < m)[None, :] & (e < features)[:, None]
            q = tl.load(Q + (cell * SIZE + rows)[:, None] * features + e[None, :], mask=q_in, other=0.0)
            d = tl.load(D + cols[None, :] * features + e[:, None], mask=d_in, other=0.0)
            s = tl.dot(q, d, s, input_precision="ieee")
        top = tl.maximum(top, tl.max(s, 0))
    tl.store(OUT + cell * m + cols, top, mask=cols < m)


@triton.jit(do_not_specialize=["rows", "features"])
def split_kernel(
    X, OUT, BEYOND, rows, features, scale, most, LEFT: tl.constexpr, width: tl.constexpr, BLOCK: tl.constexpr
):
    """scale x as [hi, hi, lo] or [hi, lo, hi] in fp16, zeros after; counts the numbers that are
    not below `most`."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, column = i // width, (i % width).to(tl.int32)
    part = column // features
    inside = (row < rows) & (part < 3)
    x = scale * tl.load(X + row * features + column - part * features, mask=inside, other=0.0)
    beyond = tl.sum(tl.where(tl.abs(x) < most, 0, 1))
    x = tl.minimum(tl.maximum(x, -most), most)
    high = x.to(tl.float16)
    low = (x - high.to(tl.float32)).to(tl.float16)
    tl.store(OUT + i, tl.where(part == (2 if LEFT else 1), low, high), mask=row < rows)
    if beyond > 0:
        tl.atomic_add(BEYOND, beyond)

# pyright: basic, reportCallIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""Fused kernels for clouds on a GPU: sums of radial costs, and farthest points.

    cost_apply   out_i = Σ_j φ(|x_i - y_j|) w_j              Kernel-PCA, Kernel-Proj
                 a program owns rows I and some columns of W, and walks over all j
    farthest     i_t = argmax_i min_{s<t} |x_i - x_{i_s}|    Coarsen
                 one program, which waits for no launches

Points and sums are float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gromap.transport.triton import Blocks, launch

AXES = 4  # of a cloud that are read together, for farthest points


def cost_apply(kind: str, parameter: float, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Σ_j c(x_i, y_j) w_j for a radial cost: |x - y|^p, or a Gaussian or exponential kernel of
    width σ.  (N, w)"""
    columns = w.shape[-1]
    out = torch.empty(len(x), columns, device=x.device)
    kind = "euclidean" if (kind, parameter) == ("power", 1.0) else kind
    scale = {"gaussian": 0.5 / parameter**2, "exponential": 1 / parameter}.get(kind, 1.0)
    BW = max(16, min(64, triton.next_power_of_2(columns)))
    grid = (triton.cdiv(len(x), 64), triton.cdiv(columns, BW))
    operands = x.contiguous(), y.contiguous(), w.float().contiguous(), out
    with torch.cuda.device_of(x):
        sizes = len(x), len(y), x.shape[1], columns
        launch(cost_kernel, grid, Blocks(64, 64, 4, 2), *operands, *sizes, scale, float(parameter), kind, 64, 64, BW)
    return out.to(w.dtype)


def farthest(x: Tensor, k: int) -> Tensor:
    """Indices of k points, each the farthest from those before, the first from the origin.  (k,)"""
    nearest, chosen = torch.empty(len(x), device=x.device), torch.empty(k, dtype=torch.long, device=x.device)
    axes = torch.nn.functional.pad(x, (0, -x.shape[1] % AXES)).mT.contiguous()
    with torch.cuda.device_of(x):
        blocks = Blocks(max(128, min(4096, triton.next_power_of_2(len(x)))), 1, 16 if len(x) > 1024 else 8, 1)
        launch(farthest_kernel, (1,), blocks, axes, nearest, chosen, len(x), k, len(axes), blocks.rows, AXES)
    return chosen


@triton.jit(do_not_specialize=["n", "m", "dims", "columns"])
def cost_kernel(
    X,
    Y,
    W,
    OUT,
    n,
    m,
    dims,
    columns,
    scale,
    power,
    KIND: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BW: tl.constexpr,
):
    """Σ_j c(x_i, y_j) w_j for the radial costs, from the differences: exactly zero where x_i =
    y_j."""
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


@triton.jit(do_not_specialize=["n", "k", "axes"])
def farthest_kernel(X, NEAREST, CHOSEN, n, k, axes, BM: tl.constexpr, STEP: tl.constexpr):
    """k points, each the farthest from those before, the first from the origin: one program,
    which waits for no launches.

    X: one axis after the other, which stay in the caches; a multiple of STEP of them.
    """
    chosen = 0
    for t in range(k):
        best, where = tl.full([BM], -1.0, tl.float32), tl.zeros([BM], tl.int32)  # of every BM-th point
        for first in range(0, n, BM):
            rows = first + tl.arange(0, BM)
            rows_in = rows < n
            gap = tl.zeros([BM], tl.float32)
            for axis in range(0, axes, STEP):
                for step in tl.static_range(STEP):
                    x = tl.load(X + (axis + step) * n + rows, mask=rows_in, other=0.0)
                    center = tl.load(X + (axis + step) * n + chosen)
                    move = x - tl.where(t > 0, center, 0.0)
                    gap += move * move
            old = tl.load(NEAREST + rows, mask=rows_in & (t > 1), other=float("inf"))
            near = tl.where(rows_in, tl.minimum(gap, old), -1.0)
            tl.store(NEAREST + rows, near, mask=rows_in)
            where = tl.where(near > best, rows, where)
            best = tl.maximum(best, near)
        top = tl.max(best, 0)
        chosen = tl.min(tl.where(best == top, where, n), 0)
        tl.store(CHOSEN + t, chosen)
        tl.debug_barrier()

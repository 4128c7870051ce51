# pyright: basic, reportCallIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""A few outer steps of CNT-GW on small clouds, whole: one launch for a batch of starts, one
program for each start.

On a GPU, small problems wait for launches from Python. Here a program keeps Γ and both potentials
to itself and runs, for each outer step, until Γ has settled,

    s   <- score of C_Γ, kept in memory of its own, which stays in the caches
    f,g <- a standard step through log-sum-exp, which is safe after any change of Γ
    f,g <- symmetrized steps with momentum, as sinkhorn.py, until the marginals are met
    Γ'  <- Xᵀ π Y

in bits and float32. All columns of a block of rows are in registers at once, hence the bound on the
size of the clouds.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

from gromap.transport.tiles import LOG2E

PADDED_NUMBERS = 8192  # of the features of a cloud, padded to powers of two: 256 points of 32 axes, 128 of 64
BLOCK_PAIRS = 16384  # pairs of points of a block of rows against all columns, about
DOT = tl.constexpr("tf32x3")
MIN_OUTER_STEPS = 3  # outer steps that all take: from a saddle point, Γ moves little at first


class Descent(NamedTuple):
    """Where a batch of starts has come."""

    gamma: Tensor  # (B, D, E) that the potentials belong to
    new: Tensor  # (B, D, E) of the plan
    f: Tensor  # (B, N) in nats
    g: Tensor  # (B, M)
    rows: Tensor  # (B, N) sums of the plan
    error: Tensor  # (B,) misplaced mass at the last step


_refused: set[tuple[int, ...]] = set()  # sizes that a smaller card has no room for


def sizes(x: Tensor, y: Tensor) -> tuple[int, int, int, int]:
    """Rows, columns and features with their padding, and the rows of a block."""
    tall, wide, width = (triton.next_power_of_2(max(16, z)) for z in (len(x), len(y), max(x.shape[1], y.shape[1])))
    return tall, wide, width, max(16, min(64, tall, BLOCK_PAIRS // wide))


def serves(x: Tensor, y: Tensor) -> bool:
    """Whether clouds with features x and y are small enough."""
    tall, wide, width, _ = padded = sizes(x, y)
    return max(tall, wide) * width <= PADDED_NUMBERS and padded not in _refused


def descents(
    x: Tensor,
    y: Tensor,
    norms: tuple[Tensor, Tensor],
    logs: tuple[Tensor, Tensor],
    gamma: Tensor,
    eps: float,
    outer: int,
    inner: int,
    tol: float,
    still: float,
) -> Descent | None:
    """Outer steps from a batch of Γ and of potentials zero, each with at most `inner` Sinkhorn
    steps down to `tol`.

    A start stops once 8 |Γ - Γ'|² <= still.  None where the card has no room for it.  x, y:
    features.  norms: |X_i|² and
    |Y_j|².  logs: of the weights.
    """
    batch, (n, d), (m, e) = len(gamma), x.shape, y.shape
    tall, wide, width, _ = padding = sizes(x, y)

    def padded(z: Tensor, size: int) -> Tensor:
        return torch.nn.functional.pad(z.float(), (0, width - z.shape[-1], 0, size - z.shape[-2])).contiguous()

    old, new = padded(gamma, width), x.new_empty(batch, width, width)
    f, rows, g = x.new_empty(batch, n), x.new_empty(batch, n), x.new_empty(batch, m)
    error, scratch = x.new_empty(batch), x.new_empty(batch, tall * (wide + 1))
    clouds = padded(x, tall), padded(y, wide), *(z.float().contiguous() for z in (*norms, *logs))
    state = old, new, f, g, rows, error, scratch
    with torch.cuda.device_of(x):
        try:
            numbers = n, m, LOG2E / eps, outer, inner, tol, still, MIN_OUTER_STEPS
            descent_kernel[(batch,)](*clouds, *state, *numbers, *padding, num_warps=8, num_stages=1)
        except OutOfResources:
            _refused.add(padding)
            return None
    return Descent(old[:, :d, :e].double(), new[:, :d, :e].double(), f, g, rows, error)


@triton.jit
def ratio(total, log_mass, inside):
    """log2 of a marginal over what it should be; bounded, so that a row that is lost comes back."""
    log_ratio = tl.log2(tl.minimum(tl.maximum(total, 1e-37), 1e37)) - log_mass
    return tl.where(inside, tl.minimum(tl.maximum(log_ratio, -60.0), 60.0), 0.0)


@triton.jit
def standard_step(S, LA, U, n, g, lb, NP: tl.constexpr, MP: tl.constexpr, BM: tl.constexpr):
    """f from g, then g from the new f, by log-sum-exp: safe for any potentials."""
    j = tl.arange(0, MP)
    top = tl.full([MP], -1e30, tl.float32)
    total = tl.zeros([MP], tl.float32)
    for first in range(0, n, BM):
        rows = first + tl.arange(0, BM)
        s = tl.load(S + rows[:, None] * MP + j[None, :])
        t = s + (g + lb)[None, :]
        peak = tl.max(t, 1)
        f_rows = -(peak + tl.log2(tl.sum(tl.exp2(t - peak[:, None]), 1)))
        tl.store(U + rows, f_rows)
        t = s + (f_rows + tl.load(LA + rows, mask=rows < n, other=-float("inf")) * 1.4426950408889634)[:, None]
        higher = tl.maximum(top, tl.max(t, 0))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(t - higher[None, :]), 0)
        top = higher
    tl.debug_barrier()
    i = tl.arange(0, NP)
    f = tl.where(i < n, tl.load(U + i), 0.0)
    tl.debug_barrier()
    return f, tl.where(lb > -float("inf"), -(top + tl.log2(total)), 0.0)


@triton.jit(do_not_specialize=["n", "m", "outer", "inner", "least"])
def descent_kernel(
    X, Y, XN, YN, LA, LB, GAMMA, NEW, F, G, R, ERROR, SCRATCH, n, m, unit, outer, inner, tol, still, least,
    NP: tl.constexpr, MP: tl.constexpr, width: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """One start. Rows pass through memory between blocks and whole vectors: `debug_barrier` is
    where the threads meet."""
    batch = tl.program_id(0).to(tl.int64)
    S, U = SCRATCH + batch * NP * (MP + 1), SCRATCH + batch * NP * (MP + 1) + NP * MP
    F, G, R = F + batch * n, G + batch * m, R + batch * n
    i, j, d = tl.arange(0, NP), tl.arange(0, MP), tl.arange(0, width)
    i_in, j_in = i < n, j < m
    la = tl.load(LA + i, mask=i_in, other=-float("inf")) * 1.4426950408889634
    lb = tl.load(LB + j, mask=j_in, other=-float("inf")) * 1.4426950408889634
    a, b = tl.exp2(la), tl.exp2(lb)
    square = batch * width * width + d[:, None] * width + d[None, :]
    gamma = tl.load(GAMMA + square)
    f, g = tl.zeros([NP], tl.float32), tl.zeros([MP], tl.float32)
    error, moved, taken = 2.0, 1e30, 0
    while (taken < outer) & ((moved > still) | (taken < least)):  # line 3
        tl.store(GAMMA + square, gamma)
        k = tl.load(Y + j[None, :] * width + d[:, None])
        yn = tl.load(YN + j, mask=j_in, other=0.0)
        for first in range(0, n, BM):  # line 4 of Alg. dual_kernelpca: s = -C_Γ / ε
            rows = first + tl.arange(0, BM)
            q = tl.dot(tl.load(X + rows[:, None] * width + d[None, :]), gamma, input_precision=DOT) * (16.0 * unit)
            xn = tl.load(XN + rows, mask=rows < n, other=0.0)
            s = tl.dot(q, k, 4.0 * unit * xn[:, None] * yn[None, :], input_precision=DOT)
            tl.store(S + rows[:, None] * MP + j[None, :], s)
        tl.debug_barrier()

        f, g = standard_step(S, LA, U, n, g, lb, NP, MP, BM)  # line 5: Sinkhorn
        f_ahead, g_ahead, age, step = f, g, -1.0, 0
        error = 2.0
        while (step < inner) & (error > tol):
            tl.store(U + i, f_ahead + la)
            tl.debug_barrier()
            v = g_ahead + lb
            total = tl.zeros([BM, MP], tl.float32)
            for first in range(0, n, BM):
                rows = first + tl.arange(0, BM)
                s = tl.load(S + rows[:, None] * MP + j[None, :])
                p = tl.exp2(s + tl.load(U + rows)[:, None] + v[None, :])
                tl.store(R + rows, tl.sum(p, 1), mask=rows < n)
                total += p
            c = tl.sum(total, 0)
            tl.debug_barrier()
            r = tl.load(R + i, mask=i_in, other=0.0)
            tl.debug_barrier()
            error = tl.sum(tl.abs(r - a)) + tl.sum(tl.abs(c - b))
            f_new, g_new = f_ahead - 0.5 * ratio(r, la, i_in), g_ahead - 0.5 * ratio(c, lb, j_in)
            f_move, g_move = f_new - f, g_new - g
            along = tl.sum(a * f_move * (f_new - f_ahead)) + tl.sum(b * g_move * (g_new - g_ahead))
            age = tl.where(along < 0, 0.0, age + 1.0)
            f, g = f_new, g_new
            f_ahead, g_ahead = f + age / (age + 3.0) * f_move, g + age / (age + 3.0) * g_move
            step += 1
        if error > 0.5:  # too far from any coupling: now columns are exact, and Γ' is that of a plan of mass one
            f, g = standard_step(S, LA, U, n, g, lb, NP, MP, BM)

        tl.store(U + i, f + la)
        tl.debug_barrier()
        gamma = tl.zeros([width, width], tl.float32)  # lines 6, 7: Γ' = Xᵀ π Y
        y = tl.load(Y + j[:, None] * width + d[None, :])
        for first in range(0, n, BM):
            rows = first + tl.arange(0, BM)
            s = tl.load(S + rows[:, None] * MP + j[None, :])
            p = tl.exp2(s + tl.load(U + rows)[:, None] + (g + lb)[None, :])
            tl.store(R + rows, tl.sum(p, 1), mask=rows < n)
            x = tl.load(X + rows[None, :] * width + d[:, None])
            gamma += tl.dot(x, tl.dot(p, y, input_precision=DOT), input_precision=DOT)
        tl.debug_barrier()
        change = gamma - tl.load(GAMMA + square)
        moved = 8.0 * tl.sum(tl.sum(change * change, 1))
        taken += 1
        tl.debug_barrier()

    tl.store(NEW + square, gamma)
    tl.store(F + i, f * 0.6931471805599453, mask=i_in)
    tl.store(G + j, g * 0.6931471805599453, mask=j_in)
    tl.store(ERROR + batch, error)

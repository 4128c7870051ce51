# pyright: basic, reportCallIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""The Sinkhorn steps of small.py for a batch of small plans, in one launch.

On a GPU, small problems wait for launches from Python: five of each step, thousands of a search.
Here some programs share each plan by its rows, and take all steps together:

    v   <- exp(ahead)
    u   <- a / π v,  col <- uᵀ π                      while a block of rows is in registers
    col <- the sum over all programs of the plan, which wait for each other here
    new <- log(b / col), with Nesterov's momentum     as `Clouds._sinkhorn`

A program keeps its rows in registers where they fit, and else reads them from the caches.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_COLUMNS = 2048
BLOCK = 8192  # entries of a block of rows against all columns
REGISTERS = 32_768  # entries that one program keeps: slower than a block that is read anew beyond that
SHARES = 16, 4  # programs of a plan, as many as the card has room for at once
LEAST_ROWS = 16  # of a program that shares a plan
WAITS = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 4)  # whether programs may wait for each other


def serves(plan: Tensor) -> bool:
    """Whether plans are small enough."""
    return plan.shape[-1] <= MOST_COLUMNS


def shares_for(plan: Tensor) -> int:
    """How many programs share each plan."""
    if not (WAITS and plan.is_cuda):
        return 1
    room = torch.cuda.get_device_properties(plan.device).multi_processor_count // len(plan)
    return next((k for k in SHARES if k <= min(room, plan.shape[1] // LEAST_ROWS)), 1)


def scale(
    plan: Tensor, a: Tensor, b: Tensor, steps: int, tol: float, look: int, farthest: float, tiny: float
) -> tuple[Tensor, Tensor]:
    """Scalings u of rows, which make them exact, and log v of columns, after at most so many
    steps, fewer where a plan has met its marginals.  (B, N), (B, M)

    a, b: (P, N) and (P, M), where P is 1 or B.  look: steps between two looks at the marginals.
    farthest: what log v is bounded by.
    """
    batch, n, m = plan.shape
    shares, wide = shares_for(plan), triton.next_power_of_2(max(16, m))
    tall = triton.next_power_of_2(-(-n // shares))
    whole = tall * wide <= REGISTERS
    tall = tall if whole else BLOCK // wide
    u, log_v = plan.new_empty(batch, n), plan.new_empty(batch, m)
    parts, count = plan.new_empty(batch, 2, shares, wide), torch.zeros(batch, dtype=torch.int32, device=plan.device)
    a, b, apart = a.contiguous(), b.contiguous(), int(len(a) > 1)
    arguments = plan, a, b, u, log_v, parts, count, n, m, apart, steps, look, tol, farthest, tiny
    together = {"launch_cooperative_grid": True} if shares > 1 else {}  # so that all of them run at once
    with torch.cuda.device_of(plan):
        scale_kernel[(batch, shares)](*arguments, wide, tall, shares, whole, num_warps=8, num_stages=1, **together)
    return u, log_v


@triton.jit
def rows_of(P, A, rows, end, j, m):
    """Some rows of a plan and their weights, zero from the end on."""
    p = tl.load(P + rows[:, None] * m + j[None, :], mask=(rows < end)[:, None] & (j < m)[None, :], other=0.0)
    return p, tl.load(A + rows, mask=rows < end, other=0.0)


@triton.jit(do_not_specialize=["n", "m", "apart", "steps", "look", "tol", "farthest", "tiny"])
def scale_kernel(
    P, A, B, U, LV, PARTS, COUNT, n, m, apart, steps, look, tol, farthest, tiny,
    MP: tl.constexpr, BN: tl.constexpr, SHARES: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """A share of the rows of one plan. All programs of a plan see the same sums, and stop at the
    same step."""
    batch, share = tl.program_id(0).to(tl.int64), tl.program_id(1)
    A, B = A + batch * apart * n, B + batch * apart * m
    P, U, LV, COUNT = P + batch * n * m, U + batch * n, LV + batch * m, COUNT + batch
    PARTS += batch * 2 * SHARES * MP
    begin = share * tl.cdiv(n, SHARES)
    end = tl.minimum(begin + tl.cdiv(n, SHARES), n)
    j, i, k = tl.arange(0, MP), tl.arange(0, BN), tl.arange(0, SHARES)
    b = tl.maximum(tl.load(B + j, mask=j < m, other=1.0), tiny)  # columns beyond the last have met theirs
    old, ahead = tl.zeros([MP], tl.float32), tl.zeros([MP], tl.float32)
    step, error = 0, 1e30
    p, a = rows_of(P, A, begin + i, end, j, m)
    while (step < steps) & (error > tol):
        v = tl.exp(ahead)
        if WHOLE:
            u = a / tl.maximum(tl.sum(p * v[None, :], 1), tiny)
            col = tl.sum(p * u[:, None], 0)
        else:
            total = tl.zeros([BN, MP], tl.float32)
            for first in range(begin, end, BN):
                p, a = rows_of(P, A, first + i, end, j, m)
                u = a / tl.maximum(tl.sum(p * v[None, :], 1), tiny)
                total += p * u[:, None]
            col = tl.sum(total, 0)
        if SHARES > 1:
            here = PARTS + (step % 2) * SHARES * MP  # that of the step before may still be read
            tl.store(here + share * MP + j, col)
            tl.debug_barrier()
            tl.atomic_add(COUNT, 1, sem="acq_rel")
            while tl.atomic_add(COUNT, 0, sem="acquire") < SHARES * (step + 1):
                pass
            tl.debug_barrier()
            col = tl.sum(tl.load(here + k[:, None] * MP + j[None, :], cache_modifier=".cg"), 0)
        col = tl.where(j < m, tl.maximum(col, tiny), 1.0)
        new = tl.log(b / col)
        if step % look == 0:
            error = tl.sum(tl.abs(v * col - b))
            opposed = tl.sum(b * (new - old) * (new - ahead)) < 0
            old = tl.where(opposed, new, old)
        step += 1
        momentum = step / (step + 3.0)
        ahead = tl.minimum(tl.maximum(new + momentum * (new - old), -farthest), farthest)
        old = new
    old = tl.minimum(tl.maximum(old, -farthest), farthest)
    if share == 0:
        tl.store(LV + j, old, mask=j < m)
    v = tl.exp(old)
    for first in range(begin, end, BN):
        p, a = rows_of(P, A, first + i, end, j, m)
        tl.store(U + first + i, a / tl.maximum(tl.sum(p * v[None, :], 1), tiny), mask=first + i < end)

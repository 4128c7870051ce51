# pyright: basic, reportCallIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""Many symmetrized Sinkhorn steps between few points in one launch: on a GPU each of their parts
takes less time than its launch.

One program for each problem of a batch reads its scores again at every step, from the cache:

    r, c <- row and column sums of exp(s + f + g) a b
    f, g <- the step of potential_step.py
"""

from __future__ import annotations

import math
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from gromap.transport.cuda_graph import Repeat, State
from gromap.transport.marginals import Marginals
from gromap.transport.potential_step import asked_of, fixed_step, free_step, mean, powers
from gromap.transport.score import Score
from gromap.transport.tiles import flat

MOST_POINTS = 256  # of a side
MOST_ENTRIES = 1 << 26  # of the scores of a batch
BLOCK = 8192  # entries that a program looks at together


def serves(score: Score) -> bool:
    """Whether the problems are small enough."""
    return max(score.shape[-2:]) <= MOST_POINTS and math.prod(score.shape) <= MOST_ENTRIES


def steps(score: Score, to: Marginals, momentum: bool) -> Repeat:
    """A function that takes some steps from the potentials, where to look, the age and the error
    of `sinkhorn.move`, and stops early where a problem is lost."""
    return partial(_take, flat(score.dense(), score.batch, 2).contiguous(), to, momentum)


def _take(matrix: Tensor, to: Marginals, momentum: bool, state: State, count: int) -> State:
    old, ahead, age, error = (z.clone(memory_format=torch.contiguous_format) for z in state)
    batch, n, m = matrix.shape
    tall, wide = (triton.next_power_of_2(max(16, k)) for k in (n, m))
    anchor, sides = (to.log, to.log) if to.fixed else (to.anchor.contiguous(), to.sides)
    asked = to.log, anchor, sides, n + m if anchor.ndim > 1 else 0
    scratch = matrix.new_empty(batch, 2, tall)
    with torch.cuda.device_of(matrix):
        steps_kernel[(batch,)](
            matrix, *asked, old, ahead, age, error, scratch, n, m, count, to.fixed, momentum, tall, wide,
            max(1, min(tall, BLOCK // wide)), num_warps=8,
        )  # fmt: skip
    return old, ahead, age, error


@triton.jit
def mean_of(d, log, kappa):
    """k of a side: see potential_step.py."""
    carries = log > -float("inf")
    least = tl.min(tl.where(carries, kappa * d, float("inf")))
    power, rise = powers(tl.where(carries, least - kappa * d, 0.0))
    weight = tl.exp(log)
    return mean(least, tl.sum(weight * rise), tl.sum(weight * power), kappa)


@triton.jit
def asked_for(total, log, z, anchor, mass, SIDES, side, fixed: tl.constexpr):
    """What `fixed_step` or `free_step` gives for one side."""
    if fixed:
        ratio, want, finite = fixed_step(total, log)
    else:
        kappa, tau, rate, most = asked_of(SIDES, side)
        d = z - anchor
        ratio, want, finite = free_step(total, log, d - mean_of(d, log, kappa), mass, tau, rate, most)
    return ratio, want, finite


@triton.jit(do_not_specialize=["n", "m", "stride", "steps"])
def steps_kernel(
    S, LOG, ANCHOR, SIDES, stride, OLD, AHEAD, AGE, ERRORS, SCRATCH, n, m, steps,
    fixed: tl.constexpr, momentum: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """All steps of one problem, in place. Nothing changes where entries are not finite, and the
    error is infinite."""
    batch = tl.program_id(0).to(tl.int64)
    S, OLD, AHEAD, ANCHOR = S + batch * n * m, OLD + batch * (n + m), AHEAD + batch * (n + m), ANCHOR + batch * stride
    U, R = SCRATCH + batch * 2 * NP, SCRATCH + batch * 2 * NP + NP
    i, j, k = tl.arange(0, NP), tl.arange(0, MP), tl.arange(0, BN)
    log_a = tl.load(LOG + i, mask=i < n, other=-float("inf"))
    log_b = tl.load(LOG + n + j, mask=j < m, other=-float("inf"))
    old_f, f = tl.load(OLD + i, mask=i < n, other=0.0), tl.load(AHEAD + i, mask=i < n, other=0.0)
    old_g, g = tl.load(OLD + n + j, mask=j < m, other=0.0), tl.load(AHEAD + n + j, mask=j < m, other=0.0)
    at_f = tl.load(ANCHOR + i, mask=i < n, other=0.0)
    at_g = tl.load(ANCHOR + n + j, mask=j < m, other=0.0)
    age, error, step = tl.load(AGE + batch), 0.0, 0
    while (step < steps) & (error < float("inf")):
        tl.store(U + i, (f + log_a) * 1.4426950408889634)
        v = (g + log_b) * 1.4426950408889634
        tl.debug_barrier()
        col = tl.zeros([MP], tl.float32)
        for first in range(0, n, BN):
            rows = first + k
            u = tl.load(U + rows, mask=rows < n, other=-float("inf"))
            inside = (rows < n)[:, None] & (j < m)[None, :]
            s = tl.load(S + rows[:, None] * m + j[None, :], mask=inside, other=0.0)
            p = tl.exp2(s * 1.4426950408889634 + (u[:, None] + v[None, :]))
            tl.store(R + rows, tl.sum(p, 1), mask=rows < n)
            col += tl.sum(p, 0)
        tl.debug_barrier()
        row = tl.load(R + i, mask=i < n, other=0.0)
        mass = tl.sum(row)
        ratio_f, want_f, finite_f = asked_for(row, log_a, f, at_f, mass, SIDES, 0, fixed)
        ratio_g, want_g, finite_g = asked_for(col, log_b, g, at_g, mass, SIDES, 1, fixed)
        lost = tl.sum(tl.where(finite_f, 0.0, 1.0)) + tl.sum(tl.where(finite_g, 0.0, 1.0)) > 0
        error = tl.sum(tl.abs(row - want_f)) + tl.sum(tl.abs(col - want_g))
        error = tl.where(lost, float("inf"), error)
        new_f, new_g = tl.where(lost, f, f - 0.5 * ratio_f), tl.where(lost, g, g - 0.5 * ratio_g)
        if momentum:
            along = tl.sum(tl.exp(log_a) * (new_f - old_f) * (new_f - f))
            along += tl.sum(tl.exp(log_b) * (new_g - old_g) * (new_g - g))
            age = tl.where(along < 0, 0.0, age + 1.0)
            f, g = new_f + age / (age + 3.0) * (new_f - old_f), new_g + age / (age + 3.0) * (new_g - old_g)
        else:
            f, g = new_f, new_g
        old_f, old_g = new_f, new_g
        step += 1
    tl.store(OLD + i, old_f, mask=i < n)
    tl.store(AHEAD + i, f, mask=i < n)
    tl.store(OLD + n + j, old_g, mask=j < m)
    tl.store(AHEAD + n + j, g, mask=j < m)
    tl.store(AGE + batch, age)
    tl.store(ERRORS + batch, error)

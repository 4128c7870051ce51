# pyright: basic, reportCallIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""The step of both potentials after the sums of a plan, in two launches: twenty small ones would
take longer than the sums.

    ratio = log(r / a), log(c / b)          of all entries of both marginals, one after the other
    new   = ahead - ½ ratio
    ahead = new + β (new - old)             with momentum; β needs sums over all entries first

The same step in plain torch is `sinkhorn.move`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


def move(
    sums: tuple[Tensor, Tensor], log_mass: Tensor, old: Tensor, ahead: Tensor, age: Tensor, momentum: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """New potentials and where to look next, in place of the old ones; the age of the momentum,
    and the marginal error."""
    r, c = (z.contiguous() for z in sums)
    old, ahead, age = old.contiguous(), ahead.contiguous(), age.contiguous()
    n, m, count = r.shape[-1], c.shape[-1], age.numel()
    # marginal error, movement along the step, entries that are not finite
    facts = torch.zeros(count, 3, device=old.device)
    next_age, error = torch.empty_like(age), torch.empty_like(age[..., 0])
    grid = triton.cdiv(n + m, BLOCK), count
    given = r, c, log_mass, old, ahead
    with torch.cuda.device_of(old):
        look_kernel[grid](*given, facts, n, m, BLOCK)
        move_kernel[grid](*given, age, facts, next_age, error, n, m, momentum, BLOCK)
    return old, ahead, next_age, error


@triton.jit
def entries(R, C, LOG, OLD, AHEAD, k, n, m, batch):
    """For some entries the marginal, the mass it should be, log of their ratio, 1 where that is
    not finite, and potentials."""
    inside = k < n + m
    row = tl.load(R + batch * n + k, mask=k < n, other=0.0)
    total = row + tl.load(C + batch * m + k - n, mask=inside & (k >= n), other=0.0)
    log_mass = tl.load(LOG + k, mask=inside, other=-float("inf"))
    finite, carries = (total > 0) & (total < float("inf")), log_mass > -float("inf")
    ratio = tl.where(finite & carries, tl.log(tl.where(finite, total, 1.0)) - log_mass, 0.0)
    lost = tl.where(carries & (finite == 0), 1.0, 0.0)
    at = batch * (n + m) + k
    old, ahead = tl.load(OLD + at, mask=inside, other=0.0), tl.load(AHEAD + at, mask=inside, other=0.0)
    return total, tl.exp(log_mass), ratio, lost, old, ahead


@triton.jit(do_not_specialize=["n", "m"])
def look_kernel(R, C, LOG, OLD, AHEAD, FACTS, n, m, BLOCK: tl.constexpr):
    """The sums over all entries."""
    batch = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total, mass, ratio, lost, old, ahead = entries(R, C, LOG, OLD, AHEAD, k, n, m, batch)
    along = tl.sum(mass * (ahead - 0.5 * ratio - old) * (-0.5 * ratio))
    tl.atomic_add(FACTS + 3 * batch, tl.sum(tl.abs(total - mass)), sem="relaxed")
    tl.atomic_add(FACTS + 3 * batch + 1, along, sem="relaxed")
    tl.atomic_add(FACTS + 3 * batch + 2, tl.sum(lost), sem="relaxed")


@triton.jit(do_not_specialize=["n", "m"])
def move_kernel(R, C, LOG, OLD, AHEAD, AGE, FACTS, NEXT_AGE, ERROR, n, m, momentum: tl.constexpr, BLOCK: tl.constexpr):
    """The step, in place; where entries are not finite, none is taken, and the error is
    infinite."""
    batch = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    _, _, ratio, _, old, ahead = entries(R, C, LOG, OLD, AHEAD, k, n, m, batch)
    lost = tl.load(FACTS + 3 * batch + 2) > 0
    new = tl.where(lost, ahead, ahead - 0.5 * ratio)
    age = tl.load(AGE + batch)
    next_ahead = new
    if momentum:
        along = tl.where(lost, 0.0, tl.load(FACTS + 3 * batch + 1))
        age = tl.where(along < 0, 0.0, age + 1.0)
        next_ahead = new + age / (age + 3.0) * (new - old)
    at, inside = batch * (n + m) + k, k < n + m
    tl.store(OLD + at, new, mask=inside)
    tl.store(AHEAD + at, next_ahead, mask=inside)
    if tl.program_id(0) == 0:
        tl.store(NEXT_AGE + batch, age)
        tl.store(ERROR + batch, tl.where(lost, float("inf"), tl.load(FACTS + 3 * batch)))

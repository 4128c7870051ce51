# pyright: basic, reportCallIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""The step of both potentials after the sums of a plan, in two launches, or four where marginals
are not fixed: twenty to sixty small ones would take longer than the sums.

    away  = z - anchor - k,   k = -log Σ a exp(-κ (z - anchor)) / κ       of each side, at z = ahead
    rest  = (h - 1) a exp(away)                                           what a cap leaves over
    ratio = τ log((r + rest) / (h a)) + (1 - τ) (away + log |π|)
    new   = ahead - ½ ratio
    ahead = new + β (new - old)             with momentum; β needs sums over all entries first

Fixed marginals have τ = h = 1, and no k. The same step in plain torch is `sinkhorn.move`, and
marginals.py says what κ, τ, h and the anchor are.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gromap.transport import marginals
from gromap.transport.marginals import Marginals

BLOCK = 1024
NOTHING: tl.constexpr = tl.constexpr(marginals.NOTHING)
FACTS: tl.constexpr = tl.constexpr(16)  # numbers that all programs of a problem add to, in these places:
ERROR: tl.constexpr = tl.constexpr(0)  # the marginal error
ALONG: tl.constexpr = tl.constexpr(1)  # the movement along the step
LOST: tl.constexpr = tl.constexpr(2)  # entries that are not finite
MASS: tl.constexpr = tl.constexpr(3)  # |π|
LEAST: tl.constexpr = tl.constexpr(4)  # of both sides: about the least κ (z - anchor), an integer
RISE: tl.constexpr = tl.constexpr(6)  # Σ a (exp(least - κ (z - anchor)) - 1)
TOTAL: tl.constexpr = tl.constexpr(8)  # Σ a exp(least - κ (z - anchor))
FAR: tl.constexpr = tl.constexpr(1 << 30)  # least is kept less this number, so that nothing yet is zero


def move(
    sums: tuple[Tensor, Tensor], to: Marginals, old: Tensor, ahead: Tensor, age: Tensor, momentum: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """New potentials and where to look next, in place of the old ones; the age of the momentum,
    and the marginal error."""
    r, c = (z.contiguous() for z in sums)
    old, ahead, age = old.contiguous(), ahead.contiguous(), age.contiguous()
    n, m, count = r.shape[-1], c.shape[-1], age.numel()
    anchor, sides = (to.log, to.log) if to.fixed else (to.anchor.contiguous(), to.sides)
    facts = torch.zeros(count, FACTS.value, device=old.device)
    asked = to.log, anchor, sides, n + m if anchor.ndim > 1 else 0, facts, facts.view(torch.int32)
    next_age, error = torch.empty_like(age), torch.empty_like(age[..., 0])
    grid = triton.cdiv(n + m, BLOCK), count
    with torch.cuda.device_of(old):
        if not to.fixed:
            least_kernel[grid](ahead, *asked, r, n, m, BLOCK)
            total_kernel[grid](ahead, *asked, n, m, BLOCK)
        look_kernel[grid](ahead, *asked, r, c, old, n, m, to.fixed, BLOCK)
        move_kernel[grid](ahead, *asked, r, c, old, age, next_age, error, n, m, to.fixed, momentum, BLOCK)
    return old, ahead, next_age, error


@triton.jit
def asked_of(SIDES, side):
    """κ, τ, rate and h of a side."""
    at = SIDES + 4 * side
    kappa, tau, rate, most = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    return kappa.to(tl.float32), tau.to(tl.float32), rate.to(tl.float32), most.to(tl.float32)


@triton.jit
def apart(AHEAD, LOG, ANCHOR, stride, k, n, m, batch):
    """z - anchor and the log of the weight of some entries."""
    inside = k < n + m
    z = tl.load(AHEAD + batch * (n + m) + k, mask=inside, other=0.0)
    log = tl.load(LOG + k, mask=inside, other=-float("inf"))
    return z - tl.load(ANCHOR + batch * stride + k, mask=inside, other=0.0), log


@triton.jit(do_not_specialize=["n", "m", "stride"])
def least_kernel(AHEAD, LOG, ANCHOR, SIDES, stride, FACTS_AT, INTEGERS, R, n, m, BLOCK: tl.constexpr):
    """The mass of the plan, and about the least κ (z - anchor) of both sides."""
    batch = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(R + batch * n + k, mask=k < n, other=0.0)
    tl.atomic_add(FACTS_AT + FACTS * batch + MASS, tl.sum(row), sem="relaxed")
    d, log = apart(AHEAD, LOG, ANCHOR, stride, k, n, m, batch)
    for side in tl.static_range(2):
        kappa, _, _, _ = asked_of(SIDES, side)
        whole = tl.minimum(tl.maximum(kappa * d, -1e9), 1e9).to(tl.int32)
        mine = (log > -float("inf")) & (tl.where(k < n, 0, 1) == side)
        least = tl.min(tl.where(mine, whole - FAR, 0))
        tl.atomic_min(INTEGERS + FACTS * batch + LEAST + side, least, sem="relaxed")


@triton.jit
def least_of(INTEGERS, side, batch):
    return (tl.load(INTEGERS + FACTS * batch + LEAST + side) + FAR).to(tl.float32)


@triton.jit(do_not_specialize=["n", "m", "stride"])
def total_kernel(AHEAD, LOG, ANCHOR, SIDES, stride, FACTS_AT, INTEGERS, n, m, BLOCK: tl.constexpr):
    """Sums of exponentials of both sides. The small ones are added less one, and keep their
    digits."""
    batch = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d, log = apart(AHEAD, LOG, ANCHOR, stride, k, n, m, batch)
    weight = tl.exp(log)
    for side in tl.static_range(2):
        kappa, _, _, _ = asked_of(SIDES, side)
        mine = (log > -float("inf")) & (tl.where(k < n, 0, 1) == side)
        power, rise = powers(tl.where(mine, least_of(INTEGERS, side, batch) - kappa * d, 0.0))
        tl.atomic_add(FACTS_AT + FACTS * batch + RISE + side, tl.sum(tl.where(mine, weight * rise, 0.0)), sem="relaxed")
        total = tl.sum(tl.where(mine, weight * power, 0.0))
        tl.atomic_add(FACTS_AT + FACTS * batch + TOTAL + side, total, sem="relaxed")


@triton.jit
def powers(x):
    """exp(x), and exp(x) - 1 with all its digits."""
    power = tl.exp(x)
    small = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5))))
    return power, tl.where(tl.abs(x) < 0.1, small, power - 1)


@triton.jit
def mean(least, rise, total, kappa):
    """k from the sums of `powers` of least - κ (z - anchor)."""
    y = rise / (2 + rise)
    small = 2 * y * (1 + y * y * (1 / 3 + y * y / 5))  # log(1 + rise)
    return (least - tl.where(tl.abs(rise) < 0.1, small, tl.log(total))) / kappa


@triton.jit
def mean_of(FACTS_AT, INTEGERS, kappa, side, batch):
    """k of a side."""
    facts = FACTS_AT + FACTS * batch + side
    return mean(least_of(INTEGERS, side, batch), tl.load(facts + RISE), tl.load(facts + TOTAL), kappa)


@triton.jit
def fixed_step(total, log):
    """log(r / a), 0 where it is not finite, what r should be, and whether it is finite."""
    finite, carries = (total > 0) & (total < float("inf")), log > -float("inf")
    ratio = tl.where(finite & carries, tl.log(tl.where(finite, total, 1.0)) - log, 0.0)
    return ratio, tl.exp(log), finite | (carries == 0)


@triton.jit
def free_step(total, log, away, mass, tau, rate, most):
    """The same where marginals are not fixed."""
    carries = log > -float("inf")
    rest = (most - 1) * tl.exp(tl.where(most > 1, log + away, -float("inf")))
    held = total + rest
    low = tl.where(tau < 1, NOTHING, -float("inf"))  # where little is wanted, nothing at all is near enough
    some = (held > 0) & (held < float("inf"))
    ratio = tl.maximum(tl.where(some, tl.log(tl.where(some, held, 1.0)) - log - tl.log(most), low), low)
    share = tl.where(some, held, 0.0) / tl.where(mass > 0, mass, 1.0)
    want = tl.where(tau == 0, share, most * tl.exp(log - rate * away) - rest)
    log_mass = tl.where(mass > 0, tl.log(tl.where(mass > 0, mass, 1.0)), float("inf"))
    ratio = tau * ratio + (1 - tau) * tl.where(tau < 1, away + log_mass, 0.0)
    finite = (held < float("inf")) & (tl.abs(ratio) < float("inf"))
    return tl.where(finite & carries, ratio, 0.0), tl.where(carries, want, 0.0), finite | (carries == 0)


@triton.jit
def entries(
    AHEAD, LOG, ANCHOR, SIDES, stride, FACTS_AT, INTEGERS, R, C, OLD, k, n, m, fixed: tl.constexpr, batch
):  # fmt: skip
    """For some entries the marginal, what it should be, twice the step, 1 where that is not
    finite, their weight, and potentials."""
    inside = k < n + m
    row = tl.load(R + batch * n + k, mask=k < n, other=0.0)
    total = row + tl.load(C + batch * m + k - n, mask=inside & (k >= n), other=0.0)
    log = tl.load(LOG + k, mask=inside, other=-float("inf"))
    at = batch * (n + m) + k
    old, ahead = tl.load(OLD + at, mask=inside, other=0.0), tl.load(AHEAD + at, mask=inside, other=0.0)
    if fixed:
        ratio, want, finite = fixed_step(total, log)
    else:
        kappa_x, tau_x, rate_x, most_x = asked_of(SIDES, 0)
        kappa_y, tau_y, rate_y, most_y = asked_of(SIDES, 1)
        k_x, k_y = mean_of(FACTS_AT, INTEGERS, kappa_x, 0, batch), mean_of(FACTS_AT, INTEGERS, kappa_y, 1, batch)
        rows, mass = k < n, tl.load(FACTS_AT + FACTS * batch + MASS)
        tau, rate, most = tl.where(rows, tau_x, tau_y), tl.where(rows, rate_x, rate_y), tl.where(rows, most_x, most_y)
        d, _ = apart(AHEAD, LOG, ANCHOR, stride, k, n, m, batch)
        ratio, want, finite = free_step(total, log, d - tl.where(rows, k_x, k_y), mass, tau, rate, most)
    return total, want, ratio, tl.where(finite, 0.0, 1.0), tl.exp(log), old, ahead


@triton.jit(do_not_specialize=["n", "m", "stride"])
def look_kernel(
    AHEAD, LOG, ANCHOR, SIDES, stride, FACTS_AT, INTEGERS, R, C, OLD, n, m, fixed: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The sums over all entries."""
    batch = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total, want, ratio, lost, weight, old, ahead = entries(
        AHEAD, LOG, ANCHOR, SIDES, stride, FACTS_AT, INTEGERS, R, C, OLD, k, n, m, fixed, batch
    )
    facts = FACTS_AT + FACTS * batch
    tl.atomic_add(facts + ERROR, tl.sum(tl.abs(total - want)), sem="relaxed")
    tl.atomic_add(facts + ALONG, tl.sum(weight * (ahead - 0.5 * ratio - old) * (-0.5 * ratio)), sem="relaxed")
    tl.atomic_add(facts + LOST, tl.sum(lost), sem="relaxed")


@triton.jit(do_not_specialize=["n", "m", "stride"])
def move_kernel(
    AHEAD, LOG, ANCHOR, SIDES, stride, FACTS_AT, INTEGERS, R, C, OLD, AGE, NEXT_AGE, ERRORS, n, m,
    fixed: tl.constexpr, momentum: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The step, in place; where entries are not finite, none is taken, and the error is
    infinite."""
    batch = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    _, _, ratio, _, _, old, ahead = entries(
        AHEAD, LOG, ANCHOR, SIDES, stride, FACTS_AT, INTEGERS, R, C, OLD, k, n, m, fixed, batch
    )
    facts = FACTS_AT + FACTS * batch
    lost = tl.load(facts + LOST) > 0
    new = tl.where(lost, ahead, ahead - 0.5 * ratio)
    age = tl.load(AGE + batch)
    next_ahead = new
    if momentum:
        along = tl.where(lost, 0.0, tl.load(facts + ALONG))
        age = tl.where(along < 0, 0.0, age + 1.0)
        next_ahead = new + age / (age + 3.0) * (new - old)
    at, inside = batch * (n + m) + k, k < n + m
    tl.store(OLD + at, new, mask=inside)
    tl.store(AHEAD + at, next_ahead, mask=inside)
    if tl.program_id(0) == 0:
        tl.store(NEXT_AGE + batch, age)
        tl.store(ERRORS + batch, tl.where(lost, float("inf"), tl.load(facts + ERROR)))

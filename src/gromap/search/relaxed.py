"""The search where marginals are not fixed: parts against wholes, with features or not.

Between small clouds all plans of a batch are written down, and cool down as those of anneal.py do:

    1  a⊗b; diag(±σ) on the leading axes; random Γ; windows: a ball of one side of about the share
       that is matched, around points far from each other, against all of the other side, with the
       leading axes of both laid on each other in every way
    2  one outer step per temperature, down to that of the search
    3  the lowest distinct ones go on alone, until they settle, to the temperature asked for

Values are those of plans of mass one, which are feasible where marginals are free.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._threads import side_by_side
from gromap._torch import eigh, untyped
from gromap.geometry.measure import spread_points
from gromap.search.budget import RelaxedBudget
from gromap.search.proposals import random_starts, sign_flips
from gromap.solvers.loop import alternate
from gromap.solvers.protocol import Begin, Loop
from gromap.solvers.relaxed import Moments, RelaxedProblem, marginals_of
from gromap.transport import Dense
from gromap.transport.sinkhorn import Potentials, Sinkhorn, sinkhorn
from gromap.transport.tiles import cuts


class Plans(NamedTuple):
    """A batch of plans: what the next transport problem asks of them."""

    cross: Tensor  # (B, n, m) C_X π C_Y
    p: Tensor  # (B, n)
    q: Tensor  # (B, m)


def relaxed_start(
    problem: RelaxedProblem, loop: Loop, seed: int, starts: int, budget: RelaxedBudget
) -> tuple[Moments, Potentials]:
    """The lowest minimum of the search, with potentials on all points of the problem."""
    n, m = len(problem.a), len(problem.b)
    small = problem.coarser(*(k if k <= budget.whole else budget.cells for k in (n, m)))
    pair = DensePair(small)
    floor = max(problem.eps, budget.floor * pair.heat)
    begins = pair.starts(starts, seed, budget)

    def cooled(some: slice) -> Tensor:
        return pair.cool(Plans(*(z[some] for z in begins)), floor, budget)

    count = len(begins.p)
    plans = torch.cat(side_by_side(cooled, cuts(count, min(count, 2))))
    value = pair.value(plans, floor)
    rough, best = loop.rough(), None
    for k in pair.distinct(plans, value, budget):
        state = small.moments_of(plans[k])
        for eps in pair.ladder(2 * floor, problem.eps, 2.0):
            here = small.at(eps)
            end = alternate(here, Begin(state, here.zero_potentials()), rough)
            state = end.gamma
        if best is None or float(end.energy) < float(best.energy):
            best = end
    assert best is not None
    duals = small.interpolate(best.gamma, best.duals, problem)
    return small.carried(best.gamma, duals, problem), duals


class DensePair:
    """A small problem with all its costs written down."""

    def __init__(self, problem: RelaxedProblem):
        self.problem, self.a, self.b = problem, problem.a.double(), problem.b.double()
        self.x, self.y = problem.x.double(), problem.y.double()
        sides = (self.x, problem.x_norms.double()), (self.y, problem.y_norms.double())
        self.cx, self.cy = (s[:, None] + s - 2 * z @ z.mT for z, s in sides)
        self.alpha, fused = problem.alpha, problem.fused
        self.linear = None if fused is None else (1 - self.alpha) * fused.cost().double()
        self.heat = max(self.alpha, 0.05) * 2 * math.sqrt(self._square(self.cx, self.a) * self._square(self.cy, self.b))

    @staticmethod
    def _square(c: Tensor, a: Tensor) -> float:
        return float(a @ c.square() @ a)

    def product(self, p: Tensor, q: Tensor) -> Plans:
        """Of p⊗q, for batches of both."""
        return Plans((p @ self.cx)[:, :, None] * (q @ self.cy)[:, None], p, q)

    def of(self, pi: Tensor) -> Plans:
        return Plans(self.cx @ pi @ self.cy, pi.sum(2), pi.sum(1))

    def starts(self, count: int, seed: int, budget: RelaxedBudget) -> Plans:
        """Line 1."""
        sx, sy = ((w @ z.square()).sqrt() for z, w in ((self.x, self.a), (self.y, self.b)))
        gamma = torch.cat([sign_flips(sx, sy, budget.flipped_axes), random_starts(sx, sy, count, seed)])
        whole = [(self.a, self.b, gamma)]
        for p, q in self._windows(budget):
            flips = self._laid(p, q, budget.window_axes)
            whole.append((p, q, flips))
        p = torch.cat([p.expand(len(g), -1) for p, _, g in whole])
        q = torch.cat([q.expand(len(g), -1) for _, q, g in whole])
        plans, gamma = self.product(p, q), torch.cat([g for *_, g in whole])
        return plans._replace(cross=plans.cross + 4 * self.x @ gamma @ self.y.mT)

    def _windows(self, budget: RelaxedBudget) -> list[tuple[Tensor, Tensor]]:
        """Pairs of marginals, one of which is a ball."""
        sides = (self.x, self.cx, self.a), (self.y, self.cy, self.b)
        most = self.problem.most or (math.inf, math.inf)
        found = list[tuple[Tensor, Tensor]]()
        for k, ((z, c, w), h) in enumerate(zip(sides, most, strict=True)):
            shares = budget.shares if h == math.inf else (1 / h,)
            centers = spread_points(z - w @ z, min(budget.windows, len(z)))
            for share in shares:
                if share > 0.95:
                    continue
                for i in centers.tolist():
                    order = c[i].argsort()
                    inside = order[: 1 + int((w[order].cumsum(0) < share).sum())]
                    ball = torch.zeros_like(w)
                    ball[inside] = w[inside] / w[inside].sum()
                    found.append((ball, self.b) if k == 0 else (self.a, ball))
        return found

    def _laid(self, p: Tensor, q: Tensor, axes: int) -> Tensor:
        """Γ = 0, and the leading axes of two marginals laid on each other in every way.  (S, D, E)"""
        (left, s), (right, t) = self._axes(self.x, p, axes), self._axes(self.y, q, axes)
        flips = sign_flips(s, t, min(axes, len(s), len(t)))
        return left @ flips @ right.mT

    @staticmethod
    def _axes(z: Tensor, p: Tensor, axes: int) -> tuple[Tensor, Tensor]:
        """The leading axes of a marginal and the deviations along them.  (D, K), (K,)"""
        z = z - p @ z
        theta, turn = eigh(z.mT @ (p[:, None] * z))
        return turn.flip(-1)[:, :axes], theta.flip(-1)[:axes].clamp(min=0).sqrt()

    def ladder(self, hot: float, cold: float, ratio: float) -> list[float]:
        """Temperatures down to a given one."""
        rungs = max(0, math.ceil(math.log(max(hot / cold, 1.0)) / math.log(ratio) - 1e-9))
        return [cold * (hot / cold) ** (1 - k / rungs) for k in range(rungs)] + [cold] if rungs else [cold]

    def cool(self, plans: Plans, eps: float, budget: RelaxedBudget) -> Tensor:
        """Line 2: the plans that a batch leads to.  (B, n, m)"""
        ladder = self.ladder(budget.hot * self.heat, eps, budget.cooling)
        f, g = (w.new_zeros(len(plans.p), len(w)) for w in (self.a, self.b))
        pi = torch.empty(0)
        for k, now in enumerate(ladder + [eps] * budget.settling):
            before = ladder[min(k, len(ladder)) - 1] if k else now
            pi, f, g = self.step(plans, f * (before / now), g * (before / now), now, budget.sinkhorn_steps)
            plans = self.of(pi)
        return pi

    def step(self, plans: Plans, f: Tensor, g: Tensor, eps: float, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """One outer step: plans of mass one, and potentials in nats."""
        problem, log_a, log_b = self.problem, self.a.log(), self.b.log()
        score = (4 * self.alpha / eps) * plans.cross
        if self.linear is not None:
            score = score - self.linear / eps
        sides = (self.cx, plans.p), (self.cy, plans.q)
        anchor = torch.cat([-(2 * self.alpha / eps) * p @ c.square() for c, p in sides], -1)
        to = marginals_of(log_a, log_b, anchor, eps, problem.rho, problem.most)
        end = sinkhorn(Dense(score), to, Potentials(f, g), Sinkhorn(steps, tol=1e-2))
        pi = (score + (end.f + log_a)[..., None] + (end.g + log_b)[:, None]).exp()
        return pi / pi.sum((1, 2), keepdim=True), end.f, end.g

    def value(self, pi: Tensor, eps: float) -> Tensor:
        """The value of some plans of mass one, without what partial ones leave.  (B,)"""
        cross, p, q = self.of(pi)
        loss = ((p @ self.cx.square()) * p).sum(1) + ((q @ self.cy.square()) * q).sum(1) - 2 * (cross * pi).sum((1, 2))
        value = self.alpha * loss + eps * _kl(pi.flatten(1), torch.outer(self.a, self.b).flatten())
        if self.linear is not None:
            value = value + (self.linear * pi).sum((1, 2))
        for rho, part, w in zip(self.problem.rho, (p, q), (self.a, self.b), strict=True):
            if 0 < rho < math.inf:
                value = value + rho * _kl(part, w)
        return value.nan_to_num(nan=math.inf)

    def distinct(self, pi: Tensor, value: Tensor, budget: RelaxedBudget) -> list[int]:
        """The lowest plans that differ in more than a share of their mass."""
        found = list[int]()
        for k in value.argsort().tolist():
            if len(found) == budget.kept or not math.isfinite(float(value[k])):
                break
            if all(float((pi[k] - pi[j]).abs().sum()) > budget.same for j in found):
                found.append(k)
        return found or [int(value.argmin())]


def _kl(p: Tensor, w: Tensor) -> Tensor:
    """KL of the rows of a batch.  (B,)"""
    return untyped.special.xlogy(p, p / w.clamp(min=1e-300)).sum(-1)

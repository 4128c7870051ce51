"""A small problem with marginals that are not fixed, and with all its costs written down: plans of
a batch of starts that cool down together."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._torch import tolist, untyped
from gromap.search.budget import RelaxedBudget
from gromap.solvers.relaxed import RelaxedProblem, marginals_of
from gromap.transport import Dense
from gromap.transport.cuda_graph import StepGraph
from gromap.transport.sinkhorn import Potentials, Sinkhorn, sinkhorn


class Batch(NamedTuple):
    """What the next transport problems ask of some plans, and potentials to begin with."""

    cross: Tensor  # (B, n, m) C_X π C_Y
    p: Tensor  # (B, n)
    q: Tensor  # (B, m)
    f: Tensor  # (B, n) in units of energy
    g: Tensor  # (B, m)

    def take(self, k: Tensor | slice) -> Batch:
        return Batch(*(z[k] for z in self))

    def join(self, other: Batch) -> Batch:
        return Batch(*(torch.cat(z) for z in zip(self, other, strict=True)))


class DensePair:
    """Plans of mass one between two small clouds, in float32, which serves to compare them, and in
    units in which the root of the product of both E c² is one.

    The search frees no marginal: plans that cost nothing there collapse, and those that must fill
    caps, as of partial matches, hardly move.
    """

    def __init__(self, problem: RelaxedProblem, budget: RelaxedBudget):
        self.problem, self.budget, self.a, self.b = problem, budget, problem.a.float(), problem.b.float()
        x, y = problem.x.double(), problem.y.double()
        sides = (x, problem.x_norms.double(), problem.a.double()), (y, problem.y_norms.double(), problem.b.double())
        cx, cy = (s[:, None] + s - 2 * z @ z.mT for z, s, _ in sides)
        spread = (float(w @ c.square() @ w) for c, (*_, w) in zip((cx, cy), sides, strict=True))
        self.unit = math.sqrt(math.prod(spread)) or 1.0  # of energy; zero where all points are one
        root = math.sqrt(self.unit)
        self.x, self.y = (x / math.sqrt(root)).float(), (y / math.sqrt(root)).float()
        self.cx, self.cy = (cx / root).float(), (cy / root).float()
        self.squares = self.cx.square(), self.cy.square()
        self.alpha, fused = problem.alpha, problem.fused
        self.linear = None if fused is None else ((1 - self.alpha) / self.unit * fused.cost().double()).float()
        self.heat = 2 * max(self.alpha, 0.05)
        left, right = (max(rho / self.unit, budget.soft * self.heat) for rho in problem.rho)
        if problem.most is not None:
            left, right = (math.inf if h == 1 else budget.soft * self.heat for h in problem.most)
        self.rho = left, right
        self._graphs: dict[int, StepGraph] = {}  # for each size of a batch

    def of(self, pi: Tensor, f: Tensor | None = None, g: Tensor | None = None) -> Batch:
        p, q = pi.sum(2), pi.sum(1)
        zeros = torch.zeros_like(p), torch.zeros_like(q)
        return Batch(self.cx @ pi @ self.cy, p, q, zeros[0] if f is None else f, zeros[1] if g is None else g)

    def around_weights(self, gamma: Tensor) -> Batch:
        """a⊗b, and linear maps between the two.  gamma: (B, D, E)"""
        p, q = self.a.expand(len(gamma), -1), self.b.expand(len(gamma), -1)
        cross = torch.outer(self.cx @ self.a, self.cy @ self.b) + 4 * self.x @ gamma @ self.y.mT
        return Batch(cross, p, q, torch.zeros_like(p), torch.zeros_like(q))

    def cool(self, batch: Batch, temperatures: list[float]) -> tuple[Tensor, Batch]:
        """One outer step at each: the last plans, and what comes after them.  (B, n, m)"""
        pi = torch.empty(0)
        for eps in temperatures:
            pi, f, g = self.step(batch, eps)
            batch = self.of(pi, f, g)
        return pi, batch

    def step(self, batch: Batch, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """One outer step: plans of mass one, and their potentials in units of energy."""
        log_a, log_b = self.a.log(), self.b.log()
        score = (4 * self.alpha / eps) * batch.cross
        if self.linear is not None:
            score.sub_(self.linear / eps)
        sides = zip(self.squares, (batch.p, batch.q), strict=True)
        anchor = torch.cat([-(2 * self.alpha / eps) * p @ c for c, p in sides], -1)
        to = marginals_of(log_a, log_b, anchor, eps, self.rho, None)
        start = Potentials(batch.f / eps, batch.g / eps)
        options = Sinkhorn(self.budget.sinkhorn_steps, tol=1e-2)
        graph = self._graphs.setdefault(len(score), StepGraph()) if score.is_cuda else None
        end = sinkhorn(Dense(score), to, start, options, graph)
        pi = score.add_((end.f + log_a)[..., None]).add_((end.g + log_b)[:, None]).exp_()
        return pi.div_(pi.sum((1, 2), keepdim=True)), eps * end.f, eps * end.g

    def value(self, pi: Tensor, batch: Batch, eps: float) -> Tensor:
        """Of plans of mass one, and of what comes after them.  (B,)"""
        p, q = batch.p, batch.q
        loss = ((p @ self.squares[0]) * p).sum(1) + ((q @ self.squares[1]) * q).sum(1)
        loss = loss - 2 * (batch.cross * pi).sum((1, 2))
        value = self.alpha * loss + eps * _kl(pi.flatten(1), torch.outer(self.a, self.b).flatten())
        if self.linear is not None:
            value = value + (self.linear * pi).sum((1, 2))
        for rho, part, w in zip(self.rho, (p, q), (self.a, self.b), strict=True):
            if 0 < rho < math.inf:
                value = value + rho * _kl(part, w)
        return value.nan_to_num(nan=math.inf)

    def distinct(self, pi: Tensor, value: Tensor) -> list[int]:
        """The lowest plans that differ in more than a share of their mass."""
        found, values = list[int](), tolist(value)
        lowest, taken = min(values), [False] * len(values)
        gap = math.inf if self.problem.most else self.budget.gap * abs(lowest)  # caps change the order
        for k in tolist(value.argsort()):
            if len(found) == self.budget.kept or not values[k] - lowest <= gap:
                break
            if not taken[k]:
                found.append(k)
                near = (pi - pi[k]).abs_().sum((1, 2)) <= self.budget.same
                taken = [a or b for a, b in zip(taken, tolist(near), strict=True)]
        return found or [int(value.argmin())]


def _kl(p: Tensor, w: Tensor) -> Tensor:
    """KL of the rows of a batch.  (B,)"""
    return untyped.special.xlogy(p, p / w.clamp(min=torch.finfo(w.dtype).tiny)).sum(-1)

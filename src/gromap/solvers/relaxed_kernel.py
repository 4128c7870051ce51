"""Fused, unbalanced, semi-relaxed and partial GW on the exact costs, all matrices written down:
what `KernelGW` solves where features are given or marginals are not fixed, and the reference for
relaxed.py.

    C_γ = 2 α (C_X² p ⊕ C_Y² q - 2 C_X γ C_Y) + (1 - α) C_F,    p = γ 1,  q = γᵀ 1
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gromap._pair import Pair
from gromap._plan import Plan
from gromap._threads import all_threads
from gromap.solvers.embedded import CntProblem, map_of_plan
from gromap.solvers.protocol import Alternating
from gromap.solvers.relaxed import embedded_problem, marginal_cost, marginal_tol, marginals_of, weight_slope
from gromap.transport import Dense, Score
from gromap.transport.marginals import Marginals


class Coupled(NamedTuple):
    """A plan and the sums of its rows and columns."""

    pi: Tensor  # (N, M)
    p: Tensor  # (N,)
    q: Tensor  # (M,)


class RelaxedKernelProblem(Alternating):
    """Γ is the last plan, `Coupled`."""

    dense = primal = True
    pair: Pair

    def __init__(self, pair: Pair):
        super().__init__(*pair.weights, pair.eps, pair.energy_unit, pair)
        self.relaxed = pair.relaxed
        self.alpha = 1.0 if pair.fused is None else pair.fused.alpha
        sides = zip((pair.x, pair.y), pair.units, strict=True)
        self.cx, self.cy = ((s.cost(s.measure.points, s.measure.points) / unit).to(s.dtype) for s, unit in sides)
        self.linear = None if pair.fused is None else (1 - self.alpha) * pair.fused.cost()

    @cached_property
    def embedded(self) -> CntProblem:  # pyright: ignore[reportIncompatibleMethodOverride] - a property, kept
        return embedded_problem(self.pair)

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Coupled:
        pi = self.a[:, None] * self.b if plan is None else plan.matrix().to(self.a)
        return Coupled(pi, pi.sum(1), pi.sum(0))

    def score(self, gamma: Coupled) -> Dense:
        with all_threads():
            cross = self.cx @ gamma.pi @ self.cy
        score = cross.mul_(4 * self.alpha / self.eps)
        return Dense(score if self.linear is None else score.sub_(self.linear, alpha=1 / self.eps))

    def marginals(self, gamma: Coupled) -> Marginals:
        sides = (self.cx, gamma.p), (self.cy, gamma.q)
        anchor = torch.cat([-(2 * self.alpha / self.eps) * (c.square() @ p) for c, p in sides])
        return marginals_of(self.log_a, self.log_b, anchor, self.eps, self.pair.rho, self.pair.most)

    def correlate(self, gamma: Coupled, score: Score, u: Tensor, v: Tensor) -> tuple[Coupled, Tensor]:
        pi = (score.dense() + u[:, None]).add_(v).exp_()
        return Coupled(pi, pi.sum(1), pi.sum(0)), pi.sum(1)

    def mix(self, old: Coupled, new: Coupled, t: float) -> Coupled:
        return Coupled(*(torch.lerp(here, there, t) for here, there in zip(old, new, strict=True)))

    def bilinear(self, m: Coupled) -> Tensor:
        """B(m, m)"""
        m = Coupled(*(z.double() for z in m))
        cx, cy = self.cx.double(), self.cy.double()
        return m.p @ cx.square() @ m.p + m.q @ cy.square() @ m.q - 2 * ((cx @ m.pi @ cy) * m.pi).sum()

    def energy(self, old: Coupled, new: Coupled, transport: Tensor) -> tuple[Tensor, Tensor]:
        """E(π), and -B(δ, δ)."""
        change = Coupled(*(there.double() - here.double() for here, there in zip(old, new, strict=True)))
        curve = self.alpha * self.bilinear(change)
        return transport - self.alpha * self.bilinear(old) + curve, -curve

    def matrix(self, gamma: Coupled, plan: Plan) -> Tensor:
        return map_of_plan(plan, self.pair)

    def evaluate(self, gamma: Coupled, plan: Plan) -> tuple[float, float]:
        """L(π) and KL(π | α⊗β) for any plan, from the cost matrices themselves."""
        pi, (f, g) = plan.matrix(), plan.potentials
        kl = float((plan.score.dense() + f[:, None]).add_(g).mul_(pi).double().sum())
        return float(self.bilinear(Coupled(pi, pi.sum(1), pi.sum(0)))), kl

    def feature_value(self, plan: Plan) -> float:
        return 0.0 if self.pair.fused is None else self.pair.fused.mean(plan)

    def gradient_terms(self, plan: Plan, side: int) -> tuple[Dense, Tensor]:
        """-W = -π C_Y πᵀ, dense; the weights need no more."""
        cost, pi = (self.cy, plan.matrix()) if side == 0 else (self.cx, plan.matrix().mT)
        return Dense(-(pi @ cost @ pi.mT)), torch.zeros_like(plan.sums[side])

    def weight_slope(self, gamma: Coupled, plan: Plan, side: int) -> Tensor:
        return weight_slope(self.marginals(gamma), self.pair.rho[side], self.eps, plan, side)

    def marginal_tol(self, tol: float) -> float:
        return marginal_tol(self.pair.rho, tol * self.unit)

    def marginal_value(self, gamma: Any, plan: Plan) -> float:
        return marginal_cost(self.pair.rho, plan) if self.pair.most is None else 0.0

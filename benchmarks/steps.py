"""Sinkhorn steps at the solutions of real pairs, for step.py to time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from man import man_pair
from torch import Tensor

import gromap
from gromap.bench.shapes import surface_pair
from gromap.solvers.embedded import CntProblem
from gromap.transport import LowRank
from gromap.transport.marginals import Marginals
from gromap.transport.sinkhorn import Potentials, Sinkhorn, sinkhorn

COARSE, SETTLE = 2000, 100  # points of the match that `extended_step` extends, and Sinkhorn steps after it, at most


@dataclass(frozen=True)
class Step:
    """The arguments of one Sinkhorn step: π_ij = exp(<q_i, k_j> + u_i + v_j), with u = f + log a
    and v = g + log b."""

    score: LowRank
    u: Tensor
    v: Tensor
    log_a: Tensor
    log_b: Tensor

    @property
    def potentials(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.u - self.log_a, self.v - self.log_b, self.log_a, self.log_b

    def to(self, dtype: torch.dtype) -> Step:
        score = LowRank(self.score.q.to(dtype), self.score.k.to(dtype), self.score.grid)
        return Step(score, *(z.to(dtype) for z in (self.u, self.v, self.log_a, self.log_b)))

    def first(self, n: int) -> Step:
        if n >= len(self.u):
            return self
        return Step(
            LowRank(self.score.q[:n], self.score.k[:n]), *(z[:n] for z in (self.u, self.v, self.log_a, self.log_b))
        )


def extended_step(n: int, epsilon: float) -> Step:
    """The man pair: Γ from a match of its first points, potentials extended to all and settled
    by Sinkhorn steps."""
    pair = man_pair(n)
    spaces = [gromap.Space(points[:COARSE]) for points in (pair.source, pair.target)]
    solution = gromap.solve(*spaces, epsilon=epsilon, scale=None)
    gamma, f, g = (torch.from_numpy(z) for z in (solution.gamma, *solution.potentials))

    def problem(*features: Any) -> CntProblem:
        x, y = map(torch.from_numpy, features)
        a, b = (torch.full((len(z),), 1 / len(z), dtype=z.dtype) for z in (x, y))
        return CntProblem(x, y, a, b, epsilon, gromap.CntGW().truncation)

    coarse = problem(*(space.features for space in spaces))
    fine = problem(*(space.project(z) for space, z in zip(spaces, (pair.source, pair.target), strict=True)))
    start = coarse.interpolate(gamma, Potentials(f / epsilon, g / epsilon), fine)
    score = fine.score(gamma)
    end = sinkhorn(score, Marginals(fine.log_a, fine.log_b), start, Sinkhorn(steps=SETTLE, tol=1e-3))
    return Step(score, end.f + fine.log_a, end.g + fine.log_b, fine.log_a, fine.log_b)


def solved_step(n: int, epsilon: float, device: torch.device) -> Step:
    """The shipped humans, n points of each surface, matched."""
    plan = gromap.solve(*surface_pair("human", n, 0, device), epsilon=epsilon).plan
    score = plan.score.full
    assert isinstance(score, LowRank)
    return Step(score, plan.u, plan.v, plan.a.log(), plan.b.log())

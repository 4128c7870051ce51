"""Where the terms of a loss begin: at the last call, or at the identity coupling of a space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gromap.learn.envelope import SolvedPair
from gromap.solvers.protocol import Begin, Loop, Problem
from gromap.transport.sinkhorn import Potentials


@dataclass(frozen=True)
class LastCall:
    """The plan and the potentials of the last call, between clouds that moved by little."""

    last: SolvedPair

    on_all_points = True

    def begin(self, problem: Any, coarse: Problem, loop: Loop) -> Begin:
        plan = self.last.plan
        gamma, _ = problem.correlate(self.last.gamma, plan.score, plan.u, plan.v)
        return Begin(gamma, Potentials(*plan.potentials), settled=True)


@dataclass(frozen=True, eq=False)
class Identity:
    """The identity coupling of a space with itself, or a symmetric Γ with the potentials f_i = ½
    C_ii of ε = 0."""

    gamma: Tensor | None = None  # (D, D); None = the covariance of the features

    on_all_points = True

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        gamma = self.gamma
        if gamma is None:
            assert problem.pair is not None
            features = problem.pair.x.embedding.features
            gamma = features.mT @ (problem.a.double()[:, None] * features)
        here = problem.start(gamma)
        f = -0.5 * problem.score(here).diagonal()
        return Begin(here, Potentials(f, f), settled=True)

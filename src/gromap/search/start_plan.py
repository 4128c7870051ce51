"""The plan of a linear map, for the solvers that start from a plan."""

from __future__ import annotations

from torch import Tensor

from gromap._plan import Plan
from gromap.solvers.embedded import CntProblem
from gromap.solvers.protocol import Loop
from gromap.transport.marginals import half_step
from gromap.transport.sinkhorn import Potentials, Sinkhorn, sinkhorn

MAX_SINKHORN_STEPS = 500  # of Sinkhorn, at most


def start_plan(problem: CntProblem, gamma: Tensor, duals: Potentials, loop: Loop) -> Plan | None:
    """The plan that Γ and some potentials lead to; None, for α⊗β, where Γ = 0."""
    if not bool(gamma.any()):
        return None
    score = problem.score(gamma)
    end = sinkhorn(score, problem.marginals(gamma), duals, Sinkhorn(MAX_SINKHORN_STEPS, tol=loop.marginal_tol))
    return problem.plan(score, half_step(score, problem.log_b, end.g), end.g, numpy=True)

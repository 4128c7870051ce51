"""What no match can fall below, and a copy meets (Prop. cnt_sgw_properties):

    GW_ε(α, β) >= ½ (GW_ε(α, α) + GW_ε(β, β))        for CNT costs

The terms on the right are sought from the identity and from Γ = 0: the best match of a cloud with
itself is one of both, with order below a critical temperature and without above it. A match that
meets them needs no further search.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gromap.search.anneal import SmallPair
from gromap.search.budget import SearchBudget
from gromap.search.small import Cooled
from gromap.solvers.embedded import CntProblem

UNMET = 1.5  # of the value of a start whose marginals are not met yet, over that with these met, at the most


def at_bound(pair: SmallPair, ends: Cooled, eps: float, tol: float, budget: SearchBudget) -> Cooled | None:
    """The lowest of some ends of starts, if no match is lower by more than a share of it.

    A cloud with itself has at most the value of the identity, ε times its entropy: where the ends
    are far above, the bound need not be known.
    """
    entropy = -sum(float(w.double() @ w.double().log()) for w in (pair.problem.a, pair.problem.b))
    if float(ends.value.min()) > UNMET * 0.5 * eps * entropy:
        return None
    found = pair.ranked(ends, eps, budget, 1)
    return found if float(found.value[0]) <= (1 + tol) * lower_bound(pair, eps, budget) else None


def lower_bound(pair: SmallPair, eps: float, budget: SearchBudget) -> float:
    """½ (GW_ε(α, α) + GW_ε(β, β)) in the units of the pair; -inf where features do not have the
    norms of the problem, or are not all that is matched.

    eps: the temperature, in these units.
    """
    problem = pair.problem
    if problem.exact is not None or problem.mean_norms or problem.fused is not None:
        return -math.inf
    sides = (problem.x, problem.a), (problem.y, problem.b)
    return 0.5 * sum(_own_value(x, a, eps * pair.unit, pair, budget) for x, a in sides) / pair.unit


def _own_value(x: Tensor, a: Tensor, eps: float, pair: SmallPair, budget: SearchBudget) -> float:
    """GW_ε(α, α)"""
    own = SmallPair(CntProblem(x, x, a, a, eps), pair.x.dtype)
    identity = x.double().mT @ (a[:, None] * x).double()
    end = own.cool(own.units(torch.stack([identity, 0 * identity])), torch.zeros(2), eps / own.unit, budget)
    return float(own.ranked(end, eps / own.unit, budget, 1).value[0]) * own.unit

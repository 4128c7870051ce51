"""What the value of a pair cannot fall below, without solving it: the third lower bound (TLB) of
Mémoli (2011), with the entropy of our values, and a faster one below it.

Let c_X, c_Y be two costs, a and b the weights, π a coupling of these, and R_i the quantile function
of the costs c_X(x_i, .) of point i to all others, under the weights a; S_j that of y_j. For each i,
j the plan π is a coupling of a and b too, and so moves the costs of i to those of j:

    Σ_kl (c_X(x_i, x_k) - c_Y(y_j, y_l))² π_kl  >=  W_2²(c_X(x_i, .)#a, c_Y(y_j, .)#b)
                                                  =  ∫ (R_i(u) - S_j(u))² du
                                                 >=  Ω_ij = 1/Q Σ_q (r_iq - s_jq)²

where r_iq and s_jq are the means of both functions over [(q-1)/Q, q/Q] (Jensen). Weighted by π_ij
and added up, with the entropy on both sides,

    GW_ε = min_π Σ (c_X - c_Y)² π π + ε KL(π | a⊗b)
        >= min_π Σ Ω_ij π_ij + ε KL(π | a⊗b)  =  OT_ε(Ω)
        >= Σ a f + Σ b g        for f = -ε log Σ_j b_j exp((g_j - Ω_ij) / ε) and any g       (TLB)

by the dual of the transport problem, whichever g its Sinkhorn steps have come to. And as KL >= 0,
and the cost of a transport is at least the sum over its Q coordinates of what each alone takes,

    OT_ε(Ω) >= 1/Q Σ_q W_2²((r_iq)_i#a, (s_jq)_j#b) >= |ρ_X - ρ_Y|²                         (sorted)

where ρ holds means of the quantile functions of all r_q, over P bins: for all pairs of a collection
this is one matrix of distances. Weights are any, and N and M need not agree.

The bounds hold for the values of couplings. A solve ends at a local minimum, which is no lower than
GW_ε, but its plan misplaces some mass: `SLACK` leaves room for it. Debiased values take half of two
self terms away, which are known, and so do their bounds. Costs are those that the value is of: of
the kept axes, |X_i - X_k|², or the exact ones of method="kernel".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._space import Space
from gromap._torch import split

BINS = 32  # Q, of the costs of one point
SORTED_BINS = 32  # P, of the points
BLOCK = 1 << 22  # entries of a matrix of costs, or of a batch of pairs, that are held at a time
STEPS = 30  # of Sinkhorn
COOLING = 20  # of these, that cool down from the largest Ω to ε
SLACK = 2e-3  # share of a value that the mass which its plan misplaces may hide
DENSE_POINTS = 2048  # of either side, up to which Ω is written down


class Profile(NamedTuple):
    """What the bounds know of a space."""

    rows: Tensor  # (N, Q) means of the quantile functions of each point's costs
    sorted: Tensor  # (Q P,) means of the quantile functions of these
    weights: Tensor  # (N,)


def profile(space: Space, exact: bool) -> Profile:
    """The profile of a space, in linear memory.

    exact: of its own costs; else of those between its embedded points.
    """
    a = space.measure.weights.double()
    z = space.measure.points if exact else space.embedding.features

    def costs(i: Tensor) -> Tensor:
        return space.cost(i, z).double() if exact else torch.cdist(i, z).square()

    rows = torch.cat([bin_means(costs(i), a, BINS) for i in split(z, max(1, BLOCK // len(z)))])
    marks = bin_means(rows.mT.contiguous(), a, SORTED_BINS) / (BINS * SORTED_BINS) ** 0.5
    return Profile(rows / BINS**0.5, marks.flatten(), a)


def bin_means(values: Tensor, weights: Tensor, bins: int) -> Tensor:
    """Means of quantile functions over `bins` equal parts of [0, 1].  (R, N) values, (N,) weights
    that sum to 1, to (R, bins)

    >>> bin_means(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0.5, 0.25, 0.25]), 2)
    tensor([[1.5000, 3.0000]])
    """
    ordered, order = values.sort(1)
    mass = weights[order]
    ends, sums = mass.cumsum(1), (mass * ordered).cumsum(1)
    edges = torch.linspace(0, 1, bins + 1, dtype=values.dtype, device=values.device)[1:-1]
    at = torch.searchsorted(ends, edges.expand(len(values), -1).contiguous()).clamp(max=values.shape[1] - 1)
    # the integral of the step function up to an edge, back from the end of the step that it lies in
    integral = sums.gather(1, at) - (ends.gather(1, at) - edges) * ordered.gather(1, at)
    whole = torch.cat([torch.zeros_like(sums[:, :1]), integral, sums[:, -1:]], 1)
    return bins * whole.diff(dim=1)


def sorted_bounds(profiles: Sequence[Profile]) -> Tensor:
    """The fast bound for all pairs.  (K, K)"""
    marks = torch.stack([p.sorted for p in profiles])
    return torch.cdist(marks, marks, compute_mode="donot_use_mm_for_euclid_dist").square()


def transport_bounds(pairs: Sequence[tuple[Profile, Profile]], eps: float) -> Tensor:
    """TLB for some pairs, in batches of about one size; -inf where there are too many points.
    (B,)

    eps: the temperature, in units of the costs, squared.
    """
    sizes = [max(len(x.weights), len(y.weights)) for x, y in pairs]
    found = torch.full((len(pairs),), -torch.inf, dtype=torch.float64)
    order = sorted((k for k, n in enumerate(sizes) if n <= DENSE_POINTS), key=lambda k: sizes[k])
    while order:
        n = sizes[order[-1]]  # the largest, and as many as fit beside it
        some, order = order[-max(1, BLOCK // n**2) :], order[: -max(1, BLOCK // n**2)]
        found[some] = _batch([pairs[k] for k in some], eps).cpu()
    return found


def _batch(pairs: list[tuple[Profile, Profile]], eps: float) -> Tensor:
    """The same for one batch, filled up with points of weight 0."""
    (x, log_a), (y, log_b) = (_filled([pair[side] for pair in pairs]) for side in (0, 1))
    omega = torch.cdist(x, y).square()  # (B, N, M)
    g = torch.zeros_like(log_b)
    top = max(float(omega.max()), eps)

    def softmin(potential: Tensor, costs: Tensor, log_w: Tensor, t: float) -> Tensor:
        return -t * torch.logsumexp(log_w[:, None] + (potential[:, None] - costs) / t, 2)

    for k in range(STEPS):
        t = eps * (top / eps) ** max(0.0, 1 - k / COOLING)
        f = softmin(g, omega, log_b, t)
        g = softmin(f, omega.mT, log_a, t)
    f = softmin(g, omega, log_b, eps)
    return (log_a.exp() * f).sum(1) + (log_b.exp() * g).sum(1)


def _filled(profiles: list[Profile]) -> tuple[Tensor, Tensor]:
    """Rows and logarithms of weights.  (B, N, Q), (B, N)"""
    rows = torch.nn.utils.rnn.pad_sequence([p.rows for p in profiles], batch_first=True)
    weights = torch.nn.utils.rnn.pad_sequence([p.weights for p in profiles], batch_first=True)
    return rows, weights.log()

"""The objective in closed form, O(N D²), never O(N²).

    L(π)     = C(α, β) - 8 |Γ(π)|² - 4 Σ π_ij |X_i|² |Y_j|²             Lemma cnt_gw_developed
    F(Γ, π)  = |Γ|² + (ε/8) KL(π | α⊗β) - 2 <Γ̄, Σ π Φ Ψᵀ>     Thm. entropic_gw_cnt_linearized
    GW_ε     = C + 8 min_Γ D_ε(Γ),    8 D_ε(Γ) = 8 |Γ|² + OT_ε(C_Γ)
    C_Γ      = -16 <X_i, Γ Y_j> - 4 |X_i|² |Y_j|²

X and Y are centered. Everything is accumulated in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gromap._torch import svd
from gromap.transport import Grid, LowRank
from gromap.transport.rows import HERE, Rows


def quartic(x: Tensor, a: Tensor, rows: Rows = HERE) -> float:
    """Σ_ik a_i a_k |x_i - x_k|⁴ = 2 E[s²] + 2 (E s)² + 4 |Cov|²  for s = |x - mean|², without
    any pair."""
    x, a = x.double(), a.double()
    mean, mass = rows.sum(a @ x, a.sum())
    x = x - mean / mass
    s = x.square().sum(-1)
    fourth, second, covariance = rows.sum(a @ s**2, a @ s, x.mT @ (a[:, None] * x))
    return float(2 * mass * fourth + 2 * second**2 + 4 * covariance.square().sum())


def constant(x: Tensor, a: Tensor, y: Tensor, b: Tensor, rows: Rows = HERE) -> float:
    """C(α, β) = E|x - x'|⁴ + E|y - y'|⁴ - 4 E|x|² E|y|² for centered x and y."""
    sx, sy = (w.double() @ z.double().square().sum(-1) for z, w in ((x, a), (y, b)))
    fourth, sy = rows.from_first(torch.stack([sy.new_tensor(quartic(y, b)), sy]))
    return quartic(x, a, rows) + float(fourth) - 4 * float(rows.sum(sx)[0]) * float(sy)


def lifted_score(
    gamma: Tensor,
    x: Tensor,
    y: Tensor,
    eps: float,
    grid: Grid | None = None,
    norms: tuple[Tensor, Tensor] | None = None,
) -> LowRank:
    """-C_Γ / ε as a score of rank min(D, E) + 1, both factors of the same size (Γ = U S Vᵀ).

    gamma may carry batch axes: (..., D, E).  grid: the spatial order of both clouds, where tiles
    may be left out.
    norms: |X_i|² and |Y_j|², where the D axes of the features do not hold all of them.
    """
    turned = bilinear_score(gamma, x, y, eps)
    x_norms, y_norms = (x.square().sum(-1), y.square().sum(-1)) if norms is None else norms

    def lift(features: Tensor, norms: Tensor) -> Tensor:
        return torch.cat([features, (4 / eps) ** 0.5 * norms[:, None].expand(*features.shape[:-1], 1)], -1)

    return LowRank(lift(turned.q, x_norms), lift(turned.k, y_norms), grid if gamma.ndim == 2 else None)


def bilinear_score(gamma: Tensor, x: Tensor, y: Tensor, eps: float) -> LowRank:
    """(16/ε) <x_i, Γ y_j> as a score of rank min(D, E), both factors of the same size; for a
    batch of Γ too."""
    u, s, vt = svd(gamma.double(), full_matrices=False)
    half = (16 / eps * s).sqrt()[..., None, :]  # (..., 1, R)
    return LowRank(x @ (u * half).to(x.dtype), y @ (vt.mT * half).to(y.dtype))

"""Where to start: GW is not convex, and its local minima are the symmetries of the problem.

`best_start` tries Γ = 0 and diag(±σ_1, ±σ_2, ±σ_3) on coarse clouds, where σ_d is the largest correlation that the two d-th
axes can have, keeps the lowest energy and extends its potentials to all points (Alg. Interpolate).
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import Tensor

from gromap.measure import coarsen
from gromap.objective import lifted_score
from gromap.sinkhorn import Potentials, Sinkhorn, half_step
from gromap.solution import State
from gromap.solvers.cnt import CntProblem
from gromap.solvers.loop import Loop, alternate

COARSE = 400  # points of the coarse clouds
AXES = 3  # leading axes whose signs are flipped
ROUND = 5  # outer steps between two cuts


def sign_flips(x: Tensor, y: Tensor, a: Tensor, b: Tensor, axes: int = AXES) -> list[Tensor]:
    """Γ = 0, and the matrices that correlate the leading axes of both clouds with every choice of signs."""
    sx, sy = ((w.double() @ z.double().square()).sqrt() for z, w in ((x, a), (y, b)))
    axes = min(axes, len(sx), len(sy))
    starts = [torch.zeros(len(sx), len(sy), dtype=torch.float64, device=x.device)]
    for signs in itertools.product((1.0, -1.0), repeat=axes):
        gamma = torch.zeros_like(starts[0])
        index = torch.arange(axes, device=x.device)
        gamma[index, index] = sx[:axes] * sy[:axes] * torch.tensor(signs, dtype=torch.float64, device=x.device)
        starts.append(gamma)
    return starts


def random_start(x: Tensor, y: Tensor, a: Tensor, b: Tensor, seed: int) -> Tensor:
    """Entries uniform in [-1, 1], times the largest correlation that the two axes can have.  (D, E)"""
    sx, sy = ((w.double() @ z.double().square()).sqrt() for z, w in ((x, a), (y, b)))
    draw = torch.rand(len(sx), len(sy), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (2 * draw - 1).to(x.device) * sx[:, None] * sy


def best_start(x: Tensor, y: Tensor, a: Tensor, b: Tensor, eps: float, options: Loop) -> tuple[State, list[float]]:
    """The best of the sign flips on coarse clouds, with its potentials, and the energies at which the others were dropped.

    All starts run as one batch; every few outer steps the better half goes on, and the last one runs until it settles.
    """
    (xc, ac), (yc, bc) = coarsen(x[a > 0], a[a > 0], COARSE), coarsen(y[b > 0], b[b > 0], COARSE)
    coarse = CntProblem(xc, yc, ac, bc, eps)
    gamma = torch.stack(sign_flips(xc, yc, ac, bc))
    duals = Potentials(xc.new_zeros(len(gamma), len(xc)), yc.new_zeros(len(gamma), len(yc)))
    heat = replace(options, sinkhorn=Sinkhorn(steps=50), adaptive=False, max_iter=ROUND)
    dropped: list[float] = []
    while len(gamma) > 1:
        end = alternate(coarse, gamma, duals, heat)
        order = end.energy.nan_to_num(nan=torch.inf).argsort()
        keep, drop = order[: (len(order) + 1) // 2], order[(len(order) + 1) // 2 :]
        dropped = end.energy[drop].tolist() + dropped
        gamma, duals = end.gamma[keep], Potentials(end.duals.f[keep], end.duals.g[keep])
    settle = replace(options, marginal_tol=max(options.marginal_tol, 5e-3))
    best = alternate(coarse, gamma[0], Potentials(duals.f[0], duals.g[0]), settle)
    f = half_step(lifted_score(best.gamma, x, yc, eps), coarse.log_b, best.duals.g)
    g = half_step(lifted_score(best.gamma, xc, y, eps).mT, coarse.log_a, best.duals.f)
    return State(best.gamma, eps * f, eps * g), [float(best.energy), *dropped]

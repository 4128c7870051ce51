"""Where to start: GW is not convex, and its local minima are the symmetries of the problem.

`best_start` tries Γ = 0 and diag(±σ_1, ±σ_2, ±σ_3) on coarse clouds, where σ_d is the largest correlation that the two d-th
axes can have, keeps the lowest energy and extends its potentials to all points (Alg. Interpolate).
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import Tensor

from gromap.sinkhorn import Potentials, Sinkhorn
from gromap.solvers.cnt import CntProblem
from gromap.solvers.loop import Loop, alternate
from gromap.solvers.multiscale import interpolate

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


def best_start(problem: CntProblem, options: Loop) -> tuple[Tensor, Potentials, list[float]]:
    """The best of the sign flips on coarse clouds, with potentials for all points, and the energies that were met.

    All starts run as one batch; every few outer steps the better half goes on, and the last one runs until it settles.
    The energies: that of the last one, then those at which the others were dropped.
    """
    coarse = problem.coarser(COARSE, COARSE)
    gamma = torch.stack(sign_flips(coarse.x, coarse.y, coarse.a, coarse.b))
    f, g = (w.new_zeros(len(gamma), len(w)) for w in (coarse.a, coarse.b))
    duals = Potentials(f, g)
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
    return best.gamma, interpolate(coarse, best.gamma, best.duals, problem), [float(best.energy), *dropped]

"""Linear maps to start from: sign flips of the leading axes, random ones, hops from minima."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from gromap._torch import svd
from gromap.geometry.measure import own_generator


def sign_flips(sx: Tensor, sy: Tensor, axes: int = 3) -> Tensor:
    """Γ = 0, and the matrices that correlate the leading axes of both clouds with every choice
    of signs.  (S, D, E)"""
    axes = min(axes, len(sx), len(sy))
    signs = torch.tensor(
        [(0.0,) * axes, *itertools.product((1.0, -1.0), repeat=axes)], dtype=sx.dtype, device=sx.device
    )
    gamma = sx.new_zeros(len(signs), len(sx), len(sy))
    index = torch.arange(axes, device=sx.device)
    gamma[:, index, index] = signs * sx[:axes] * sy[:axes]
    return gamma


def random_starts(sx: Tensor, sy: Tensor, count: int, seed: int) -> Tensor:
    """Entries uniform in [-1, 1], times the largest correlation that the two axes can have.
    (count, D, E)"""
    draw = torch.rand(count, len(sx), len(sy), dtype=torch.float64, generator=own_generator(seed))
    return (2 * draw - 1).to(sx) * sx[:, None] * sy


def hops(gamma: Tensor, directions: int = 5) -> Tensor:
    """Γ with the signs of one or two of its leading singular directions flipped.  (H, D, E)"""
    u, s, vt = svd(gamma, full_matrices=False)
    few = range(min(directions, s.shape[-1]))
    flips = [c for k in (1, 2) for c in itertools.combinations(few, k)]
    signs = s.new_ones(len(flips), s.shape[-1])
    for row, chosen in enumerate(flips):
        signs[row, list(chosen)] = -1.0
    return (u[..., None, :, :] * (signs * s[..., None, :])[..., None, :] @ vt[..., None, :, :]).flatten(0, -3)

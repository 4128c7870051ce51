"""Linear maps to start from: sign flips of the leading axes, matched profiles of distances, rows as
they are, random ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from gromap.geometry.measure import own_generator

QUANTILES = 32  # of the costs between a point and all others


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


def paired(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The map of clouds of as many points each that sends each row to the same row; none for
    others.  (1, D, E) or (0, D, E)"""
    if len(x) != len(y):
        return x.new_zeros(0, x.shape[1], y.shape[1]).double()
    mass = (a * b).double().sqrt()
    return (x.double().mT @ ((mass / mass.sum())[:, None] * y.double()))[None]


def random_starts(sx: Tensor, sy: Tensor, count: int, seed: int) -> Tensor:
    """Entries uniform in [-1, 1], times the largest correlation that the two axes can have.
    (count, D, E)"""
    draw = torch.rand(count, len(sx), len(sy), dtype=torch.float64, generator=own_generator(seed))
    return (2 * draw - 1).to(sx) * sx[:, None] * sy


def profile_scores(x: Tensor, y: Tensor, a: Tensor, b: Tensor, blurs: Sequence[float]) -> Tensor:
    """How alike the costs of two points to all others are, sorted, in nats at some temperatures
    over the mean gap: Mémoli's third lower bound matches points by them.  (len(blurs), N, M)"""
    gap = torch.cdist(profiles(x, a), profiles(y, b)).square()
    mean = float(a @ gap @ b)
    return torch.stack([-gap / max(blur * mean, 1e-30) for blur in blurs])


def profiles(x: Tensor, a: Tensor) -> Tensor:
    """Quantiles of the costs between each point and all others; of batches of clouds too, which
    points without mass fill up.  (..., N, QUANTILES)"""
    cost = torch.cdist(x, x).square().masked_fill((a == 0)[..., None, :], torch.inf)
    cost, order = cost.sort(-1)
    mass = a[..., None, :].expand_as(cost).gather(-1, order).cumsum(-1)
    levels = ((torch.arange(QUANTILES, device=x.device) + 0.5) / QUANTILES).to(x).expand(*x.shape[:-1], -1)
    last = (a > 0).sum(-1)[..., None, None] - 1
    return cost.gather(-1, torch.minimum(torch.searchsorted(mass, levels.contiguous()), last))

"""Pairs of points that trade their images: a move that no cooling makes.

At a low temperature two matches that differ by two points are two minima with a barrier between
them, and the linear map hardly tells them apart. Let t = min(a_i, a_k) of the mass of x_i and of
x_k trade places, where μ_i and ν_i are the means of y and of |y|² under the plan's row i:

    Γ' - Γ = t (x_i - x_k)(μ_k - μ_i)ᵀ
    L(π) - L(π') = 4 t (S_ik - S_ii + S_ki - S_kk) + 8 |Γ' - Γ|²
    S_ik = 4 x_iᵀ Γ μ_k + |x_i|² ν_k

Where features count too, ν_k are means of (|y|², B) and |x_i|² is (|x_i|², A_i), the `lift`.

Both marginals stay, and KL(π | α⊗β) does not rise (it is convex). So the gains of all N² pairs are
two products, of rank D + 1 and E. Points that are each other's best all trade at once, where that
gains more than the best pair alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gromap.transport.tiles import cuts

IN_CACHE = 1 << 17  # gains that are compared at once on a CPU


def exchanged(x: Tensor, lift: Tensor, a: Tensor, images: Tensor, least: float, rounds: int) -> tuple[Tensor, Tensor]:
    """The images of points after up to so many rounds of exchanges, and how much these gained.

    x: (N, D), centered.  lift: (N, L).  images: (B, N, E + L), the means under each row.
    least: the gain of an exchange that is worth it.
    """
    t = torch.minimum(a[:, None], a)
    apart = 8 * t.square() * torch.cdist(x, x).square()
    pieces = 1 if x.is_cuda else min(len(images), math.ceil(len(images) * len(x) ** 2 / IN_CACHE))
    parts = [_exchanged(x, lift, a, 4 * t, apart, images[some], least, rounds) for some in cuts(len(images), pieces)]
    return torch.cat([part for part, _ in parts]), torch.cat([gain for _, gain in parts])


def _exchanged(
    x: Tensor, lift: Tensor, a: Tensor, t: Tensor, apart: Tensor, images: Tensor, least: float, rounds: int
) -> tuple[Tensor, Tensor]:
    """t: four times what each pair can trade.  apart: 8 t² |x_i - x_k|² of each."""
    weighted, every, axes = a[:, None] * x, torch.arange(len(a), device=a.device), images.shape[-1] - lift.shape[1]
    found, total, going = images.clone(), a.new_zeros(len(images)), torch.arange(len(images), device=a.device)
    for _ in range(rounds):
        means = images[..., :axes]
        gamma, size = weighted.mT @ means, means.square().sum(-1)
        score = torch.cat([4 * (x @ gamma), lift.expand(len(images), -1, -1)], -1) @ images.mT
        score.sub_(score.diagonal(dim1=-2, dim2=-1)[..., None].clone())
        far = (means @ means.mT).mul_(-2).add_(size[:, None]).add_(size[..., None])
        gain = (score + score.mT).mul_(t).addcmul_(apart, far)
        best = gain.amax(-1)
        worth = best > least
        some = worth.any(-1).nonzero()[:, 0]
        if len(some) == 0:
            break
        if len(some) < len(images):  # the others have none left
            going, images, gamma, gain, best, worth = (z[some] for z in (going, images, gamma, gain, best, worth))
        mate = every.repeat(len(images), 1)
        mate[worth] = gain[worth].argmax(-1)
        trade = worth & (mate.gather(1, mate) == every)
        alone, first = best.where(trade, 0).max(-1, keepdim=True)
        step = images.gather(1, mate[..., None].expand_as(images)) - images
        step *= (t[every, mate] / (4 * a))[..., None]

        many = step * trade[..., None]
        moved = weighted.mT @ many[..., :axes]
        together = (16 * gamma + 8 * moved).mul_(moved).sum((-2, -1)) + 4 * (
            many[..., axes:] * (a[:, None] * lift)
        ).sum((-2, -1))
        one = trade & ((every == first) | (every == mate.gather(1, first)))
        images = images + torch.where((together > alone[:, 0])[:, None, None], many, step * one[..., None])
        found[going] = images
        total[going] += torch.maximum(together, alone[:, 0])
    return found, total

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
from typing import NamedTuple

import torch
from torch import Tensor

from gromap.transport.tiles import cuts

IN_CACHE = 1 << 17  # gains that are compared at once on a CPU


def exchanged(x: Tensor, lift: Tensor, a: Tensor, images: Tensor, least: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """The images of points after up to so many rounds of exchanges, and how much these gained.

    x: (P, N, D), centered.  lift: (P, N, L).  a: (P, N).  images: (B, N, E + L), the means under
    each row.  least: (P,) the gain of an exchange that is worth it.  P: 1 or B.
    """
    pieces = 1 if x.is_cuda else min(len(images), math.ceil(len(images) * x.shape[1] ** 2 / IN_CACHE))
    points = _Points.of(x, lift, a, least)
    parts = [_exchanged(points.take(some), images[some], rounds) for some in cuts(len(images), pieces)]
    return torch.cat([part for part, _ in parts]), torch.cat([gain for _, gain in parts])


class _Points(NamedTuple):
    """The points that trade, for all of a batch or for each of it."""

    x: Tensor  # (P, N, D)
    lift: Tensor  # (P, N, L)
    weighted: Tensor  # (P, N, D + L) both, times a
    t: Tensor  # (P, N, N) four times what each pair can trade
    share: Tensor  # (P, N, N) of the image of the first that this is
    apart: Tensor  # (P, N, N) 8 t² |x_i - x_k|²
    least: Tensor  # (P, 1)

    @classmethod
    def of(cls, x: Tensor, lift: Tensor, a: Tensor, least: Tensor) -> _Points:
        t = torch.minimum(a[..., None], a[:, None])
        apart = 8 * t.square() * torch.cdist(x, x).square()
        share = t / a[..., None].clamp(min=torch.finfo(a.dtype).tiny)
        return cls(x, lift, a[..., None] * torch.cat([x, lift], -1), 4 * t, share, apart, least[:, None])

    def take(self, some: Tensor | slice) -> _Points:
        return self if len(self.x) == 1 else _Points(*(z[some] for z in self))


def _exchanged(points: _Points, images: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    n, d, axes = points.x.shape[1], points.x.shape[2], images.shape[-1] - points.lift.shape[-1]
    every = torch.arange(n, device=images.device)
    found, total, going = images.clone(), images.new_zeros(len(images)), torch.arange(len(images), device=images.device)
    for _ in range(rounds):
        means = images[..., :axes]
        gamma, size = points.weighted[..., :d].mT @ means, means.square().sum(-1)
        score = torch.cat([4 * (points.x @ gamma), points.lift.expand(len(images), -1, -1)], -1) @ images.mT
        score.sub_(score.diagonal(dim1=-2, dim2=-1)[..., None].clone())
        far = (means @ means.mT).mul_(-2).add_(size[:, None]).add_(size[..., None])
        gain = (score + score.mT).mul_(points.t).addcmul_(points.apart, far)
        best = gain.amax(-1)
        worth = best > points.least
        some = worth.any(-1).nonzero()[:, 0]
        if len(some) == 0:
            break
        if len(some) < len(images):  # the others have none left
            going, images, gamma, gain, best, worth = (z[some] for z in (going, images, gamma, gain, best, worth))
            points = points.take(some)
        mate = every.repeat(len(images), 1)
        mate[worth] = gain[worth].argmax(-1)
        trade = worth & (mate.gather(1, mate) == every)
        alone, first = best.where(trade, 0).max(-1, keepdim=True)
        step = images.gather(1, mate[..., None].expand_as(images)) - images
        step *= points.share.expand(len(images), -1, -1).gather(2, mate[..., None])

        many = step * trade[..., None]
        moved = points.weighted.mT @ many
        moved, carried = moved[:, :d, :axes], moved[:, d:, axes:].diagonal(dim1=1, dim2=2).sum(-1)
        together = (16 * gamma + 8 * moved).mul_(moved).sum((-2, -1)) + 4 * carried
        one = trade & ((every == first) | (every == mate.gather(1, first)))
        images = images + torch.where((together > alone[:, 0])[:, None, None], many, step * one[..., None])
        found[going] = images
        total[going] += torch.maximum(together, alone[:, 0])
    return found, total

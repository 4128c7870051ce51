"""Moves from minima to others near them: noise on the linear map, or images that change points."""

from __future__ import annotations

import torch
from torch import Tensor

from gromap._torch import norm
from gromap.search.anneal import SmallPair
from gromap.search.budget import SearchBudget
from gromap.search.small import Cooled


def shaken(
    pair: SmallPair, found: Cooled, count: int, noises: tuple[float, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Some minima in turn, with noise of these shares of them, and which they were.
    (count, D, E), (count,)"""
    parents, share = _turns(found, count, noises)
    gamma, noise = found.gamma[parents], torch.randn(count, *pair.axes.shape, generator=generator)
    noise = (share[:, None, None] * noise).to(gamma) * pair.axes.square().to(gamma)  # as large as entries of Γ can be
    size = gamma.square().sum((-2, -1), keepdim=True).sqrt() / norm(pair.axes.square())
    return gamma + size.to(gamma) * noise, parents


def kicked(
    pair: SmallPair, found: Cooled, count: int, eps: float, budget: SearchBudget, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Some minima in turn, after the images of a share of their points have rolled on among these,
    and pairs that gain have traded them; potentials, and which they were.
    (count, D, E), (count, M), (count,)"""
    parents, share = _turns(found, count, budget.kicks)
    at = found.gamma.new_full((len(found.gamma),), eps)
    images, n = pair.clouds.images(found.gamma, found.g, at, budget)[parents], len(pair.a)
    size = (share[:, None] * n).round().long().clamp(min=2)
    order, place = torch.rand(count, n, generator=generator).argsort(1), torch.arange(n)
    after = order.gather(1, torch.where(place < size, (place + 1) % size, place))
    source = torch.empty_like(order).scatter_(1, order, after).to(images.device)
    images, _ = pair.clouds.traded(images.gather(1, source[..., None].expand_as(images)), budget)
    return pair.clouds.mapped(images), found.g[parents], parents


def _turns(found: Cooled, count: int, shares: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """So many indices of minima in turn, and the share of each.  (count,) twice"""
    turn = torch.arange(count)
    share = torch.tensor(shares)[turn // len(found.gamma) % len(shares)]
    return (turn % len(found.gamma)).to(found.gamma.device), share

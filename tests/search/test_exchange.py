"""Pairs of points that trade their images: what an exchange gains, and what it mends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gromap import Search, SearchBudget, solve
from gromap.search.exchange import exchanged
from tests.conftest import cloud


def coupling(a, b, seed=0):
    """A random plan with these marginals."""
    pi = torch.rand(len(a), len(b), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) ** 4
    for _ in range(2000):
        pi = pi * (a / pi.sum(1))[:, None]
        pi = pi * (b / pi.sum(0))
    return pi


def loss(x, y, pi):
    """Σ (c_X - c_Y)² π π for squared distances."""
    cx, cy = (torch.cdist(z, z).square() for z in (x, y))
    rows, columns = pi.sum(1), pi.sum(0)
    return rows @ cx.square() @ rows + columns @ cy.square() @ columns - 2 * (pi * (cx @ pi @ cy)).sum()


def points(x, a):
    """As `exchanged` takes them."""
    return x[None], x.square().sum(1, keepdim=True)[None], a[None]


def kl(pi):
    return torch.special.xlogy(pi, pi / torch.outer(pi.sum(1), pi.sum(0))).sum()


def swapped(pi, a, i, k):
    """As much as both points hold trades places."""
    t, new = min(a[i], a[k]), pi.clone()
    new[i] += t * (pi[k] / a[k] - pi[i] / a[i])
    new[k] += t * (pi[i] / a[i] - pi[k] / a[k])
    return new


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_gain_of_exchanges_is_that_of_the_loss(uniform, seed):
    (x, a), (y, b) = ([torch.as_tensor(z, dtype=torch.float64) for z in cloud(n, d, n)] for n, d in ((12, 3), (9, 2)))
    a, b = torch.full_like(a, 1 / len(a)) if uniform else a / a.sum(), b / b.sum()
    x, y = x - a @ x, y - b @ y
    pi = coupling(a, b, seed)
    values = torch.cat([y, y.square().sum(1, keepdim=True)], 1)
    start = pi @ values / a[:, None]
    images, gain = exchanged(*points(x, a), start[None], torch.zeros(1), 1)
    pairs = [(i, k) for i in range(12) for k in range(i)]
    gains = {(i, k): float(loss(x, y, pi) - loss(x, y, swapped(pi, a, i, k))) for i, k in pairs}
    assert max(gains.values()) > 0
    new = pi
    for i, k in pairs:  # those that have traded are found by their images
        there = swapped(pi, a, i, k) @ values / a[:, None]
        if torch.allclose(images[0, [i, k]], there[[i, k]]):
            new = swapped(new, a, i, k)
    torch.testing.assert_close(images[0], new @ values / a[:, None])
    assert float(gain[0]) == pytest.approx(float(loss(x, y, pi) - loss(x, y, new)), rel=1e-9)
    assert float(gain[0]) >= max(gains.values()) - 1e-12
    torch.testing.assert_close(new.sum(0), b)
    torch.testing.assert_close(new.sum(1), a)
    assert float(kl(new)) <= float(kl(pi)) + 1e-12


def test_exchanges_end_where_none_gains():
    x, a = (torch.as_tensor(z, dtype=torch.float64) for z in cloud(15, 3, 0))
    a = torch.full_like(a, 1 / 15)
    x = x - a @ x
    order = torch.randperm(15, generator=torch.Generator().manual_seed(0))
    values = torch.cat([x, x.square().sum(1, keepdim=True)], 1)
    start = torch.stack([values[order], values])  # a wrong match, and the right one
    least = torch.full((1,), 1e-12)
    images, gain = exchanged(*points(x, a), start, least, 500)
    again, more = exchanged(*points(x, a), images, least, 500)
    torch.testing.assert_close(again, images)
    assert float(gain[0]) > 0 == float(gain[1])
    assert not more.any()
    torch.testing.assert_close(images[1], values)


def test_batches_of_pairs_trade_as_each_pair_does():
    sides = [points(*(torch.as_tensor(z, dtype=torch.float64) for z in cloud(15, 3, seed))) for seed in range(2)]
    images, least = torch.randn(2, 15, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), 1e-9
    both = exchanged(*(torch.cat(z) for z in zip(*sides, strict=True)), images, torch.full((2,), least), 20)
    for k, side in enumerate(sides):
        alone = exchanged(*side, images[k : k + 1], torch.full((1,), least), 20)
        for one, other in zip(both, alone, strict=True):
            torch.testing.assert_close(one[k : k + 1], other)


@pytest.mark.filterwarnings("ignore:hardly any start")
def test_a_search_without_exchanges_ends_higher():
    """Two samples in 20 dimensions: their minima differ by pairs of points, with barriers."""
    rng = np.random.default_rng(2)

    def draw():
        v = rng.normal(size=(40, 20)) + 2 * np.eye(20)[rng.integers(3, size=40)]
        return v / np.linalg.norm(v, axis=1, keepdims=True)

    x, y = draw(), draw()

    def value(budget):
        return solve(x, y, cost="spherical", epsilon=1e-3, init=Search(budget=budget)).value

    assert value(SearchBudget()) < 0.96 * value(SearchBudget(exchanges=0))

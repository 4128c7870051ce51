"""Moves from minima to others near them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gromap import CntGW, SearchBudget
from gromap._pair import Pair
from gromap.search.anneal import SmallPair
from gromap.search.moves import kicked, shaken
from gromap.search.proposals import paired, random_starts
from tests.conftest import cloud

BUDGET = SearchBudget()


def test_shaken_minima_are_near_them():
    (x, a), (y, b) = cloud(40, 3, 0), cloud(50, 2, 1)
    pair = SmallPair(CntGW().problem(Pair.of(x, y, a, b, dim=(6, 5), epsilon=1e-2)), torch.float64)
    found = pair.cool(pair.units(random_starts(*pair.problem.spread, 3, 0)), torch.full((3,), 0.05), 0.02, BUDGET)
    gamma, parents = shaken(pair, found, 60, (0.0, 0.5), torch.Generator().manual_seed(0))
    assert parents.tolist() == [0, 1, 2] * 20
    still = torch.arange(60) // 3 % 2 == 0
    torch.testing.assert_close(gamma[still], found.gamma[parents[still]])
    noise, axes = gamma[~still] - found.gamma[parents[~still]], pair.axes.square()
    size = found.gamma[parents[~still]].square().sum((-2, -1)).mean()
    assert float(noise.square().sum((-2, -1)).mean() / size) == pytest.approx(0.25, rel=0.3)
    share = noise.square().mean(0).sqrt() / axes  # alike along all axes
    assert float(share.max()) < 2 * float(share.min())


def test_kicked_minima_come_from_them():
    """The smallest kick of a right match is undone by exchanges; the largest leads elsewhere."""
    x, _ = cloud(30, 3, 0)
    problem = CntGW().problem(Pair.of(x, x, epsilon=1e-3))
    pair = SmallPair(problem, torch.float64)
    right = pair.units(paired(problem.x, problem.y, problem.a, problem.b))
    eps = 1e-3 / pair.unit
    found = pair.cool(right, torch.zeros(1), eps, BUDGET)
    few, many = (replace(BUDGET, kicks=(share,), exchanges=rounds) for share, rounds in ((0.05, 8), (0.5, 0)))
    for budget, near in (few, True), (many, False):
        gamma, g, parents = kicked(pair, found, 5, eps, budget, torch.Generator().manual_seed(0))
        assert parents.tolist() == [0] * 5
        torch.testing.assert_close(g, found.g.expand(5, -1))
        moved = (gamma - found.gamma).flatten(1).norm(dim=1) / found.gamma.norm()
        assert bool((moved < 1e-2).all() if near else (moved > 0.1).all())
        assert len(torch.unique(gamma.round(decimals=9), dim=0)) == (1 if near else 5)

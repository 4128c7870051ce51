"""The lower bound of the energy (Prop. cnt_sgw_properties), and searches that end where it is
met."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gromap import CntGW, Search, SearchBudget, solve
from gromap._pair import Pair
from gromap.search import search
from gromap.search.anneal import SmallPair
from gromap.search.bound import lower_bound
from tests.conftest import cloud, rotation


def small(x, y, a=None, b=None, eps=1e-3, **options):
    problem = CntGW().problem(Pair.of(x, y, a, b, epsilon=eps, scale="joint", **options))
    return SmallPair(problem, torch.float32)


@pytest.mark.parametrize("eps", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("cost", ["euclidean", "sqeuclidean", "spherical"])
def test_no_match_is_below_the_bound(cost, eps):
    (x, a), (y, b) = cloud(40, 3, 0), cloud(30, 3, 1)
    if cost == "spherical":
        x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
    pair = small(x, y, a, b, eps, cost=cost)
    found, _ = search.lowest(pair, eps / pair.unit, 0, Search())
    bound = lower_bound(pair, eps / pair.unit, SearchBudget())
    assert 0 < bound <= float(found.value[0]) * (1 + 1e-4)
    assert solve(x, y, a, b, cost=cost, epsilon=eps, scale="joint").value >= 0.999 * bound * pair.unit


@pytest.mark.parametrize("dim", [2, 40])
def test_a_copy_meets_it_and_nothing_more_is_tried(dim, monkeypatch):
    x, a = cloud(120, dim, 0)
    order = np.random.default_rng(1).permutation(120)
    y, cooled = (x @ rotation(dim))[order], []
    cool = SmallPair.cool
    monkeypatch.setattr(
        SmallPair, "cool", lambda self, gamma, *rest: cooled.append(len(gamma)) or cool(self, gamma, *rest)
    )
    sol = solve(x, y, a, a[order])
    tried = sum(cooled)
    truth = solve(x, y, a, a[order], init=np.argsort(order))
    assert sol.value == pytest.approx(truth.value, rel=1e-4)
    assert tried < 16  # a search in full cools more than fifty
    assert sol.stats.minima_starts[0] >= SearchBudget().agreement

"""Cooling on small clouds: values of couplings, units, and minima of copies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from gromap import CntGW, SearchBudget
from gromap._pair import Pair
from gromap._plan import round_to
from gromap.search.anneal import SmallPair
from gromap.search.proposals import paired, random_starts
from tests.conftest import cloud, rotation

BUDGET = SearchBudget()


def small(n=40, m=50, eps=1e-2, unit=1.0, dtype=torch.float64):
    (x, a), (y, b) = cloud(n, 3, 0), cloud(m, 2, 1)
    problem = CntGW().problem(Pair.of(unit * x, y / unit, a, b, dim=(6, 5), epsilon=eps, scale=None))
    return SmallPair(problem, dtype)


def coupling_energy(p, pi, eps):
    """L(π) + ε KL(π | a⊗b), from all pairs."""
    cx, cy = (torch.cdist(z, z).square() for z in (p.x.double(), p.y.double()))
    loss = (cx.square() * torch.outer(p.a, p.a)).sum() + (cy.square() * torch.outer(p.b, p.b)).sum()
    loss = loss - 2 * (pi * (cx @ pi @ cy)).sum()
    return float(loss + eps * torch.special.xlogy(pi, pi / torch.outer(p.a, p.b)).sum())


@pytest.mark.parametrize("steps", [1, 3, 10, 500])
def test_values_are_those_of_couplings(steps):
    """However few steps Sinkhorn took: never below the value of the rounded plan, and it where
    the marginals are met."""
    pair = small()
    p, eps = pair.problem, 0.3
    gamma = pair.units(random_starts(*p.spread, 4, 0))
    at = gamma.new_full((4,), eps / pair.unit)
    zero, norms = gamma.new_zeros(4, len(p.b)), [z.square().sum(1) for z in (pair.x, pair.y)]
    end = pair.clouds.step(gamma, zero, at, steps, 1e-9)
    for k in range(4):
        s = (16 * pair.x @ gamma[k] @ pair.y.mT + 4 * torch.outer(*norms)) * pair.unit / eps
        g = end.g[k] * pair.unit / eps
        pi = torch.softmax(s + g + p.log_b, 1) * p.a[:, None]
        expected = coupling_energy(p, round_to(pi, p.a, p.b), eps)
        assert float(end.value[k]) * pair.unit >= expected - 1e-9
        if steps == 500:
            assert float(end.value[k]) * pair.unit == pytest.approx(expected, rel=1e-6)
            torch.testing.assert_close(end.gamma[k] * pair.size, p.x.mT @ pi @ p.y, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("unit", [1e-12, 1e9])
def test_units_do_not_matter(unit):
    one, other = small(), small(unit=unit)
    assert other.heat == pytest.approx(one.heat, rel=1e-9)
    starts = one.units(random_starts(*one.problem.spread, 3, 0))
    eps, hot = 0.05 * one.heat, torch.tensor([0.1, 0.2, 0.3])
    left, right = (pair.cool(starts, hot, eps, BUDGET) for pair in (one, other))
    torch.testing.assert_close(left.gamma, right.gamma, rtol=1e-6, atol=1e-8)


def test_single_precision_finds_the_same():
    rough, fine = small(dtype=torch.float32), small()
    starts = fine.units(random_starts(*fine.problem.spread, 8, 0))
    eps, hot = 1e-3 * fine.heat, torch.full((8,), 0.1)
    low, high = (float(z.cool(starts.to(z.x), hot, eps, BUDGET).value.min()) for z in (rough, fine))
    assert low == pytest.approx(high, rel=1e-2)


def test_slow_cooling_finds_lower_minima_than_cold_starts():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 8)), rng.normal(size=(60, 8))
    problem = CntGW().problem(Pair.of(x, y, epsilon=1e-3))
    pair = SmallPair(problem, torch.float32)
    starts = pair.units(random_starts(*problem.spread, 24, 0))
    eps, budget = 1e-3 * pair.heat, dataclasses.replace(BUDGET, exchanges=0)
    cold, slow = (pair.cool(starts, torch.full((24,), hot), eps, budget).value for hot in (1e-3, 0.1))
    assert float(slow.min()) < 0.9 * float(cold.min())
    assert float(slow.mean()) < 0.9 * float(cold.mean())


def test_distinct_minima_come_with_the_lowest_first():
    pair = small()
    found = pair.cool(pair.units(random_starts(*pair.problem.spread, 12, 0)), torch.full((12,), 0.05), 0.02, BUDGET)
    order = pair.distinct(found, BUDGET)
    assert bool((found.value[order][1:] >= found.value[order][:-1]).all())
    counted = pair.count(found.take(order), found, 0.02, BUDGET)
    assert float(counted.min()) >= 1
    few = pair.ranked(found, 0.02, BUDGET, 2)
    assert len(few.gamma) <= 2
    same = dataclasses.replace(BUDGET, same_gamma=1e9)
    assert len(pair.distinct(found, same)) == 1


def test_cells_say_how_much_of_the_variance_they_lose():
    pair = small(300, 280)
    assert SmallPair(pair.problem, torch.float64).lost_variance(pair.problem) == pytest.approx(0, abs=1e-12)
    coarse = SmallPair(pair.problem.coarser(20, 20), torch.float64)
    assert 0 < coarse.lost_variance(pair.problem) < 0.5


def test_a_copy_stays_where_it_starts():
    """With potentials of an isometry, a cold start at the right match is not lost."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = x @ rotation(3)
    problem = CntGW().problem(Pair.of(x, y, epsilon=1e-3))
    pair = SmallPair(problem, torch.float64)
    right = pair.units(paired(problem.x, problem.y, problem.a, problem.b))
    end = pair.cool(right, torch.zeros(1), 1e-3 / pair.unit, BUDGET)
    torch.testing.assert_close(end.gamma, right, rtol=0, atol=0.05 * float(right.abs().max()))
    assert paired(problem.x, problem.y[:30], problem.a, problem.b[:30]).shape[0] == 0

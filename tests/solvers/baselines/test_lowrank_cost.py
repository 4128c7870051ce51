"""Costs of low rank: at full rank Entropic-GW itself, whatever the sign of the eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gromap import EntropicGW, LowRankCostGW, Power, Space, solve
from gromap.geometry.embedding import signed_factors
from tests.conftest import cloud
from tests.solvers.baselines.test_entropic import EXACT


@pytest.mark.parametrize("cost", [Power(1), Power(4)])
def test_full_rank_is_entropic_gw(cost):
    (x, a), (y, b) = cloud(30, 3, 0), cloud(21, 2, 1)
    sx, sy = Space(x, a, cost=cost, dim=30), Space(y, b, cost=cost, dim=21)
    for steps in (1, 3):
        one, two = (
            solve(sx, sy, epsilon=0.2, method=m(EXACT), init="zero", max_iter=steps)
            for m in (EntropicGW, LowRankCostGW)
        )
        np.testing.assert_allclose(two.plan.dense(), one.plan.dense(), atol=1e-9)
        assert two.value == pytest.approx(one.value, rel=1e-8)
        assert two.history["energy"][-1] == pytest.approx(one.history["energy"][-1], rel=1e-8)
    assert max(two.stats.cost_error) < 1e-6


@pytest.mark.parametrize("n", [60, 900])  # all eigenvectors, and block Krylov sweeps
def test_factors_are_the_best_of_their_rank_in_the_metric_of_the_weights(n):
    x, a = cloud(n, 3, 0)
    a[:3] = 0
    space = Space(x, a, cost=Power(3))
    found = signed_factors(space.cost, space.measure, 8)
    w = space.measure.weights
    root = w.sqrt()
    k = -0.5 * space.cost(space.measure.points, space.measure.points)
    theta = torch.linalg.eigvalsh(root[:, None] * k * root)
    kept = theta.abs().sort(descending=True).values[:8]
    gap = k - found.values @ torch.diag(found.signs) @ found.values.mT
    missed = (w @ gap.square() @ w) / (w @ k.square() @ w)
    assert float(missed) == pytest.approx(1 - float(kept.square().sum() / theta.square().sum()), rel=1e-3)
    assert found.error == pytest.approx(float(missed) ** 0.5, rel=1e-3)
    assert {-1.0, 1.0} == set(found.signs.tolist())


def test_the_squared_norm_needs_as_many_axes_as_it_has():
    """|x - x'|² in R^d has rank d + 2."""
    (x, a), (y, b) = cloud(40, 3, 0), cloud(31, 2, 1)
    sol = solve(x, y, a, b, cost="sqeuclidean", dim=(5, 4), epsilon=0.1, method="lowrank-cost", init="zero")
    assert max(sol.stats.cost_error) < 1e-6
    assert sol.value == pytest.approx(solve(x, y, a, b, cost="sqeuclidean", epsilon=0.1, init="zero").value, rel=1e-3)


def test_a_share_of_variance_is_not_a_rank():
    x, _ = cloud(30, 3, 0)
    with pytest.raises(ValueError, match=r"dim as an int.*X has dim = 0\.9"):
        solve(x, x, dim=0.9, method="lowrank-cost", init="zero")

"""What `init=` accepts: which class it becomes, and where each one begins."""

from __future__ import annotations

import numpy as np
import pytest

from gromap import Search, landmarks, solve
from gromap._pair import Pair
from gromap.search.starts import Continued, GivenPlan, Landmarks, LinearMap, PointMap, Random, Zero, as_start
from tests.conftest import cloud, rotation


def test_each_kind_of_start_is_one_class(pair):
    x, y, *_ = pair
    both, sol = Pair.of(*pair, dim=(6, 5)), solve(*pair, epsilon=0.05, dim=(6, 5))
    primal = solve(*pair, epsilon=0.05, dim=(6, 5), method="entropic")
    kinds = {
        "auto": Search,
        "zero": Zero,
        "random": Random,
    }
    assert all(isinstance(as_start(name, both), kind) for name, kind in kinds.items())
    given = [(landmarks([[0, 1]]), Landmarks), (sol.map(), PointMap), (sol.gamma, LinearMap), (sol.plan, GivenPlan)]
    given += [(sol.plan.dense(), GivenPlan), (sol, Continued), (sol.state, Continued), (primal, GivenPlan)]
    for init, kind in given:
        assert type(as_start(init, both)) is kind
    other = Pair.of(x[:-1], y, dim=(6, 5))
    assert isinstance(as_start(sol, other), LinearMap)  # other points, the same axes


def test_a_plan_is_never_read_as_a_linear_map():
    """Few points have as many axes: 12 x 12 may be either; what couples the weights is a plan."""
    x, a = cloud(12, 3, 0)
    order = np.random.default_rng(0).permutation(12)
    truth = np.argsort(order)
    plan = np.zeros((12, 12))
    plan[np.arange(12), truth] = a / a.sum()
    both = Pair.of(x, x[order], a, a[order])
    assert isinstance(as_start(plan, both), GivenPlan)
    assert isinstance(as_start(np.random.default_rng(0).normal(size=(12, 12)), both), LinearMap)
    sol = solve(x, x[order], a, a[order], init=plan, epsilon=1e-3)
    np.testing.assert_array_equal(sol.map(), truth)


@pytest.mark.parametrize("kind", ["map", "plan"])
def test_dense_solvers_start_from_all_of_a_plan(kind):
    """In 80 dimensions two axes see little of the true map: a third of the points was right."""
    rng = np.random.default_rng(1)
    x, order = rng.normal(size=(80, 80)), rng.permutation(80)
    y = (x @ rotation(80))[order] + 0.3 * rng.normal(size=(80, 80))
    truth = np.argsort(order)
    init = truth if kind == "map" else np.eye(80)[truth] / 80
    sol = solve(x, y, method="kernel", epsilon=1e-3, dim=2, init=init)
    assert (sol.map() == truth).all()

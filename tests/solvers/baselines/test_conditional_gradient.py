"""The conditional gradient of POT, plan for plan, fused too; vertices for CNT costs."""

from __future__ import annotations

import numpy as np
import pytest

from gromap import Power, solve
from gromap._plan import round_to
from gromap.solvers.baselines.conditional_gradient import line_search
from tests.conftest import cloud
from tests.solvers.baselines.test_entropic import matrices, spaces

ot = pytest.importorskip("ot")


def test_the_plan_of_pot():
    cx, cy, a, b = matrices()
    pi, log = ot.gromov.gromov_wasserstein(cx, cy, a, b, log=True)
    sol = solve(*spaces(), scale=None, method="conditional-gradient", init="zero", tol=1e-12)
    assert sol.converged
    np.testing.assert_allclose(sol.plan.dense(), pi, atol=1e-12)
    assert sol.value_gw == pytest.approx(log["gw_dist"], rel=1e-8)
    assert sol.plan.marginal_error < 1e-12
    assert (sol.plan.dense() > 0).sum() <= len(a) + len(b) - 1  # a vertex: L is concave


def test_a_line_search_for_costs_that_are_not_cnt():
    (x, a), (y, b) = cloud(25, 2, 0), cloud(18, 2, 1)
    sol = solve(x, y, a, b, cost=Power(4), method="conditional-gradient", init="zero")
    assert (np.diff(sol.history["energy"]) <= 1e-12).all()
    assert [line_search(-1.0, 1.0), line_search(-3.0, 1.0), line_search(1.0, -2.0), line_search(1.0, -0.5)] == [
        0.5,
        1,
        1,
        0,
    ]


def test_rounding_gives_a_coupling():
    import torch

    a, b = (torch.rand(n, dtype=torch.float64) for n in (7, 5))
    a, b = a / a.sum(), b / b.sum()
    pi = round_to(torch.rand(7, 5, dtype=torch.float64) / 35, a, b)
    torch.testing.assert_close(pi.sum(1), a)
    torch.testing.assert_close(pi.sum(0), b)


def test_without_pot_it_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(ImportError, match=r"pip install 'gromap\[pot\]'"):
        solve(*spaces(), method="conditional-gradient")


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_the_fused_plan_of_pot(alpha):
    cx, cy, a, b = matrices()
    rng = np.random.default_rng(2)
    F, G = rng.normal(size=(len(a), 2)), rng.normal(size=(len(b), 2))
    pi, log = ot.gromov.fused_gromov_wasserstein(ot.dist(F, G), cx, cy, a, b, alpha=alpha, log=True)
    how = {"scale": None, "features": (F, G), "alpha": alpha, "tol": 1e-12}
    sol = solve(*spaces(), method="conditional-gradient", init="zero", **how)
    np.testing.assert_allclose(sol.plan.dense(), pi, atol=1e-12)
    value = alpha * sol.value_gw + (1 - alpha) * sol.value_features
    assert value == pytest.approx(log["fgw_dist"], rel=1e-8)
    assert sol.history["energy"][-1] == pytest.approx(value, rel=1e-9)
    sharp = solve(*spaces(), sharpen=True, epsilon=0.01, **how)
    assert alpha * sharp.value_gw + (1 - alpha) * sharp.value_features <= 1.01 * value


def test_marginals_that_are_not_fixed_are_refused():
    with pytest.raises(ValueError, match="keeps both marginals"):
        solve(*spaces(), method="conditional-gradient", reach=0.1)

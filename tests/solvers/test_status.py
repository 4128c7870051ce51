"""The status is that of the plan that is returned, and values are those of its entries, also
where scores are large and their rounding errors show."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gromap
from gromap import Loop, Status, solve
from gromap.solvers import METHODS
from tests.conftest import cloud


def clouds(size: float, dtype: str = "float32"):
    return [(size * cloud(n, d, seed)[0]).astype(dtype) for n, d, seed in ((40, 3, 0), (31, 2, 1))]


def measured(sol) -> tuple[float, float]:
    """The misplaced mass and KL(π | a⊗b) of the dense plan, in float64."""
    pi, a, b = (np.asarray(z, dtype=np.float64) for z in (sol.plan.dense(), sol.plan.a, sol.plan.b))
    error = np.abs(pi.sum(1) - a).sum() + np.abs(pi.sum(0) - b).sum()
    some = pi > 0
    return error, float((pi[some] * np.log((pi / np.outer(a, b))[some])).sum())


@pytest.mark.parametrize("method", METHODS)
def test_converged_is_what_the_dense_plan_says(method):
    """DualGW had the first of these as converged, with 1.4 % of the mass misplaced."""
    for sides in (clouds(2.0), clouds(0.3)):
        sol = solve(*sides, scale=None, method=method, init="zero", max_iter=20)
        error, kl = measured(sol)
        assert sol.plan.marginal_error == pytest.approx(error, rel=1e-2, abs=1e-6)
        assert (sol.value - sol.value_gw) / sol.epsilon == pytest.approx(kl, rel=0.02)
        assert not sol.converged or error <= 2 * METHODS[method].loop.marginal_tol


def test_a_plan_that_misplaces_mass_is_not_converged(monkeypatch):
    """Whatever the loop saw on its way."""
    x, y = clouds(1.0, "float64")
    real = gromap.solvers.run.finish

    def spoiled(problem, outcome, numpy=False):
        plan = real(problem, outcome, numpy)
        return gromap.Plan(plan.score, plan.u + 0.01, plan.v, plan.a, plan.b, numpy)

    assert solve(x, y, epsilon=0.1).converged
    monkeypatch.setattr("gromap.solvers.run.finish", spoiled)
    assert solve(x, y, epsilon=0.1).status is Status.MARGINALS
    monkeypatch.setattr("gromap.learn.envelope.finish", spoiled)
    loss = gromap.GromovLoss(epsilon=0.1, debias=False)
    loss(torch.from_numpy(x), torch.from_numpy(y))
    assert loss.status is Status.MARGINALS


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_a_value_that_no_coupling_has_is_not_converged(value, monkeypatch):
    monkeypatch.setattr("gromap.solvers.cnt.CntProblem.evaluate", lambda *_: (value, 0.0))
    assert solve(*clouds(1.0), epsilon=0.1).status is Status.NOT_FINITE


@pytest.mark.parametrize("method", ["entropic", "kernel", "proximal"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_entropy_of_a_cold_plan(method, dtype):
    """It was the difference of two sums of large numbers: 218 for 1.88."""
    epsilon = 1.5e-4 if dtype == "float32" else 1e-11
    sol = solve(*clouds(1.0, dtype), epsilon=epsilon, method=method, init="zero", max_iter=20)
    assert (sol.value - sol.value_gw) / epsilon == pytest.approx(measured(sol)[1], rel=1e-2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [10, 50, 1e5])
def test_rounding_errors_of_more_than_a_nat_are_refused(method, size):
    """They ended in an error of svd, in NaN, or in a value of -1e46 that had converged."""
    with pytest.raises(ValueError, match=r"epsilon = 0\.001 is too small for torch\.float32.*or a larger scale"):
        solve(*clouds(size), scale=None, method=method)
    with pytest.raises(ValueError, match=r"Choose epsilon >= .*, pass float64 data"):
        gromap.gw_loss(*clouds(size))


@pytest.mark.parametrize("epsilon", [1e300, 1e16])
def test_an_epsilon_that_hides_all_costs_is_refused(epsilon):
    """Values were its rounding errors: -1e284."""
    x, y = clouds(1.0, "float64")
    for call in (solve, gromap.gw_loss, gromap.landscape):
        with pytest.raises(ValueError, match=r"is too large for torch\.float64.*Choose epsilon <= .* smaller scale"):
            call(x, y, epsilon=epsilon)
    product = solve(x, y, epsilon=1e9, init="zero")
    assert product.value == pytest.approx(product.value_gw, rel=1e-3)


def test_what_converged_before_still_does():
    """In float32 at a low temperature, where rounding errors are as large as the tolerance."""
    t, order = np.linspace(0, 1, 80) ** 2, np.random.default_rng(0).permutation(80)
    x = np.outer(t, np.random.default_rng(1).normal(size=10)).astype("float32")
    sol = solve(x, x[order], epsilon=1e-4)
    assert sol.converged
    assert measured(sol)[0] < 2 * Loop().marginal_tol


@pytest.mark.parametrize(("points", "noise", "epsilon"), [(40, 0.02, 1e-3), (100, 0.0, 1e-4)])
def test_a_float32_value_is_that_of_the_plan(points, noise, epsilon):
    """Rows are exact but for rounding errors, and a small value is a small difference of large
    sums."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(points, 3)).astype(np.float32)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    y = (x @ turn + noise * rng.normal(size=x.shape))[::-1].astype(np.float32)
    sol = solve(x, y, cost="sqeuclidean", epsilon=epsilon)
    c, d = (((z[:, None].astype(float) - z) ** 2).sum(-1) / u for z, u in zip((x, y), sol.scale, strict=True))
    pi = sol.plan.dense().astype(float)
    rows, cols = pi.sum(1), pi.sum(0)
    brute = rows @ c**2 @ rows + cols @ d**2 @ cols - 2 * ((c @ pi @ d) * pi).sum()
    assert sol.value_gw == pytest.approx(brute, rel=2e-3, abs=1e-6)

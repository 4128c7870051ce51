"""Proximal-GW is the PPA solver of POT, step by step, and ends at unregularized couplings."""

from __future__ import annotations

import numpy as np
import pytest

from gromap import Exponential, Loop, ProximalGW, Sinkhorn, solve
from tests.solvers.baselines.test_entropic import EXACT, matrices, spaces


@pytest.mark.parametrize("kernel", [False, True])
def test_the_steps_of_pot(kernel):
    ot = pytest.importorskip("ot")
    cx, cy, a, b = matrices()
    for steps in (1, 5):
        pi = ot.gromov.entropic_gromov_wasserstein(cx, cy, a, b, epsilon=0.05, max_iter=steps, tol=1e-15, solver="PPA")
        sol = solve(*spaces(), epsilon=0.05, scale=None, method=ProximalGW(EXACT, kernel), init="zero", max_iter=steps)
        np.testing.assert_allclose(sol.plan.dense(), pi, atol=1e-7)
        assert sol.stats.method == ("proximal-kernel" if kernel else "proximal")


def test_the_loss_falls_and_the_entropy_goes():
    """L(π_t) falls for CNT costs, and the end is within 2 % of a coupling of the conditional
    gradient."""
    pytest.importorskip("ot")
    loop = Loop(Sinkhorn(1000, tol=1e-7), adaptive=False, max_steps=1000)
    sol = solve(*spaces(), epsilon=0.02, scale=None, method=ProximalGW(loop), init="zero")
    assert sol.converged
    assert (np.diff(sol.history["energy"]) < 1e-6).all()
    assert sol.history["energy"][-1] == pytest.approx(sol.value_gw, abs=1e-5)
    sharp = solve(*spaces(), scale=None, method="conditional-gradient", init=sol)
    assert sharp.value_gw <= sol.value_gw
    assert sol.value_gw <= 1.02 * sharp.value_gw
    entropic = solve(*spaces(), epsilon=0.02, scale=None, method="entropic", init=sol)
    assert sol.value_gw < entropic.value_gw


def test_swapped_sides_part_where_sinkhorn_is_not_finished():
    """A hundred standard steps leave 15 % of the mass misplaced from one side and nothing from the
    other, and lead to two couplings; finished ones lead to one."""
    x = np.array([[3.36, 0.45, 1.22], [-0.53, 0.76, -0.25]])
    y = np.array(
        [[0.94, 0.05, 0.08], [-0.59, 0.63, 0.73], [-2.25, 0.76, 0.84], [0.23, 0.73, 0.91], [1.85, 1.89, 0.86],
         [0.35, 1.04, 0.17], [0.52, -0.07, 0.17], [2.37, 0.06, -0.59], [-0.62, 0.56, 0.42], [3.88, 2.39, 0.06]]
    )  # fmt: skip
    a, b = [1.16, 0.67], [0.38, 0.92, 0.37, 0.30, 0.93, 1.03, 0.38, 1.19, 1.05, 0.84]

    def both(loop):
        options = {"cost": Exponential(1.0), "epsilon": 0.05, "method": ProximalGW(loop, kernel=True), "init": "zero"}
        sols = solve(x, y, a, b, **options), solve(y, x, b, a, **options)
        assert all(sol.converged for sol in sols)
        return [sol.value for sol in sols], [sol.history["marginal_error"].max() for sol in sols]

    values, missed = both(ProximalGW().loop)
    assert max(missed) > 0.1
    assert abs(values[0] - values[1]) > 0.01
    values, missed = both(Loop(Sinkhorn(20_000, tol=1e-9, update="standard"), adaptive=False, max_steps=20_000))
    assert max(missed) < 1e-8
    assert values[0] == pytest.approx(values[1], abs=1e-6)

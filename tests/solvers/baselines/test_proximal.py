"""Proximal-GW is the PPA solver of POT, step by step, and ends at unregularized couplings."""

from __future__ import annotations

import numpy as np
import pytest

from gromap import Loop, ProximalGW, Sinkhorn, solve
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

"""Entropic-GW is the solver of POT, to the last digits, and Kernel-GW without its centring."""

from __future__ import annotations

import numpy as np
import pytest

from gromap import EntropicGW, KernelGW, Loop, Power, Sinkhorn, Space, Status, solve
from tests.conftest import cloud

EXACT = Loop(Sinkhorn(1000, tol=1e-9, update="standard"), adaptive=False, max_steps=1000, tol=1e-9, max_iter=100)


def matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two cost matrices of radius about 1, and weights."""
    (x, a), (y, b) = cloud(40, 3, 0), cloud(31, 2, 1)
    cx, cy = (np.linalg.norm(z[:, None] - z, axis=-1) for z in (x, y))
    return cx / 4, cy / 3, a / a.sum(), b / b.sum()


def spaces() -> tuple[Space, Space]:
    cx, cy, a, b = matrices()
    return Space.from_costs(cx, a, dim=40), Space.from_costs(cy, b, dim=31)


def test_the_plan_and_the_value_of_pot():
    """Same ε; value = POT's + ε (H(a) + H(b)), since POT adds ε Σ P log P in place of ε KL."""
    ot = pytest.importorskip("ot")
    cx, cy, a, b = matrices()
    pi, log = ot.gromov.entropic_gromov_wasserstein(cx, cy, a, b, epsilon=0.05, max_iter=100, tol=1e-9, log=True)
    sol = solve(*spaces(), epsilon=0.05, scale=None, method=EntropicGW(EXACT), init="zero")
    assert sol.converged
    np.testing.assert_allclose(sol.plan.dense(), pi, atol=1e-5)
    assert sol.value_gw == pytest.approx(log["gw_dist"], abs=5e-6)
    theirs = log["gw_dist"] + 0.05 * (pi * np.log(pi)).sum()
    assert sol.value == pytest.approx(theirs - 0.05 * ((a * np.log(a)).sum() + (b * np.log(b)).sum()), abs=1e-6)


def test_each_step_is_that_of_kernel_gw_once_sinkhorn_converges():
    """Prop. equivalence_pgd."""
    for steps in (1, 2, 4):
        one, two = (
            solve(*spaces(), epsilon=0.05, scale=None, method=m(EXACT), init="zero", max_iter=steps)
            for m in (EntropicGW, KernelGW)
        )
        np.testing.assert_allclose(one.plan.dense(), two.plan.dense(), atol=1e-8)
        assert one.history["energy"][-1] == pytest.approx(two.history["energy"][-1], abs=1e-8)


@pytest.mark.parametrize("update", ["standard", "symmetric", "accelerated"])
def test_every_sinkhorn_ends_at_the_same_plan(update):
    loop = Loop(Sinkhorn(2000, tol=1e-9, update=update), adaptive=False, max_steps=2000, tol=1e-9)
    sol = solve(*spaces(), epsilon=0.05, scale=None, method=EntropicGW(loop), init="zero")
    assert sol.converged
    assert sol.value == pytest.approx(0.216464, abs=1e-5)


def test_it_oscillates_for_a_cost_that_is_not_cnt():
    """Fig. gradientbias: c = |x - x'|⁶."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(8, 2)), rng.normal(size=(8, 2))
    loop = Loop(Sinkhorn(1000, tol=1e-4), max_steps=1000, max_iter=12, adaptive=False)
    found = [
        solve(x, y, cost=Power(p), epsilon=1e-2, method=EntropicGW(loop), init="zero", dim=8).status for p in (6, 2)
    ]
    assert found == [Status.OSCILLATES, Status.CONVERGED]


def test_it_starts_from_a_given_plan():
    ot = pytest.importorskip("ot")
    cx, cy, a, b = matrices()
    pi = ot.emd(a, b, np.abs(cx.mean(1)[:, None] - cy.mean(1)))
    one = ot.gromov.entropic_gromov_wasserstein(cx, cy, a, b, epsilon=0.05, G0=pi, max_iter=1)
    few = Space.from_costs(cx, a), Space.from_costs(cy, b)  # 20 axes: a (40, 31) matrix is a plan
    sol = solve(*few, epsilon=0.05, scale=None, method=EntropicGW(EXACT), init=pi, max_iter=1)
    np.testing.assert_allclose(sol.plan.dense(), one, atol=1e-6)

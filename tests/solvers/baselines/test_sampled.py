"""Sampled-GW: an unbiased estimate of the whole gradient, and so the same ε as every other
method."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gromap import EntropicGW, Loop, SampledGW, Sinkhorn, solve
from gromap._pair import Pair
from tests.solvers.baselines.test_entropic import EXACT, matrices, spaces


def loss(cx: np.ndarray, cy: np.ndarray, pi: np.ndarray) -> float:
    r, c = pi.sum(1), pi.sum(0)
    return float(r @ cx**2 @ r + c @ cy**2 @ c - 2 * ((cx @ pi @ cy) * pi).sum())


def test_the_drawn_score_is_minus_the_gradient_over_epsilon_on_average():
    cx, cy, _, _ = matrices()
    sx, sy = spaces()
    problem = SampledGW(samples=4000).problem(Pair(sx, sy, 0.05))
    pi = solve(sx, sy, epsilon=0.05, scale=None, method="entropic", init="zero").plan
    drawn = np.mean([problem.draw(pi.score, pi.v).dense().numpy() for _ in range(20)], axis=0)
    dense = pi.dense()
    gradient = 2 * ((cx**2 @ dense.sum(1))[:, None] + cy**2 @ dense.sum(0) - 2 * cx @ dense @ cy)
    a, b = dense.sum(1), dense.sum(0)
    gradient = gradient - a @ gradient - (gradient @ b)[:, None] + a @ gradient @ b  # f and g take up the rest
    np.testing.assert_allclose(drawn, -gradient / 0.05, rtol=0.05, atol=0.02 * gradient.max() / 0.05)


def test_many_samples_are_entropic_gw():
    entropic = solve(*spaces(), epsilon=0.05, scale=None, method=EntropicGW(EXACT), init="zero")
    sampled = solve(*spaces(), epsilon=0.05, scale=None, method=SampledGW(samples=2000), init="zero", max_iter=12)
    assert sampled.value == pytest.approx(entropic.value, rel=0.01)
    assert sampled.history["energy"][-1] == pytest.approx(entropic.value, rel=0.01)


def test_the_loss_of_pot():
    """POT's is proximal, with gradients in units of their own: at a small ε the losses agree, to
    10 %."""
    ot = pytest.importorskip("ot")
    cx, cy, a, b = matrices()
    options = {"nb_samples_grad": 40, "epsilon": 1e-2, "max_iter": 60, "random_state": 0}
    pi = ot.gromov.sampled_gromov_wasserstein(cx, cy, a, b, lambda s, t: (s - t) ** 2, **options)
    sol = solve(*spaces(), epsilon=0.005, scale=None, method=SampledGW(samples=40), init="zero", max_iter=30)
    assert loss(cx, cy, sol.plan.dense()) == pytest.approx(loss(cx, cy, pi), rel=0.1)


def test_it_never_settles_with_few_samples_and_is_a_function_of_its_seed():
    options = {"scale": None, "epsilon": 0.05, "method": "sampled", "init": "zero", "max_iter": 15}
    one, two, other = (solve(*spaces(), seed=s, **options) for s in (3, 3, 4))
    np.testing.assert_array_equal(one.plan.dense(), two.plan.dense())
    assert not np.array_equal(one.plan.dense(), other.plan.dense())
    assert not one.converged
    late = one.history["energy"][5:]
    assert late.std() > 1e-3 * late.mean()


def test_few_sinkhorn_steps_and_float32():
    sx, sy = spaces()
    x, y = (np.asarray(s.features, dtype="float32") for s in (sx, sy))
    loop = Loop(Sinkhorn(20, update="symmetric"), adaptive=False, max_iter=10)
    sol = solve(
        torch.from_numpy(x), torch.from_numpy(y), cost="sqeuclidean", epsilon=0.05, method=SampledGW(loop), init="zero"
    )
    assert np.isfinite(sol.history["energy"]).all()

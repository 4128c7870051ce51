"""Features beside distances: their cost, both ends of alpha, and matches that features decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gromap import Exponential, GromovLoss, KernelGW, Loop, Sinkhorn, gw_loss, solve
from gromap._features import feature_cost_of
from gromap.geometry.costs import as_cost
from tests.conftest import cloud, rotation

TIGHT = Loop(Sinkhorn(5000, tol=1e-12), adaptive=False, max_steps=5000, max_iter=300, tol=1e-15, marginal_tol=1e-9)
WEIGHTS = (torch.full((8,), 1 / 8, dtype=torch.float64), torch.full((6,), 1 / 6, dtype=torch.float64))
F, G = np.random.default_rng(2).normal(size=(8, 3)), np.random.default_rng(3).normal(size=(6, 3))
NAMES = np.array(list("abcabcab")), np.array(list("cabbad"))


def cost(features, kind=None, own_unit=False):
    return feature_cost_of(features, 0.5, kind, WEIGHTS, own_unit, 0).cost().numpy()


def test_squared_norms_labels_and_factors():
    squares = ((F[:, None] - G) ** 2).sum(-1)
    assert cost((F, G)) == pytest.approx(squares)
    assert cost((F[:, 0], G[:, 0])) == pytest.approx((F[:, None, 0] - G[:, 0]) ** 2)
    assert (cost(NAMES) == (NAMES[0][:, None] != NAMES[1])).all()
    numbers = [np.unique(z, return_inverse=True)[1] for z in NAMES]
    assert (cost((numbers[0], torch.from_numpy(numbers[1] % 3))) == (numbers[0][:, None] != numbers[1] % 3)).all()
    assert cost((F, G), "factors") == pytest.approx(F @ G.T)


def test_any_cnt_cost_by_a_joint_embedding():
    for kind in (Exponential(1.0), "euclidean"):
        exact = as_cost(kind)(torch.from_numpy(F), torch.from_numpy(G)).numpy()
        assert cost((F, G), kind) == pytest.approx(exact, abs=1e-8)


def test_features_have_their_own_unit():
    ours, scaled = cost((F, G), own_unit=True), cost((1e4 * F + 7, 1e4 * G + 7), own_unit=True)
    assert scaled == pytest.approx(ours)
    (x, a), (y, b) = cloud(8, 3, 0), cloud(6, 2, 1)
    values = [solve(x, y, a, b, features=(s * F, s * G), init="zero").value for s in (1.0, 1e-3, 1e6)]
    assert values == pytest.approx([values[0]] * 3)


def test_both_ends_of_alpha():
    """alpha = 1 is the match without features, alpha = 0 entropic transport of them."""
    ot = pytest.importorskip("ot")
    (x, a), (y, b) = cloud(8, 3, 0), cloud(6, 2, 1)
    a, b = a / a.sum(), b / b.sum()
    given: dict[str, Any] = {"scale": None, "epsilon": 0.5, "features": (F, G)}
    for method in ("cnt", "kernel"):
        end = solve(x, y, a, b, method=method, alpha=0.0, tol=1e-9, **given)
        theirs = ot.sinkhorn(a, b, ((F[:, None] - G) ** 2).sum(-1), 0.5, stopThr=1e-12)
        assert np.abs(end.plan.dense() - theirs).max() < 1e-4
        one = solve(x, y, a, b, method=method, alpha=1.0, **given)
        assert one.value == pytest.approx(solve(x, y, a, b, scale=None, epsilon=0.5, method=method).value, rel=1e-4)


def test_features_decide_between_mirror_images():
    """A cloud that distances cannot tell from its mirror image, and a label on one side."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(60, 2)) * [1.0, 2.0]
    half[:, 0] = np.abs(half[:, 0]) + 0.2
    x = np.r_[half, half * [-1, 1]]
    mark = (x[:, 0] > 0).astype(int)
    order = rng.permutation(120)
    y = (x @ rotation(2))[order]
    sol = solve(x, y, features=(mark, mark[order]), alpha=0.8)
    assert (mark[order][sol.map()] == mark).mean() > 0.95
    assert np.quantile(np.linalg.norm(y[sol.map()] - y[np.argsort(order)], axis=1), 0.9) < 0.3
    mirrored = solve(x, y, features=(mark, 1 - mark[order]), alpha=0.8)
    assert (mark[order][mirrored.map()] != mark).mean() > 0.95


def test_features_and_distances_in_one_value():
    (x, a), (y, b) = cloud(8, 3, 0), cloud(6, 2, 1)
    a, b = a / a.sum(), b / b.sum()
    sol = solve(x, y, a, b, features=(F, G), alpha=0.3, scale=None, epsilon=0.2)
    pi = sol.plan.dense()
    assert sol.value_features == pytest.approx((pi * cost((F, G))).sum())
    kl = (pi * np.log(pi / np.outer(a, b))).sum()
    assert sol.value == pytest.approx(0.3 * sol.value_gw + 0.7 * sol.value_features + 0.2 * kl)
    assert "0.3 GW" in repr(sol)
    assert "0.7 features" in repr(sol)


@pytest.mark.parametrize("reach", [None, 1.0, (0, None), (None, 0.7), (0.5, 0)], ids=str)
@pytest.mark.parametrize("kind", ["sqeuclidean", "factors"])
def test_gradients_are_finite_differences(reach, kind):
    """x, y, a, b, F, G, with a marginal fixed, relaxed and free."""
    (x, a), (y, b) = cloud(8, 3, 0), cloud(6, 2, 1)
    inputs = [torch.tensor(z, requires_grad=True) for z in (x, y, a, b, 0.5 * F, 0.5 * G)]
    loss = GromovLoss(
        epsilon=0.5, reach=reach, alpha=0.6, feature_cost=kind, debias=False, method=KernelGW(TIGHT), init="zero"
    )
    gradients = torch.autograd.grad(loss(*inputs[:4], features=inputs[4:]), inputs)
    for k, (z, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        direction = torch.randn(z.shape, generator=torch.Generator().manual_seed(k), dtype=z.dtype)
        h, ends = 1e-4 * z.detach().abs().mean(), []
        for sign in (1, -1):
            moved = [w.detach() for w in inputs]
            moved[k] = moved[k] + sign * h * direction
            ends.append(float(loss(*moved[:4], features=moved[4:])))
        exact = (ends[0] - ends[1]) / float(2 * h)
        assert float((gradient * direction).sum()) == pytest.approx(exact, rel=1e-4, abs=1e-6)


def test_losses_with_features_in_batches():
    x, y, f, g = (torch.randn(2, n, d) for n, d in ((9, 3), (7, 2), (9, 2), (7, 2)))
    loss = GromovLoss(epsilon=0.5, debias=False)
    both = loss(x, y, features=(f, g))
    for k in range(2):
        alone = gw_loss(x[k], y[k], features=(f[k], g[k]), epsilon=0.5, debias=False)
        assert float(both[k]) == pytest.approx(float(alone), rel=1e-4)


def test_what_losses_refuse():
    with pytest.raises(ValueError, match="fixed marginals"):
        GromovLoss(reach=0.1)
    with pytest.raises(ValueError, match="debias=False"):
        gw_loss(torch.randn(8, 2), torch.randn(6, 2), features=(F, G))
    f = torch.tensor(F, requires_grad=True)
    with pytest.raises(ValueError, match="features have gradients for"):
        gw_loss(torch.from_numpy(F), torch.from_numpy(G), features=(f, G), feature_cost="euclidean", debias=False)

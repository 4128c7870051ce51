"""Gradients equal finite differences, the divergence is a divergence, and bad input is told."""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch

from gromap import (
    CntGW,
    Exponential,
    Gaussian,
    GromovLoss,
    Hyperbolic,
    KernelGW,
    Loop,
    Power,
    Precomputed,
    Sinkhorn,
    Space,
    Spherical,
    Status,
    gw_loss,
    solve,
)
from gromap._pair import Pair
from gromap.learn import losses
from gromap.search.starts import Random, Zero
from tests.conftest import cloud, rotation

TIGHT = Loop(Sinkhorn(5000, tol=1e-12), adaptive=False, max_steps=5000, max_iter=300, tol=1e-15, marginal_tol=1e-9)
COSTS = [  # and temperatures at which small clouds converge fast
    (Power(2.0), 40.0),
    (Power(1.0), 2.0),
    (Power(0.5), 0.4),
    (Power(1.5), 8.0),
    (Gaussian(1.5), 0.8),
    (Exponential(1.0), 0.8),
    (Spherical(), 1.0),
    (Hyperbolic(), 0.6),
    (lambda x, y: torch.cdist(x, y).square().add(1).log(), 1.0),
]
X, Y = torch.from_numpy(cloud(12, 3, 0)[0]), torch.from_numpy(cloud(9, 2, 1)[0])


def problem(cost):
    """Points in the domain of the cost, weighted, N != M, d != e."""
    (x, a), (y, b) = cloud(8, 3, 0), cloud(6, 2, 1)
    if isinstance(cost, Spherical):
        x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
    if isinstance(cost, Hyperbolic):
        x, y = x / 10, y / 10
    return [torch.tensor(z, requires_grad=True) for z in (x, y, a, b)]


def relative(found, exact):
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize(("cost", "eps"), COSTS)
@pytest.mark.parametrize(("method", "debias"), [(KernelGW(TIGHT), True), (CntGW(TIGHT), False)])
def test_gradients_are_finite_differences(cost, eps, method, debias):
    """X, Y, a and b, along random directions; weights are normalized, so that any direction will
    do."""
    inputs = problem(cost)
    loss = GromovLoss(cost=cost, epsilon=eps, debias=debias, method=method, dim=(8, 6), init="zero")
    gradients = torch.autograd.grad(loss(*inputs), inputs)
    for k, (z, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        direction = torch.randn(z.shape, generator=torch.Generator().manual_seed(k), dtype=z.dtype)
        h = 1e-5 * z.detach().abs().mean()
        ends = []
        for sign in (1, -1):
            moved = [w.detach() for w in inputs]
            moved[k] = moved[k] + sign * h * direction
            ends.append(loss(*moved))
        exact = (ends[0] - ends[1]) / (2 * h)
        assert float((gradient * direction).sum()) == pytest.approx(float(exact), rel=1e-5)
    assert loss.status is Status.CONVERGED


def test_weight_gradients_of_a_cost_that_is_not_cnt():
    """The self coupling is block diagonal, so that potentials of a block are known up to a
    constant."""
    (x, a), (y, _) = cloud(14, 2, 0), cloud(11, 2, 5)
    x, y, a = torch.from_numpy(1.5 * x), torch.from_numpy(y), torch.from_numpy(a).requires_grad_()
    scale = Space(x, cost=Power(4)).scale
    loss = GromovLoss(cost=Power(4), epsilon=0.05, method=KernelGW(TIGHT), scale=scale)
    gradient = torch.autograd.grad(loss(x, y, a), a)[0]
    f, g = loss._memory[0].left.plan.potentials
    assert float((f - g).std()) > 1e-2  # else this is not a case
    direction = torch.randn(14, generator=torch.Generator().manual_seed(0), dtype=a.dtype)
    ends = [loss(x, y, a.detach() + sign * 1e-5 * direction) for sign in (1, -1)]
    assert float(gradient @ direction) == pytest.approx(float(ends[0] - ends[1]) / 2e-5, rel=1e-4)


def shapes2d():
    folder = Path(os.environ.get("GROMAP_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data") / "shapes2d"
    if not folder.is_dir():
        pytest.skip(f"no shapes in {folder}: set GROMAP_DATA")
    return folder


@pytest.mark.parametrize(("source", "target"), [("five", "C"), ("cross", "heart"), ("horse_silhouette", "S")])
def test_fifty_axes_give_the_gradient_to_a_percent(source, target):
    x, y = (torch.from_numpy(np.load(shapes2d() / f"{s}.npy")[:n]).double() for s, n in ((source, 120), (target, 100)))
    x.requires_grad_()
    loop = Loop(Sinkhorn(100), max_steps=10_000, max_iter=300, tol=1e-9, marginal_tol=1e-6)
    losses = [GromovLoss(epsilon=5e-3, method=method, dim=50, init="zero") for method in (KernelGW(loop), CntGW(loop))]
    values = [loss(x, y) for loss in losses]
    exact, found = (torch.autograd.grad(value, x)[0] for value in values)
    assert relative(found, exact) < 1e-2
    assert values[1].item() == pytest.approx(values[0].item(), rel=1e-2)


@pytest.mark.parametrize("method", [KernelGW(TIGHT), CntGW(TIGHT)])
def test_values_are_those_of_solve(method, pair):
    x, y, a, b = pair
    sol = solve(x, y, a, b, epsilon=0.5, scale=None, method=method, dim=(40, 31))
    assert float(gw_loss(x, y, a, b, epsilon=0.5, method=method, dim=(40, 31), debias=False)) == pytest.approx(
        sol.value, rel=1e-9
    )
    halves = gw_loss(x, y, a, b, epsilon=0.5 / 4, scale=2.0, method=method, dim=(40, 31), debias=False)
    assert float(halves) == pytest.approx(sol.value / 4, rel=1e-9)


@hypothesis.settings(max_examples=200, deadline=None, derandomize=True, database=None)
@hypothesis.given(
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from([0.5, 5.0]),
    st.sampled_from([Power(1.0), Power(2.0), Gaussian(1.0)]),
)
def test_the_divergence_is_not_negative(seed, alike, relative_eps, cost):
    """Thm. cnt_sgw_properties, from any local minimum of the cross term; for any two clouds, and
    for nearly isometric ones."""
    (x, a), (y, b) = cloud(4 + seed % 3, 1 + seed % 3, seed), cloud(4 + seed % 4, 1 + seed % 2, seed + 1)
    if alike:
        y, b = x + 0.01 * np.random.default_rng(seed).normal(size=x.shape), a
    eps = relative_eps * Space(x, a, cost=cost).scale * Space(y, b, cost=cost).scale
    loop = Loop(Sinkhorn(100), max_steps=5000, max_iter=100, tol=1e-9, marginal_tol=1e-6)
    assert float(GromovLoss(cost=cost, epsilon=eps, method=KernelGW(loop), init="zero")(x, y, a, b)) >= -1e-10


def test_a_self_term_that_is_stuck_starts_again_from_the_cross_term():
    """Γ = 0 is a saddle of a sphere against itself."""
    x, y = (Space(sphere(d, n), cost="sqeuclidean") for d, n in ((2, 10), (3, 12)))
    solver = CntGW().for_gradients()
    cross = losses._solve(Pair(x, y, 0.5), solver, None, Random())
    stuck = [losses._solve(Pair(s, s, 0.5), solver, None, Zero()) for s in (x, y)]
    lower = [losses._lower(cross, own, side, solver) for side, own in enumerate(stuck)]
    assert cross.value < 0.5 * sum(own.value for own in stuck)
    assert cross.value > 0.5 * sum(own.value for own in lower)


@pytest.mark.parametrize("cost", [Power(1.0), Power(2.0), Exponential(1.0)])
def test_isometric_copies_are_at_distance_zero(cost):
    x, a = cloud(14, 3, 3)
    order = np.random.default_rng(0).permutation(14)
    copy = (x @ rotation(3) + 5.0)[order]
    eps = 0.05 * Space(x, a, cost=cost).scale ** 2
    loss = GromovLoss(cost=cost, epsilon=eps, method=KernelGW(TIGHT), init=np.argsort(order), dim=14)
    assert float(loss(x, copy, a, a[order])) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("method", [KernelGW(TIGHT), CntGW(TIGHT)])
def test_motions_and_order_change_nothing(method, pair):
    x, y, a, b = pair
    loss = GromovLoss(epsilon=0.5, method=method, dim=(40, 31), init="zero")
    value = float(loss(x, y, a, b))
    order = np.random.default_rng(1).permutation(len(x))
    loss.reset()
    assert float(loss((x @ rotation(3) - 7.0)[order], -y, a[order], b)) == pytest.approx(value, abs=1e-9)


def sphere(d, n):
    x = np.random.default_rng(d).normal(size=(n, d))
    x = np.concatenate([x, -x])
    for _ in range(200):  # whitened: with a multiple of the identity as covariance, as the sphere has
        x = x @ np.linalg.inv(np.linalg.cholesky(d * x.T @ x / len(x))).T
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x


def test_large_temperatures_do_not_tell_spheres_apart():
    """Prop. sgw_counterex."""
    x, y = sphere(2, 20), sphere(3, 30)
    values = [float(GromovLoss(cost="sqeuclidean", epsilon=eps, init="random")(x, y)) for eps in (50.0, 0.5)]
    assert values[0] == pytest.approx(0, abs=1e-9)
    assert values[1] > 0.1


def test_a_module_continues_where_it_ended(monkeypatch):
    loss = GromovLoss(epsilon=0.3)
    first = loss(X, Y)
    monkeypatch.setattr("gromap.search.search.best_start", lambda *args: pytest.fail("searched again"))
    near = loss(X + 0.01, Y)
    assert float(near) == pytest.approx(float(first), rel=1e-4)
    with pytest.raises(pytest.fail.Exception, match="searched again"):
        loss(X.flip(0), Y)  # another cloud, as far as the module can tell
    loss.reset()
    with pytest.raises(pytest.fail.Exception, match="searched again"):
        loss(X, Y)


def test_copies_start_without_a_memory():
    loss = GromovLoss(epsilon=0.5, init="zero")
    value = loss(X, Y)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert other.plan is None
        torch.testing.assert_close(other(X, Y), value)
    assert loss.plan is not None
    assert loss.plan.shape == (12, 9)
    assert not loss.state_dict()


def test_a_fixed_side_may_be_a_space():
    space = Space(Y, cost=Gaussian(1.0), dim=9)
    x = X.clone().requires_grad_()
    loss = GromovLoss(cost=("euclidean", Gaussian(1.0)), epsilon=0.3, init="zero")
    loss(x, space).backward()
    matrix = Gaussian(1.0)(Y, Y)
    again = GromovLoss(cost=("euclidean", Precomputed(matrix)), epsilon=0.3, init="zero")
    value = again(X, torch.arange(9))
    assert float(value) == pytest.approx(float(loss(X, space)), rel=1e-5)
    assert x.grad is not None
    assert float(x.grad.norm()) > 0


@pytest.mark.parametrize("method", ["kernel", "cnt"])
def test_a_batch_is_its_items(method):
    x = torch.stack([X, 2 * X, X.flip(1)]).requires_grad_()
    y = torch.stack([Y, Y + 1, 3 * Y])
    loss = GromovLoss(epsilon=0.5, method=method, init="zero")
    values = loss(x, y)
    assert values.shape == (3,)
    (gradient,) = torch.autograd.grad(values.sum(), x)
    alone = x[2].detach().requires_grad_()
    one = GromovLoss(epsilon=0.5, method=method, init="zero")(alone, y[2])
    torch.testing.assert_close(values[2], one)
    torch.testing.assert_close(gradient[2], torch.autograd.grad(one, alone)[0])
    assert loss(X, y).shape == (3,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_low_precision(dtype):
    x = X.to(dtype).requires_grad_()
    exact = X.to(dtype).double().requires_grad_()
    loss = GromovLoss(epsilon=0.5, init="zero")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(x, Y.to(dtype))
    value.backward()
    reference = GromovLoss(epsilon=0.5, init="zero")(exact, Y.to(dtype).double())
    reference.backward()
    torch.testing.assert_close(value.double(), reference, rtol=1e-4, atol=0)
    assert x.grad is not None
    assert x.grad.dtype == dtype
    assert relative(x.grad.double(), exact.grad) < (1e-3 if dtype == torch.float32 else 1e-2)


def test_points_without_mass_neither_pull_nor_count():
    a = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    a[3] = 0
    x, a = X.clone().requires_grad_(), a.requires_grad_()
    loss = GromovLoss(epsilon=0.5, method=KernelGW(TIGHT), init="zero")
    value = loss(x, Y, a)
    gradient, weights = torch.autograd.grad(value, [x, a])
    assert bool((gradient[3] == 0).all())
    keep = torch.arange(12) != 3
    assert float(loss(X[keep], Y, a.detach()[keep])) == pytest.approx(value.item(), rel=1e-9)
    ends = [loss(X, Y, a.detach() + h * torch.eye(12, dtype=a.dtype)[3]) for h in (0.0, 1e-4, 2e-4)]
    slope = float(-1.5 * ends[0] + 2 * ends[1] - 0.5 * ends[2]) / 1e-4  # one-sided: weights are >= 0
    assert float(weights[3]) == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("cost", [Power(1.0), Power(0.5), Power(1.5), Exponential(1.0), Gaussian(1.0)])
def test_coincident_points_have_finite_subgradients(cost):
    x = X.clone()
    x[1] = x[0]
    x.requires_grad_()
    gw_loss(x, Y, cost=cost, epsilon=0.5).backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())
    torch.testing.assert_close(x.grad[0], x.grad[1])


def test_only_what_asks_gets_a_gradient():
    assert not GromovLoss(epsilon=0.5, init="zero")(X, Y).requires_grad
    x = X.clone().requires_grad_()
    with torch.no_grad():
        assert not GromovLoss(epsilon=0.5, init="zero")(x, Y).requires_grad
    assert not GromovLoss(epsilon=0.5, init="zero")(x.detach(), Y).requires_grad


def broken(x, y):
    return torch.cdist(x.detach(), y.detach())


def cusp(x, y):
    return (x[:, None] - y).square().sum(-1).sqrt()


CASES = {
    "cost without derivative": (lambda x: gw_loss(x, Y, cost=broken), "no derivative with respect to the points"),
    "derivative that is NaN": (lambda x: gw_loss(x, Y, cost=cusp), "cost of X is NaN or infinite at point 0"),
    "integers": (lambda x: gw_loss(torch.arange(6).reshape(3, 2), Y), r"X holds torch.int64.*X.float\(\)"),
    "scale of the data": (lambda x: GromovLoss(scale="each"), "a fixed number"),  # type: ignore[arg-type]
    "scale zero": (lambda x: GromovLoss(scale=0), "scale must be"),
    "unknown method": (lambda x: GromovLoss(method="kernal"), "did you mean 'kernel'"),
    "unknown cost": (lambda x: GromovLoss(cost="euclidian"), "did you mean 'euclidean'"),
    "epsilon": (lambda x: GromovLoss(epsilon=0), "epsilon must be"),
    "two batches": (lambda x: GromovLoss()(x.expand(3, -1, -1), Y.expand(2, -1, -1)), "have 3 of X, 2 of Y"),
    "NaN": (lambda x: gw_loss(x * float("nan"), Y), "X has NaN"),
    "one-dimensional": (lambda x: gw_loss(x[:, 0], Y), r"X\[:, None\]"),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, message = CASES[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call(X.clone().requires_grad_())


@pytest.mark.parametrize("cost", ["euclidean", "sqeuclidean"])
def test_second_derivatives_are_refused(cost):
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(GromovLoss(cost=cost, epsilon=0.5, init="zero")(x, Y), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable once"):
        gradient.sum().backward()


def test_a_cost_that_is_not_cnt_warns_once():
    """A third of the spectrum of |x - x'|⁴ is negative: features drop it, the kernel does not."""
    loss = GromovLoss(cost=Power(4), epsilon=100.0, method="cnt", init="zero")
    with pytest.warns(UserWarning, match="not conditionally of negative type"):
        loss(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(X + 0.01, Y)  # the same cloud, a step later
        GromovLoss(cost=Power(4), epsilon=100.0, method="kernel", init="zero")(X, Y)

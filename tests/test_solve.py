"""gromap.solve as a user meets it: what it recovers, what leaves it unchanged, what it takes and
returns."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import gromap
from gromap import CntGW, KernelGW, Loop, Sinkhorn, Space, solve
from gromap.datasets import humans
from tests.conftest import cloud, rotation

METHODS = ["cnt", "kernel"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rotated_permuted_noisy_copy_of_a_real_shape_is_recovered(dtype):
    rng = np.random.default_rng(0)
    x = humans().target.vertices  # running: no mirror symmetry to confuse
    x = x[rng.permutation(len(x))[: 1200 if dtype == "float32" else 600]].astype(dtype)
    diameter = np.linalg.norm(np.ptp(x, axis=0))
    order = rng.permutation(len(x))
    y = ((x + 0.001 * diameter * rng.normal(size=x.shape)) @ rotation(3))[order].astype(dtype) + 3
    sol = solve(x, y, epsilon=2e-4)
    gap = np.linalg.norm(x[order][sol.p2p_12] - x, axis=1)
    assert (gap < 0.02 * diameter).mean() >= 0.98
    back = np.linalg.norm(x[order] - x[sol.p2p_21], axis=1)
    assert (back < 0.02 * diameter).mean() >= 0.98


def test_two_poses_of_a_real_shape():
    pair = humans()
    rng = np.random.default_rng(1)
    i, j = (rng.permutation(len(m.vertices))[:600] for m in (pair.source, pair.target))
    sol = solve(pair.source.vertices[i], pair.target.vertices[j])
    assert sol.converged
    size = np.linalg.norm(np.ptp(pair.target.vertices, axis=0))
    got = pair.target.vertices[j][sol.p2p_12]
    assert min(np.linalg.norm(got - t[i], axis=1).mean() for t in (pair.direct, pair.mirrored)) / size < 0.06


@pytest.mark.parametrize("method", METHODS)
def test_invariances(method, pair):
    x, y, a, b = pair
    options = {
        "epsilon": 0.05,
        "method": {"cnt": CntGW, "kernel": KernelGW}[method](Loop(Sinkhorn(2000, tol=1e-9), max_steps=2000, tol=1e-9)),
    }
    base = solve(x, y, a, b, **options)

    def same(sol, rows=slice(None), cols=slice(None)):
        assert sol.value == pytest.approx(base.value, rel=1e-5)
        np.testing.assert_allclose(sol.plan.dense()[rows][:, cols], base.plan.dense(), atol=1e-5)

    order = np.random.default_rng(0).permutation(len(x))
    same(solve(x[order], y, a[order], b, **options), rows=np.argsort(order))
    same(solve(x @ rotation(3) + 7.0, y @ rotation(2) - 3.0, a, b, **options))
    same(solve(100 * x, 0.01 * y, 5 * a, b, **options))
    split = solve(np.concatenate([x, x[:3]]), y, np.concatenate([a[:3] / 2, a[3:], a[:3] / 2]), b, **options)
    merged = split.plan.dense()[:40].copy()
    merged[:3] += split.plan.dense()[40:]
    assert split.value == pytest.approx(base.value, rel=1e-5)
    np.testing.assert_allclose(merged, base.plan.dense(), atol=1e-5)
    nothing = solve(np.concatenate([x, x[:3] + 1]), y, np.concatenate([a, np.zeros(3)]), b, **options)
    same(nothing, rows=slice(40))
    assert not nothing.plan.dense()[40:].any()
    assert np.isfinite(nothing.pull(y)).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
def test_any_temperature_in_float32_is_finite_and_honest(method, epsilon):
    (x, a), (y, b) = cloud(70, 3, 0, "float32"), cloud(50, 2, 1, "float32")
    sol = solve(x, y, a, b, epsilon=epsilon, method=method, max_iter=15)
    assert np.isfinite([sol.value, sol.value_gw, sol.plan.marginal_error]).all()
    assert all(
        np.isfinite(z).all() for z in (*sol.potentials, sol.gamma, sol.push(x), sol.pull(y), sol.history["energy"])
    )
    assert abs(sol.plan.marginals[0].sum() - 1) < 2e-2
    assert sol.plan.marginal_error < (5e-2 if sol.converged else 2.0)
    assert sol.converged or epsilon <= 1e-3
    assert sol.epsilon == epsilon


def test_auto_start_is_no_worse_than_zero():
    pair = humans()
    x, y = pair.source.vertices[:250], pair.target.vertices[:220]
    auto, zero = solve(x, y), solve(x, y, init="zero")
    assert auto.value <= zero.value * 1.01
    assert auto.stats.minima is not None
    assert auto.stats.minima_starts is not None
    assert len(auto.stats.minima) == len(auto.stats.minima_starts) >= 1
    assert auto.stats.minima_starts.sum() > 0


@pytest.mark.parametrize("method", METHODS)
def test_warm_start_from_a_solution(method, pair):
    x, y, a, b = pair
    first = solve(x, y, a, b, method=method, epsilon=0.02)
    again = solve(x, y, a, b, method=method, epsilon=0.02, init=first)
    assert len(again.history["energy"]) <= 2
    assert again.value == pytest.approx(first.value, rel=1e-2)
    assert solve(x, y, a, b, method=method, epsilon=0.02, init=first.gamma).value == pytest.approx(
        first.value, rel=5e-2
    )
    stopped = solve(x, y, a, b, method=method, epsilon=0.02, init="zero", max_iter=1)
    assert stopped.status is gromap.Status.MAX_ITER


def test_methods_costs_and_dims_may_differ(pair):
    x, y, a, b = pair
    sol = solve(x, y, a, b, cost=("euclidean", gromap.Power(1.5)), dim=(10, 7), epsilon=0.05)
    assert sol.gamma.shape == (10, 7)
    sx, sy = Space(x, a, cost="euclidean", dim=10), Space(y, b, cost=gromap.Power(1.5), dim=7)
    assert solve(sx, sy, epsilon=0.05).value == pytest.approx(sol.value)
    assert solve(x, y, cost="sqeuclidean").gamma.shape == (3, 2)
    assert solve(x, y, dim=0.9).stats.explained[0] >= 0.9


def test_matrices_and_trees(pair):
    x, y, a, b = pair
    cx = gromap.Power(1)(*[torch.from_numpy(x)] * 2).numpy()
    matrix, points = Space.from_costs(cx, a, dim=20), Space(y, b)
    same, one = (
        solve(s, points, epsilon=0.05, scale=None, init="zero", max_iter=15) for s in (matrix, Space(x, a, dim=20))
    )
    assert same.value == pytest.approx(one.value, rel=1e-4)
    parents = [-1, 0, 0, 1, 1, 2, 2, 3, 4, 5]
    tree = Space(np.arange(10), cost=gromap.Tree.from_parents(parents, 1 + np.arange(10) / 7), dim=9)
    assert (solve(tree, tree, epsilon=1e-3).p2p_12 == np.arange(10)).mean() > 0.8


def test_scale(pair):
    x, y, a, b = pair
    each, joint, raw = (solve(x, 3 * y, a, b, epsilon=0.05, scale=s) for s in ("each", "joint", None))
    radius = solve(x, 3 * y, a, b, epsilon=0.05, scale="radius", init="zero", max_iter=1)
    farthest = np.linalg.norm(x - a @ x / a.sum(), axis=1).max()
    assert radius.scale[0] == pytest.approx(farthest)
    assert each.scale[0] != each.scale[1]
    assert joint.scale[0] == joint.scale[1] == max(each.scale)
    assert raw.scale == (1.0, 1.0)
    absolute = solve(x, 3 * y, a, b, epsilon=0.05 * joint.scale[0] ** 2, scale=None)
    assert absolute.value == pytest.approx(joint.value * joint.scale[0] ** 2, rel=1e-3)


@pytest.mark.parametrize("cost", ["euclidean", "sqeuclidean", "precomputed"])
def test_the_unit_is_that_of_nine_tenths_of_the_mass(cost):
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(80, 3)), rng.uniform(0.5, 1.5, 80)

    def unit(x, a=a):
        return Space(np.linalg.norm(x[:, None] - x, axis=-1) if cost == "precomputed" else x, a, cost=cost).scale

    turned = x @ np.linalg.qr(rng.normal(size=(3, 3)))[0] + 5
    order = rng.permutation(80)
    twice = np.concatenate([x, x[:1]]), np.concatenate([[a[0] / 3], a[1:], [a[0] * 2 / 3]])  # one point in two parts
    for other in (unit(turned), unit(x[order], a[order]), unit(x, 7 * a), unit(*twice)):
        assert other == pytest.approx(unit(x), rel=1e-6)
    degree = 2 if cost == "sqeuclidean" else 1
    assert unit(1e3 * x) == pytest.approx(1e3**degree * unit(x), rel=1e-6)
    inside = x.copy()
    inside[7] *= 4 / np.linalg.norm(inside[7])  # one of 80 points, twice as far out
    assert unit(inside) == pytest.approx(unit(x), rel=0.15)
    inside[7] *= 1e3
    assert unit(inside) < 0.2 * Space(inside, a, cost="euclidean").extent ** degree


def test_points_that_coincide_up_to_rounding_are_one_point():
    x = np.tile(np.float32([0.1, 0.2, 0.3]), (7, 1))
    near = x + np.random.default_rng(0).normal(scale=1e-8, size=x.shape).astype(np.float32)
    for z in (x, near):
        for cost in ("euclidean", "sqeuclidean"):
            assert Space(z, cost=cost).scale == 1.0
            sol = solve(z, z, cost=cost)
            assert sol.converged
            assert sol.value == pytest.approx(0, abs=1e-6)


def test_numpy_and_torch():
    (x, a), (y, b) = cloud(40, 3, 0, "float32"), cloud(31, 2, 1, "float32")
    for make, kind in ((np.asarray, np.ndarray), (torch.from_numpy, torch.Tensor)):
        sol = solve(make(x), make(y), make(a), make(b), epsilon=0.05)
        outs = [
            sol.gamma,
            *sol.potentials,
            sol.push(make(x)),
            sol.pull(make(y)),
            sol.p2p_12,
            sol.p2p_21,
            sol.plan @ make(y),
        ]
        outs += [sol.plan.dense(), *sol.plan.marginals]
        assert all(isinstance(z, kind) for z in outs)
        assert sol.gamma.dtype == make(x).dtype
    wide = solve(x, y.astype("float64"), epsilon=0.05)
    assert wide.gamma.dtype == np.float64
    assert solve(np.arange(20)[:, None], np.arange(15)[:, None] * 2, epsilon=0.05).gamma.dtype == np.float64
    assert solve(x.astype("float16"), y, epsilon=0.05).gamma.dtype == np.float32
    assert solve(x.tolist(), y.tolist(), epsilon=0.05).gamma.dtype == np.float64


def test_inputs_are_never_changed_and_gradients_are_not_needed():
    (x, a), (y, b) = cloud(40, 3, 0), cloud(31, 2, 1)
    before = [z.copy() for z in (x, y, a, b)]
    solve(x, y, a, b, epsilon=0.05)
    for was, now in zip(before, (x, y, a, b), strict=True):
        np.testing.assert_array_equal(was, now)
    sol = solve(torch.from_numpy(x).requires_grad_(), torch.from_numpy(y), epsilon=0.05)
    assert not sol.gamma.requires_grad


def test_duplicates_lines_and_tiny_clouds_simply_work():
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(10, 2)), 3, axis=0)
    line = np.linspace(0, 1, 25)[:, None] ** 2
    two = np.array([[0.0], [1.0]])
    same = np.ones((5, 2))
    for p, q in ((x, line), (line, line), (two, two), (x, two), (same, x), (same, same)):
        for method in METHODS:
            for cost in ("euclidean", "sqeuclidean"):
                sol = solve(p, q, cost=cost, method=method, epsilon=0.01)
                assert np.isfinite(sol.value)
                assert sol.plan.marginal_error < 0.05
    assert (solve(line, line, epsilon=1e-4).p2p_12 == np.arange(25)).mean() > 0.9


def test_callback_progress_and_seeds(pair, capsys):
    x, y, a, b = pair
    seen = []
    sol = solve(x, y, a, b, epsilon=0.02, init="zero", callback=seen.append, progress=True)
    assert [event.step for event in seen] == list(range(1, len(seen) + 1))
    assert [event.value for event in seen] == list(sol.history["energy"])
    assert "energy" in capsys.readouterr().err
    stopped = solve(x, y, a, b, epsilon=0.02, init="zero", callback=lambda step: step.step == 2)
    assert stopped.status is gromap.Status.STOPPED
    assert len(stopped.history["energy"]) == 2
    one, two, other = (solve(x, y, a, b, epsilon=0.02, init="random", seed=s, max_iter=3) for s in (4, 4, 5))
    np.testing.assert_array_equal(one.plan.dense(), two.plan.dense())
    assert not np.array_equal(one.plan.dense(), other.plan.dense())


def test_a_cost_that_is_not_cnt_warns_and_names_the_remedy(pair):
    x, y, a, b = pair
    with pytest.warns(UserWarning, match="method='kernel'"):
        solve(x, y, a, b, cost=gromap.Power(4), epsilon=0.5, max_iter=3, method="cnt")


def test_auto_takes_the_exact_costs_where_an_embedding_would_leave_some_out(pair):
    x, y, a, b = pair
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert solve(x, y, a, b, cost=gromap.Power(4), epsilon=0.5).stats.method == "kernel"
    assert solve(x, y, a, b, epsilon=0.5).stats.method == "cnt"
    with pytest.warns(UserWarning, match="not conditionally of negative type"):  # as asked
        assert solve(x, y, a, b, cost=gromap.Power(4), epsilon=0.5, dim=3).stats.method == "cnt"


def test_a_sharpened_match_has_less_energy_and_no_blur(pair):
    x, y, a, b = pair
    blurred, sharp = (solve(x, y, a, b, epsilon=0.02, method="kernel", sharpen=s) for s in (False, True))
    pi = sharp.plan.dense()
    assert sharp.converged
    assert sharp.stats.method == "kernel, conditional-gradient"
    assert sharp.value_gw < blurred.value_gw
    assert (pi > 0).sum() <= len(x) + len(y) - 1  # a vertex of the polytope of couplings
    np.testing.assert_allclose(pi.sum(0), b / b.sum(), atol=1e-6)
    assert len(sharp.history["energy"]) > len(blurred.history["energy"])
    assert (np.diff(sharp.history["seconds"]) > 0).all()
    again = solve(x, y, a, b, epsilon=0.02, method="conditional-gradient", init=sharp)
    assert again.value_gw == pytest.approx(sharp.value_gw, rel=1e-6)


def test_a_callback_that_stops_the_match_stops_before_it_is_sharpened(pair):
    x, y, a, b = pair
    seen = []
    sol = solve(x, y, a, b, epsilon=0.02, sharpen=True, init="zero", callback=lambda e: seen.append(e) or True)
    assert len(seen) == 1
    assert sol.status is gromap.Status.STOPPED
    assert np.isfinite(sol.plan.dense()).all()


def test_a_plain_call_with_matrices_ends_sharp():
    x = np.random.default_rng(0).normal(size=(30, 3))
    c = np.linalg.norm(x[:, None] - x, axis=-1)
    sharp = solve(c, c[::-1, ::-1].copy(), cost="precomputed")
    assert np.array_equal(sharp.plan.dense() > 0, np.eye(30, dtype=bool)[::-1])
    assert sharp.value_gw == pytest.approx(0, abs=1e-12)
    for options in ({"epsilon": 1e-3}, {"sharpen": False}, {"method": "cnt"}):
        assert solve(c, c[::-1, ::-1].copy(), cost="precomputed", **options).stats.method == "cnt"


@pytest.mark.parametrize("method", METHODS)
def test_one_step_at_a_time(method, pair):
    x, y, a, b = pair
    loop = Loop(Sinkhorn(300, tol=1e-10), adaptive=False, tol=1e-9)
    solver = {"cnt": CntGW, "kernel": KernelGW}[method]
    options = {"epsilon": 0.02, "dim": (40, 31)}
    once = solve(x, y, a, b, method=solver(loop), init="zero", max_iter=6, **options)
    sol = solve(x, y, a, b, method=solver(loop), init="zero", max_iter=1, **options)
    for _ in range(5):
        sol = solve(x, y, a, b, method=solver(loop), init=sol, max_iter=1, **options)
    assert sol.history["energy"][-1] == pytest.approx(once.history["energy"][-1], rel=1e-6)

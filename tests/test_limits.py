"""What happens at the edges: too little memory, Ctrl-C, degenerate clouds, extreme weights; and
what `solve` says it chose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gromap
from gromap import CntGW, Interrupted, Loop, Multiscale, Sinkhorn, solve
from gromap._pair import Pair
from gromap.search.small import Clouds
from gromap.solvers import embedded, loop
from tests.conftest import cloud


def surface(n, seed, dtype="float32", width=1.0):
    """Points of a bent sheet, which has no symmetry."""
    s, t = np.random.default_rng(seed).random((2, n)) * [[1.0], [width]]
    return np.stack([2 * s, t + 0.3 * s**2, 0.4 * np.sin(3 * s) + 0.1 * t], 1).astype(dtype)


@pytest.fixture
def _always_truncate(monkeypatch):
    monkeypatch.setattr(embedded, "TRUNCATED_PAIRS", {"cpu": 0, "cuda": 0})


@pytest.mark.usefixtures("_always_truncate")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_truncation_on_and_off_agree(dtype):
    x, y = surface(1700, 0, dtype, width=0.1), surface(1500, 1, dtype, width=0.1)
    gamma = solve(x[::5], y[::5], epsilon=3e-4, dim=20).gamma
    on, off = (solve(x, y, epsilon=3e-4, method=CntGW(truncation=t), init=gamma) for t in (1e-4, None))
    assert on.stats.tiles < 0.5
    assert off.stats.tiles is None
    assert on.stats.neglected_mass <= 1e-4
    assert on.value == pytest.approx(off.value, abs=1e-5)
    assert (np.abs(y[on.p2p_12] - y[off.p2p_12]).max(1) < 0.03).mean() > 0.95
    np.testing.assert_allclose(on.push(x), off.push(x), atol=2e-2)
    assert on.plan.marginal_error == pytest.approx(float(_l1(on)), abs=3e-4)


def _l1(sol):
    pi = sol.plan.dense().astype(np.float64)
    return np.abs(pi.sum(1) - 1 / pi.shape[0]).sum() + np.abs(pi.sum(0) - 1 / pi.shape[1]).sum()


@pytest.mark.usefixtures("_always_truncate")
@pytest.mark.parametrize("n", [3, 127, 129])
def test_clouds_smaller_than_a_tile(n):
    x = cloud(n, 3, 0)[0]
    sol = solve(x, x[::-1].copy(), epsilon=0.05)
    assert np.isfinite(sol.value)
    assert sol.converged


@pytest.mark.usefixtures("_always_truncate")
def test_points_without_mass_far_from_all_others():
    x, y = surface(2000, 0), surface(1900, 1)
    a = np.ones(2000, dtype="float32")
    x[:5] += 3  # massless, and far away
    a[:5] = 0
    sol = solve(x, y, a, epsilon=1e-3)
    assert np.isfinite(sol.pull(y)).all()
    assert np.isfinite(sol.potentials[0]).all()
    assert np.isfinite(sol.value)


@pytest.mark.parametrize("method", ["cnt", "kernel", "sampled"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_at_a_point_without_mass_far_from_all_others(method, dtype):
    """Its scores are so large that of their exponentials nothing is right: NaN, in float32."""
    x, y = surface(30, 0, dtype), surface(25, 1, dtype)
    x[3], a = 1e10, np.where(np.arange(30) == 3, 0.0, 1.0)
    sol = solve(x, y, a, epsilon=1e-2, method=method, init="zero", max_iter=5)
    np.testing.assert_allclose(sol.pull(np.ones(25)), 1.0, rtol=1e-6)
    assert np.isfinite(sol.push(x[:, 0])).all()
    plan = sol.plan
    far = gromap.Plan(plan.score * 1e20, plan.u, plan.v, plan.a, plan.b)
    np.testing.assert_allclose(far.conditional_mean(np.ones(25)), 1.0, rtol=1e-6)


@pytest.mark.parametrize("method", ["cnt", "multiscale"])
def test_all_points_equal(method):
    x, y = np.ones((400, 3)), surface(300, 0, "float64")
    sol = solve(x, y, method=Multiscale(levels=2) if method == "multiscale" else method)
    assert np.isfinite([sol.value, sol.plan.marginal_error]).all()
    both = solve(x, x[:200], method=method)
    assert both.value_gw == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_from_tiny_to_one(dtype):
    x, y = surface(300, 0, dtype), surface(280, 1, dtype)
    a = np.logspace(-12, 0, 300).astype(dtype)[np.random.default_rng(0).permutation(300)]
    sol = solve(x, y, a, epsilon=5e-3)
    assert sol.converged
    rows = sol.plan.marginals[0]
    np.testing.assert_allclose(rows, a / a.sum(), rtol=2e-2)
    assert np.isfinite(sol.pull(y)).all()


def test_what_does_not_fit_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr(gromap._check, "free_memory", lambda device: 10 << 20)
    x, y = surface(300, 0), surface(280, 1)
    with pytest.raises(MemoryError, match=r"CntGW on 300 x 280 points needs about 0\.\d GiB.*fewer points"):
        solve(x, y)
    with pytest.raises(MemoryError, match=r"KernelGW on 3000 x 280.*method='cnt'"):
        solve(surface(3000, 0), y, method="kernel")


def test_a_barycenter_that_does_not_fit_is_refused_before_any_point_is_made(monkeypatch):
    shapes = [surface(30, 0), surface(25, 1)]
    for points in (10**12, 10**30):
        with pytest.raises(MemoryError, match=rf"a barycenter of {points} points needs about .* are free: take fewer"):
            gromap.barycenter(shapes, points=points)
    monkeypatch.setattr(gromap._check, "free_memory", lambda device: 1 << 30)
    monkeypatch.setattr("gromap.learn.barycenter._drawn", lambda *_: pytest.fail("it was begun"))
    for options in ({"points": 20_000, "method": "kernel"}, {"points": 1_000_000}, {"init": surface(300_000, 2)}):
        with pytest.raises(MemoryError, match=r"a barycenter of \d+ points needs about [\d.]+ GiB and 1.0.*batch="):
            gromap.barycenter(shapes, **options)
    monkeypatch.undo()
    assert gromap.barycenter(shapes, points=40, steps=1, epsilon=0.1).points.shape == (40, 3)


@pytest.mark.parametrize("method", ["auto", "kernel", "cnt", "multiscale"])
@pytest.mark.parametrize("cost", ["euclidean", "sqeuclidean", gromap.Gaussian(1.5)])
def test_a_loss_knows_what_it_will_take_from_few_points(method, cost):
    x, y = (torch.from_numpy(surface(n, n)) for n in (1200, 900))
    loss = gromap.GromovLoss(method=method, cost=cost, dim=(12, "auto"))
    spaces = [gromap.Space(z, cost=cost, dim=d) for z, d in ((x, 12), (y, 50))]
    solver = {"cnt": CntGW(), "multiscale": Multiscale()}.get(method, gromap.KernelGW())
    if method == "auto":  # which is exact up to 1000 points
        solver = CntGW()
    wanted = max(solver.memory(Pair(s, t, 1.0)) for s in spaces for t in spaces)
    assert loss.memory(x[:50], y[:50], 1200, 900) == wanted


FAILURES = {
    "GPU": (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"), MemoryError),
    "CPU": (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), MemoryError),
    "other": (RuntimeError("CUDA error: an illegal memory access was encountered"), RuntimeError),
}


@pytest.mark.parametrize("case", FAILURES)
def test_running_out_of_memory_midway_says_what_to_do(case, monkeypatch):
    failure, kind = FAILURES[case]

    def full(*_):
        raise failure

    monkeypatch.setattr(loop, "sinkhorn", full)
    message = (
        "out of memory on cpu: 300 x 280 points were to take about .*fewer points" if kind is MemoryError else "illegal"
    )
    with pytest.raises(kind, match=message):
        solve(surface(300, 0), surface(280, 1))


@pytest.mark.parametrize("method", ["cnt", "kernel", "multiscale"])
def test_ctrl_c_leaves_the_best_state(method):
    x, y = surface(500, 0), surface(480, 1)
    seen = []

    def press(event):
        seen.append(event.value)
        if len(seen) == 3:
            raise KeyboardInterrupt

    options = {"epsilon": 2e-3, "method": method}
    with pytest.raises(KeyboardInterrupt) as caught:
        solve(x, y, init="zero", callback=press, **options)
    assert isinstance(caught.value, Interrupted)
    state = caught.value.state
    assert state.f is not None
    assert len(state.f) == 500
    again = solve(x, y, init=state, **options)
    assert again.history["energy"][0] <= seen[0]


@pytest.mark.parametrize("given", [{"reach": 0.2}, {"reach": (None, 0.0)}, {"mass": 0.8}], ids=str)
@pytest.mark.parametrize("method", ["cnt", "multiscale"])
def test_ctrl_c_keeps_which_parts_are_matched(method, given):
    x, y = surface(300, 0), surface(280, 1)[:200]
    seen = []

    def press(event):
        seen.append(event.value)
        if len(seen) == 3:
            raise KeyboardInterrupt

    options = {"epsilon": 5e-3, "method": method, **given}
    whole = solve(x, y, init="zero", **options)
    with pytest.raises(Interrupted) as caught:
        solve(x, y, init="zero", callback=press, **options)
    state = caught.value.state
    assert [len(z) for z in state.moments[1:]] == [300, 200]
    again = solve(x, y, init=state, **options)
    assert again.history["energy"][0] == pytest.approx(seen[2], rel=0.1)  # without the momentum
    assert again.value == pytest.approx(whole.value, rel=1e-2)


def test_ctrl_c_during_the_search(monkeypatch):
    x, y = surface(500, 0), surface(480, 1)
    real, calls = Clouds.step, []

    def press(*args, **options):
        calls.append(0)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(Clouds, "step", press)
    with pytest.raises(Interrupted) as caught:
        solve(x, y)
    monkeypatch.undo()
    assert caught.value.state.f is None
    assert solve(x, y, init=caught.value.state).converged


STAGES = {  # of a solve in which nothing is known yet, and what runs in them
    "the unit": "gromap.geometry.measure.Measure.core_radius",
    "the embedding": "gromap._space.embed",
    "coarse clouds": "gromap.search.search.coarsened",
    "the start of the search": "gromap.search.search.random_starts",
}


@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_before_anything_is_known(stage, monkeypatch):
    def press(*_, **__):
        raise KeyboardInterrupt

    x, y = surface(500, 0), surface(480, 1)
    monkeypatch.setattr(STAGES[stage], press)
    with pytest.raises(Interrupted) as caught:
        solve(x, y)
    monkeypatch.undo()
    assert solve(x, y, init=caught.value.state).converged


def test_ctrl_c_after_the_last_step(monkeypatch):
    def press(*_, **__):
        raise KeyboardInterrupt

    x, y = surface(300, 0), surface(280, 1)
    whole = solve(x, y)
    monkeypatch.setattr("gromap.solvers.run.finish", press)
    with pytest.raises(Interrupted) as caught:
        solve(x, y)
    monkeypatch.undo()
    again = solve(x, y, init=caught.value.state)
    assert len(again.history["energy"]) == 1
    assert again.value == pytest.approx(whole.value, rel=1e-4)


def test_solutions_say_what_was_chosen():
    quick = Loop(Sinkhorn(2), adaptive=False, max_iter=1)
    small = solve(surface(300, 0), surface(280, 1), method=CntGW(quick))
    assert "cnt, tiles on cpu" in repr(small)
    assert 0 < small.stats.memory < 1 << 30
    large = solve(surface(3200, 0), surface(3100, 1), max_iter=1)
    assert large.stats.method == "multiscale"
    assert f"multiscale ({large.stats.levels[0]}, 3200 points)" in repr(large)


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-4])
def test_bad_truncation(bad):
    with pytest.raises(ValueError, match="truncation is a share of mass"):
        CntGW(truncation=bad)


METHODS = ["cnt", "kernel", "multiscale"]


def bent(n):
    """Points of a curve without symmetry, a permutation, and the same points in that order."""
    t = np.linspace(0, 1, n)
    x, order = np.stack([t, t**2, np.sin(5 * t)], 1), np.random.default_rng(0).permutation(n)
    return x, order, x[order]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cost", ["euclidean", "sqeuclidean"])
def test_no_point_apart_from_another(method, cost):
    """Any plan is as good as another one: the product of the weights has the most entropy."""
    x, y = np.full((40, 3), 0.1), np.full((30, 2), 1e8 + 0.1)
    sol = solve(x, y, cost=cost, method=method)
    assert sol.converged
    np.testing.assert_allclose(sol.plan.dense(), 1 / 1200, rtol=1e-9)
    one = solve(x, surface(30, 0, "float64"), cost=cost, method=method)
    np.testing.assert_allclose(one.plan.dense(), 1 / 1200, rtol=1e-6)
    assert np.isfinite(one.value)
    assert one.converged


def test_losses_and_spaces_without_any_distance():
    x, y = torch.ones(20, 3, requires_grad=True), torch.ones(15, 2)
    loss = gromap.GromovLoss(epsilon=0.1)
    loss(x, y).backward()
    assert not x.grad.any()
    loss(x, torch.rand(15, 2)).backward()
    assert x.grad.isfinite().all()
    space = gromap.Space(np.ones((20, 3)))
    assert (space.explained, space.negative_mass, space.scale) == (1.0, 0.0, 1.0)
    assert not space.features.any()
    assert gromap.Space(np.ones((20, 3)), dim=0.9).features.shape == (20, 1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cost", ["euclidean", "sqeuclidean"])
def test_points_of_a_line_in_many_dimensions(method, dtype, cost):
    t, order = np.linspace(0, 1, 80) ** 2, np.random.default_rng(0).permutation(80)
    x = np.outer(t, np.random.default_rng(1).normal(size=10))
    sol = solve(x.astype(dtype), (x[order] + 3).astype(dtype), cost=cost, method=method, epsilon=1e-4, scale="radius")
    assert sol.converged
    assert np.abs(t[order][sol.map()] - t).max() < 0.05
    assert gromap.Space(x, cost=cost, dim=0.8).features.shape[1] <= 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_outlier_is_matched_and_told_of(method, dtype):
    x, order, y = bent(200)
    x[7] = 1e6
    y = x[order].astype(dtype)
    with pytest.warns(UserWarning, match=r"point \d+ of [XY] is [\d.]+e\+06 times as far out.* the weight 0") as caught:
        sol = solve(x.astype(dtype), y, method=method)
    there = int(np.flatnonzero(order == 7)[0])
    assert [str(w.message).split(" is ")[0] for w in caught] == ["point 7 of X", f"point {there} of Y"]
    # dense float32 sums of costs that are 1e6 times as large do not settle, and the status says so
    assert sol.converged or (method, dtype) == ("kernel", "float32")
    assert sol.map()[7] == there
    a = np.where(np.arange(200) == 7, 0.0, 1.0)  # what the message says
    sol = solve(x.astype(dtype), y, a, a[order], method=method)
    others = np.delete(np.arange(200), 7)
    assert np.abs(x[order][sol.map()] - x)[others].max() < 0.05


@pytest.mark.filterwarnings("error")
def test_a_cloud_with_long_tails_is_no_outlier():
    x = np.random.default_rng(0).lognormal(0, 1, size=(500, 2))
    solve(x, x, epsilon=0.01, init="zero", max_iter=1)
    x[0] = 1e4
    solve(x, x, epsilon=1e-6, init="zero", max_iter=1, scale=1.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constant_costs(method, dtype):
    zero, one = np.zeros((20, 20), dtype), 1 - np.eye(15, dtype=dtype)
    for c, d in ((zero, one), (zero, zero), (one, zero[:15, :15])):
        sol = solve(c, d, cost="precomputed", method=method, scale=None)
        np.testing.assert_allclose(sol.plan.dense(), 1 / (len(c) * len(d)), rtol=1e-3)
        product = (c**2).mean() + (d**2).mean() - 2 * c.mean() * d.mean()
        assert sol.value_gw == pytest.approx(float(product), abs=1e-4)
    sol = solve(one, one, cost="precomputed", method=method, epsilon=1e-3)
    assert sorted(sol.map()) == list(range(15))  # any permutation
    assert sol.value_gw == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_two_points(method):
    """Both maps are isometries, or one is where the weights differ."""
    x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[1.0], [6.0]])
    sol = solve(x, y, [1, 3], [3, 1], method=method, epsilon=1e-3)
    assert sol.value_gw == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(sol.plan.dense(), [[0, 0.25], [0.75, 0]], atol=1e-3)
    same = solve(x, y, method=method)
    assert same.value == pytest.approx(1e-3 * np.log(2), rel=1e-2)  # ε KL of a permutation
    many = solve(x, surface(30, 0, "float64"), method=method)
    assert many.converged
    matrices = solve(1 - np.eye(2), 1 - np.eye(2), cost="precomputed", method=method)
    assert matrices.value_gw == pytest.approx(0, abs=1e-6)
    assert float(gromap.gw_loss(x, y, epsilon=0.1)) == pytest.approx(0, abs=1e-6)

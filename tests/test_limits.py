"""What happens at the edges: too little memory, Ctrl-C, degenerate clouds, extreme weights; and
what `solve` says it chose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gromap
from gromap import CntGW, Interrupted, Loop, Multiscale, Sinkhorn, solve
from gromap.solvers import cnt, loop
from tests.conftest import cloud


def surface(n, seed, dtype="float32", width=1.0):
    """Points of a bent sheet, which has no symmetry."""
    s, t = np.random.default_rng(seed).random((2, n)) * [[1.0], [width]]
    return np.stack([2 * s, t + 0.3 * s**2, 0.4 * np.sin(3 * s) + 0.1 * t], 1).astype(dtype)


@pytest.fixture
def _always_truncate(monkeypatch):
    monkeypatch.setattr(cnt, "TRUNCATED_PAIRS", {"cpu": 0, "cuda": 0})


@pytest.mark.usefixtures("_always_truncate")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_truncation_on_and_off_agree(dtype):
    x, y = surface(1700, 0, dtype, width=0.1), surface(1500, 1, dtype, width=0.1)
    gamma = solve(x[::5], y[::5], epsilon=3e-4).gamma
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
    with pytest.raises(MemoryError, match=r"CntGW on 300 x 280 points needs about 0\.3 GiB.*fewer points"):
        solve(x, y)
    with pytest.raises(MemoryError, match=r"KernelGW on 3000 x 280.*method='cnt'"):
        solve(surface(3000, 0), y, method="kernel")


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


def test_ctrl_c_during_the_search(monkeypatch):
    x, y = surface(500, 0), surface(480, 1)
    real, calls = loop.sinkhorn, []

    def press(*args):
        calls.append(0)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(loop, "sinkhorn", press)
    with pytest.raises(Interrupted) as caught:
        solve(x, y)
    monkeypatch.undo()
    assert caught.value.state.f is None
    assert solve(x, y, init=caught.value.state).converged


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

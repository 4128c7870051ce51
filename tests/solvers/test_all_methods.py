"""What every method owes: weights, zero weights, both precisions, any start, files, the lazy
plan, one value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gromap
from gromap import Landmarks, Space, landmarks, solve
from gromap.solvers import METHODS
from tests.conftest import cloud

BASELINES = [name for name in METHODS if name not in ("cnt", "kernel", "multiscale")]
needs = {"conditional-gradient": "ot"}


def options(method: str) -> dict:
    if method in needs:
        pytest.importorskip(needs[method])
    return {"method": method, "epsilon": 0.05, "scale": "radius", "max_iter": 12}


@pytest.mark.parametrize("method", BASELINES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_zero_weights_values_and_verbs(method, dtype):
    (x, a), (y, b) = cloud(40, 3, 0, dtype), cloud(31, 2, 1, dtype)
    a[3], b[5] = 0, 0
    sx, sy = Space(x, a, dim=40), Space(y, b, dim=31)
    sol = solve(sx, sy, init="zero", **options(method))
    pi = sol.plan.dense().astype("float64")
    assert pi.dtype == np.float64
    assert not pi[3].any()
    assert not pi[:, 5].any()
    assert sol.plan.marginal_error < 0.02
    np.testing.assert_allclose(sol.plan.marginals[0], a / a.sum(), atol=1e-6)
    assert all(np.isfinite(z).all() for z in (sol.push(x), sol.pull(y), sol.gamma, sol.history["energy"]))
    assert sol.gamma.shape == (40, 31)
    np.testing.assert_allclose(sol.plan @ y, pi @ y, atol=1e-5)
    np.testing.assert_allclose(sol.plan.T @ x, pi.T @ x, atol=1e-5)
    alive = np.delete(np.arange(40), 3)
    assert (sol.map("argmax")[alive] == pi.argmax(1)[alive]).mean() > 0.95
    assert sol.plan.sparse(4).shape == (40, 31)
    cx, cy = (s.cost(s.measure.points, s.measure.points).numpy() / t for s, t in zip((sx, sy), sol.scale, strict=True))
    r, c = pi.sum(1), pi.sum(0)
    loss = r @ cx**2 @ r + c @ cy**2 @ c - 2 * ((cx @ pi @ cy) * pi).sum()
    assert sol.value_gw == pytest.approx(loss, rel=1e-3 if dtype == "float32" else 1e-6)
    some = pi > 0
    ratio = pi[some] / np.outer(a / a.sum(), b / b.sum())[some]
    assert sol.value == pytest.approx(
        loss + 0.05 * (pi[some] * np.log(ratio)).sum(), rel=1e-3 if dtype == "float32" else 1e-6
    )


@pytest.mark.parametrize("method", BASELINES)
def test_any_start(method, pair):
    x, y, a, b = pair
    given: Landmarks = landmarks([[0, 1], [5, 7], [9, 2]])
    first = solve(x, y, a, b, **options(method))
    known = [
        first,
        first.state,
        first.plan,
        first.plan.dense(),
        first.gamma,
        first.map(),
        solve(x, y, a, b, epsilon=0.05, scale="radius"),
    ]
    # two steps from each
    for start, above in (
        *((s, 1.02) for s in known),
        (given, 1.2),
        ("random", 1.2),
        ("zero", 1.2),
    ):
        assert solve(x, y, a, b, init=start, **{**options(method), "max_iter": 2}).value <= above * first.value
    again = solve(x, y, a, b, init=first, **options(method))
    assert again.value <= 1.1 * first.value
    back = solve(x, y, a, b, epsilon=0.05, scale="radius", init=first)  # from a baseline to cnt
    assert back.value <= 1.02 * solve(x, y, a, b, epsilon=0.05, scale="radius").value


@pytest.mark.parametrize("method", BASELINES)
def test_files_callbacks_and_torch(method, pair, tmp_path):
    x, y, a, b = (torch.from_numpy(z) for z in pair)
    seen = []
    sol = solve(x, y, a, b, init="zero", callback=lambda s: seen.append(s) or s.step == 2, **options(method))
    assert isinstance(sol.push(x), torch.Tensor)
    assert len(seen) == len(sol.history["energy"]) == 2
    again = gromap.load(sol.save(tmp_path / "match.safetensors"))
    torch.testing.assert_close(again.plan.dense(), sol.plan.dense())
    assert again.stats.method == method
    assert again.value == sol.value
    if method != "dual":
        with pytest.raises(ValueError, match=f"{method}.*has no potentials"):
            _ = sol.potentials


@pytest.mark.parametrize("method", ["lowrank", "entropic", "conditional-gradient"])
def test_an_interruption_keeps_the_state(method, pair):
    def stop(step):
        if step.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(gromap.Interrupted) as caught:
        solve(*pair, init="zero", callback=stop, **options(method))
    assert np.isfinite(solve(*pair, init=caught.value.state, **options(method)).value)


@pytest.mark.parametrize("method", ["entropic", "proximal", "proximal-kernel", "conditional-gradient"])
def test_dense_solvers_say_so_before_they_start(method):
    if method in needs:
        pytest.importorskip(needs[method])
    x = np.zeros((400_000, 2), dtype="float32")
    x[:, 0] = np.arange(len(x))
    with pytest.raises(MemoryError, match=r"400000 x 400000 points needs about .* method='cnt'"):
        solve(x, x, method=method, init="zero", cost="sqeuclidean")


def test_an_unknown_method_lists_all():
    with pytest.raises(ValueError, match=r"did you mean 'lowrank-cost'.*'conditional-gradient'"):
        solve(np.eye(3), np.eye(4), method="lowrank-costs")


def test_a_plan_with_negative_entries_is_refused(pair):
    with pytest.raises(ValueError, match="masses are >= 0"):
        solve(*pair, method="entropic", init=-np.ones((40, 31)))

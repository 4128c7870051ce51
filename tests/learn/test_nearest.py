"""Neighbors without the whole matrix: what bounds say of a pair is never above its value, and so
the neighbors are those of the matrix."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch

from gromap import Event, Space, nearest, pairwise
from gromap.learn.bounds import BINS, bin_means, profile, sorted_bounds, transport_bounds
from gromap.learn.nearest import lowest
from tests.conftest import cloud

FAST = {"epsilon": 1e-2, "init": "zero"}


def shapes() -> list[Space]:
    """Balls, sticks, rings and shells, four of each, in various sizes and with weights."""
    rng, found = np.random.default_rng(0), []
    for k in range(16):
        n = int(rng.integers(18, 30))
        x, t = rng.normal(size=(n, 3)), 2 * np.pi * rng.random(n)
        stick, ring = x * [4, 0.2, 0.2], np.stack([np.cos(t), np.sin(t), 0 * t], 1) * 2
        form = (x, stick, ring, 2 * x / np.linalg.norm(x, axis=1, keepdims=True))[k % 4]
        found.append(Space(form * rng.uniform(0.9, 1.1, 3), rng.uniform(0.5, 1, n)))
    return found


@pytest.fixture(scope="module")
def spaces():
    return shapes()


@pytest.fixture(scope="module")
def matrix(spaces):
    return pairwise(spaces, **FAST)


def test_bin_means_are_those_of_the_quantile_function():
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(3, 11)), rng.random(11)
    weights[4] = 0
    weights /= weights.sum()
    found = bin_means(torch.as_tensor(values), torch.as_tensor(weights), 5)
    u = (np.arange(500_000) + 0.5) / 500_000
    for row, means in zip(values, found.numpy(), strict=True):
        order = row.argsort()
        steps = row[order][np.searchsorted(weights[order].cumsum(), u).clip(max=10)]
        assert means == pytest.approx(steps.reshape(5, -1).mean(1), abs=1e-4)


@pytest.mark.parametrize("method", ["auto", "kernel"])
@pytest.mark.parametrize("cost", ["euclidean", "sqeuclidean"])
def test_no_value_is_below_its_bounds(spaces, method, cost):
    few = [Space(s.measure.points, s.weights, cost=cost) for s in spaces[:5]]
    values = pairwise(few, debias=False, epsilon=1e-3, init="zero", method=method)
    eps = 1e-3 * max(s.scale for s in few) ** 2
    profiles = [profile(s, method == "kernel") for s in few]
    fast = sorted_bounds(profiles).numpy()
    i, j = np.triu_indices(5, 1)
    sharp = transport_bounds([(profiles[i], profiles[j]) for i, j in zip(i, j, strict=True)], eps).numpy()
    assert (fast[i, j] <= values[i, j]).all()
    assert (sharp <= values[i, j]).all()
    assert (sharp >= 0.9 * fast[i, j]).all()
    assert (sharp > 0.5 * values[i, j]).any()  # they say something


def test_transport_bounds_do_not_depend_on_the_batch(spaces):
    profiles = [profile(s, False) for s in spaces[:4]]
    pairs = [(profiles[0], profiles[1]), (profiles[2], profiles[0]), (profiles[3], profiles[3])]
    one_by_one = torch.cat([transport_bounds([pair], 0.1) for pair in pairs])
    together = transport_bounds(pairs, 0.1)
    assert profiles[0].rows.shape == (len(spaces[0]), BINS)
    # they cool down from the largest cost of a batch, so that they differ by what steps leave
    assert together.numpy() == pytest.approx(one_by_one.numpy(), rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("k", [1, 3])
def test_neighbors_are_those_of_the_matrix(spaces, matrix, k):
    found = nearest(spaces, k, **FAST)
    whole = matrix + np.diag(np.full(len(spaces), np.inf))
    order = whole.argsort(1)[:, :k]
    assert np.array_equal(found.indices, order)
    assert found.values == pytest.approx(np.take_along_axis(whole, order, 1))
    assert found.distances == pytest.approx(np.sqrt(found.values))
    assert found.solved < found.pairs == 120
    assert found.share == found.solved / 120
    assert f"{found.solved} of 120 pairs solved" in repr(found)


def test_plain_values_and_exact_costs(spaces):
    few = spaces[:8]
    given = {"debias": False, "method": "kernel", **FAST}
    whole = pairwise(few, **given) + np.diag(np.full(8, np.inf))
    found = nearest(few, 1, **given)
    assert np.array_equal(found.indices[:, 0], whole.argmin(1))
    assert found.share < 1


def cubed(x, y):
    return torch.cdist(x, y) ** 3


def test_costs_that_are_not_cnt_are_bounded_both_ways():
    few = [Space(cloud(15, 2, seed)[0] * (1 + seed % 2 / 9), cost=cubed) for seed in range(4)]
    whole = pairwise(few, **FAST) + np.diag(np.full(4, np.inf))
    assert np.array_equal(nearest(few, 1, **FAST).indices[:, 0], whole.argmin(1))


def test_the_matrix_goes_on_from_the_neighbors(spaces, tmp_path, matrix):
    path = tmp_path / "pairs.safetensors"
    seen: list[Event] = []
    found = nearest(spaces[:8], 1, path=path, **FAST)
    rest = pairwise(spaces[:8], path=path, callback=lambda event: seen.append(event), **FAST)
    assert len(seen) == found.pairs - found.solved
    eps = max(s.scale for s in spaces) == max(s.scale for s in spaces[:8])
    assert not eps or rest == pytest.approx(matrix[:8, :8])
    again = nearest(spaces[:8], 1, path=path, callback=lambda event: pytest.fail("all is known"), **FAST)
    assert np.array_equal(again.indices, found.indices)


def test_failures_have_no_neighbors(spaces):
    given = [*spaces[:3], np.full((5, 3), np.nan)]
    with pytest.warns(UserWarning, match="1 of 4 spaces"):
        found = nearest(given, 3, **FAST)
    assert (found.indices[3] == -1).all()
    assert np.isnan(found.values[3]).all()
    assert (found.indices[:3, 2] == -1).all()
    assert (found.indices[:3, :2] >= 0).all()
    assert list(found.failures) == [(3,)]


@pytest.mark.parametrize("debias", [True, False])
def test_a_space_that_cannot_be_embedded_fails_alone(spaces, debias, monkeypatch):
    module = import_module("gromap.learn.collection")
    real = module.embed_space
    monkeypatch.setattr(module, "embed_space", lambda k, s: (k, {}, "no axes") if k == 1 else real(k, s))
    points = [(s.measure.points, s.weights) for s in spaces[:4]]
    with pytest.warns(UserWarning, match="1 of 4 spaces and 0 pairs of others failed.*space 1: no axes"):
        found = nearest([Space(x, a) for x, a in points], 1, debias=debias, **FAST)
    assert found.indices[1, 0] == -1
    assert (found.indices[[0, 2, 3], 0] >= 0).all()


def test_a_callback_stops_the_search(spaces):
    found = nearest(spaces[:6], 2, callback=lambda event: event.step == 8, **FAST)
    assert found.solved == 2  # after 6 self terms


def test_what_cannot_be_asked(spaces):
    with pytest.raises(ValueError, match="k = 3 neighbors of each of 3 spaces: choose 1 <= k <= 2"):
        nearest(spaces[:3], 3)
    with pytest.raises(TypeError, match="k must be an integer"):
        nearest(spaces[:3], 1.5)
    with pytest.raises(ValueError, match="unknown method 'lowrank'"):
        nearest(spaces[:3], 1, method="lowrank")
    with pytest.raises(ValueError, match="at least 2 spaces"):
        nearest([], 1)


def test_lowest_entries_as_pairs():
    values = np.array([[np.inf, 3.0, 1.0], [3.0, np.inf, 2.0], [1.0, 2.0, np.inf]])
    assert lowest(values, np.array([1, 1, 1])).tolist() == [[0, 2], [1, 2]]
    assert lowest(values, np.array([2, 0, 0])).tolist() == [[0, 1], [0, 2]]

"""Matrices of GW values: a symmetric, debiased comparison of a collection, which goes on where
it was stopped."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gromap import Space, pairwise, solve
from gromap.learn import pairwise as module
from tests.conftest import cloud, rotation


@pytest.fixture(scope="module")
def spaces():
    """Three shapes of different sizes and dimensions; the last is the first, turned, in another
    order and twice as fine."""
    (x, a), (y, b) = cloud(30, 3, 0), cloud(25, 2, 1)
    twice = np.concatenate([x, x])[::-1] @ rotation(3)
    return [Space(x, a), Space(y, b), Space(twice, np.concatenate([a, a])[::-1] / 2)]


def test_equal_shapes_are_at_zero_and_others_are_not(spaces):
    D = pairwise(spaces, epsilon=1e-2)
    assert np.array_equal(D, D.T)
    assert (D.diagonal() == 0).all()
    assert abs(D[0, 2]) < 1e-3 * D[0, 1]
    assert D[0, 1] == pytest.approx(D[2, 1], rel=1e-3)


def test_values_are_those_of_solve_in_one_unit(spaces):
    """For every pair, the values of `solve` at the common temperature, minus half of both self
    terms."""
    eps = 1e-2 * max(s.scale for s in spaces) ** 2
    raw = pairwise(spaces, debias=False, epsilon=1e-2)
    x, y, _ = spaces
    between = solve(x, y, epsilon=eps, scale=None).value
    assert raw[0, 1] == pytest.approx(between)
    assert (raw.diagonal() == 0).all()
    own = [solve(s, s, epsilon=eps, scale=None, init=np.arange(len(s))).value for s in (x, y)]
    assert pairwise(spaces, epsilon=1e-2)[0, 1] == pytest.approx(between - sum(own) / 2)


def test_units_of_the_data(spaces):
    """Twice as large: distances double, so values of the squared difference of distances are
    fourfold."""
    points = [(s.measure.points.numpy(), s.weights) for s in spaces[:2]]
    one, two = (pairwise([Space(k * p, a) for p, a in points], epsilon=1e-2)[0, 1] for k in (1, 2))
    assert two == pytest.approx(4 * one, rel=1e-3)


def test_work_goes_on_where_it_was_stopped(spaces, tmp_path, monkeypatch):
    path, whole = tmp_path / "half.safetensors", pairwise(spaces, epsilon=1e-2)

    def stop(event):
        assert event.total == 6
        if event.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pairwise(spaces, epsilon=1e-2, path=path, callback=stop)
    solved = []
    original = module._value
    monkeypatch.setattr(module, "_value", lambda *args: solved.append(args[:2]) or original(*args))
    assert pairwise(spaces, epsilon=1e-2, path=path) == pytest.approx(whole)
    assert len(solved) == 2
    assert pairwise(spaces, epsilon=1e-2, path=path) == pytest.approx(whole)
    assert len(solved) == 2  # all is there
    for other in (spaces[::-1], spaces[:2]):
        with pytest.raises(ValueError, match="belongs to other spaces or other options"):
            pairwise(other, epsilon=1e-2, path=path)
    with pytest.raises(ValueError, match="belongs to other spaces or other options"):
        pairwise(spaces, epsilon=1e-1, path=path)


def test_several_processes_find_the_same(spaces):
    pytest.importorskip("joblib")
    assert pairwise(spaces, epsilon=1e-2, n_jobs=2) == pytest.approx(pairwise(spaces, epsilon=1e-2), rel=1e-6)


def test_arrays_and_matches_that_do_not_settle(monkeypatch):
    x, y = torch.as_tensor(cloud(20, 3, 0)[0]), torch.as_tensor(cloud(15, 3, 1)[0])
    assert pairwise([x, y], cost="sqeuclidean", epsilon=1e-2).shape == (2, 2)
    original = module._value
    monkeypatch.setattr(module, "_value", lambda *args: (*original(*args)[:3], False))
    with pytest.warns(UserWarning, match=r"3 of 3 matches did not converge, the first is \(0, 0\): raise epsilon"):
        pairwise([x, y], epsilon=1e-2)


def test_one_space_is_not_a_pair(spaces):
    with pytest.raises(ValueError, match="at least 2 spaces, got 1"):
        pairwise(spaces[:1])
    with pytest.raises(ValueError, match="space 1 has NaN"):
        pairwise([np.zeros((4, 2)), np.full((4, 2), np.nan)])

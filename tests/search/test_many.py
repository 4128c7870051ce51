"""Many pairs as one batch: what they end at, and that none depends on the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import gromap
from gromap import Search, SearchBudget, Space, pairwise, solve, solve_many
from gromap._pair import Pair
from gromap.search import batch
from gromap.search.batch import is_small, match_batch
from tests.conftest import cloud, rotation

SIZES = (30, 3), (41, 2), (36, 5)


@pytest.fixture(scope="module")
def spaces():
    """Weighted clouds of different sizes and dimensions."""
    return [Space(*cloud(n, d, n)) for n, d in SIZES]


def pairs_of(spaces, eps=0.02):
    return [Pair.of(x, y, epsilon=eps) for x in spaces for y in spaces if x is not y]


def test_values_are_those_of_couplings_no_higher_than_of_solve(spaces):
    matches = solve_many([(x, y) for x in spaces for y in spaces], epsilon=0.02)
    for k, match in enumerate(matches):
        x, y = spaces[k // 3], spaces[k % 3]
        assert match.converged
        assert match.value == pytest.approx(match.solution.value, rel=2e-3)
        assert match.value <= 1.003 * solve(x, y, epsilon=0.02).value
        assert tuple(match.gamma.shape) == (x.features.shape[1], y.features.shape[1])
        gap = np.linalg.norm(match.gamma - match.solution.gamma) / np.linalg.norm(match.gamma)
        assert gap < 1e-2
        assert match.plan.marginal_error < 1e-2


@pytest.mark.parametrize("scale", ["each", "joint", 2.0, None])
def test_a_pair_does_not_depend_on_its_batch(spaces, scale):
    pairs = [Pair.of(x, y, epsilon=0.05, scale=scale) for x, y in ((spaces[0], spaces[1]), (spaces[2], spaces[0]))]
    together = match_batch(pairs, Search())
    for pair, one in zip(pairs, together, strict=True):
        alone = match_batch([pair], Search())[0]
        assert one is not None
        assert one.value == pytest.approx(alone.value, rel=1e-3)
        assert one.value == pytest.approx(solve(pair.x, pair.y, epsilon=0.05, scale=scale).value, rel=3e-3)


def test_larger_clouds_are_searched_on_cells():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(180, 3)) * [3, 2, 1]
    order = rng.permutation(180)
    copy, other = solve_many([(x, x[order] @ rotation(3)), (x, rng.normal(size=(60, 3)))])
    assert (copy.map() == np.argsort(order)).mean() > 0.95
    assert (copy.inverse_map() == order).mean() > 0.95
    assert copy.value == pytest.approx(solve(x, x[order]).value, rel=2e-3)
    assert copy.value < other.value


def test_clouds_that_cells_do_not_resemble_are_searched_whole():
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(6, 20))
    x, y = (centers[rng.integers(6, size=160)] + 0.4 * rng.normal(size=(160, 20)) for _ in range(2))
    left, right = batch.Prepared.of(Space(x), SearchBudget()), batch.Prepared.of(Space(x[:, :2]), SearchBudget())
    assert left.cells is left.points
    assert len(right.cells.a) == SearchBudget().cells
    order = rng.permutation(160)
    pairs = ((x, y) for x, y in [(x, x[order] @ rotation(20)), (x, y)])  # one by one, kept by nobody else
    copy, other = solve_many(pairs)
    assert (copy.map() == np.argsort(order)).mean() > 0.95
    assert copy.value < other.value


def test_pairs_beyond_a_batch_are_solved_alone(spaces, monkeypatch):
    x, y = spaces[:2]
    assert match_batch([Pair.of(x, y, epsilon=0.5)], Search()) == [None]  # above the critical temperature
    assert match_batch([Pair.of(x, y, epsilon=1e-6)], Search()) == [None]  # below what float32 plans hold
    match = solve_many([(x, y)], epsilon=0.5)[0]
    assert match.value == solve(x, y, epsilon=0.5).value
    empty = Space(x.measure.points, torch.tensor([0.0, *[1.0] * (len(x) - 1)]))
    assert not is_small(Pair.of(empty, y))
    monkeypatch.setattr(batch, "MOST_POINTS", 40)
    assert not is_small(Pair.of(x, y))
    assert not is_small(replace(Pair.of(x, x), rho=(1.0, 1.0)))


def test_each_space_is_embedded_once(monkeypatch):
    made, original = [], Space.__init__
    monkeypatch.setattr(Space, "__init__", lambda self, *args, **how: made.append(how) or original(self, *args, **how))
    x, y, z = (np.random.default_rng(k).normal(size=(20, 2)) for k in range(3))
    assert len(solve_many([(x, y), (x, z), (y, z)], epsilon=0.05)) == 3
    assert len(made) == 3


def test_callbacks_stop_between_batches(monkeypatch):
    from gromap.learn import many

    monkeypatch.setattr(many, "AT_ONCE", {"cpu": 2})
    events = []
    clouds = [np.random.default_rng(k).normal(size=(12, 2)) for k in range(4)]
    found = solve_many([(clouds[0], z) for z in clouds], epsilon=0.1, callback=lambda e: events.append(e) or True)
    assert len(found) == 2
    assert [(e.stage, e.step, e.total) for e in events] == [("many", 2, 4)]
    assert solve_many([]) == []


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([3], "tuple .X, Y. of arrays or Spaces, got a int"),
        ([(np.eye(3), np.eye(3), np.eye(3))], "tuple .X, Y."),
        ([(np.zeros((5, 2)), np.full((5, 2), np.nan))], "Y of pair 0"),
        ([(np.ones((5, 2)), np.ones((1, 2)))], "Y of pair 0"),
    ],
)
def test_bad_input(pairs, says):
    with pytest.raises(ValueError, match=says):
        solve_many(pairs)


def test_points_that_are_one_point_match_anything():
    x = np.random.default_rng(0).normal(size=(20, 2))
    for match in solve_many([(np.ones((9, 2)), x), (np.ones((9, 2)), np.ones((7, 2)))], scale=1.0):
        assert np.isfinite(match.value)
        assert match.value == pytest.approx(match.solution.value, rel=1e-3, abs=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_batches_on_a_gpu_end_where_solves_do():
    clouds = [np.random.default_rng(k).normal(size=(60 + 40 * k, 3)) * [3, 2, 1] for k in range(4)]
    spaces = [Space(torch.tensor(z, dtype=torch.float32, device="cuda")) for z in clouds]
    values = pairwise(spaces, epsilon=5e-3, debias=False, scale=2.0)
    for i in range(4):
        for j in range(i):
            expected = gromap.solve(spaces[j], spaces[i], epsilon=5e-3, scale=2.0).value
            assert values[i, j] == pytest.approx(4 * expected, rel=5e-3)  # in units of the costs, squared

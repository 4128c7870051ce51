"""Matrices of GW values: a symmetric, debiased comparison of a collection, which goes on where
it was stopped."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from gromap import Space, pairwise, solve
from gromap.learn import tasks
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
    original = tasks.match_pair
    monkeypatch.setattr(tasks, "match_pair", lambda *args: solved.append(args) or original(*args))
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
    one = pairwise(spaces, epsilon=1e-2, n_jobs=1)
    assert pairwise(spaces, epsilon=1e-2, n_jobs=2) == pytest.approx(one, rel=1e-6)


@pytest.mark.parametrize("lists", [False, True])
def test_a_backend_of_joblib_runs_one_job_too(spaces, lists):
    """Every n_jobs goes through joblib, so that a cluster may be its backend, whether it gives
    results back one by one, as Dask's, or in lists, as Ray's."""
    joblib = pytest.importorskip("joblib")
    from joblib._parallel_backends import ThreadingBackend

    seen = []

    class Counting(ThreadingBackend):
        supports_return_generator = not lists

        def submit(self, function, callback=None):
            seen.append(function)
            return super().submit(function, callback)

        def effective_n_jobs(self, n_jobs):
            return 2

    joblib.register_parallel_backend("counting", Counting)
    with joblib.parallel_config(backend="counting"):
        values = pairwise(spaces[:2], epsilon=1e-2)
    assert seen
    assert values == pytest.approx(pairwise(spaces[:2], epsilon=1e-2))


def test_without_joblib_there_is_one_process(spaces, monkeypatch):
    whole = pairwise(spaces[:2], epsilon=1e-2)
    monkeypatch.setitem(sys.modules, "joblib", None)
    monkeypatch.setattr(tasks, "find_spec", lambda name: None)
    assert np.array_equal(pairwise(spaces[:2], epsilon=1e-2), whole)
    with pytest.raises(ImportError, match=r"pip install 'gromap\[cluster\]'"):
        pairwise(spaces[:2], epsilon=1e-2, n_jobs=2)


def test_dask_finds_the_same(spaces):
    joblib = pytest.importorskip("joblib")
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        found = pairwise(spaces, epsilon=1e-2)
    assert found == pytest.approx(pairwise(spaces, epsilon=1e-2), rel=1e-6)


def test_spaces_travel_as_one_array(spaces):
    """What comes out of the array is the space that went in, embedded, functions as costs too."""
    joblib = pytest.importorskip("joblib")
    strange = Space(cloud(12, 3, 2)[0], cost=lambda x, y: torch.cdist(x, y) ** 0.5)
    sent = [spaces[0], None, strange]
    for s in (spaces[0], strange):
        s.embedding  # noqa: B018
    packed = joblib.wrap_non_picklable_objects(tasks.Shared(sent), keep_wrapper=False)
    found = pickle.loads(pickle.dumps(packed))
    assert found.data.dtype == np.uint8
    for k in (0, 2):
        assert torch.equal(found[k].embedding.features, sent[k].embedding.features)
        assert torch.equal(found[k].measure.weights, sent[k].measure.weights)
    assert found[0] is found[0]  # made once
    with pytest.raises(ValueError, match="embeds no new points"):
        found[0].project(np.zeros((1, 3)))


def test_tasks_grow_with_the_speed_of_pairs(monkeypatch):
    """Chunks of about half a second, smaller at the end; every pair is in one."""
    joblib = pytest.importorskip("joblib")
    pairs, sizes = [(i, i + 1) for i in range(5000)], []

    def instead(spaces, some, options):
        sizes.append(len(some))
        return tasks.Chunk([tasks.Result(i, j, 0.0, True) for i, j in some], 1e-3 * len(some))

    monkeypatch.setattr(tasks, "match_chunk", instead)
    runner = tasks.Runner(2, here=False)
    with joblib.parallel_config(backend="threading"):
        found = [(r.i, r.j) for r in runner.match(tasks.Shared([]), pairs, tasks.Options(1.0))]
    assert sorted(found) == pairs
    assert sizes[0] == 1
    assert 300 < max(sizes) <= 500
    assert sizes[-1] == 1


def test_arrays_and_matches_that_do_not_settle(monkeypatch):
    x, y = torch.as_tensor(cloud(20, 3, 0)[0]), torch.as_tensor(cloud(15, 3, 1)[0])
    assert pairwise([x, y], cost="sqeuclidean", epsilon=1e-2).shape == (2, 2)
    original = tasks.match_pair
    monkeypatch.setattr(tasks, "match_pair", lambda *args: (original(*args)[0], False))
    with pytest.warns(UserWarning, match=r"3 of 3 matches did not converge, the first is \(0, 0\): raise epsilon"):
        pairwise([x, y], epsilon=1e-2)


def test_one_space_is_not_a_pair(spaces):
    for few in ([], spaces[:1]):
        with pytest.raises(ValueError, match=f"at least 2 spaces to compare, got {len(few)}"):
            pairwise(few)
    with pytest.raises(ValueError, match="space 1 has NaN"):
        pairwise([np.zeros((4, 2)), np.full((4, 2), np.nan)])


def test_poisoned_clouds_are_named_and_stop_nothing(spaces):
    x = cloud(20, 3, 4)[0]
    given = [spaces[0], np.where(x > 1, np.nan, x), spaces[1], x[:1]]
    with pytest.warns(UserWarning, match="2 of 4 spaces and 0 pairs of others failed") as said:
        values = pairwise(given, epsilon=1e-2)
    text = str(said[0].message)
    assert "space 1 has NaN" in text
    assert "space 3 has a single point" in text
    assert np.array_equal(np.isnan(values).sum(0), [2, 4, 2, 4])
    assert values[0, 2] == pytest.approx(pairwise([spaces[0], spaces[1]], epsilon=1e-2)[0, 1])
    with pytest.raises(ValueError, match="space 1 has NaN"):
        pairwise(given, epsilon=1e-2, errors="raise")
    with pytest.raises(ValueError, match="unknown errors 'ignore'"):
        pairwise(given, errors="ignore")


def test_a_pair_that_fails_is_named_and_tried_again(spaces, monkeypatch, tmp_path):
    original = tasks.match_pair

    def failing(x, y, *rest):
        if x is not y and len(y) == 60:
            raise RuntimeError("the disk\nis on fire")
        return original(x, y, *rest)

    monkeypatch.setattr(tasks, "match_pair", failing)
    path = tmp_path / "pairs.safetensors"
    with pytest.warns(UserWarning, match="space 0 and space 2: RuntimeError: the disk is on fire"):
        values = pairwise(spaces, epsilon=1e-2, path=path)
    assert np.array_equal(np.argwhere(np.isnan(values)), [[0, 2], [1, 2], [2, 0], [2, 1]])
    with pytest.raises(ValueError, match=r"space . and space 2: RuntimeError: the disk is on fire"):
        pairwise(spaces, epsilon=1e-2, errors="raise")
    monkeypatch.setattr(tasks, "match_pair", original)
    assert not np.isnan(pairwise(spaces, epsilon=1e-2, path=path)).any()


def test_method_init_and_tolerance_are_those_of_solve(spaces):
    x, y, _ = spaces
    eps = 1e-2 * max(s.scale for s in spaces[:2]) ** 2
    given = {"method": "kernel", "init": "zero", "tol": 1e-3}
    sol = solve(x, y, epsilon=eps, scale=None, **given)
    assert pairwise(spaces[:2], epsilon=1e-2, debias=False, **given)[0, 1] == pytest.approx(sol.value)
    with pytest.raises(ValueError, match="init of a collection serves all of its pairs"):
        pairwise(spaces, init=np.arange(30))
    with pytest.raises(ValueError, match="unknown method"):
        pairwise(spaces, method="fast")


def test_one_precision_and_one_kind_of_cost(spaces):
    x, y = cloud(20, 3, 0)[0], cloud(15, 3, 1)[0]
    mixed = pairwise([x.astype(np.float32), torch.as_tensor(y)], epsilon=1e-2)
    assert mixed[0, 1] == pytest.approx(pairwise([x, y], epsilon=1e-2)[0, 1], rel=1e-4)
    with pytest.raises(ValueError, match=r"space 0 is torch.float64 on cpu and space 1 is torch.float32"):
        pairwise([Space(x), Space(y.astype(np.float32))])
    with pytest.warns(UserWarning, match="2 different costs, whose values hardly compare"):
        pairwise([Space(x), Space(y, cost="sqeuclidean")], epsilon=1e-2)
    with pytest.warns(UserWarning, match="space 2 is 838 times as large as most"):
        pairwise([x, y, 1000 * x], epsilon=1e-2)


KILLED = """
import sys, numpy as np, gromap
rng = np.random.default_rng(0)
clouds = [rng.normal(size=(30, 3)) * rng.uniform(1, 3, 3) for _ in range(6)]
gromap.learn.collection.SAVE_EVERY = 0.1
gromap.pairwise(clouds, epsilon=1e-2, n_jobs=1, path=sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
def test_kill_9_loses_little(tmp_path, monkeypatch):
    path = tmp_path / "pairs.safetensors"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stderr=subprocess.DEVNULL)
    while not path.exists() and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    rng = np.random.default_rng(0)
    clouds = [rng.normal(size=(30, 3)) * rng.uniform(1, 3, 3) for _ in range(6)]
    solved, original = [], tasks.match_pair
    monkeypatch.setattr(tasks, "match_pair", lambda *args: solved.append(args) or original(*args))
    values = pairwise(clouds, epsilon=1e-2, path=path)
    assert 0 < len(solved) < 21
    assert values == pytest.approx(pairwise(clouds, epsilon=1e-2), rel=1e-6)

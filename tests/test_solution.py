"""Plans and solutions: lazy algebra, transfer, files."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from safetensors.numpy import save_file
from scipy.sparse.linalg import aslinearoperator, svds

import gromap
from gromap import Custom, solve


@pytest.fixture(params=["cnt", "kernel"])
def sol(request, pair):
    x, y, a, b = pair
    a[4] = b[2] = 0.0
    return solve(x, y, a, b, epsilon=0.02, method=request.param)


def test_lazy_products_equal_the_dense_plan(sol):
    pi, rng = sol.plan.dense(), np.random.default_rng(0)
    for shape in ((), (3,), (2, 2)):
        w, v = rng.normal(size=(31, *shape)), rng.normal(size=(40, *shape))
        np.testing.assert_allclose(sol.plan @ w, np.tensordot(pi, w, 1), atol=1e-12)
        np.testing.assert_allclose(sol.plan.T @ v, np.tensordot(pi.T, v, 1), atol=1e-12)
    np.testing.assert_allclose(sol.plan.marginals[1], pi.sum(0), atol=1e-12)
    want = np.abs(pi.sum(1) - sol.plan.a.numpy()).sum() + np.abs(pi.sum(0) - sol.plan.b.numpy()).sum()
    assert sol.plan.marginal_error == pytest.approx(want, abs=1e-12)
    assert "40 x 31" in repr(sol.plan)


@pytest.mark.parametrize("torched", [False, True])
def test_scipy_takes_a_plan_as_an_operator(sol, torched):
    plan, pi, rng = replace(sol.plan, numpy=not torched), np.asarray(sol.plan), np.random.default_rng(0)
    operator = aslinearoperator(plan)
    assert (operator.shape, operator.dtype) == ((40, 31), np.float64)
    for one in (operator, plan):
        np.testing.assert_allclose(one.matvec(np.arange(31)), pi @ np.arange(31), atol=1e-15)
        np.testing.assert_allclose(one.rmatvec(np.arange(40)), np.arange(40) @ pi, atol=1e-15)
        w, v = rng.normal(size=(31, 2)), rng.normal(size=(40, 3))
        np.testing.assert_allclose(one.matmat(w), pi @ w, atol=1e-15)
        np.testing.assert_allclose(one.rmatmat(v), pi.T @ v, atol=1e-15)
    np.testing.assert_allclose(np.sort(svds(operator, k=4)[1]), np.linalg.svd(pi)[1][3::-1])


def test_push_and_pull_are_conditional_means(sol):
    pi, rng = sol.plan.dense(), np.random.default_rng(1)
    v, w = rng.normal(size=(40, 3)), rng.normal(size=31)
    cols, rows = pi.sum(0) > 0, pi.sum(1) > 0
    np.testing.assert_allclose(sol.push(v)[cols], (pi.T @ v)[cols] / pi.sum(0)[cols, None], atol=1e-10)
    np.testing.assert_allclose(sol.pull(w)[rows], (pi @ w)[rows] / pi.sum(1)[rows], atol=1e-10)
    np.testing.assert_allclose(sol.push(np.ones(40)), 1.0)  # also where there is no mass
    np.testing.assert_allclose(sol.pull(np.ones((31, 2))), 1.0)


@pytest.mark.parametrize("kinds", [3, 33])
def test_labels_are_voted_on(sol, kinds, monkeypatch):
    monkeypatch.setattr("gromap._plan.LABELS", 10)  # of which several are counted at a time
    pi, names = sol.plan.dense(), np.random.default_rng(0).integers(kinds, size=40)
    mass = np.stack([pi[names == k].sum(0) for k in range(kinds)])
    some = pi.sum(0) > 0
    found, words = sol.push(names, labels=True), sol.push([f"part {k}" for k in names], labels=True)
    assert found.dtype == names.dtype
    np.testing.assert_array_equal(found[some], mass.argmax(0)[some])
    np.testing.assert_array_equal(words, [f"part {k}" for k in found])
    share = sol.plan.T.majority(names)[1]
    np.testing.assert_allclose(share[some], (mass.max(0)[some] / mass.sum(0)[some]), rtol=1e-9)
    back = names[:31]
    assert set(sol.pull(back, labels=True)) <= set(back)
    as_torch = sol.push(torch.from_numpy(names), labels=True)
    np.testing.assert_array_equal(as_torch.numpy(), found)
    with pytest.raises(ValueError, match=r"expected 40 labels, one for each point, got shape \(31,\)"):
        sol.push(back, labels=True)


@pytest.mark.filterwarnings("error")
def test_integers_that_are_averaged_are_told_of(sol):
    names = np.arange(40) % 3
    with pytest.warns(UserWarning, match="a row of int64 was averaged: for labels pass labels=True"):
        mean = sol.push(names)
    with pytest.warns(UserWarning, match="a row of bool was averaged"):
        sol.pull(torch.ones(31, dtype=torch.bool))
    np.testing.assert_array_equal(sol.push(names, labels=False), mean)
    np.testing.assert_array_equal(sol.push(names.astype(float)), mean)
    sol.push(np.arange(120, dtype=np.uint8).reshape(40, 3))  # colors


def test_maps_are_nearest_to_the_mean_or_of_the_largest_entry(sol, pair):
    x, y, *_ = pair
    pi = sol.plan.dense()
    rows, cols = pi.sum(1) > 0, pi.sum(0) > 0
    np.testing.assert_array_equal(sol.map("argmax")[rows], pi.argmax(1)[rows])
    np.testing.assert_array_equal(sol.inverse_map("argmax")[cols], pi.argmax(0)[cols])
    for got, other, to, back, some in (
        (sol.map(), sol.p2p_12, sol.pull(y), y, rows),
        (sol.inverse_map(), sol.p2p_21, sol.push(x), x, cols),
    ):
        gaps = np.linalg.norm(to[:, None] - back, axis=2)
        np.testing.assert_array_equal(got[some], gaps.argmin(1)[some])
        np.testing.assert_array_equal(got, other)
    with pytest.raises(ValueError, match="unknown how 'max'"):
        sol.map("max")


def test_maps_of_costs_that_are_no_function_of_the_distance_use_the_features():
    """argmin_k Σ_j π_ij c(y_j, y_k), which for the exact embedding is the point nearest to the
    mean of the features."""
    c = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0))) ** 0.5
    sol = solve(c, c, cost="precomputed", dim=9, epsilon=0.05)
    np.testing.assert_array_equal(sol.map(), (sol.plan.dense() @ c).argmin(1))


def test_sparse_keeps_the_largest_entries(sol):
    pi, sparse = sol.plan.dense(), sol.plan.sparse(k=5)
    assert isinstance(sparse, scipy.sparse.csr_array)
    assert sparse.nnz == 40 * 5
    kept = sparse.toarray()
    np.testing.assert_allclose(kept[kept > 0], pi[kept > 0], rtol=1e-9)
    np.testing.assert_allclose(np.sort(kept, 1)[:, -5:], np.sort(pi, 1)[:, -5:], atol=1e-15)
    with pytest.raises(ValueError, match="1 <= k <= 31"):
        sol.plan.sparse(k=32)


def test_dense_refuses_large_plans(sol, monkeypatch):
    monkeypatch.setattr("gromap._plan.DENSE_LIMIT", 100)
    with pytest.raises(MemoryError, match="sparse"):
        sol.plan.dense()
    assert sol.plan.dense(force=True).shape == (40, 31)


def test_repr_tells_the_story(sol):
    text = repr(sol)
    for word in ("40 x 31", "value", "epsilon", "marginal error", "Sinkhorn", sol.status.value):
        assert word in text


def test_save_and_load(sol, tmp_path):
    again = gromap.load(sol.save(tmp_path / "match.safetensors"))
    assert (again.value, again.value_gw, again.epsilon, again.scale) == (
        sol.value,
        sol.value_gw,
        sol.epsilon,
        sol.scale,
    )
    assert again.status is sol.status
    assert again.stats.method == sol.stats.method
    np.testing.assert_allclose(again.plan.dense(), sol.plan.dense(), rtol=1e-11)
    np.testing.assert_array_equal(again.history["energy"], sol.history["energy"])
    np.testing.assert_array_equal(again.potentials[0], sol.potentials[0])
    assert list(tmp_path.iterdir()) == [tmp_path / "match.safetensors"]
    assert repr(again) == repr(sol)


def test_a_failed_save_leaves_the_old_file(sol, tmp_path, monkeypatch):
    path = sol.save(tmp_path / "match.safetensors")
    before = path.read_bytes()
    monkeypatch.setattr("safetensors.torch.save_file", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        sol.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_broken_and_foreign_files(sol, tmp_path):
    path = sol.save(tmp_path / "match.safetensors")
    whole = path.read_bytes()
    with pytest.raises(FileNotFoundError, match="no result file"):
        gromap.load(tmp_path / "absent.safetensors")
    for name, content in (
        ("truncated", whole[: len(whole) // 2]),
        ("empty", b""),
        ("text", b"hello world, not a tensor"),
    ):
        bad = tmp_path / name
        bad.write_bytes(content)
        with pytest.raises(ValueError, match="truncated or corrupted"):
            gromap.load(bad)
    save_file({"weight": np.ones(3)}, tmp_path / "foreign")
    with pytest.raises(ValueError, match="not a gromap result"):
        gromap.load(tmp_path / "foreign")
    save_file(
        {"u": np.ones(3)},
        tmp_path / "partial",
        metadata={"format": "gromap-solution", "version": "1", "solution": "{}"},
    )
    with pytest.raises(ValueError, match="truncated or corrupted"):
        gromap.load(tmp_path / "partial")
    newer = {"format": "gromap-solution", "version": "99", "solution": json.dumps({})}
    save_file({"u": np.ones(3)}, tmp_path / "newer", metadata=newer)
    with pytest.raises(ValueError, match="newer gromap"):
        gromap.load(tmp_path / "newer")


def test_torch_solutions_stay_torch(pair, tmp_path):
    x, y, a, b = map(torch.from_numpy, pair)
    sol = solve(x, y, a, b, epsilon=0.05)
    assert sol.plan.sparse(3).is_coalesced()
    torch.testing.assert_close(sol.plan.sparse(31).to_dense(), sol.plan.dense())
    assert isinstance(gromap.load(sol.save(tmp_path / "t.safetensors")).gamma, torch.Tensor)


def test_values_of_the_wrong_length(sol):
    with pytest.raises(ValueError, match="expected 40 values"):
        sol.push(np.ones(31))
    with pytest.raises(ValueError, match="expected 31 values"):
        sol.plan @ np.ones(40)


DATA = Path(__file__).with_name("data")


def test_files_of_older_versions_load():
    """Written before `info` became `stats`: the minima stood in the history, and there were no
    points for maps."""
    old = gromap.load(DATA / "solution_v1.safetensors")
    assert old.value == pytest.approx(0.254304, abs=1e-6)
    assert (old.stats.method, old.stats.dtype) == ("cnt", "float32")
    assert old.stats.minima is not None
    assert len(old.stats.minima) >= 1
    assert set(old.history) == {"energy", "gamma_change", "marginal_error", "inner_steps", "seconds"}
    assert old.map("argmax").shape == (12,)
    with pytest.raises(ValueError, match="use map\\('argmax'\\)"):
        old.map()
    assert "minima" in repr(old)
    land = gromap.Landscape.load(DATA / "landscape_v1.safetensors")
    assert len(land) >= 1


@pytest.mark.parametrize("method", ["cnt", "kernel"])
def test_a_solution_can_be_pickled(pair, method):
    x, y, a, b = pair
    sol = solve(x, y, a, b, cost="sqeuclidean" if method == "cnt" else Custom(torch.cdist), epsilon=0.1, method=method)
    again = pickle.loads(pickle.dumps(sol))
    np.testing.assert_array_equal(again.gamma, sol.gamma)
    np.testing.assert_array_equal(again.map(), sol.map())

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from gromap import CntGW, Loop, Multiscale, Sinkhorn, Solution, Space, solve
from gromap._pair import Pair
from gromap.datasets import humans
from gromap.geometry import measure
from gromap.geometry.measure import coarsen
from tests.conftest import cloud


# from farthest points, drawn points, median cuts
@pytest.mark.parametrize(("k", "pairs"), [(7, 1e9), (600, 1e9), (600, 0)])
def test_coarsening_keeps_mass_and_mean(k, pairs, monkeypatch):
    monkeypatch.setattr(measure, "KMEANS_PAIRS", pairs)
    x, a = (torch.from_numpy(z) for z in cloud(1500, 4, 0))
    a[::3] = 0.0
    x[::3] += 100.0  # where there is no mass there are no cells
    centers, mass = coarsen(x, a, k)
    assert 0.8 * k < len(centers) <= k
    assert bool((mass > 0).all())
    assert float(centers.max()) < 50
    torch.testing.assert_close(mass.sum(), a.sum())
    torch.testing.assert_close(mass @ centers, a @ x)


@cache
def two_humans() -> tuple[np.ndarray, np.ndarray, Solution]:
    """Points of both, and the solution over all of them."""
    pair, rng = humans(), np.random.default_rng(0)
    x, y = (m.vertices[rng.permutation(len(m.vertices))[:n]] for m, n in ((pair.source, 1500), (pair.target, 1300)))
    return x, y, solve(x, y, method="cnt")


@pytest.mark.parametrize("options", [{"levels": 2}, {"levels": 3, "ratio": 0.3}, {"coarsest": 100}, {"levels": 1}])
def test_multiscale_reaches_the_energy_of_cnt(options):
    x, y, direct = two_humans()
    pyramid = solve(x, y, method=Multiscale(**options))
    assert pyramid.converged
    assert pyramid.history["energy"][-1] <= direct.history["energy"][-1] * 1.001
    if options.get("levels", 2) > 1:
        assert pyramid.stats.levels[-1] == 1500
        assert list(pyramid.stats.levels) == sorted(pyramid.stats.levels)


@pytest.mark.parametrize("name", ["mh_man", "dog", "mh_hand"])
def test_the_pyramid_ends_where_cnt_converges(name):
    """On real pairs, CntGW run from the pyramid's Γ to a hundredth of its tolerances finds
    nothing lower."""
    folder = Path(__file__).resolve().parents[3] / "shared" / "data" / "poses"
    if not folder.is_dir():
        pytest.skip("the folder of real shapes is not there")
    x, y = (_vertices(folder / f"{name}_{k}.ply", 3000, seed=k) for k in (0, 1))
    pyramid = solve(x, y)
    assert pyramid.stats.method == "multiscale"
    strict = CntGW(Loop(Sinkhorn(100), tol=1e-7, marginal_tol=1e-4))
    direct = solve(x, y, method=strict, init=pyramid)
    assert pyramid.history["energy"][-1] == pytest.approx(direct.history["energy"][-1], rel=1e-3)


def _vertices(path: Path, n: int, seed: int) -> np.ndarray:
    raw = path.read_bytes()
    count = int(raw.split(b"element vertex ")[1].split(b"\n")[0])
    points = np.frombuffer(raw, "<f4", 3 * count, raw.index(b"end_header\n") + 11).reshape(-1, 3)
    return points[np.random.default_rng(seed).permutation(count)[:n]]


def test_fewer_fine_steps_from_zero():
    pair = humans()
    x, y = pair.source.vertices[:1200], pair.target.vertices[:1000]
    direct, pyramid = (solve(x, y, method=m, init="zero") for m in (CntGW(), Multiscale(levels=2, ratio=0.5)))
    assert 1.5 * pyramid.history["inner_steps"].sum() < direct.history["inner_steps"].sum()


def test_weights_and_warm_start(pair):
    x, y, a, b = pair
    a[3] = 0
    first = solve(x, y, a, b, epsilon=0.02, method=Multiscale(levels=2, ratio=0.5))
    assert not first.plan.dense()[3].any()
    again = solve(x, y, a, b, epsilon=0.02, method="multiscale", init=first)
    assert len(again.history["energy"]) <= 2
    assert not again.stats.levels


@pytest.mark.parametrize("bad", [{"ratio": 1.0}, {"coarsest": 1}, {"levels": 0}])
def test_bad_options(bad):
    with pytest.raises(ValueError, match="Multiscale needs"):
        Multiscale(**bad)


def test_exact_norms_are_carried_down_all_levels():
    x, y = (Space(cloud(200, 3, seed)[0], dim=2) for seed in (0, 1))
    fine = CntGW(exact_norms=True).problem(Pair.of(x, y, epsilon=0.05))
    mean = float(fine.a @ fine.x_norms)
    level = fine
    for n in (60, 15):
        level = level.coarser(n, n)
        assert float(level.a @ level.x_norms) == pytest.approx(mean, rel=1e-5)
        assert level.constant == fine.constant
    assert float(level.a @ level.x.square().sum(-1)) < 0.9 * mean  # two axes do not hold them


def test_a_part_of_a_large_cloud_keeps_all_its_rows(monkeypatch):
    """Points that are hardly matched have no tile that holds a share of their weight: theirs are
    told by what they hold."""
    monkeypatch.setattr("gromap.solvers.embedded.TRUNCATED_PAIRS", {"cpu": 0})
    t = torch.linspace(0, 1, 900, dtype=torch.float64)
    x = torch.stack([t, 0.2 * t**2], 1)
    options = {"epsilon": 3e-4, "reach": 0.05, "init": torch.arange(500), "max_iter": 3}
    found, plain = (solve(x[:500], x, method=method, **options) for method in (CntGW(), CntGW(truncation=None)))
    assert np.isfinite(found.value)
    assert found.value == pytest.approx(plain.value, rel=1e-3)

"""The global search: starts, merging, shaking, landmarks; what `init=` takes; and the landscape."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
import scipy.linalg
import torch

import gromap
from gromap import CntGW, Landscape, Loop, Search, SearchBudget, Sinkhorn, Space, landmarks, landscape, solve
from gromap._pair import Pair
from gromap.bench.shapes import surface_pair
from gromap.datasets import humans
from gromap.search.anneal import SmallPair
from gromap.search.descent import SAME_GAMMA, descend, merge
from gromap.search.landscape import is_continuum, objective
from gromap.search.proposals import profile_scores, random_starts, sign_flips
from gromap.search.search import best_start, lowest
from gromap.solvers.loop import alternate
from gromap.solvers.protocol import Begin
from gromap.transport.sinkhorn import Potentials
from tests.conftest import cloud, rotation


@pytest.fixture(scope="module")
def people():
    """600 vertices of each pose of the human, in different orders, and where each of the first
    belongs."""
    pair = humans()
    rng = np.random.default_rng(0)
    i = rng.permutation(len(pair.source.vertices))[:600]
    j = rng.permutation(600)
    direct, mirrored = pair.direct[i], pair.mirrored[i]
    return pair.source.vertices[i], direct[j], direct, mirrored


def problem(pair, eps=0.05):
    x, y, a, b = pair
    return CntGW().problem(Pair.of(x, y, a, b, dim=(6, 5), epsilon=eps))


def test_a_batch_of_starts_equals_the_starts_one_by_one(pair):
    p = problem(pair)
    gamma = torch.cat([sign_flips(*p.spread), random_starts(*p.spread, 4, seed=0)])
    options = Loop(Sinkhorn(20), adaptive=False, max_iter=6, tol=1e-12)
    zero = lambda *lead: Potentials(p.a.new_zeros(*lead, len(p.a)), p.b.new_zeros(*lead, len(p.b)))  # noqa: E731
    together = alternate(p, Begin(gamma, zero(len(gamma))), options)
    for k in range(len(gamma)):
        alone = alternate(p, Begin(gamma[k], zero()), options)
        torch.testing.assert_close(together.gamma[k], alone.gamma, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(together.energy[k], alone.energy, rtol=1e-9, atol=1e-12)


def test_merging():
    a, b = torch.eye(3, dtype=torch.float64), -torch.eye(3, dtype=torch.float64)
    gamma = torch.stack([1.01 * a, b, a, 0.99 * b, 3 * a])
    energy = torch.tensor([2.0, 1.0, 1.5, 4.0, 0.5], dtype=torch.float64)
    assert merge(gamma, energy, same=0.15).tolist() == [2, 1, 2, 1, 4]
    assert merge(gamma, energy, same=1e-9).tolist() == [0, 1, 2, 3, 4]
    assert merge(torch.zeros(3, 2, 2), torch.zeros(3), same=0.15).tolist() == [0, 0, 0]


def test_descent_ends_at_distinct_minima_that_count_their_starts(pair):
    p = problem(pair)
    found = descend(p, random_starts(*p.spread, 30, seed=0), 1e-5)
    assert float(found.count.sum()) == 30
    assert bool((found.energy[1:] >= found.energy[:-1]).all())
    assert merge(found.gamma, found.energy, SAME_GAMMA).tolist() == list(range(len(found)))


@pytest.mark.parametrize("points", [80, 400])
def test_the_search_says_how_often_it_met_each_minimum(people, points):
    minima = best_start(problem((people[0][:points], people[1][:points], None, None), 2e-3), Loop())[2]
    assert float(minima.count[0]) >= 3  # they agree
    assert bool((minima.energy[1:] >= minima.energy[:-1]).all())


def test_profiles_match_the_points_of_a_copy():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(30, 4)))
    order = torch.from_numpy(rng.permutation(30))
    y = (x @ torch.from_numpy(rotation(4)))[order]
    a = torch.from_numpy(rng.uniform(0.5, 1.5, 30))
    a, truth = a / a.sum(), torch.argsort(order)
    score = profile_scores(x, y, a, a[order], [1e-4])[0]
    gamma = x.mT @ (torch.softmax(score, 1) * a[:, None]) @ y
    torch.testing.assert_close(gamma, x.mT @ (a[:, None] * y[truth]), rtol=1e-3, atol=1e-3)


def test_shaking_finds_what_starts_that_agree_have_missed():
    """Two samples on a sphere in 20 dimensions, which have minima without number."""
    gaps = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in rng.normal(size=(2, 40, 20)))
        p = CntGW().problem(Pair.of(x, y, cost="spherical", epsilon=1e-3))
        pair = SmallPair(p, torch.float32)
        still, shaken = (lowest(pair, p.eps / pair.unit, 0, Search(budget=SearchBudget(rounds=r))) for r in (0, 12))
        gaps.append(float(still[0].value[0] / shaken[0].value[0]) - 1)
    assert min(gaps) >= 0
    assert sum(gaps) > 0.04
    assert SearchBudget().rounds_of(False, 10**9) == 2
    assert SearchBudget().rounds_of(True, 10**9) == SearchBudget().rounds


def test_plans_with_order_are_found_around_the_critical_temperature():
    """A graph by its heat kernel: starts that cool end in a plan without order, 4 % too high."""
    rng = np.random.default_rng(3)
    block = np.arange(150) // 10
    edges = np.triu(rng.random((150, 150)) < 0.03 + 0.4 * (block[:, None] == block), 1).astype(float)
    edges += edges.T
    heat = scipy.linalg.expm(-0.3 * (np.diag(edges.sum(1)) - edges) / edges.sum(1).mean())
    costs = np.diag(heat)[:, None] + np.diag(heat) - 2 * heat
    order = rng.permutation(150)

    def value(init):
        return solve(costs, costs[np.ix_(order, order)], cost="precomputed", epsilon=1e-2, init=init).value

    known = value(np.argsort(order))
    assert value("auto") <= 1.001 * known
    assert value(Search(starts=0, budget=SearchBudget(below_critical=1e9))) > 1.01 * known


def test_auto_finds_the_best_of_many_random_starts(people):
    x, y, *_ = people
    auto = solve(x, y, epsilon=2e-3)
    land = landscape(x, y, starts=60, epsilon=2e-3, points=150)
    best = min(sol.history["energy"][-1] for sol in land.refine(3, method="cnt"))
    assert auto.history["energy"][-1] <= 1.001 * best
    assert "minim" in repr(auto)


def test_seeds_reproduce_bit_for_bit(people):
    x, y, *_ = people
    first, again = (solve(x[:100], y[:90], seed=3) for _ in range(2))
    assert np.array_equal(first.gamma, again.gamma)
    assert first.value == again.value
    lands = [landscape(x[:100], y[:90], starts=20, epsilon=0.01, seed=1) for _ in range(2)]
    assert np.array_equal(lands[0].minima, lands[1].minima)


def test_a_search_ends_no_higher_than_a_start_from_zero():
    rng = np.random.default_rng(13)  # here coarse clouds lead Γ = 0 to a minimum that is 0.3 % higher
    x, y = rng.normal(size=(260, 3)), rng.normal(size=(250, 3))
    ends = [solve(x, y, epsilon=3e-3, init=init).history["energy"][-1] for init in (Search(starts=4), "zero")]
    assert ends[0] <= ends[1] * (1 + 1e-4)


def test_clusters_of_unequal_weights_survive_on_finer_clouds():
    """Two views of five clusters, of other sizes on both sides: Sinkhorn needs many steps there;
    after a few, all minima of the cells were lost on the points, by 58 %."""
    rng = np.random.default_rng(4)
    centers = rng.normal(size=(5, 3)) * 2

    def draw(n):
        kind = rng.choice(5, n, p=[0.3, 0.25, 0.2, 0.15, 0.1])
        return centers[kind] + 0.3 * rng.normal(size=(n, 3)), kind

    (left, kinds), (right, others) = draw(200), draw(180)
    warped = np.tanh(0.3 * right @ rng.normal(size=(3, 40)) + 0.3 * rng.normal(size=40)) @ rng.normal(size=(40, 80))
    x = left @ rng.normal(size=(3, 50)) + 0.1 * rng.normal(size=(200, 50))
    y = warped / 40**0.5 + 0.1 * rng.normal(size=(180, 80))
    plan = (kinds[:, None] == others) + 1e-3
    for _ in range(1000):
        plan = plan / plan.sum(1, keepdims=True) / 200
        plan = plan / plan.sum(0) / 180
    assert solve(x, y).value <= 1.002 * solve(x, y, init=plan / plan.sum()).value


def test_five_landmarks_choose_the_minimum(people):
    x, y, direct, mirrored = people
    feet = [np.where(side * x[:, 0] > 0, x[:, 1], np.inf).argmin() for side in (1, -1)]
    tips = [x[:, 1].argmax(), x[:, 0].argmin(), x[:, 0].argmax(), *feet]  # head, hands, feet
    for truth, other in ((direct, mirrored), (mirrored, direct)):
        nearest = np.linalg.norm(y[None] - truth[tips][:, None], axis=2).argmin(1)
        sol = solve(x, y, init=landmarks(np.stack([tips, nearest], 1)))
        right, wrong = (np.linalg.norm(y[sol.p2p_12] - t, axis=1).mean() for t in (truth, other))
        assert right < 0.25 * wrong


def test_every_kind_of_start(pair):
    x, y, a, b = pair
    options = {"epsilon": 0.02, "dim": (6, 5)}
    base = solve(x, y, a, b, **options)
    for init in (base, base.state, base.gamma, base.plan, base.plan.dense(), torch.from_numpy(base.plan.dense())):
        sol = solve(x, y, a, b, init=init, **options)
        assert sol.value <= 1.002 * base.value
    mapped = solve(x, y, a, b, init=base.p2p_12, **options)
    assert mapped.value <= 1.05 * base.value
    assert solve(x, y, a, b, init=Search(starts=5), **options).value <= 1.2 * base.value


@pytest.mark.parametrize("hand", [1.0, -1.0])
def test_chirality_keeps_left_and_right(hand):
    """A standing body fits itself and its mirror image: with chirality the match turns it, and
    never mirrors it."""
    body = humans().source.vertices
    order = np.random.default_rng(0).permutation(len(body))
    x, other = body[order[:500]], body[order[500:1000]]
    turn = rotation(3) * np.sign(np.linalg.det(rotation(3)))
    y = (other * [hand, 1.0, 1.0]) @ turn
    sol = solve(x, y, epsilon=3e-3, init=Search(starts=20, chirality=True))
    there = sol.pull(y) @ turn.T
    kept, mirrored = (np.linalg.norm(there - x * [s, 1.0, 1.0], axis=1).mean() for s in (1.0, -1.0))
    assert kept < 0.5 * mirrored
    with pytest.raises(ValueError, match=r"chirality needs points in space.*X has 2"):
        solve(x[:, :2], y, init=Search(chirality=True))


def test_minima_that_are_nearly_as_low_are_settled_before_one_is_taken():
    """On 1000 points: where the search is done, the second of two is 0.6 % lower."""
    x, y = surface_pair("human", 1000, 0, torch.device("cpu"))
    values = [solve(x, y, seed=seed).value for seed in (0, 2)]
    assert values[0] == pytest.approx(values[1], rel=1e-3)


def test_chirality_of_meshes_looks_at_their_vertices():
    """The points of a geodesic space have eight coordinates; left and right are those of the
    mesh."""
    body = humans().source
    other = dataclasses.replace(body, vertices=body.vertices * np.float32([-1, 1, 1]), faces=body.faces[:, ::-1].copy())
    x, y = (Space.from_mesh(mesh, cost="biharmonic") for mesh in (body, other))
    assert x.measure.points.shape[1] == 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that hardly any start found it: reflections of what many found count
        sol = solve(x, y, epsilon=3e-3, init=Search(starts=20, chirality=True), method="multiscale")
    assert sol.stats.minima_starts[0] >= SearchBudget().agreement
    there = sol.pull(other.vertices)
    kept, mirrored = (np.linalg.norm(there - body.vertices * [s, 1.0, 1.0], axis=1).mean() for s in (1.0, -1.0))
    assert kept < 0.5 * mirrored


def test_landscape_of_a_stick():
    """A bent stick fits itself either way round."""
    t = np.linspace(0, 1, 150)
    stick = np.stack([t, 0.1 * t**2], 1)
    land = landscape(stick, stick, starts=30, epsilon=0.005)
    assert len(land) == 2
    assert land.basins.sum() == pytest.approx(1)
    assert not land.continuous
    plane = land.plane(resolution=9)
    assert plane.values.shape == (9, 9)
    assert plane.values.min() >= land.energies[0] - 1e-3
    back = plane.center + np.einsum("kc,cde->kde", plane.minima, plane.axes)
    np.testing.assert_allclose(back, land.minima, atol=1e-6)
    solutions = land.refine(2)
    assert solutions[0].value <= solutions[1].value * 1.01
    assert (np.abs(stick[solutions[0].p2p_12] - stick).max(1) < 0.1).mean() > 0.9
    assert (np.abs(stick[solutions[1].p2p_12] - stick[::-1]).max(1) < 0.2).mean() > 0.9
    assert land.plan(0).shape == (150, 150)
    assert "2 minima from 30 starts" in repr(land)
    assert "  1   energy" in repr(land)  # counted as on the page
    assert "  0   energy" not in repr(land)


def test_a_landscape_warns_of_a_cost_that_is_not_cnt(pair):
    with pytest.warns(UserWarning, match="not conditionally of negative type"):
        landscape(*pair, cost=gromap.Power(4), starts=2, epsilon=0.5, dim=(6, 5))


def test_the_plane_shows_the_energies_of_the_minima(people):
    """With 100 Sinkhorn steps the dual was a quarter too low there, which drew plateaus."""
    land = landscape(people[0], people[1], starts=10, points=120)
    drawn = objective(land.coarse, land.found.gamma).numpy()
    np.testing.assert_allclose(drawn, land.energies, rtol=1e-2)


def test_landscapes_are_refined_in_their_own_units(pair):
    x, y, a, b = pair
    land = landscape(x, y, a, b, starts=12, epsilon=0.5, scale=None, dim=(6, 5))
    assert land.refine(1)[0].history["energy"][-1] == pytest.approx(land.energies[0], rel=1e-2)


def test_landscape_files(tmp_path):
    (x, a), (y, b) = cloud(60, 3, 0), cloud(50, 2, 1)
    land = landscape(x, y, a, b, starts=12, epsilon=0.05, dim=(6, 5))
    again = Landscape.load(land.save(tmp_path / "land.safetensors"))
    assert np.array_equal(again.minima, land.minima)
    assert np.array_equal(again.basins, land.basins)
    assert len(land) > 1
    np.testing.assert_allclose(again.plane(5).values, land.plane(5).values)
    with pytest.raises(ValueError, match="has no points"):
        again.refine(1)
    with pytest.raises(ValueError, match="not a gromap result"):
        gromap.load(tmp_path / "land.safetensors")
    (tmp_path / "broken").write_bytes(b"1234")
    with pytest.raises(ValueError, match="truncated or corrupted"):
        Landscape.load(tmp_path / "broken")


def test_landscape_figure(tmp_path):
    pytest.importorskip("matplotlib")
    t = np.linspace(0, 1, 80)
    stick = np.stack([t, 0.1 * t**2, 0 * t], 1)
    land = landscape(stick, stick, starts=12, epsilon=0.01)
    land.plot(tmp_path / "land.png", resolution=8)
    assert (tmp_path / "land.png").stat().st_size > 10_000


def test_a_sphere_has_a_continuum_of_minima():
    x = np.random.default_rng(0).normal(size=(100, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    land = landscape(x, x[::-1].copy(), starts=50, epsilon=0.02)
    assert land.continuous
    assert len(land) <= 15
    assert "continuum" in repr(land)
    assert land.basins.sum() < 1  # of all starts, not of those that are listed
    assert land.basins.max() <= 0.1


def test_minima_beside_a_large_basin_are_no_continuum():
    """Many starts that end each at a minimum of its own say nothing where one minimum attracts a
    third of all."""
    alone = torch.ones(60)
    assert is_continuum(alone, 90)
    assert not is_continuum(torch.cat([alone, torch.tensor([30.0])]), 90)
    assert not is_continuum(torch.tensor([50.0, 40.0]), 90)


CASES = {
    "landmark out of range": (
        lambda x: solve(x, x, init=landmarks([[0, 1], [2, 40]])),
        "landmark 40 of Y is out of range",
    ),
    "negative landmark": (lambda x: solve(x, x, init=landmarks([[-1, 1]])), "landmark -1 of X is out of range"),
    "repeated landmark": (lambda x: landmarks([[0, 1], [0, 2]]), "landmark 0 of X is used 2 times"),
    "landmarks of the wrong shape": (lambda x: landmarks([0, 1]), r"\(k, 2\) integer indices"),
    "no landmarks": (lambda x: landmarks(np.zeros((0, 2), int)), r"\(k, 2\) integer indices"),
    "landmark weights": (lambda x: landmarks([[0, 1]], [-1.0]), "as many weights > 0"),
    "no starts": (lambda x: landscape(x, x, starts=0), "starts must be an integer >= 1, got 0"),
    "negative starts": (lambda x: Search(starts=-1), "starts must be an integer >= 0, got -1"),
    "wrong gamma": (lambda x: solve(x, x, dim=3, init=np.ones((3, 4))), "linear map of shape"),
    "map out of range": (lambda x: solve(x, x, init=np.full(40, 77)), "to point 77 of Y"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case):
    run, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        run(cloud(40, 3, 0)[0])

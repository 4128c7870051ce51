"""Options that are no arrays: devices, seeds, counts, batches, each refused with one sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gromap
from gromap import Search, Space, barycenter, gradient_flow, gw_loss, landscape, solve

X, Y = np.random.default_rng(0).normal(size=(12, 3)), np.random.default_rng(1).normal(size=(9, 2))
QUICK = {"epsilon": 0.1, "steps": 1}
NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    return solve(X, Y, epsilon=0.1).save(folder / "sol"), landscape(X, Y, starts=3, epsilon=0.1).save(folder / "land")


DEVICES = {
    "nope": "unknown device 'nope': use 'cpu', 'cuda' or 'cuda:1'",
    "gpu": "unknown device 'gpu'",
    "meta": "works on CPUs and on CUDA devices, and not on device 'meta'",
    "mps": "not on device 'mps'",
    3.5: "unknown device 3.5",
    "cuda": "device 'cuda' is not there, torch finds no CUDA device here: use device='cpu'",
    torch.device("cuda", 7): "device cuda:7 is not there",
}


@NO_CUDA
@pytest.mark.parametrize("device", DEVICES)
def test_devices(device, results):
    for call in (
        lambda: solve(X, Y, device=device),
        lambda: Space(X, device=device),
        lambda: Space.from_costs(1 - np.eye(4), device=device),
        lambda: landscape(X, Y, device=device),
        lambda: gromap.load(results[0], device=device),
        lambda: gromap.Landscape.load(results[1], device=device),
    ):
        with pytest.raises(ValueError, match=DEVICES[device]):
            call()


SEEDS = {"a": "seed must be an integer >= 0, got 'a'", 2.5: "got 2.5", None: "got None", True: "got True"}
SEEDS |= {-1: r"from 0 to 2\*\*62 - 1, got -1", 2**70: r"from 0 to 2\*\*62 - 1, got 118"}
SEEDED = {
    "solve": lambda seed: solve(X, Y, seed=seed, epsilon=0.1).value,
    "space": lambda seed: float(Space(X, seed=seed).features.sum()),
    "loss": lambda seed: float(gw_loss(X, Y, seed=seed, epsilon=0.1)),
    "landscape": lambda seed: landscape(X, Y, seed=seed, epsilon=0.1, starts=3).energies[0],
    "pairwise": lambda seed: gromap.pairwise([X, Y], seed=seed, epsilon=0.1)[0, 1],
    "flow": lambda seed: gradient_flow(X, Y, seed=seed, **QUICK).losses[0],
    "barycenter": lambda seed: barycenter([X, Y], seed=seed, **QUICK).losses[0],
}


@pytest.mark.parametrize("call", SEEDED)
def test_seeds(call):
    for seed, message in SEEDS.items():
        with pytest.raises((ValueError, TypeError), match=message):
            SEEDED[call](seed)
    assert SEEDED[call](np.int64(3)) == SEEDED[call](3)


def average(**options):
    return barycenter([X, 2 * X], **QUICK | options)


COUNTS = {
    "points 0": (lambda: average(points=0), "points must be an integer >= 2, got 0"),
    "points -3": (lambda: average(points=-3), "points must be an integer >= 2, got -3"),
    "points 2.5": (lambda: average(points=2.5), "points must be an integer >= 2, got 2.5"),
    "points, a word": (lambda: average(points="many"), "points must be an integer >= 2, got 'many'"),
    "batch 0": (lambda: average(batch=0), "batch must be an integer >= 2, got 0"),
    "batch 2.5": (lambda: average(batch=2.5), "batch must be an integer >= 2, got 2.5"),
    "init in the plane": (lambda: average(init=Y, match="nearest"), r"shapes in one space, init= too.*match='auto'"),
    "no shapes": (lambda: barycenter([]), "at least one shape, got none"),
    "steps 2.5": (lambda: average(steps=2.5), "steps must be an integer >= 1, got 2.5"),
    "steps, a word": (lambda: gradient_flow(X, Y, steps="a", epsilon=0.1), "steps must be an integer >= 1, got 'a'"),
    "frames 1": (lambda: average(frames=1), "frames must be an integer >= 2, got 1"),
    "a step of NaN": (lambda: average(step=np.nan), "step must be a finite number > 0"),
    "momentum 1": (lambda: average(momentum=1), "momentum must be a number >= 0 and < 1, got 1"),
    "tol, a word": (lambda: average(tol="small"), "tol must be a number >= 0 and < 1, got 'small'"),
    "landscape starts": (lambda: landscape(X, Y, starts=2.5), "starts must be an integer >= 1, got 2.5"),
    "search starts -1": (lambda: Search(starts=-1), "starts must be an integer >= 0, got -1"),
    "search starts 2.5": (lambda: Search(starts=2.5), "starts must be an integer >= 0, got 2.5"),
    "search starts 16.0": (lambda: Search(starts=16.0), "starts must be an integer >= 0, got 16.0"),
    "search starts NaN": (lambda: Search(starts=np.nan), "starts must be an integer >= 0, got nan"),
    "search starts true": (lambda: Search(starts=True), "starts must be an integer >= 0, got True"),
    "search starts, a word": (lambda: Search(starts="many"), "starts must be an integer >= 0, got 'many'"),
    "landscape points": (lambda: landscape(X, Y, points=0), "points must be an integer >= 2, got 0"),
    "max_iter true": (lambda: solve(X, Y, max_iter=True), "max_iter must be an integer >= 1, got True"),
}


@pytest.mark.parametrize("case", COUNTS)
def test_counts(case):
    call, message = COUNTS[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_search_counts_its_starts_in_integers_of_numpy_too():
    few = [solve(X, Y, epsilon=0.1, init=Search(starts=kind(3))).value for kind in (int, np.int64)]
    assert few[0] == few[1]
    assert solve(X, Y, epsilon=0.1, init=Search(starts=0)).converged


def test_barycenters_of_what_is_given():
    assert average(points=np.int64(5)).points.shape == (5, 3)
    shapes = [X, 2 * X]
    again = barycenter((z for z in shapes), **QUICK)
    np.testing.assert_array_equal(again.points, average().points)
    assert barycenter((torch.from_numpy(z) for z in shapes), **QUICK).points.dtype == torch.float64
    assert average(init=Y).points.shape == (9, 2)
    assert average(batch=11).points.shape == (12, 3)
    weights = barycenter(shapes, np.full(2, 1e308), **QUICK)
    np.testing.assert_array_equal(weights.points, average().points)


def clouds(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


BATCHES = {
    "empty": ((clouds(0, 5, 3), clouds(0, 4, 2)), "batches need as many items each.* have 0 of X, 0 of Y"),
    "an empty side": ((clouds(0, 5, 3), clouds(4, 2)), "have 0 of X"),
    "two sizes": ((clouds(2, 5, 3), clouds(3, 4, 2)), "have 2 of X, 3 of Y"),
    "weights of three": ((clouds(2, 5, 3), clouds(2, 4, 2), torch.ones(3, 5)), "have 2 of X, 2 of Y, 3 of a"),
    "weights of one": ((clouds(2, 5, 3), clouds(4, 2), None, torch.ones(1, 4)), "have 2 of X, 1 of b"),
    "four axes": ((clouds(2, 2, 5, 3), clouds(2, 4, 2)), r"X must have shape \(N, d\)"),
}


@pytest.mark.parametrize("case", BATCHES)
def test_batches(case):
    given, message = BATCHES[case]
    with pytest.raises(ValueError, match=message):
        gw_loss(*given, epsilon=0.1)

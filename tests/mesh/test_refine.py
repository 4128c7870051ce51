"""ZoomOut: a blurred map becomes sharp, one that is better than what comes of it is kept, and what
cannot be refined says why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial import KDTree

import gromap
from gromap.datasets import humans
from gromap.mesh import Mesh, match
from gromap.mesh.eigenfunctions import eigenfunctions, refined
from gromap.mesh.refine import _nearest, _Side, refine
from tests.mesh.test_embedding import grid

PAIR = humans()


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("GROMAP_CACHE", "off")


def shuffled(mesh: Mesh, seed: int = 0) -> tuple[Mesh, np.ndarray]:
    """The mesh in another order of vertices, and where each one went."""
    order = np.random.default_rng(seed).permutation(len(mesh.vertices))
    where = np.argsort(order)
    return Mesh(mesh.vertices[order], where[mesh.faces]), where


def error(map_: np.ndarray, target: Mesh, places: np.ndarray) -> float:
    return float(np.linalg.norm(target.vertices[map_] - places, axis=1).mean() / np.sqrt(target.area))


def nearest(mesh: Mesh, places: np.ndarray) -> np.ndarray:
    return np.asarray(KDTree(mesh.vertices).query(places)[1])


def test_a_blurred_map_becomes_sharp_in_both_directions():
    target, where = shuffled(PAIR.target)
    right = where[nearest(PAIR.target, PAIR.direct)]
    rough = target.vertices[right] + 0.05 * np.random.default_rng(1).normal(size=(4000, 3))
    start = nearest(target, rough)
    found = refine(PAIR.source, target, start)
    assert found.maps is not None
    there, back = found.maps
    assert error(there, target, PAIR.direct) < 0.3 * error(start, target, PAIR.direct)
    assert error(there, target, PAIR.direct) < 0.01
    round_trip = np.linalg.norm(PAIR.source.vertices[back[there]] - PAIR.source.vertices, axis=1)
    assert np.median(round_trip) < 0.03  # about an edge
    assert found.near[found.modes] == min(found.near.values()) < 0.5 * found.near[0]


def test_large_meshes_are_refined_on_decimated_ones(monkeypatch):
    """The map of all vertices is as good as without, and not one of the few."""
    target, where = shuffled(PAIR.target)
    right = where[nearest(PAIR.target, PAIR.direct)]
    start = nearest(target, target.vertices[right] + 0.05 * np.random.default_rng(1).normal(size=(4000, 3)))
    monkeypatch.setattr("gromap.mesh.refine.VERTICES", 2000)
    found = refine(PAIR.source, target, start)
    assert found.maps is not None
    there, back = found.maps
    assert error(there, target, PAIR.direct) < 0.01
    assert min(len(np.unique(there)), len(np.unique(back))) > 2500


def test_a_map_that_is_right_is_kept():
    copy, where = shuffled(PAIR.source)
    found = refine(PAIR.source, copy, where)
    assert found.modes == 0
    assert found.maps is None
    assert found.near[0] == pytest.approx(0, abs=1e-4)


def test_near_distances_do_not_praise_a_wrong_map():
    """One that sends all to one place, or anywhere, comes out worse than the right one."""
    right = nearest(PAIR.target, PAIR.direct)
    anywhere = np.random.default_rng(0).permutation(right)
    found = [refine(PAIR.source, PAIR.target, start) for start in (right, np.zeros(4000, int), anywhere)]
    best, point, chance = (z.near[z.modes] for z in found)
    assert min(point, chance) > 3 * best


def test_walks_end_at_the_nearest_vertex_or_next_to_it():
    x, y = (_Side.of(mesh, 50, 0, "cpu") for mesh in (PAIR.source, PAIR.target))
    turn = torch.linalg.qr(torch.randn(50, 50))[0]
    found = _nearest(x.modes, y, y.modes @ turn)
    dense = torch.cdist(x.modes, y.modes @ turn)
    least = dense.min(1).values
    assert (dense.gather(1, found[:, None])[:, 0] < 1.05 * least + 1e-4).float().mean() > 0.9


def test_eigenfunctions_are_those_of_the_laplacian():
    """On a flat rectangle they are products of cosines."""
    mesh = grid(40, 20)
    phi, area = eigenfunctions(mesh, 6)
    assert phi.T @ (area[:, None] * phi) == pytest.approx(np.eye(6), abs=1e-3)
    x, y = (z / z.max() for z in mesh.vertices[:, :2].T)
    for k, wave in enumerate([np.ones(800), np.cos(np.pi * x), np.cos(2 * np.pi * x)]):
        assert abs(phi[:, k] @ (area * wave)) / np.sqrt(area @ wave**2) > 0.98
    assert y.max() == 1


def test_eigenfunctions_come_from_rough_ones():
    mesh = grid(40, 20)
    phi, area = eigenfunctions(mesh, 30)
    rough = np.repeat(phi[::2], 2, axis=0)[:800]
    found = refined(mesh, rough)
    assert found.T @ (area[:, None] * found) == pytest.approx(np.eye(30), abs=1e-4)
    for k in (10, 20):
        off = found[:, :k] - phi @ (phi.T @ (area[:, None] * found[:, :k]))
        assert np.sqrt(area @ off**2).max() < 0.1


def test_vertices_without_faces_follow_their_neighbors():
    loose = replace(
        PAIR.source,
        vertices=np.concatenate([PAIR.source.vertices, PAIR.source.vertices[:3] + np.float32(1e-4)]),
    )
    start = nearest(PAIR.target, PAIR.direct + 0.03)
    found = refine(loose, PAIR.target, np.concatenate([start, start[:3]]))
    assert found.maps is not None
    assert np.array_equal(found.maps[0][4000:], found.maps[0][:3])
    assert found.maps[1].max() < 4000


def test_small_meshes_are_refused():
    small = grid(9, 5)
    with pytest.raises(ValueError, match=r"from 390 vertices.*45 and 45"):
        refine(small, small, np.arange(45))


def test_a_match_of_meshes_is_refined_and_says_so(tmp_path):
    target, _ = shuffled(PAIR.target)
    sol = match(PAIR.source, target, cost="biharmonic")
    assert sol.epsilon == 1e-3
    plan, end = (error(sol.map(how), target, PAIR.direct) for how in ("mean", "auto"))
    assert end < 0.5 * plan
    assert end < 0.015
    assert sol.stats.refined_modes in (50, 100, 150)
    assert sol.stats.seconds["refine"] > 0
    assert "refined         by" in str(sol)
    again = gromap.load(sol.save(tmp_path / "match.safetensors"))
    assert np.array_equal(again.map(), sol.map())
    assert np.array_equal(again.inverse_map(), sol.inverse_map())
    assert np.array_equal(again.map("mean"), sol.map("mean"))
    assert again.stats.near_distortion == sol.stats.near_distortion
    searched = match(PAIR.source, target, cost="biharmonic", refine=False)
    assert searched.refined is None
    assert np.array_equal(searched.map(), sol.map("mean"))
    some = np.array([3999, 5, 5, 0])
    assert np.array_equal(searched.images(some), searched.map()[some])


@pytest.mark.parametrize(
    ("options", "reason"), [({"reach": 0.1}, "a match of parts"), ({}, "two meshes with faces")], ids=["parts", "cloud"]
)
def test_what_is_not_refined_says_why(options, reason):
    rng = np.random.default_rng(0)
    some = rng.choice(4000, 300, replace=False)
    cloud = Mesh(PAIR.source.vertices[some], np.zeros((0, 3), int))
    shapes = (cloud, cloud) if not options else (grid(21, 20), grid(21, 20))
    sol = match(*shapes, cost="euclidean", epsilon=1e-2, **options)
    assert reason in sol.stats.not_refined
    assert sol.refined is None
    assert sol.stats.near_distortion is None

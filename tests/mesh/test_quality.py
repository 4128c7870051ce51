"""Errors, coverage and smoothness of maps that are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

import gromap
from gromap.datasets import humans
from gromap.mesh import Mesh
from gromap.mesh.quality import Orientation, dirichlet, orientation, quality
from tests.conftest import cloud, rotation

PAIR = humans()


def euclidean(mesh: Mesh):
    return lambda sources: cdist(mesh.vertices[sources], mesh.vertices)


def truth(positions: np.ndarray) -> np.ndarray:
    return KDTree(PAIR.target.vertices).query(positions)[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rotated_copy_is_matched_perfectly(dtype):
    mesh = replace(PAIR.source, vertices=PAIR.source.vertices.astype(dtype))
    order = np.random.default_rng(0).permutation(len(mesh.vertices))
    where = np.argsort(order)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    copy = Mesh((mesh.vertices @ turn)[order].astype(dtype), where[mesh.faces])
    q = quality(where, mesh, copy, [where], euclidean(copy))
    assert q.error == 0
    assert q.auc == 1
    assert q.coverage == pytest.approx(1)
    assert q.smoothness == pytest.approx(1, rel=1e-4)


def test_errors_are_distances_over_the_root_of_the_area():
    """Of one vertex that is sent elsewhere, by the definition; twice the size changes nothing."""
    target, n = PAIR.target, len(PAIR.source.vertices)
    right = truth(PAIR.direct)
    match = right.copy()
    match[7] = 123
    for unit in (1.0, 2.0):
        scaled = replace(target, vertices=unit * target.vertices)
        q = quality(match, PAIR.source, scaled, [right], euclidean(scaled), samples=n)
        assert q.errors is not None
        expected = np.linalg.norm(target.vertices[123] - target.vertices[right[7]]) / np.sqrt(target.area)
        assert q.errors.max() == pytest.approx(expected, rel=1e-5)
        assert q.error == pytest.approx(expected / n, rel=1e-5)
        share = q.curve([0, expected * 0.99, expected * 1.01])[1]
        assert share == pytest.approx([1 - 1 / n, 1 - 1 / n, 1])


def test_the_better_truth_counts_for_the_whole_map():
    direct, mirrored = truth(PAIR.direct), truth(PAIR.mirrored)
    both, on = [direct, mirrored], euclidean(PAIR.target)
    for k, match in enumerate(both):
        q = quality(match, PAIR.source, PAIR.target, both, on)
        assert (q.truth, q.error) == (k, 0)
    left = PAIR.source.vertices[:, 0] > 0
    mixed = quality(np.where(left, direct, mirrored), PAIR.source, PAIR.target, both, on)
    assert mixed.error is not None
    assert mixed.error > 0.1


def test_samples_are_seeded_and_estimate_the_mean():
    match, right, on = (
        np.random.default_rng(0).permutation(3900)[truth(PAIR.direct)],
        truth(PAIR.direct),
        euclidean(PAIR.target),
    )
    some, again, other = (
        quality(match, PAIR.source, PAIR.target, [right], on, samples=400, seed=seed).error for seed in (0, 0, 1)
    )
    every = quality(match, PAIR.source, PAIR.target, [right], on, samples=10**6).error
    assert some == again != other
    assert some == pytest.approx(every, rel=0.1)


def test_coverage_and_smoothness_of_extreme_maps():
    n, target = len(PAIR.source.vertices), PAIR.target
    constant = quality(np.full(n, 5), PAIR.source, target)
    assert constant.smoothness == 0
    assert constant.coverage == pytest.approx(target.vertex_areas()[5] / target.area)
    assert constant.error is None
    assert constant.auc is None
    assert "geodesic error" not in str(constant)
    with pytest.raises(ValueError, match="without a truth there are no errors"):
        constant.curve()
    good, rough = (
        quality(m, PAIR.source, target) for m in (truth(PAIR.direct), np.random.default_rng(0).integers(0, 3900, n))
    )
    assert 0.5 < good.smoothness < 3 < 100 < rough.smoothness
    assert good.coverage > 0.6


def test_matches_that_mirror_are_told_from_others():
    x = cloud(90, 3, 0)[0]
    x[:, 1] += 0.5 * x[:, 0] * x[:, 2]
    flip = np.array([1.0, -1.0, 1.0])
    for turned, word in ((x @ rotation(3), "kept"), (x * flip @ rotation(3), "mirrored")):
        turned = turned * np.sign(np.linalg.det(rotation(3)))
        for dtype in (np.float32, np.float64):
            sol = gromap.solve(x.astype(dtype), turned.astype(dtype), epsilon=0.01)
            found = orientation(sol.plan, x, turned)
            assert found is not None
            assert found.word == word
            assert f"{word} ({found.hand:+.2f})" in str(found)
    blurred = gromap.solve(x, x, epsilon=100.0, init="zero").plan
    assert orientation(blurred, x, x @ np.diag([1, 1, 1e-9])) is None  # flat
    assert orientation(blurred, x, x[:, :2]) is None
    assert Orientation(float("nan")).word == Orientation(0.05).word == "unclear"


def test_dirichlet_is_that_of_the_cotangent_laplacian():
    import potpourri3d

    mesh, field = PAIR.source, np.random.default_rng(0).normal(size=(4000, 2))
    laplacian = potpourri3d.cotan_laplacian(mesh.vertices.astype(float), mesh.faces)
    assert dirichlet(mesh, field) == pytest.approx(0.5 * (field * (laplacian @ field)).sum(), rel=1e-4)
    assert dirichlet(mesh, mesh.vertices) == pytest.approx(mesh.area, rel=1e-5)


@pytest.mark.parametrize(
    ("match", "message"),
    [
        (np.zeros(5, int), "match must give each of the 4000 source vertices a target vertex"),
        (np.zeros(4000), "got float64"),
        (np.full(4000, 3900), "match sends a vertex to 3900, and the target has the vertices 0 to 3899"),
        (np.full(4000, -1), "sends a vertex to -1"),
    ],
)
def test_maps_that_are_none(match, message):
    with pytest.raises(ValueError, match=message):
        quality(match, PAIR.source, PAIR.target)


def test_distances_of_another_mesh():
    with pytest.raises(ValueError, match=r"distances must give shape \(1, 3900\), got \(1, 4000\)"):
        quality(np.zeros(4000, int), PAIR.source, PAIR.target, [np.zeros(4000, int)], euclidean(PAIR.source))


def test_geodesics_are_the_default():
    """On a bent strip the way along it counts, not the chord."""
    t = np.linspace(0, np.pi, 40)
    vertices = np.concatenate([np.stack([np.cos(t), np.sin(t), np.full(40, z)], 1) for z in (0.0, 0.1)])
    i = np.arange(39)
    strip = Mesh(vertices, np.concatenate([np.stack([i, i + 1, i + 40], 1), np.stack([i + 1, i + 41, i + 40], 1)]))
    same = np.arange(80)
    q = quality(same[::-1], strip, strip, [same], samples=80)
    assert q.errors is not None
    assert q.errors.max() == pytest.approx(np.hypot(np.pi, 0.1) / np.sqrt(strip.area), rel=0.01)
    assert q.distances == "exact"


def test_heat_distances_where_the_target_is_no_manifold():
    """A grid with a fin on an inner edge: the errors are those of the plane, and the result says
    how they were measured."""
    n = 15
    plane = np.stack([*np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 2, n), indexing="ij"), np.zeros((n, n))], -1)
    i, j = (z.ravel() for z in np.meshgrid(np.arange(n - 1), np.arange(n - 1), indexing="ij"))
    corner = i * n + j
    faces = [np.stack([corner, corner + n, corner + 1], 1), np.stack([corner + n, corner + n + 1, corner + 1], 1)]
    middle = (n // 2) * n + n // 2
    fin = np.array([[middle, middle + 1, n * n]])
    vertices = np.concatenate([plane.reshape(-1, 3), plane[n // 2, n // 2][None] + [0, 0, 0.05]])
    grid, finned = Mesh(vertices[:-1], np.concatenate(faces)), Mesh(vertices, np.concatenate([*faces, fin]))
    match, right = np.random.default_rng(0).permutation(n * n), np.arange(n * n)
    flat = quality(match, grid, grid, [right], samples=60)
    q = quality(match, grid, finned, [right], samples=60)
    assert (flat.distances, q.distances) == ("exact", "heat")
    assert flat.errors is not None
    assert q.errors == pytest.approx(flat.errors, abs=0.1 * flat.errors.max())
    assert q.error == pytest.approx(flat.error, rel=0.05)
    assert "by the heat method" in str(q)
    assert "heat" not in str(flat)
    assert quality(match, grid, finned, [right], euclidean(finned)).distances == "given"
    assert quality(match, grid, finned).distances is None

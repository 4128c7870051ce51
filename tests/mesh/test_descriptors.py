"""Signatures of the points of a surface: closed forms, invariances, and whether points are told
apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial import KDTree

from gromap.datasets import humans
from gromap.mesh import Mesh, descriptors, write_mesh
from gromap.mesh.descriptors import most_modes, pair_of_descriptors
from tests.mesh.test_embedding import grid, two_sheets


def sphere(rounds: int = 4) -> Mesh:
    """An octahedron, whose triangles are cut in four so many times."""
    vertices = np.concatenate([np.eye(3), -np.eye(3)])
    faces = np.array([[0, 1, 2], [1, 3, 2], [3, 4, 2], [4, 0, 2], [1, 0, 5], [3, 1, 5], [4, 3, 5], [0, 4, 5]])
    for _ in range(rounds):
        edges = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
        pairs, index = np.unique(edges, axis=0, return_inverse=True)
        a, b, c = (len(vertices) + index.reshape(-1, 3)).T
        vertices = np.concatenate([vertices, vertices[pairs].mean(1)])
        p, q, r = faces.T
        faces = np.concatenate([np.stack(three, 1) for three in ((p, a, c), (a, q, b), (c, b, r), (a, b, c))])
    return Mesh(vertices / np.linalg.norm(vertices, axis=1, keepdims=True), faces)


@pytest.fixture(scope="module")
def pair():
    return humans()


@pytest.mark.parametrize(("kind", "mean"), [("wks", 0.5), ("hks", 0.0)])
def test_all_points_of_a_sphere_are_alike(kind, mean):
    """Each signature is that of the mean point: 1 / (1 + 1) and log 1; but for the triangles, which
    are not alike, and the highest frequencies, which see them."""
    off = abs(descriptors(sphere(), kind) - mean)
    assert off.shape == (1026, 100)
    assert off[:, :50].max() < 0.02
    assert off.max() < 0.06


@pytest.mark.parametrize("kind", ["wks", "hks"])
def test_pose_size_and_order_do_not_matter(kind):
    mesh = grid(20, 14)
    mesh = replace(mesh, vertices=mesh.vertices + 0.4 * np.sin(mesh.vertices[:, [1, 2, 0]]))
    order = np.random.default_rng(0).permutation(len(mesh.vertices))
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    other = Mesh(30 * (mesh.vertices @ turn)[order] - 5, np.argsort(order)[mesh.faces])
    first, second = descriptors(mesh, kind), descriptors(other, kind)
    assert np.ptp(first, axis=0).max() > 0.3
    assert second == pytest.approx(first[order], abs=1e-4)


@pytest.mark.parametrize("kind", ["wks", "hks"])
def test_true_correspondences_are_nearer_than_others(pair, kind):
    left, right = pair_of_descriptors(pair.source, pair.target, kind)
    truth = KDTree(pair.target.vertices).query(pair.direct)[1]
    gaps = np.linalg.norm(left - right[truth], axis=1)
    shuffled = np.random.default_rng(0).permutation(truth)
    others = np.linalg.norm(left - right[shuffled], axis=1)
    assert np.median(gaps) < 0.1 * np.median(others)
    assert (gaps < others).mean() > 0.97


def test_a_part_looks_like_its_place_in_the_whole_in_one_unit(pair):
    """The upper half of a man, which vibrates by itself at its lowest frequencies."""
    mesh = pair.source
    kept = mesh.vertices[:, 1] > np.median(mesh.vertices[:, 1])
    faces = mesh.faces[kept[mesh.faces].all(1)]
    used = np.unique(faces)
    part = Mesh(mesh.vertices[used], np.searchsorted(used, faces))
    gaps = []
    for one_unit in (True, False):
        mine, whole = pair_of_descriptors(part, mesh, "wks", one_unit)
        gaps.append(np.median(np.linalg.norm(mine - whole[used], axis=1)))
    assert gaps[0] < 0.7 * gaps[1]


def test_normals_turn_with_the_shape():
    mesh = sphere()
    assert descriptors(mesh, "normals") == pytest.approx(mesh.vertices, abs=0.02)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turn *= np.linalg.det(turn)
    other = replace(mesh, vertices=mesh.vertices @ turn)
    assert descriptors(other, "normals") == pytest.approx(descriptors(mesh, "normals") @ turn)


def test_colors_are_taken_as_they_are(tmp_path):
    colors = np.random.default_rng(0).random((108, 3))
    assert np.array_equal(descriptors(replace(grid(), colors=colors), "color"), colors)
    path = write_mesh(replace(grid(), colors=colors), tmp_path / "sheet.ply")
    assert descriptors(path, "color") == pytest.approx(colors, abs=0.01)


def test_pieces_and_vertices_without_faces():
    mesh = two_sheets()
    both = descriptors(mesh, "wks")[:, :60]  # beyond, one of two equal modes is left out
    assert both[:108] == pytest.approx(both[108:], abs=1e-3)
    loose = replace(mesh, vertices=np.concatenate([mesh.vertices, mesh.vertices[[7]] + 0.01]))
    assert np.array_equal(descriptors(loose, "wks")[-1], descriptors(loose, "wks")[7])
    corner = Mesh(np.eye(3), np.array([[0, 1, 2]]))
    assert most_modes(corner) == 1
    for kind in ("wks", "hks"):
        assert np.isfinite(descriptors(corner, kind)).all()


def test_what_there_is_not_is_said():
    with pytest.raises(ValueError, match="kind of descriptors"):
        descriptors(grid(), "shot")
    with pytest.raises(ValueError, match="has no colors to compare: give it some, or use 'wks'"):
        descriptors(grid(), "color")
    cloud = replace(grid(), faces=np.zeros((0, 3), int), name="dots")
    with pytest.raises(ValueError, match="wks are those of a surface, and dots has no faces"):
        descriptors(cloud, "wks")
    with pytest.raises(ValueError, match="modes must be an integer >= 1"):
        descriptors(grid(), "wks", modes=0)
    with pytest.raises(ValueError, match="area must be a finite number > 0"):
        descriptors(grid(), "wks", area=0.0)
    many = Mesh(np.random.default_rng(0).random((306, 3)), np.arange(306).reshape(-1, 3))
    with pytest.raises(ValueError, match="102 separate pieces"):
        descriptors(many, "hks")

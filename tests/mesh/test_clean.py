"""Cleaning reports what it takes away and where the rest was; samples are uniform and know where
they lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gromap.datasets import humans
from gromap.mesh import Mesh, clean, sample
from gromap.mesh.clean import without_folds
from tests.mesh.test_embedding import grid


def dirty(mesh: Mesh) -> Mesh:
    """The mesh with 3 repeated vertices that faces use, 2 lost ones, a flat face, and a face
    said twice."""
    n = len(mesh.vertices)
    middle = mesh.vertices[mesh.faces[5, :2]].mean(0, keepdims=True)
    vertices = np.concatenate([mesh.vertices, mesh.vertices[:3], middle + 9, middle + 8])
    faces = mesh.faces.copy()
    for k in range(3):
        row = np.argmax((faces == k).any(1))
        faces[row, faces[row] == k] = n + k
    extra = np.array([[mesh.faces[7, 0], mesh.faces[7, 1], mesh.faces[7, 0]], np.roll(mesh.faces[9], 1)])
    return replace(mesh, vertices=vertices, faces=np.concatenate([faces, extra]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_too_much_goes_and_is_reported(dtype):
    mesh = humans().source
    mesh = replace(
        mesh, vertices=mesh.vertices.astype(dtype), uv=np.random.default_rng(0).random((len(mesh.faces), 3, 2))
    )
    bad = dirty(replace(mesh, colors=None, uv=None))
    done = clean(bad)
    assert np.array_equal(done.mesh.vertices, mesh.vertices)
    assert np.array_equal(done.mesh.faces, mesh.faces)
    assert np.array_equal(bad.vertices[done.kept], done.mesh.vertices)
    report = done.report
    assert (report.merged, report.unreferenced, report.degenerate, report.repeated) == (3, 2, 1, 1)
    assert (report.components, report.boundary, report.crowded) == (1, 0, 0)
    assert str(report).endswith("1 repeated faces; 1 component, closed")


def test_a_clean_mesh_stays_as_it_is():
    mesh = humans().target
    colored = replace(
        mesh, colors=np.random.default_rng(0).random(mesh.vertices.shape), uv=np.zeros((len(mesh.faces), 3, 2))
    )
    done = clean(colored)
    assert np.array_equal(done.kept, np.arange(len(mesh.vertices)))
    assert np.array_equal(done.mesh.colors, colored.colors)
    assert str(done.report) == "removed nothing; 1 component, closed"


def test_needles_are_flat_in_the_precision_of_the_vertices():
    corners = np.array([[0, 0, 0], [1, 0, 0], [0.5, 1e-9, 0], [0, 1, 0]])
    mesh = Mesh(corners, np.array([[0, 1, 2], [0, 1, 3]]))
    assert clean(mesh).report.degenerate == 0
    assert clean(replace(mesh, vertices=corners.astype("float32"))).report.degenerate == 1


def test_components_and_crowded_edges():
    fin = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1.0], [5, 5, 5], [6, 5, 5], [5, 6, 5]])
    report = clean(Mesh(fin, np.array([[0, 1, 2], [1, 0, 3], [0, 1, 4], [5, 6, 7]]))).report
    assert (report.components, report.crowded, report.boundary) == (2, 1, 9)


def test_of_a_cloud_only_repeated_points_go():
    cloud = Mesh(np.array([[1.0, 2], [3, 4], [1, 2], [0, 0]]), np.zeros((0, 3), int))
    done = clean(cloud)
    assert done.kept.tolist() == [0, 1, 3]
    assert done.report.merged == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_are_uniform_and_know_where_they_lie(dtype):
    """Means over the samples are integrals over the surface, whatever the triangles."""
    mesh = humans().source
    mesh = replace(mesh, vertices=mesh.vertices.astype(dtype))
    drawn = sample(mesh, 20_000, seed=1)
    assert drawn.points.dtype == dtype
    assert drawn.carry(mesh.vertices) == pytest.approx(drawn.points, abs=1e-6)
    assert drawn.weights.min() >= 0
    center = (mesh.face_areas()[:, None] * mesh.vertices[mesh.faces].mean(1)).sum(0) / mesh.area
    assert drawn.points.mean(0) == pytest.approx(center, abs=float(4 * mesh.vertices.std() / 20_000**0.5))
    assert np.array_equal(sample(mesh, 7, seed=1).points, sample(mesh, 7, seed=1).points)
    assert not np.array_equal(sample(mesh, 7, seed=1).points, sample(mesh, 7, seed=2).points)


def test_samples_of_a_cloud_are_its_points():
    cloud = Mesh(np.random.default_rng(0).normal(size=(30, 5)), np.zeros((0, 3), int))
    drawn = sample(cloud, 12)
    assert np.array_equal(drawn.points, cloud.vertices[drawn.corners[:, 0]])
    assert len(np.unique(drawn.corners)) == 12
    with pytest.raises(ValueError, match="the cloud has 30 points, 31 distinct ones cannot be drawn"):
        sample(cloud, 31)
    with pytest.raises(ValueError, match="n >= 1"):
        sample(cloud, 0)
    with pytest.raises(ValueError, match="no face of the mesh has any area"):
        sample(Mesh(np.zeros((3, 3)), np.array([[0, 1, 2]])), 2)


def test_folds_go_and_what_they_hung_on_stays():
    """Two faces with the same corners, turned opposite ways, are a fold; turned one way, a copy."""
    mesh = grid()
    top = mesh.faces[-1]
    tip = len(mesh.vertices)
    folded = Mesh(
        np.concatenate([mesh.vertices, [[20.0, 0, 0]]]),
        np.concatenate([mesh.faces, [[top[0], top[1], tip], [top[1], top[0], tip]], [np.roll(mesh.faces[3], 1)]]),
    )
    clear, kept = without_folds(folded)
    assert np.array_equal(clear.faces, mesh.faces)
    assert np.array_equal(kept, np.arange(tip))  # the tip had no other face
    assert np.array_equal(clear.vertices, mesh.vertices)

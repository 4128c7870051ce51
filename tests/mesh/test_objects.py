"""Meshes of other libraries, in their order; what is no mesh says so."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import gromap
from gromap.datasets import humans
from gromap.mesh import Mesh, MeshError, read_mesh
from tests.conftest import cloud

MAN = humans().source


def trimesh_of(v: np.ndarray, f: np.ndarray):
    return pytest.importorskip("trimesh").Trimesh(v, f, process=False)


def pyvista_of(v: np.ndarray, f: np.ndarray):
    return pytest.importorskip("pyvista").PolyData.from_regular_faces(v, f)


def meshio_of(v: np.ndarray, f: np.ndarray):
    return pytest.importorskip("meshio").Mesh(v, [("line", f[:2, :2]), ("triangle", f)])


def pyfm_of(v: np.ndarray, f: np.ndarray):
    return pytest.importorskip("pyFM.mesh").TriMesh(v, f)


def open3d_of(v: np.ndarray, f: np.ndarray):
    """What it has, as lists: the package is 400 MB."""
    return SimpleNamespace(vertices=v.tolist(), triangles=f.tolist(), vertex_colors=[])


def pair_of(v: np.ndarray, f: np.ndarray):
    return v, f


@pytest.mark.parametrize("made", [trimesh_of, pyvista_of, meshio_of, pyfm_of, open3d_of, pair_of])
def test_vertices_and_faces_keep_their_order(made):
    mesh = read_mesh(made(MAN.vertices, MAN.faces))
    assert isinstance(mesh, Mesh)
    np.testing.assert_allclose(mesh.vertices, MAN.vertices, atol=1e-6)
    np.testing.assert_array_equal(mesh.faces, MAN.faces)


def test_clouds():
    x = cloud(30, 3, 0)[0]
    things = [SimpleNamespace(points=x), pytest.importorskip("trimesh").PointCloud(x)]
    for thing in things:
        mesh = read_mesh(thing)
        np.testing.assert_array_equal(mesh.vertices, x)
        assert mesh.faces.shape == (0, 3)


def test_polygons_and_volumes_of_pyvista():
    pv = pytest.importorskip("pyvista")
    plane = pv.Plane(i_resolution=3, j_resolution=2)
    mesh = read_mesh(plane)
    np.testing.assert_allclose(mesh.vertices, plane.points)
    assert mesh.faces.shape == (12, 3)
    assert mesh.area == pytest.approx(1)
    assert read_mesh(pv.PolyData(cloud(30, 3, 0)[0])).faces.shape == (0, 3)
    with pytest.raises(TypeError, match=r"UnstructuredGrid of pyvista.*extract_surface"):
        read_mesh(plane.cast_to_unstructured_grid())


def test_an_object_is_not_changed():
    mesh = trimesh_of(*cube())
    read_mesh(mesh).vertices[:] = 0
    assert np.abs(mesh.vertices).max() == 1


def cube() -> tuple[np.ndarray, np.ndarray]:
    v = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    f = [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4]]
    return v, np.array([*f, [1, 5, 7], [1, 7, 3]])


def test_spaces_and_matches_take_them():
    v, f = cube()
    thing = SimpleNamespace(vertices=v, triangles=f)
    assert len(gromap.Space.from_mesh(thing, cost="euclidean")) == 8
    assert gromap.mesh.match((v, f), thing, cost="euclidean", refine=False).plan.shape == (8, 8)


def test_what_is_no_mesh_says_so():
    for thing in (3, object(), None, SimpleNamespace(vertices="v", faces="f")):
        with pytest.raises(TypeError, match="an object with vertices and faces, or a pair of arrays"):
            read_mesh(thing)
    with pytest.raises(MeshError, match="face with corner 7, and its vertices are 0 to 2"):
        read_mesh((np.eye(3), np.array([[0, 1, 7]])))


def test_maps_go_to_functional_maps_of_pyfm():
    spectral = pytest.importorskip("pyFM.spectral")
    mesh = pyfm_of(MAN.vertices.astype(float), MAN.faces).process(k=20, intrinsic=False)
    fm = spectral.mesh_p2p_to_FM(np.arange(4000), mesh, mesh, dims=20)  # any p2p_21 of a solution
    np.testing.assert_allclose(fm, np.eye(20), atol=1e-6)

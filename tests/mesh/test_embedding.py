"""Geodesic distances, and the coordinates that stand for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import gromap
from gromap._files import write
from gromap.datasets import humans
from gromap.mesh import Mesh, write_mesh
from gromap.mesh import geodesic as module
from gromap.mesh.cache import cached_embedding
from gromap.mesh.clean import components
from gromap.mesh.embedding import embed_mesh, extend, laplacian
from gromap.mesh.geodesic import distances, is_manifold


def grid(n: int = 12, m: int = 9) -> Mesh:
    """A flat sheet, on which geodesics are straight."""
    x, y = np.meshgrid(np.arange(n, dtype=float), 0.7 * np.arange(m), indexing="ij")
    corner = np.arange(n * m).reshape(n, m)
    p, q, r, s = (z.ravel() for z in (corner[:-1, :-1], corner[1:, :-1], corner[1:, 1:], corner[:-1, 1:]))
    faces = np.concatenate([np.stack([p, q, r], 1), np.stack([p, r, s], 1)])
    return Mesh(np.stack([x.ravel(), y.ravel(), 0 * x.ravel()], 1), faces)


def two_sheets(gap: float = 2.0) -> Mesh:
    one = grid()
    shifted = one.vertices + np.array([11 + gap, 0, 0])
    return Mesh(np.concatenate([one.vertices, shifted]), np.concatenate([one.faces, one.faces + len(one.vertices)]))


def book() -> Mesh:
    """Three pages at one edge."""
    vertices = np.array([[0, 0, 0], [0, 0, 1.0], [1, 0, 0], [-1, 0, 0], [0, 1, 0]])
    return Mesh(vertices, np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4]]))


def test_exact_distances_on_a_flat_sheet_are_straight():
    mesh = grid()
    sources = np.array([0, 17, 50, 107, 3, 9, 11, 60, 70, 80, 90, 100])  # more than one process may share
    expected = np.linalg.norm(mesh.vertices[sources][:, None] - mesh.vertices, axis=-1)
    np.testing.assert_allclose(distances(mesh, sources), expected, atol=1e-9)
    paths = distances(mesh, sources, "paths")
    assert (paths >= expected - 1e-9).all()  # a path is never shorter
    assert np.abs(paths - expected).mean() < 0.02 * expected.mean()
    heat = distances(mesh, sources, "heat")
    assert np.abs(heat - expected).mean() < 0.05 * expected.max()


def test_pieces_are_joined_by_their_shortest_bridge():
    mesh = two_sheets(gap=2.0)
    assert np.bincount(components(mesh)[1]).tolist() == [108, 108]
    d = distances(mesh, [0, 200])
    assert np.isfinite(d).all()
    i, j = 99, 108  # the corners at y = 0 on both sides of the gap
    row = distances(mesh, [i])[0]
    assert row[j] == pytest.approx(2.0)
    assert d[0, 200] == pytest.approx(d[1, 0])  # symmetric
    lonely = Mesh(np.concatenate([mesh.vertices, [[0, 0, 5.0]]]), mesh.faces)
    assert np.bincount(components(lonely)[1]).tolist() == [108, 108, 1]  # a vertex without faces is a component
    assert distances(lonely, [0])[0, -1] == pytest.approx(5.0)


def test_a_crash_in_the_worker_is_an_error_here(monkeypatch, tmp_path):
    broken = tmp_path / "exact.py"
    broken.write_text("import sys; sys.exit('boom')")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "geodesic.py"))
    with pytest.raises(RuntimeError, match="boom"):
        distances(grid(), [0])


@pytest.mark.parametrize(
    ("mesh", "method", "message"),
    [
        (Mesh(np.eye(3), np.zeros((0, 3), int)), "exact", "has none"),
        (book(), "exact", "more than two faces.*use 'paths'"),
        (grid(), "exakt", "did you mean 'exact'"),
    ],
)
def test_what_has_no_geodesics_says_so(mesh, method, message):
    with pytest.raises(ValueError, match=message):
        distances(mesh, [0], method)


def test_the_laplacian_knows_the_areas_and_the_extension_keeps_linear_fields():
    mesh = grid()
    stiff, area = laplacian(mesh)
    assert area.sum() == pytest.approx(mesh.area)
    assert abs(stiff.sum(1)).max() < 1e-9
    shape = humans().source
    anchors = np.random.default_rng(0).choice(4000, 1500, replace=False)
    back = extend(shape, anchors, shape.vertices[anchors].astype(np.float64))
    np.testing.assert_array_equal(back[anchors], shape.vertices[anchors])
    assert np.linalg.norm(back - shape.vertices, axis=1).mean() < 0.01 * np.ptp(shape.vertices, axis=0).max()


@pytest.mark.parametrize(("cost", "way", "off"), [("geodesic", "paths", 0.02), ("exact", "exact", 0.01)])
def test_a_flat_sheet_is_embedded_isometrically(cost, way, off):
    mesh = grid(30, 20)
    made = embed_mesh(mesh, cost, vertices=400, dim=4)
    assert made.distances == way
    assert len(made.anchors) < 480
    assert made.distortion < off
    i, j = np.random.default_rng(0).integers(0, 600, (2, 500))
    i, j = i[i != j], j[i != j]
    true, got = (np.linalg.norm(z[i] - z[j], axis=1) for z in (mesh.vertices, made.points))
    assert np.abs(got / true - 1).mean() < 0.01 + off


def test_a_human_is_embedded_with_small_distortion():
    mesh = humans().source
    made = embed_mesh(mesh, "heat", vertices=600)
    sources = np.random.default_rng(0).choice(4000, 12, replace=False)
    true = distances(mesh, sources)
    got = np.linalg.norm(made.points[sources][:, None] - made.points, axis=-1)
    far = true > 0
    assert (np.abs(got - true)[far] / true[far]).mean() < 0.10
    again = embed_mesh(mesh, "heat", vertices=600)
    np.testing.assert_allclose(again.points, made.points, atol=1e-8)


@pytest.mark.parametrize("method", ["diffusion", "biharmonic"])
def test_spectral_coordinates_do_not_see_a_pose(method):
    flat = grid(20, 6)
    bent = flat.vertices.copy()
    angle = bent[:, 0] / 10
    bent[:, 0], bent[:, 2] = 10 * np.sin(angle), 10 * (1 - np.cos(angle))
    a, b = (embed_mesh(Mesh(v, flat.faces), method, dim=4).points for v in (flat.vertices, bent))
    far = [np.linalg.norm(z[:, None] - z, axis=-1) for z in (a, b)]
    assert np.abs(far[0] - far[1]).max() < 0.05 * far[0].max()


def test_meshes_of_every_kind():
    assert embed_mesh(book(), dim=3).distances == "paths"  # not manifold
    with pytest.raises(ValueError, match=r"cost 'exact' needs edges with at most two faces.*use 'geodesic'"):
        embed_mesh(book(), "exact")
    assert embed_mesh(two_sheets(), vertices=100).pieces == 2
    sheet = grid()
    loose = Mesh(np.concatenate([sheet.vertices, [[3.1, 0.1, 0.2]]]), sheet.faces)  # a vertex without faces
    made = embed_mesh(loose)
    near = np.linalg.norm(sheet.vertices - loose.vertices[-1], axis=1).argmin()
    np.testing.assert_array_equal(made.points[-1], made.points[near])
    soup = Mesh(np.random.default_rng(0).normal(size=(600, 3)), np.arange(600).reshape(200, 3))
    with pytest.raises(ValueError, match="200 separate pieces"):
        embed_mesh(soup)
    with pytest.raises(ValueError, match="no faces"):
        embed_mesh(Mesh(np.eye(3), np.zeros((0, 3), int)))


def test_embeddings_are_kept_and_made_anew_when_the_file_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("GROMAP_CACHE", str(tmp_path))
    calls = []
    first = cached_embedding(grid(), tell=calls.append)
    assert calls
    calls.clear()
    second = cached_embedding(grid(), tell=calls.append)
    assert not calls
    np.testing.assert_array_equal(first.points, second.points)
    next(tmp_path.glob("*.safetensors")).write_bytes(b"damaged")
    cached_embedding(grid(), tell=calls.append)
    assert calls
    cached_embedding(grid(), seed=1)
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    monkeypatch.setenv("GROMAP_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the way")
    cached_embedding(grid())  # a folder that cannot be made is left alone


def test_spaces_of_meshes(tmp_path, monkeypatch):
    monkeypatch.setenv("GROMAP_CACHE", "off")
    mesh = grid()
    space = gromap.Space.from_mesh(mesh, cost="geodesic", dim=10)
    assert space.mesh_embedding is not None
    np.testing.assert_allclose(space.weights, mesh.vertex_areas() / mesh.area, rtol=1e-6)
    path = gromap.mesh.write_mesh(mesh, tmp_path / "sheet.ply")
    assert len(gromap.Space.from_mesh(path, cost="euclidean")) == 108
    cloud = Mesh(mesh.vertices, np.zeros((0, 3), int))
    assert np.ptp(gromap.Space.from_mesh(cloud, cost="euclidean").weights) == 0
    assert gromap.solve(space, gromap.Space.from_mesh(mesh, cost="biharmonic", dim=10), epsilon=1e-2).plan.shape == (
        108,
        108,
    )
    bad = Mesh(np.where(np.arange(108)[:, None] == 5, np.nan, mesh.vertices), mesh.faces)
    with pytest.raises(ValueError, match="NaN or infinite"):
        gromap.Space.from_mesh(bad)


def test_edges_with_three_faces_are_seen():
    assert is_manifold(grid())
    assert not is_manifold(book())


def cache_file(folder) -> Path:
    cached_embedding(grid())
    [path] = folder.iterdir()
    return path


def assert_made_anew(points: np.ndarray) -> None:
    """From whatever is in the cache, the same points come; and then from a whole file."""
    calls: list[str] = []
    assert np.array_equal(cached_embedding(grid()).points, points)
    assert np.array_equal(cached_embedding(grid(), tell=calls.append).points, points)
    assert not calls


def test_a_damaged_cache_is_made_anew(tmp_path, monkeypatch):
    """Any bit of it, and a file that is whole but holds something else."""
    monkeypatch.setenv("GROMAP_CACHE", str(tmp_path))
    path, rng = cache_file(tmp_path), np.random.default_rng(0)
    points, data = cached_embedding(grid()).points, path.read_bytes()
    for at in rng.integers(len(data), size=20):
        flipped = bytearray(data)
        flipped[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        assert_made_anew(points)
    whole = {"points": torch.from_numpy(points.copy()), "anchors": torch.arange(len(points))}
    facts = {"distances": "exact", "distortion": 0.0, "pieces": 1}
    for tensors, more in (
        ({"points": whole["points"][:5]}, {}),
        ({"points": whole["points"].float() * torch.inf}, {}),
        ({"anchors": whole["anchors"] + 7}, {}),
        ({"anchors": whole["anchors"].double()}, {}),
        ({}, {"distances": 7}),
        ({}, {"distortion": "small"}),
        ({}, {"pieces": None}),
    ):
        write(path, "embedding", whole | tensors, facts | more)
        assert_made_anew(points)


def test_a_cache_without_checksums_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("GROMAP_CACHE", str(tmp_path))
    path = cache_file(tmp_path)
    points = cached_embedding(grid()).points
    header = {"format": "gromap-embedding", "version": "1"}
    header["embedding"] = json.dumps({"distances": "exact", "distortion": 0.0, "pieces": 1})
    save_file({"points": torch.zeros(points.shape).double(), "anchors": torch.arange(3)}, path, header)
    assert_made_anew(points)


SHARE = """
import pathlib, sys
from gromap.mesh.cache import cached_embedding
from gromap.mesh.io import read_mesh
mesh, folder = read_mesh(sys.argv[1]), pathlib.Path(sys.argv[2])
for _ in range(10):
    print(cached_embedding(mesh).points.tobytes().hex())
    for path in folder.glob("*.safetensors"):
        path.unlink(missing_ok=True)
"""


def test_processes_share_one_cache(tmp_path):
    """Two that make, read and remove the same file again and again see the same points."""
    write_mesh(grid(4, 3), tmp_path / "mesh.ply")
    (tmp_path / "cache").mkdir()
    command = [sys.executable, "-c", SHARE, str(tmp_path / "mesh.ply"), str(tmp_path / "cache")]
    env = os.environ | {"GROMAP_CACHE": str(tmp_path / "cache")}
    both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    seen = [line for process in both for line in process.communicate()[0].split()]
    assert [process.returncode for process in both] == [0, 0]
    assert len(seen) == 20
    assert len(set(seen)) == 1

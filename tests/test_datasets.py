"""The shipped pair, its truth, its picture, and the demo that shows them."""

import errno
import os
import sys
import tempfile
from importlib.resources import files

import numpy as np
import pytest

from gromap import demo
from gromap.datasets import Pair, humans
from gromap.mesh import Mesh
from gromap.report.figures import color_field, correspondence_figure


@pytest.fixture(scope="module")
def pair() -> Pair:
    return humans()


def edges(mesh: Mesh) -> np.ndarray:
    return np.concatenate([mesh.faces[:, [i, (i + 1) % 3]] for i in range(3)])


def test_vertex_areas_of_a_unit_square():
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])  # integers are fine
    square = Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]]))
    assert square.vertex_areas() == pytest.approx([1 / 3, 1 / 6, 1 / 3, 1 / 6])


def test_a_vertex_without_a_face_has_no_area():
    mesh = Mesh(np.array([[0, 0, 0], [2, 0, 0], [0, 3, 0], [9, 9, 9]], dtype=np.float32), np.array([[0, 1, 2]]))
    assert mesh.vertex_areas() == pytest.approx([1, 1, 1, 0])


@pytest.mark.parametrize("side", ["source", "target"])
def test_meshes_are_whole(pair: Pair, side: str):
    mesh: Mesh = getattr(pair, side)
    n = len(mesh.vertices)
    assert mesh.vertices.dtype == np.float32
    assert np.isfinite(mesh.vertices).all()
    assert np.array_equal(np.unique(mesh.faces), np.arange(n))
    there = {(i, j) for i, j in edges(mesh).tolist()}
    assert len(there) == 3 * len(mesh.faces)
    assert there == {(j, i) for i, j in there}  # closed, all faces turn the same way
    assert n - len(there) // 2 + len(mesh.faces) == 2  # a sphere
    p, q, r = np.moveaxis(mesh.vertices[mesh.faces].astype(float), 1, 0)
    a, b, c = (np.linalg.norm(e, axis=1) for e in (p - q, q - r, r - p))
    s = (a + b + c) / 2
    heron = np.sqrt(s * (s - a) * (s - b) * (s - c)).sum()
    assert mesh.vertex_areas().sum() == pytest.approx(heron)
    assert heron == pytest.approx(1.8, rel=0.02)  # square meters
    assert (p * np.cross(q, r)).sum() / 6 == pytest.approx(0.065, rel=0.05)  # cubic meters; negative if inside out


def test_y_is_up_and_z_to_the_front(pair: Pair):
    points = pair.source.vertices
    assert np.ptp(points, axis=0).argmax() == 1
    low, high = points[:, 1].min(), points[:, 1].max()
    feet, head = points[points[:, 1] < low + 0.1], points[points[:, 1] > high - 0.25]
    assert np.ptp(head[:, 0]) < 0.25 < np.ptp(feet[:, 0])  # one head above two feet
    shins = points[(points[:, 1] > low + 0.2) & (points[:, 1] < low + 0.3)]
    assert feet[:, 2].max() - shins[:, 2].max() > 0.08  # the toes are in front
    assert abs(points[:, 0].mean()) < 0.01  # x is from side to side


def test_the_file_is_small():
    assert (files("gromap") / "data" / "humans.npz").stat().st_size < 2**20  # type: ignore[attr-defined]


def test_vertex_order_gives_nothing_away(pair: Pair):
    n = min(len(pair.source.vertices), len(pair.target.vertices))
    same = np.linalg.norm(pair.target.vertices[:n] - pair.direct[:n], axis=1) < 0.05
    assert same.mean() < 0.05


def test_truth_has_no_error_direct_or_mirrored(pair: Pair):
    assert pair.direct.shape == pair.mirrored.shape == pair.source.vertices.shape
    assert pair.error(pair.direct) == pair.error(pair.mirrored) == 0
    assert pair.errors(pair.direct)[1] > 0.2
    for truth in (pair.direct, pair.mirrored):
        nearest = [int(((pair.target.vertices - point) ** 2).sum(1).argmin()) for point in truth]
        assert pair.error(nearest) < 0.005  # the truth lies on the target


def test_truth_keeps_the_lengths_of_edges(pair: Pair):
    i, j = edges(pair.source).T
    old, direct, mirrored = (
        np.linalg.norm(v[i] - v[j], axis=1) for v in (pair.source.vertices, pair.direct, pair.mirrored)
    )
    for new in (direct, mirrored):
        assert np.quantile(abs(new / old - 1), 0.9) < 0.15


def test_a_map_that_mixes_left_and_right_is_wrong(pair: Pair):
    left = pair.source.vertices[:, :1] > 0
    assert pair.error(np.where(left, pair.direct, pair.mirrored)) > 0.05


@pytest.mark.parametrize(
    "match", [np.zeros(3, int), np.zeros(4000), np.zeros((4000, 2)), np.zeros((3900, 3)), "direct"]
)
def test_a_map_of_another_shape_is_refused(pair: Pair, match):
    with pytest.raises(ValueError, match=r"integers of shape \(4000,\), or a position"):
        pair.error(match)


def test_figure_refuses_colors_of_another_mesh(pair: Pair):
    colors = color_field(pair.source.vertices)
    assert colors.min() >= 0
    assert colors.max() <= 1
    with pytest.raises(ValueError, match=r"the target needs rgb colors of shape \(3900, 3\), got \(4000, 3\)"):
        correspondence_figure(pair.source, pair.target, colors, colors)


def test_demo_writes_a_picture_and_a_page_and_prints_the_result(tmp_path, capsys, monkeypatch):
    from matplotlib.image import imread

    monkeypatch.setenv("GROMAP_CACHE", "off")
    path = tmp_path / "men.png"
    assert demo.main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "gromap.Solution: 4000 x 3900 points" in out
    assert "Converged" in out
    assert float(out.partition("matching error ")[2].partition("%")[0]) < 4
    assert f"wrote {path}\n" in out
    assert "<html" in path.with_suffix(".html").read_text()[:300]
    pixels = imread(path)[..., :3]
    assert pixels.shape[1] > 1500
    painted = pixels.min(2) < 0.95
    assert 0.1 < painted.mean() < 0.6
    assert not painted[:, :20].any()  # nothing is cropped
    assert not painted[:, -20:].any()
    assert len(np.unique((pixels[painted] * 8).astype(int), axis=0)) > 100  # colors


def refused(capsys, *argv: str) -> str:
    assert demo.main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("gromap.demo: ")
    assert error.count("\n") == 1
    return error


def test_demo_refuses_a_missing_folder_and_other_formats(tmp_path, capsys):
    assert "create it" in refused(capsys, str(tmp_path / "nowhere" / "demo.png"))
    assert "must end in .png" in refused(capsys, str(tmp_path / "demo.pdf"))
    assert not any(tmp_path.iterdir())


def test_demo_leaves_what_is_not_a_png_alone(tmp_path, capsys):
    path = tmp_path / "demo.png"
    path.write_text("my notes")
    assert "left alone" in refused(capsys, str(path))
    assert path.read_text() == "my notes"
    (tmp_path / "folder.png").mkdir()
    assert "left alone" in refused(capsys, str(tmp_path / "folder.png"))


def test_demo_refuses_a_read_only_folder(tmp_path, capsys, monkeypatch):
    def refuse(dir):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)  # root may write anywhere
    assert "cannot write in the folder" in refused(capsys, str(tmp_path / "demo.png"))


def test_demo_says_how_to_get_matplotlib(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'gromap[plot]'" in refused(capsys, str(tmp_path / "demo.png"))

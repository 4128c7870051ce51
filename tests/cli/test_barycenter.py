"""`gromap barycenter` on real files: what it writes, what it refuses, and what Ctrl-C keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import gromap
from gromap.cli import main
from gromap.mesh import Mesh, read_mesh, write_mesh
from gromap.mesh.sampling import spread_sample

FAST = ["--points", "30", "--steps", "3", "--epsilon", "0.1", "--aligned"]
NAMES = {"barycenter.ply", "barycenter.png", "report.json"}
BOX = np.array([[0, 2, 1], [1, 2, 3], [4, 5, 6], [5, 7, 6], [0, 1, 4], [1, 5, 4], [2, 6, 3], [3, 6, 7],
                [0, 4, 2], [2, 4, 6], [1, 3, 5], [3, 7, 5]])  # fmt: skip


def box(*sides: float) -> Mesh:
    corners = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij"), -1).reshape(-1, 3)
    return Mesh(corners * np.array(sides), BOX)


@pytest.fixture
def boxes(tmp_path) -> list[str]:
    """Two boxes far from each other and from the origin, and a flat cloud."""
    write_mesh(box(4, 2, 1), tmp_path / "wide.ply")
    tall = box(2, 4, 1)
    write_mesh(Mesh(tall.vertices + np.array([1000, 0, 0]), tall.faces), tmp_path / "tall.obj")
    np.save(tmp_path / "flat.npy", np.random.default_rng(0).random((40, 2)))
    np.save(tmp_path / "deep.npy", np.random.default_rng(0).random((40, 5)))
    return [str(tmp_path / "wide.ply"), str(tmp_path / "tall.obj")]


def refused(capsys, *argv: object) -> str:
    assert main(["barycenter", *(str(word) for word in argv)]) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("gromap: ")]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    assert not out
    return lines[0]


@pytest.fixture
def still(monkeypatch) -> None:
    """A flow that takes no time, for tests of what comes after it."""

    def flow(clouds, weights, **options):
        return gromap.Flow(clouds[0], clouds[0][None], [0], np.array([2.0, 1.0]), gromap.FlowStatus.FINISHED)

    monkeypatch.setattr(gromap, "barycenter", flow)


def test_it_lies_between_the_shapes(boxes, tmp_path, capsys):
    """Between a box and its copy of twice the size, in the place of the heavier one."""
    write_mesh(box(8, 4, 2), tmp_path / "large.ply")
    out = tmp_path / "deep" / "out"
    words = [boxes[0], str(tmp_path / "large.ply"), "--weights", "3,1", "--out", str(out), *FAST]
    assert main(["barycenter", *words, "--steps", "8", "--json"]) == 0
    printed, progress = capsys.readouterr()
    facts = json.loads(printed)
    assert facts == json.loads((out / "report.json").read_text())
    assert {path.name for path in out.iterdir()} == set(facts["files"]) == NAMES
    assert facts["settings"]["weights"] == [0.75, 0.25]
    assert facts["loss"] == min(facts["losses"]) < 0.8 * facts["losses"][0]
    assert "flow: match the shapes for the first time" in progress.splitlines()
    cloud = read_mesh(out / "barycenter.ply")
    assert (cloud.vertices.shape, len(cloud.faces)) == ((30, 3), 0)
    assert cloud.vertices.mean(0) == pytest.approx([2, 1, 0.5], abs=0.3)
    size = lambda z: np.linalg.norm(z - z.mean(0)) / np.sqrt(len(z))  # noqa: E731
    assert 1.1 < size(cloud.vertices) / size(spread_sample(box(4, 2, 1), 30, 0)) < 1.5
    assert (out / "barycenter.png").read_bytes().startswith(b"\x89PNG")


def test_results_are_not_replaced_unless_forced(boxes, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flat = str(tmp_path / "flat.npy")
    assert main(["barycenter", flat, flat, *FAST[:-1], "--points", "12", "--quiet"]) == 0  # by a search
    assert capsys.readouterr() == ("", "")
    out = tmp_path / "flat-flat-barycenter"
    assert {path.name for path in out.iterdir()} == NAMES
    assert not read_mesh(out / "barycenter.ply").vertices[:, 2].any()  # a flat cloud
    before = (out / "barycenter.ply").stat().st_mtime_ns
    assert "already has barycenter.ply, barycenter.png, report.json" in refused(capsys, flat, flat, *FAST)
    assert (out / "barycenter.ply").stat().st_mtime_ns == before
    assert main(["barycenter", flat, *boxes, "--out", str(out), *FAST, "--force"]) == 0
    assert "barycenter of 3 shapes: 30 points" in capsys.readouterr().out
    assert read_mesh(out / "barycenter.ply").vertices[:, 2].any()  # flat and solid ones meet in space


def test_mistakes_get_one_line(boxes, tmp_path, capsys):
    out = tmp_path / "out"

    def with_(*options: object) -> str:
        return refused(capsys, *boxes, "--out", out, *FAST, *options)

    assert "Missing argument 'A B [C ...]'" in refused(capsys)
    assert "a barycenter lies between shapes, and 1 is given: name 2 files or more" in refused(capsys, boxes[0])
    assert "there is no file" in refused(capsys, boxes[0], tmp_path / "no.ply")
    assert "--weights has 3 numbers for 2 shapes, got '1,2,3'" in with_("--weights", "1,2,3")
    assert "--weights must be numbers >= 0" in with_("--weights", "-1,2")
    assert "not all of them 0" in with_("--weights", "0,0")
    assert "--weights must be numbers >= 0" in with_("--weights", "nan,1")
    assert "numbers with commas between, as 0.5,0.5; got 'half,half'" in with_("--weights", "half,half")
    assert "runs along faces, and the points of a barycenter have none: use --cost euclidean" in with_(
        "--cost", "geodesic"
    )
    assert "a barycenter moves freely" in with_("--cost", "spherical")
    assert "one cost for all shapes" in with_("--cost", "euclidean,euclidean")
    assert "unknown --cost 'euclid': use one of euclidean, sqeuclidean, power:NUMBER" in with_("--cost", "euclid")
    assert "epsilon must be a finite number > 0" in with_("--epsilon", "0")
    assert "Invalid value for '--steps'" in with_("--steps", "0")
    assert "unknown device 'gpu'" in with_("--device", "gpu")
    assert "deep has 5 coordinates" in refused(capsys, boxes[0], tmp_path / "deep.npy")
    assert "is a file: choose another folder" in refused(capsys, *boxes, "--out", boxes[0])
    assert not out.exists() or not any(out.iterdir())


def test_a_surface_is_refused_before_the_long_work(boxes, tmp_path, capsys, monkeypatch):
    def never(*args, **options):
        raise AssertionError("the work began")

    monkeypatch.setattr(gromap, "barycenter", never)
    monkeypatch.setitem(sys.modules, "pymeshlab", None)
    assert "pip install 'gromap[poisson]'" in refused(capsys, *boxes, "--out", tmp_path / "out", "--surface")
    monkeypatch.setitem(sys.modules, "pymeshlab", ModuleType("pymeshlab"))
    flat = tmp_path / "flat.npy"
    assert "these shapes are flat: leave it out" in refused(capsys, flat, flat, "--out", tmp_path / "out", "--surface")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("found", [True, False])
@pytest.mark.usefixtures("still")
def test_a_surface_takes_the_place_of_the_points(boxes, tmp_path, capsys, monkeypatch, found):
    """Where there is none, the points stay."""

    def surface(points, depth, neighbors, sides):
        assert sides.shape == points.shape
        if not found:
            raise ValueError(f"no surface goes through these {len(points)} points: take more.")
        return box(1, 1, 1)

    monkeypatch.setitem(sys.modules, "pymeshlab", ModuleType("pymeshlab"))
    monkeypatch.setattr("gromap.cli.barycenter.poisson_surface", surface)
    words, out = [*boxes, "--out", str(tmp_path / "out"), *FAST, "--surface"], tmp_path / "out"
    if found:
        assert main(["barycenter", *words]) == 0
        assert "barycenter of 2 shapes: 8 vertices" in capsys.readouterr().out
    else:
        assert f"take more. The points are kept in {out / 'barycenter.ply'}." in refused(capsys, *words)
    assert len(read_mesh(out / "barycenter.ply").faces) == (12 if found else 0)


@pytest.mark.usefixtures("still")
def test_without_matplotlib_there_is_no_picture(boxes, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out = tmp_path / "out"
    assert main(["barycenter", *boxes, "--out", str(out), *FAST]) == 0
    assert "no picture: this needs matplotlib" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == NAMES - {"barycenter.png"}


def test_numbers_that_overflow(boxes, tmp_path, capsys, monkeypatch):
    flow = gromap.Flow(None, None, [0], np.array([np.nan]), gromap.FlowStatus.NOT_FINITE)
    monkeypatch.setattr(gromap, "barycenter", lambda *args, **options: flow)
    message = refused(capsys, *boxes, "--out", tmp_path / "out", *FAST)
    assert "the flow overflowed after 0 steps at --epsilon 0.1: raise it" in message
    assert not any((tmp_path / "out").iterdir())


def test_points_are_even_on_a_surface():
    """As far apart as on a lattice, whatever the triangles; a cloud keeps its own points."""
    from scipy.spatial import KDTree

    gap = KDTree(spread_sample(box(4, 2, 1), 100, 0)).query(spread_sample(box(4, 2, 1), 100, 0), 2)[0][:, 1]
    assert gap.min() > 0.6 * np.sqrt(28 / 100)
    cloud = np.random.default_rng(0).random((50, 4))
    some = spread_sample(Mesh(cloud, np.zeros((0, 3), int)), 20, 0)
    assert {tuple(z) for z in some} < {tuple(z) for z in cloud}
    assert len(some) == 20


# -- the real entry point
# ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has other signals")
def test_ctrl_c_keeps_the_best_points(boxes, tmp_path):
    words = [*boxes, "--out", "out", "--points", "80", "--steps", "1000", "--epsilon", "2e-2", "--aligned"]
    lines = "import sys, gromap; gromap._progress.LINE_EVERY = 0; from gromap.cli import main; sys.exit(main())"
    command = [sys.executable, "-u", "-c", lines, "barycenter", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stderr
        shown = ""
        for line in process.stderr:
            if "flow: step" in line and "flow: step" not in shown:  # rich repeats a line that is interrupted
                process.send_signal(signal.SIGINT)
            shown += line
        out = process.stdout.read() if process.stdout else ""
        code = process.wait(60)
    assert (code, out) == (130, ""), shown
    assert (
        "gromap: interrupted; kept barycenter.ply, report.json in out: the best points of the" in shown.splitlines()[-1]
    )
    assert "Traceback" not in shown
    folder = Path(tmp_path / "out")
    assert {path.name for path in folder.iterdir()} == NAMES - {"barycenter.png"}
    facts = json.loads((folder / "report.json").read_text())
    assert set(facts["files"]) == {path.name for path in folder.iterdir()}
    assert facts["status"] == gromap.FlowStatus.INTERRUPTED.value
    assert len(read_mesh(folder / "barycenter.ply").vertices) == 80

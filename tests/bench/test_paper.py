"""The paper's experiments at tiny sizes: they run, go on where they stopped, and end in a report
that shows all of it."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gromap import solve
from gromap.bench import curves, figures, paper, plans
from gromap.bench.jobs import Job, keep, keep_all, read
from gromap.bench.settings import FULL, OTHERS, QUICK, SOLVERS, Row
from gromap.bench.tables import curve_table, match_table
from gromap.bench.trajectories import EPS, KINDS, path, spaces
from gromap.cli import main
from gromap.mesh import Mesh

CPU = torch.device("cpu")
TINY = replace(
    QUICK,
    clouds=("tetrahedron-cuboid",),
    points=25,
    inner_steps=(2,),
    fewer_inner_steps=(2,),
    thresholds=(0.5,),
    curve_steps=2,
    match_steps=2,
    rows=(Row("human", 30), Row("dog", 30), Row("human", 10**7, run=False)),
    dims=(5,),
    dim_points=30,
    costs=("|x - x'|²",),
    cost_points=30,
    vertices=100,
    flows=("|x - y|",),
    flow_points=12,
    flow_steps=2,
)


@contextmanager
def stage(name: str):
    yield lambda text: None


def run(out: Path, *only: str) -> dict:
    return paper.run(out, "quick", only, CPU, stage, TINY)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A data folder with flat shapes and one pair: the others are absent."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (folder / "shapes2d").mkdir()
    (folder / "poses").mkdir()
    for name in ("five", "C"):
        np.save(folder / "shapes2d" / f"{name}.npy", rng.random((50, 2)))
    return folder


@pytest.fixture(scope="module", autouse=True)
def _few(data):
    """Fewer solvers than there are: each costs a panel of every figure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GROMAP_DATA", str(data))
        patch.setattr(figures, "FINE", 100)
        patch.setattr(plans, "FLOW_METHODS", {"50 axes": "cnt"})
        patch.setattr(curves, "SOLVERS", {"CNT-GW": SOLVERS["CNT-GW"]})
        patch.setattr(curves, "OTHERS", {"Sampled-GW": OTHERS["Sampled-GW"]})
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, dict]:
    """A whole run."""
    out = tmp_path_factory.mktemp("paper")
    return out, run(out)


def test_every_experiment_leaves_records(made):
    out, facts = made
    counts = {name: len(read(out / "raw" / "quick", name)) for name in paper.EXPERIMENTS}
    assert all(counts.values()), counts
    assert facts["runs"] == sum(counts.values())
    assert set(facts["recorded_seconds"]) == set(paper.EXPERIMENTS)
    assert 0 < sum(facts["recorded_seconds"].values()) <= facts["seconds"]


def test_the_report_shows_every_figure(made):
    out, facts = made
    assert facts["files"] == [str(out / "report.md"), str(out / "report.html")]
    text, page = (Path(path).read_text(encoding="utf-8") for path in facts["files"])
    drawn = {path.name for path in out.glob("*.png")}
    assert {"run_times.png", "textures.png", "flows.png", "others_human.png", "curves_tetrahedron-cuboid.png"} <= drawn
    assert set(re.findall(r"\]\(([^)]+\.png)\)", text)) == drawn
    assert page.count("data:image/png;base64,") == len(drawn)
    assert len(re.findall(r"<h\d>", page)) == len(re.findall(r"^#+ ", text, re.M))
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)
    assert "LowRank-GW, rank 10" in text
    assert "gromap's default" in text


def test_what_does_not_fit_is_predicted(made):
    out, _ = made
    records = read(out / "raw" / "quick", "matches")
    assert any(r.get("runs", 0) > 1 for r in records.values())  # short ones
    rows = match_table(records).rows
    large = dict(zip(rows[0], next(row for row in rows if row[2] == "10,000,000"), strict=True))
    assert large["Entropic-GW"].startswith("Mem. (")
    assert large["CNT-GW"].endswith("GiB)")
    small = dict(zip(rows[0], next(row for row in rows if row[2] == "30"), strict=True))
    assert re.fullmatch(r"\d+\.\d\d? s, 0\.\d{5} \(\de-\d\d\)", small["gromap's default"])


def test_absent_shapes_are_named_once(made):
    out, facts = made
    (line,) = facts["left_out"]
    assert line.startswith("left out, matches of dog: ")
    assert "set GROMAP_DATA" in line
    assert line[1:] in (out / "report.md").read_text(encoding="utf-8")


def test_a_second_run_computes_nothing_and_a_removed_file_comes_back(made, tmp_path):
    out, folder = tmp_path, tmp_path / "raw" / "quick"
    shutil.copytree(made[0] / "raw" / "quick" / "others", folder / "others")
    assert run(out, "others")["runs"] == 0
    lost = next((folder / "others").glob("*LowRank-GW*rank-10*"))
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*/*.json") if path != lost}
    before = json.loads(lost.read_text(encoding="utf-8"))
    lost.unlink()
    assert run(out, "others")["runs"] == 1
    after = json.loads(lost.read_text(encoding="utf-8"))
    assert after["key"] == before["key"]
    assert after["energy"] == pytest.approx(before["energy"], rel=1e-4)
    assert kept == {path: path.stat().st_mtime_ns for path in kept}


def test_an_interrupted_job_leaves_nothing(tmp_path):
    def stop() -> dict:
        raise KeyboardInterrupt

    job = Job("some", "a/b|c'", stop)
    with pytest.raises(KeyboardInterrupt):
        keep(job, tmp_path)
    assert not list(tmp_path.rglob("*.json*"))
    assert keep(replace(job, run=lambda: {"x": 1}), tmp_path)
    assert not keep(job, tmp_path)
    assert read(tmp_path, "some")[("a", "b|c'")]["x"] == 1


def test_an_absent_package_leaves_one_line(tmp_path):
    def need() -> dict:
        raise ImportError("this needs walrus: pip install walrus")

    told = []
    jobs = [Job("some", f"{k}", need) for k in range(3)]
    assert keep_all(jobs, tmp_path, told.append) == (0, ["left out, some of 0: this needs walrus: pip install walrus"])
    assert told == ["1 of 3, 0", "2 of 3, 1", "3 of 3, 2"]


def test_curves_compare_with_the_lowest_settled_energy():
    def record(energy: float, error: float) -> dict:
        return {"energy": [9.0, energy], "marginal_error": [1.0, error]}

    records = {
        ("Kernel-GW", "standard", "10", "0"): record(1.0, 0.5),  # lower, but no coupling
        ("Kernel-GW", "standard", "adaptive", "0"): record(2.0, 1e-3),
        ("Entropic-GW", "standard", "10", "0"): record(3.0, 1e-3),
    }
    rows = curve_table(records).rows
    assert rows[0] == ["solver", "updates", "10", "adaptive"]
    assert rows[1] == ["Entropic-GW", "standard", "1.50 (1e-03)", ""]
    assert rows[2] == ["Kernel-GW", "standard", "0.50 (5e-01)", "1.00 (1e-03)"]


def test_curves_are_averaged_over_seeds_each_against_its_own_lowest():
    def record(energy: float) -> dict:
        return {"energy": [9.0, energy], "marginal_error": [1.0, 1e-3], "seconds": [1.0, 2.0]}

    records = {
        ("Kernel-GW", "standard", b, s): record(e) for b, s, e in [("10", "0", 3.0), ("20", "0", 2.0), ("10", "1", 8.0)]
    }
    table = curve_table(records)
    assert table.rows[1] == ["Kernel-GW", "standard", "1.25 (1e-03)", "1.00 (1e-03)"]
    assert "averages over 2 draws" in table.note
    (axis,) = [a for a in figures.convergence(records, "steps").axes if a.lines]
    assert [line.get_ydata()[-1] for line in axis.lines] == [5.5, 2.0, 5.0]  # both budgets, and the mean of the lowest


def test_a_sixth_power_swings_between_two_plans():
    moved = {job.key: job.run()["moved"] for job in plans.oscillation(TINY, CPU)}
    assert min(moved["6"][1:]) > 1.9  # all of the mass, in every step
    assert moved["2"][-1] < 0.01


def test_few_symmetrized_steps_hold_entropic_gw_back_but_not_kernel_gw():
    x, y = spaces()
    best = solve(x, y, epsilon=EPS, scale="radius", tol=1e-8).gamma[0]
    ends = {kind: np.array(path(*kind, 5))[-10:] for kind in KINDS}
    short = {kind: 1 - end @ best / (best @ best) for kind, end in ends.items()}
    assert np.abs(short["Kernel-GW", "symmetric"]).max() < 0.2
    assert short["Entropic-GW", "symmetric"].min() > 0.25
    assert short["Entropic-GW", "standard"].min() > 1  # on the other side of the origin
    done = path("Kernel-GW", "symmetric", 100)
    np.testing.assert_allclose(done[-1], best, atol=2e-3)


def test_steps_that_are_not_all_there_are_drawn_as_they_are():
    keys = [("Entropic-GW", "standard", "5"), ("Entropic-GW", "standard", "10"), ("Kernel-GW", "symmetric", "5")]
    ground = {
        "x": [[0.0]],
        "y": [[0.0, 1.0]],
        "side": [-0.4, 0.4],
        "energy": [[1.0, 2.0], [3.0, 4.0]],
        "best": [0.1, 0.1],
    }
    records = {("energy",): ground} | {key: {"path": [[0.0, 0.0], [0.1, 0.1]]} for key in keys}
    assert [len(axis.lines) for axis in figures.trajectories(records).axes[1:]] == [3, 2]  # and the star


def test_finer_faces_keep_the_surface():
    mesh = Mesh(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]), np.array([[0, 1, 2], [1, 3, 2]]))
    fine, values = figures.quartered(mesh, mesh.vertices)
    assert len(fine.vertices) == 9
    assert fine.vertex_areas().sum() == pytest.approx(1.0)
    assert (fine.face_normals()[:, 2] > 0).all()
    assert np.array_equal(values, fine.vertices)


def test_drawing_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    assert main(["bench", "paper", "--out", str(tmp_path), "--only", "oscillation"]) == 2
    assert "pip install 'gromap[plot]'" in capsys.readouterr().err
    assert not (tmp_path / "raw").exists()


def test_every_job_has_a_file_of_its_own_with_a_plain_name(tmp_path):
    for sizes in (QUICK, FULL):
        jobs = [job for e in paper.EXPERIMENTS.values() for job in e(sizes, torch.device("cpu"))]
        paths = [job.path(tmp_path) for job in jobs]
        assert len(set(paths)) == len(jobs)
        assert all(re.fullmatch(r"[\w.-]+", path.name, re.ASCII) for path in paths)

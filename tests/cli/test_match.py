"""`gromap match` on real files: what it writes, and what it says."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.spatial import KDTree

import gromap
from gromap.cli import main
from gromap.mesh import read_mesh, write_mesh
from gromap.mesh.transfer import pull_back
from tests.cli.conftest import FAST, facts_of, refused
from tests.mesh.test_outside import mirror_image, solid


def test_match_writes_maps_meshes_and_reports(shapes, tmp_path, capsys):
    out = tmp_path / "deep" / "out"
    assert main(["match", str(shapes / "man.ply"), str(shapes / "runner.obj"), "--out", str(out), *FAST]) == 0
    printed, progress = capsys.readouterr()
    names = {"result.safetensors", "map.txt", "map_21.txt", "source.ply", "target.ply", "report.html", "report.json"}
    assert {path.name for path in out.iterdir()} == names
    sol = gromap.load(out / "result.safetensors")
    n, m = sol.plan.shape
    points = [read_mesh(shapes / name).vertices for name in ("man.ply", "runner.obj")]
    for match, means, there in (
        (sol.map("mean"), sol.pull(points[1]), 1),
        (sol.inverse_map("mean"), sol.push(points[0]), 0),
    ):
        gap = np.linalg.norm(points[there][match] - means, axis=1)
        assert gap == pytest.approx(KDTree(points[there]).query(means)[0], abs=1e-5)  # nearest to the mean of each row
    assert sol.refined is not None
    assert np.array_equal(np.loadtxt(out / "map.txt", int), sol.map())
    assert np.array_equal(np.loadtxt(out / "map_21.txt", int), sol.inverse_map())
    source, target = read_mesh(out / "source.ply"), read_mesh(out / "target.ply")
    assert np.array_equal(source.vertices, read_mesh(shapes / "man.ply").vertices)
    assert source.colors is not None
    assert target.colors == pytest.approx(pull_back(source.colors, target, sol.inverse_map()), abs=0.01)
    assert facts_of(out)["stats"]["near_distortion"] == sol.stats.near_distortion
    assert "refined         by" in printed
    facts = json.loads((out / "report.json").read_text())
    assert facts["points"] == [n, m]
    assert facts["value"] == sol.value
    assert facts["stats"]["minima"] == list(sol.stats.minima)
    assert facts["stats"].get("runner_up") == sol.stats.runner_up
    assert set(facts["files"]) == names
    assert facts["settings"]["cost"] == "euclidean"
    assert "gromap.Solution" in printed
    assert all(stage in progress for stage in ("read the shapes", "embed the shapes", "match", "write the report"))
    areas = read_mesh(shapes / "man.ply").vertex_areas()
    assert sol.plan.a.numpy() == pytest.approx(areas / areas.sum(), rel=1e-4)


def test_results_are_not_replaced_unless_forced(shapes, tmp_path, capsys):
    blurred = [*FAST, "--epsilon", "0.1"]  # two clouds that are not alike: there the search is sure
    args = ["match", str(shapes / "flat.npy"), str(shapes / "deep.csv"), "--out", str(tmp_path), *blurred]
    assert main([*args, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    before = (tmp_path / "result.safetensors").stat().st_mtime_ns
    assert "already has result.safetensors, map.txt" in refused(capsys, *args)
    assert (tmp_path / "result.safetensors").stat().st_mtime_ns == before
    assert main([*args, "--force", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["points"] == [60, 50]
    assert (tmp_path / "result.safetensors").stat().st_mtime_ns != before
    assert read_mesh(tmp_path / "source.ply").vertices[:, 2].tolist() == [0] * 60  # a flat cloud


def test_short_and_british_spellings(shapes, tmp_path, capsys):
    """-o is --out on every command, -q is --quiet, and colours are colors."""
    args = [str(shapes / "flat.npy"), str(shapes / "deep.csv"), "-o", str(tmp_path / "match"), *FAST, "-q"]
    assert main(["match", *args, "--transfer", "colours"]) == 0
    assert capsys.readouterr().out == ""
    assert read_mesh(tmp_path / "match" / "target.ply").colors is not None
    for command in (["match"], ["landscape"], ["pairwise"], ["barycenter"], ["bench", "paper"]):
        assert main([*command, "--help"]) == 0
        said = " ".join(capsys.readouterr().out.split()).replace("-o, --out", "--out, -o")
        assert "--out, -o FOLDER" in said
        assert "--quiet, -q" in said.replace("-q, --quiet", "--quiet, -q")


def test_clouds_above_three_dimensions_are_seen_along_their_widest_axes(shapes, tmp_path):
    deep = str(shapes / "deep.csv")
    assert main(["match", deep, deep, "--out", str(tmp_path), *FAST, "--quiet"]) == 0
    points, shown = read_mesh(deep).vertices, read_mesh(tmp_path / "source.ply").vertices
    widest = np.linalg.eigvalsh(np.cov(points.T))[:-4:-1]
    assert np.cov(shown.T) == pytest.approx(np.diag(widest), abs=1e-5)


def test_texture_goes_into_glb(shapes, tmp_path):
    args = ["match", str(shapes / "man.ply"), str(shapes / "runner.obj"), "--out", str(tmp_path), *FAST, "--quiet"]
    assert main([*args, "--transfer", "texture"]) == 0
    for name in ("source.glb", "target.glb"):
        mesh = read_mesh(tmp_path / name)
        assert mesh.uv is not None
        assert mesh.texture is not None
    assert not (tmp_path / "source.ply").exists()


@pytest.mark.parametrize("kind", ["field", "labels"])
def test_fields_and_labels_are_carried_over(shapes, tmp_path, kind):
    height = read_mesh(shapes / "man.ply").vertices[:, 1]
    values = height if kind == "field" else (height > height.mean()).astype(np.int32)
    np.save(tmp_path / "values.npy", values)
    args = [
        "match",
        str(shapes / "man.ply"),
        str(shapes / "runner.obj"),
        "--out",
        str(tmp_path / "out"),
        *FAST,
        "--quiet",
    ]
    assert main([*args, "--transfer", str(tmp_path / "values.npy")]) == 0
    carried = np.load(tmp_path / "out" / "field_target.npy")
    above = read_mesh(shapes / "runner.obj").vertices[:, 1]
    assert np.corrcoef(carried, above)[0, 1] > (0.7 if kind == "field" else 0.5)
    assert (set(np.unique(carried)) <= {0, 1}) == (kind == "labels")


def test_landmarks_choose_the_side(shapes, tmp_path):
    """Four pairs of the direct truth, or of the mirrored one: the match follows."""
    vertices = read_mesh(shapes / "man.ply").vertices
    ends = [
        int(z)
        for z in (vertices @ np.array([[1, 0, 0], [-1, 0, 0], [0.3, -1, 0], [-0.3, -1, 0], [0, 1, 0]]).T).argmax(0)
    ]
    truths = {name: np.loadtxt(shapes / f"{name}.txt", int) for name in ("direct", "mirrored")}
    target = read_mesh(shapes / "runner.obj").vertices
    for name, truth in truths.items():
        (tmp_path / "pairs.txt").write_text("# hands, feet, head\n" + "\n".join(f"{i}, {truth[i]}" for i in ends))
        args = ["match", str(shapes / "man.ply"), str(shapes / "runner.obj"), "--out", str(tmp_path / name), "--quiet"]
        assert (
            main([*args, "--cost", "power:0.5", "--epsilon", "1e-2", "--landmarks", str(tmp_path / "pairs.txt")]) == 0
        )
        match = np.loadtxt(tmp_path / name / "map.txt", int)
        side = {"direct": "kept", "mirrored": "mirrored"}[name]
        assert json.loads((tmp_path / name / "report.json").read_text())["left_and_right"]["word"] == side
        error = {k: np.linalg.norm(target[match] - target[t], axis=1).mean() for k, t in truths.items()}
        assert min(error, key=error.get) == name  # type: ignore[arg-type]


def test_chirality_keeps_left_and_right(shapes, tmp_path, capsys):
    pair = [shapes / "man.ply", shapes / "runner.obj"]
    assert main(["match", *map(str, pair), *FAST, "--chirality", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    there = read_mesh(pair[1]).vertices
    found = there[np.loadtxt(tmp_path / "out" / "map.txt", dtype=int)]
    direct, mirrored = (there[np.loadtxt(shapes / f"{name}.txt", dtype=int)] for name in ("direct", "mirrored"))
    assert np.linalg.norm(found - direct, axis=1).mean() < 0.5 * np.linalg.norm(found - mirrored, axis=1).mean()
    flat = shapes / "flat.npy"
    assert "needs points in space, and flat has 2" in refused(capsys, "match", flat, flat, "--chirality")
    (tmp_path / "pairs.txt").write_text("0 0\n")
    assert "give one of them" in refused(capsys, "match", *pair, "--chirality", "--allow-mirror")
    assert "leave out --chirality" in refused(
        capsys, "match", *pair, "--chirality", "--landmarks", tmp_path / "pairs.txt"
    )


def test_mirror_images_are_matched_as_such_where_that_is_allowed(tmp_path, capsys):
    """A solid without symmetries, and its mirror image."""
    one = solid(0.5)
    for name, mesh in (("left", one), ("right", mirror_image(one))):
        write_mesh(mesh, tmp_path / f"{name}.ply")
    words = ["match", str(tmp_path / "left.ply"), str(tmp_path / "right.ply"), "--quiet", "--out"]
    assert main([*words, str(tmp_path / "kept")]) == 0
    note = capsys.readouterr().err
    assert "exchanges left and right" in note
    assert "lower in energy, and was kept beside this one" in note
    facts = facts_of(tmp_path / "kept")
    kept = facts["left_and_right"]
    assert kept["word"] == "kept"
    assert kept["mirrored"] < -0.05
    assert facts["mirrored"]["hand"] < -0.3
    assert "mirrored_map.txt" in facts["files"]
    assert "mirrored_map.txt" in (tmp_path / "kept" / "report.html").read_text(encoding="utf-8")
    beside = np.loadtxt(tmp_path / "kept" / "mirrored_map.txt", int)
    assert gromap.load(tmp_path / "kept" / "mirrored.safetensors").value == facts["mirrored"]["value"]
    assert main([*words, str(tmp_path / "allowed"), "--allow-mirror"]) == 0
    assert "left and right" not in capsys.readouterr().err
    allowed = facts_of(tmp_path / "allowed")["left_and_right"]
    assert (allowed["word"], allowed["mirrored"]) == ("mirrored", None)
    match = np.loadtxt(tmp_path / "allowed" / "map.txt", int)
    other = mirror_image(one).vertices
    assert np.linalg.norm(other[match] - other, axis=1).mean() < 0.1
    assert np.linalg.norm(other[beside] - other, axis=1).mean() < 0.1
    assert not (tmp_path / "allowed" / "mirrored_map.txt").exists()
    assert main([*words, str(tmp_path / "kept"), "--allow-mirror", "--force"]) == 0
    assert not (tmp_path / "kept" / "mirrored_map.txt").exists()  # of the match before


@pytest.mark.parametrize("cost", ["power:0.5", "geodesic"])
def test_truth_is_measured_along_the_surface(shapes, tmp_path, capsys, cost):
    truths = ["--truth", str(shapes / "direct.txt"), "--truth", str(shapes / "mirrored.txt")]
    args = ["match", str(shapes / "man.ply"), str(shapes / "runner.obj"), "--out", str(tmp_path), *truths]
    assert main([*args, "--cost", cost, "--epsilon", "1e-2", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["quality"]
    assert 0 < measured["error"] < 0.2
    assert measured["truth"] in (0, 1)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert f"{100 * measured['error']:.2f} % of √area" in page

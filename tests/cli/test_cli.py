"""The command line on real files: what it writes, what it says, and how it ends."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import KDTree

import gromap
from gromap.cli import main
from gromap.datasets import humans
from gromap.mesh import Mesh, descriptors, read_mesh, recipe, write_mesh
from gromap.mesh.transfer import pull_back
from gromap.report.paint import LEFT_OUT
from tests.mesh.test_outside import mirror_image, solid

FAST = ["--cost", "euclidean", "--epsilon", "1e-2", "--starts", "10"]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory) -> Path:
    """The shipped pair with some 600 vertices, in two formats, and the true maps between them."""
    from fast_simplification import simplify

    folder, pair = tmp_path_factory.mktemp("shapes"), humans()
    small = []
    for mesh, name in ((pair.source, "man.ply"), (pair.target, "runner.obj")):
        vertices, faces = simplify(mesh.vertices, mesh.faces.astype(np.int32), target_reduction=0.85, agg=3)  # manifold
        small.append(Mesh(np.asarray(vertices, np.float32), np.asarray(faces, np.int64)))
        write_mesh(small[-1], folder / name)
    at = KDTree(pair.source.vertices).query(small[0].vertices)[1]
    for name in ("direct", "mirrored"):
        match = KDTree(small[1].vertices).query(getattr(pair, name)[at])[1]
        (folder / f"{name}.txt").write_text("\n".join(map(str, match)))
    rng = np.random.default_rng(0)
    np.save(folder / "flat.npy", rng.normal(size=(60, 2)) * [3, 1])
    along = np.linspace(0, 1, 40)
    np.savetxt(folder / "stick.csv", np.stack([along, 0.1 * along**2], 1), delimiter=",")
    np.savetxt(folder / "deep.csv", rng.normal(size=(50, 5)), delimiter=",")
    return folder


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GROMAP_CACHE", str(tmp_path / "cache"))


def facts_of(out: Path) -> dict:
    return json.loads((out / "report.json").read_text())


def refused(capsys, *argv: object) -> str:
    assert main([str(word) for word in argv]) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("gromap: ") and not line.startswith("gromap: note:")]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    assert not out
    return lines[0]


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
    """-o is --out on every command, and colours are colors."""
    args = [str(shapes / "flat.npy"), str(shapes / "deep.csv"), "-o", str(tmp_path / "match"), *FAST, "--quiet"]
    assert main(["match", *args, "--transfer", "colours"]) == 0
    assert read_mesh(tmp_path / "match" / "target.ply").colors is not None
    for command in (["match"], ["landscape"], ["pairwise"], ["barycenter"], ["bench", "paper"]):
        assert main([*command, "--help"]) == 0
        assert "--out, -o FOLDER" in " ".join(capsys.readouterr().out.split()).replace("-o, --out", "--out, -o")


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


@pytest.fixture(scope="module")
def part(shapes) -> Path:
    """The man without his legs."""
    man = read_mesh(shapes / "man.ply")
    faces = man.faces[(man.vertices[:, 1] > np.median(man.vertices[:, 1]))[man.faces].all(1)]
    used = np.unique(faces)
    return write_mesh(Mesh(man.vertices[used], np.searchsorted(used, faces)), shapes / "torso.ply")


@pytest.mark.parametrize("kind", [["--partial"], ["--reach", "0.2,none"], ["--mass", "0.9"]])
def test_parts_are_matched_as_far_as_they_go(shapes, part, tmp_path, capsys, kind):
    man = shapes / "man.ply"
    args = ["match", str(part), str(man), "--out", str(tmp_path), *FAST, *kind]
    assert main([*args, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads((tmp_path / "report.json").read_text())
    sol = gromap.load(tmp_path / "result.safetensors")
    assert facts["reach"] == {"--partial": [0.1, 0.1], "--reach": [0.2, None], "--mass": None}[kind[0]]
    assert facts["kept"]["target"]["mean"] == pytest.approx(sol.matched(1), abs=1e-5)
    left_out = sol.kept_Y < 0.5
    assert facts["kept"]["target"]["below_half"] == pytest.approx(sol.plan.b.numpy() @ left_out, abs=1e-5)
    assert facts["value_marginals"] == sol.value_marginals
    areas = [read_mesh(path).area for path in (part, man)]
    if kind[0] == "--mass":
        assert facts["mass"] == pytest.approx(0.9)
        assert sol.most == pytest.approx((1 / 0.9, areas[1] / areas[0] / 0.9), rel=1e-4)
        assert facts["settings"]["mass"] == 0.9
    colors = read_mesh(tmp_path / "target.ply").colors
    gray = abs(colors - LEFT_OUT / 255).max(1) < 0.01
    assert np.array_equal(gray, left_out)
    assert left_out.any() == (kind[0] != "--reach")  # none keeps all of B


def test_the_console_says_how_much_is_matched(shapes, part, tmp_path, capsys):
    args = ["match", str(part), str(shapes / "man.ply"), "--out", str(tmp_path / "part"), *FAST, "--partial"]
    assert main(args) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("matched"))
    assert re.fullmatch(r"  matched +[\d.]+ % of X and [\d.]+ % of Y", line)
    whole = ["match", str(shapes / "man.ply"), str(shapes / "runner.obj"), "--out", str(tmp_path / "whole"), *FAST]
    assert main(whole) == 0
    assert "  matched" not in capsys.readouterr().out
    facts = json.loads((tmp_path / "whole" / "report.json").read_text())
    assert (facts["kept"], facts["reach"], facts["mass"], facts["alpha"]) == (None, None, 1.0, 1.0)
    assert not {"reach", "mass", "features", "alpha"} & facts["settings"].keys()


def test_features_by_name_or_from_files(shapes, tmp_path, capsys):
    pair = [shapes / "man.ply", shapes / "runner.obj"]
    for name, path in zip("FG", pair, strict=True):
        np.save(tmp_path / f"{name}.npy", descriptors(path, "wks", modes=50))
    files = f"{tmp_path / 'F.npy'},{tmp_path / 'G.npy'}"
    found = []
    for kind in ("wks", files):
        options = ["--out", str(tmp_path / "out"), *FAST, "--features", kind, "--alpha", "0.8", "--json", "--force"]
        assert main(["match", *map(str, pair), *options]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [facts["alpha"] for facts in found] == [0.8, 0.8]
    assert [facts["settings"]["features"] for facts in found] == ["wks", files]
    assert all(facts["value_features"] > 0 for facts in found)
    assert "describe the shapes" in found[0]["seconds"]


def test_mistakes_about_parts_and_features_get_one_line(shapes, tmp_path, capsys):
    man, runner = shapes / "man.ply", shapes / "runner.obj"

    def with_(*options: object) -> str:
        return refused(capsys, "match", man, runner, "--out", tmp_path / "out", *options)

    np.save(tmp_path / "F.npy", np.zeros((3, 2)))
    assert "--partial is short for --reach 0.1: leave it out, or leave out --mass" in with_("--partial", "--mass", 0.5)
    assert "leave out --reach" in with_("--partial", "--reach", "0.2")
    assert "--reach and --mass both say how much is matched" in with_("--reach", "0.2", "--mass", 0.5)
    assert "none keeps all of a side; got 'far'" in with_("--reach", "far")
    assert "got '1,2,3'" in with_("--reach", "1,2,3")
    assert "reach must be a number >= 0" in with_("--reach", "0.1,-1")
    assert "mass is the share of the lighter side to match" in with_("--mass", 2)
    assert "give --features too" in with_("--alpha", 0.5)
    assert "from 0 to 1, got 2.0" in with_("--alpha", 2, "--features", "wks")
    assert "--features are wks, hks, normals, color, or two .npy files" in with_("--features", "shot")
    assert "there is no file" in with_("--features", "no.npy,no.npy")
    assert "a row for each of the" in with_("--features", f"{tmp_path / 'F.npy'},{tmp_path / 'F.npy'}")
    assert "has no colors to compare" in with_("--features", "color")
    assert "does not choose among matches of parts" in with_("--partial", "--chirality")
    flat = shapes / "flat.npy"
    assert "flat has no faces: pass arrays" in refused(capsys, "match", flat, flat, "--features", "wks")


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


def test_landscape(shapes, tmp_path, capsys):
    args = ["landscape", str(shapes / "stick.csv"), str(shapes / "flat.npy"), "--out", str(tmp_path), "--starts", "10"]
    assert main([*args, "--epsilon", "1e-2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    land = gromap.Landscape.load(tmp_path / "landscape.safetensors")
    assert facts["minima"] == len(land)
    assert facts["energies"] == land.energies.tolist()
    assert {path.name for path in tmp_path.iterdir()} == set(facts["files"])
    assert len(land) > 1
    assert (tmp_path / "landscape.png").read_bytes().startswith(b"\x89PNG")


def test_one_minimum_is_no_landscape(shapes, tmp_path, capsys):
    args = ["landscape", str(shapes / "flat.npy"), str(shapes / "flat.npy"), "--out", str(tmp_path), "--starts", "3"]
    assert main([*args, "--epsilon", "1"]) == 0
    assert "one minimum alone: there is no landscape to draw" in capsys.readouterr().out
    assert not (tmp_path / "landscape.png").exists()
    assert "landscape.png" not in json.loads((tmp_path / "report.json").read_text())["files"]


@pytest.fixture
def clouds(tmp_path) -> Path:
    folder = tmp_path / "clouds"
    folder.mkdir()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3)) * [3, 2, 1]
    for name, points in (("a.npy", x), ("b.npy", x[::-1]), ("c.npy", x * [1, 3, 1])):
        np.save(folder / name, points)
    (folder / "notes.md").write_text("not a shape")
    return folder


def test_pairwise_goes_on_where_it_was(clouds, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    args = ["pairwise", str(clouds), "--out", str(out), "--epsilon", "1e-2"]
    module = import_module("gromap.learn.tasks")
    original, solved = module.match_pair, []

    def stopping(*args):
        if len(solved) == 3:
            raise KeyboardInterrupt
        solved.append(args[:2])
        return original(*args)

    monkeypatch.setattr(module, "match_pair", stopping)
    assert main(args) == 130
    assert "gromap: interrupted; what was finished is kept." in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["pairwise.safetensors"]
    solved.clear()
    assert main([*args, "--quiet"]) == 0
    assert len(solved) == 3  # of 6
    values = np.load(out / "values.npy")
    with (out / "distances.csv").open() as file:
        table = list(csv.reader(file))
    assert table[0] == ["", "a.npy", "b.npy", "c.npy"]
    distances = np.load(out / "distances.npy")
    assert np.array([row[1:] for row in table[1:]], float) == pytest.approx(distances)
    assert distances == pytest.approx(np.sqrt(values.clip(min=0)))
    assert abs(values[0, 1]) < 1e-3 * values[0, 2]
    monkeypatch.setattr(module, "match_pair", original)
    assert "already has distances.npy" in refused(capsys, *args)
    assert main([*args, "--force", "--no-debias", "--quiet"]) == 0
    assert np.load(out / "values.npy")[0, 1] > values[0, 1]
    page = (out / "report.html").read_text("utf-8")
    assert page.count('class="cells"') == 1
    assert "http" not in page.replace("http-equiv", "")


def test_pairwise_names_what_cannot_be_read(clouds, tmp_path, capsys):
    (clouds / "d.ply").write_text("nothing")
    np.save(clouds / "e.npy", np.zeros((1, 3)))
    out = tmp_path / "out"
    assert main(["pairwise", str(clouds), "--out", str(out), "--epsilon", "1e-2"]) == 0
    assert "2 of 5 spaces and 0 pairs of others failed" in capsys.readouterr().err
    values = np.load(out / "values.npy")
    assert np.isnan(values[3:]).all()
    assert np.isfinite(values[:3, :3]).all()
    facts = json.loads((out / "report.json").read_text("utf-8"))
    assert facts["values"][0][3] is None
    assert [line.split(":")[0] for line in facts["failures"]] == ["d.ply", "e.npy"]
    assert "d.ply: " in (out / "report.html").read_text("utf-8")
    for name in ("a", "b"):
        (clouds / f"{name}.npy").unlink()
    assert "d.ply" in refused(capsys, "pairwise", clouds, "-o", tmp_path / "few")


def test_pairwise_nearest(clouds, tmp_path, capsys):
    out = tmp_path / "out"
    args = ["pairwise", str(clouds), "--out", str(out), "--epsilon", "1e-2", "--quiet"]
    assert main([*args, "--nearest", "1"]) == 0
    rows = (out / "neighbors.csv").read_text("utf-8").splitlines()
    assert rows[0] == "shape,rank,neighbor,distance"
    assert [row.split(",")[:3] for row in rows[1:3]] == [["a.npy", "1", "b.npy"], ["b.npy", "1", "a.npy"]]
    assert "Nearest shapes" in (out / "report.html").read_text("utf-8")
    assert not (out / "distances.csv").exists()
    assert "--nearest 3 of 3 shapes: give a number below 3" in refused(capsys, *args, "--nearest", 3, "--force")


def test_view(tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert "there is no" in refused(capsys, "view", tmp_path / "nothing")
    assert "there is no report" in refused(capsys, "view", tmp_path)
    page = tmp_path / "report.html"
    page.write_text("<html>")
    (tmp_path / "result.safetensors").touch()
    for result in (tmp_path, page, tmp_path / "result.safetensors"):
        assert main(["view", str(result), "--no-browser"]) == 0
        assert capsys.readouterr().out.strip() == str(page)
    assert opened == []
    assert main(["view", str(tmp_path)]) == 0
    assert opened == [page.as_uri()]


def test_mistakes_get_one_line(shapes, tmp_path, capsys):
    man, runner, out = shapes / "man.ply", shapes / "runner.obj", tmp_path / "out"

    def with_(*options: object) -> str:
        return refused(capsys, "match", man, runner, "--out", out, *options)

    (tmp_path / "bad.txt").write_text("0 1\n2 x\n")
    (tmp_path / "pairs.txt").write_text("0 1\n99999 2\n")
    (tmp_path / "map.txt").write_text("0\n1\n2\n")
    (tmp_path / "file").write_text("mine")
    np.save(tmp_path / "short.npy", np.zeros(3))
    assert "there is no file" in refused(capsys, "match", tmp_path / "no.ply", runner)
    assert "Missing argument 'B'" in refused(capsys, "match", man)
    assert "No such option: --coast" in refused(capsys, "match", man, runner, "--coast", "x")
    assert "Invalid value for '--epsilon'" in with_("--epsilon", "small")
    assert "epsilon must be a finite number > 0" in with_("--epsilon", "-1", "--cost", "euclidean")
    assert "unknown --cost 'euclid': use one of geodesic, heat" in with_("--cost", "euclid")
    assert "one cost for all 2 shapes, or one for each" in with_("--cost", "a,b,c")
    assert "--cost power:x" in with_("--cost", "power:x")
    assert "a cloud, without faces, and --cost geodesic needs a surface" in refused(
        capsys, "match", man, shapes / "flat.npy", "--cost", "geodesic"
    )
    assert "2 whole numbers per line, counted from 0" in with_(
        "--landmarks", tmp_path / "bad.txt", "--cost", "euclidean"
    )
    assert "out of range" in with_("--landmarks", tmp_path / "pairs.txt", "--cost", "euclidean")
    assert "no file" in with_("--landmarks", tmp_path / "none.txt")
    assert "truth 0 must give each of the" in with_("--truth", tmp_path / "map.txt")
    assert "truth 1 must give" in with_("--truth", shapes / "direct.txt", "--truth", tmp_path / "map.txt")
    assert "give meshes with faces" in refused(
        capsys, "match", man, shapes / "flat.npy", "--truth", tmp_path / "map.txt"
    )
    assert "colors, texture or a .npy file" in with_("--transfer", "smell")
    assert "finite numbers, one for each source vertex" in with_("--transfer", tmp_path / "short.npy")
    assert "no faces to put a texture on" in refused(capsys, "match", man, shapes / "flat.npy", "--transfer", "texture")
    assert "unknown device 'gpu'" in with_("--device", "gpu")
    assert "CUDA devices, and not on device 'meta'" in with_("--device", "meta")
    assert "is a file: choose another folder" in refused(capsys, "match", man, runner, "--out", tmp_path / "file")
    assert "cannot write in the folder" in refused(capsys, "match", man, runner, "--out", tmp_path / "file" / "sub")
    assert "is not a folder" in refused(capsys, "pairwise", man)
    assert "has 0 files that could be read" in refused(capsys, "pairwise", out)
    assert not any(out.iterdir())  # nothing is left behind


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such names")
def test_names_that_are_not_text_are_refused_before_the_long_work(shapes, tmp_path, capsys, monkeypatch):
    man, strange = shapes / "man.ply", os.fsdecode(b"caf\xe9")
    (tmp_path / strange).mkdir()
    for name in ("a.npy", f"{strange}.npy"):
        np.save(tmp_path / strange / name, np.eye(3))
    assert "is not UTF-8, and reports name it" in refused(capsys, "match", man, tmp_path / strange / "a.npy")
    assert "is not UTF-8, and reports name it" in refused(capsys, "match", man, man, "--out", tmp_path / strange)
    monkeypatch.chdir(tmp_path / strange)
    assert "is not UTF-8: choose another one with --out" in refused(capsys, "pairwise", ".")
    assert "is not UTF-8, and reports name it: rename the file" in refused(
        capsys, "pairwise", ".", "-o", tmp_path / "o"
    )


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04" + bytes(60), b"\x93NUMPY\x01\x00", b"0 1e30", b"0\n1 2", b"0 \xff", b""]
)
@pytest.mark.parametrize("name", ["numbers.npy", "numbers.txt"])
def test_broken_files_of_numbers_get_one_line(shapes, tmp_path, capsys, name, content):
    (tmp_path / name).write_bytes(content)
    for option in ["--landmarks", "--truth", *(["--transfer"] if name.endswith("npy") else [])]:
        said = refused(capsys, "match", shapes / "man.ply", shapes / "runner.obj", option, tmp_path / name)
        assert str(tmp_path / name) in said


def test_coordinates_beyond_single_precision_are_refused(tmp_path, capsys):
    np.save(tmp_path / "far.npy", np.eye(4, 3) * 1e200)
    assert "has coordinates up to 1e+200" in refused(capsys, "match", tmp_path / "far.npy", tmp_path / "far.npy")


def test_the_folder_is_checked_before_the_long_work(shapes, tmp_path, capsys, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("the work began")

    monkeypatch.setattr(recipe, "solve", never)
    monkeypatch.setattr(
        "tempfile.TemporaryFile", lambda dir: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    assert "Permission denied" in refused(
        capsys, "match", shapes / "man.ply", shapes / "runner.obj", "--out", tmp_path / "out"
    )


def test_notes_are_one_line_too(shapes, tmp_path, capsys, monkeypatch):
    import warnings

    noisy = lambda *args, **kwargs: warnings.warn("two\nlines", stacklevel=1)  # noqa: E731
    monkeypatch.setattr(recipe, "solve", noisy)
    with pytest.raises(AttributeError):  # a mistake of ours keeps its traceback
        main(["match", str(shapes / "flat.npy"), str(shapes / "deep.csv"), "--out", str(tmp_path / "out")])
    assert "gromap: note: two lines\n" in capsys.readouterr().err


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gromap {gromap.__version__}\n"
    for command in ("match", "landscape", "pairwise", "barycenter", "view", "demo"):
        assert main([command, "--help"]) == 0
        assert f"gromap {command}" in capsys.readouterr().out


def test_demo_is_there(tmp_path, capsys):
    assert main(["demo", str(tmp_path / "demo.pdf")]) == 2
    assert "must end in .png" in capsys.readouterr().err


# -- the real entry point
# ---------------------------------------------------------------------------------------------


def run(*argv: object, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "gromap.cli", *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_entry_point(clouds, tmp_path):
    done = run("match", "no.ply", "nothing.ply")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gromap: there is no file no.ply: check its name.\n"
    done = run("pairwise", clouds, "--out", tmp_path / "out", "--epsilon", "1e-2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 shapes, 3 pairs" in done.stdout


def test_match_from_the_shell(shapes, tmp_path):
    done = run("match", shapes / "man.ply", shapes / "runner.obj", *FAST, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "man-runner" / "report.html").stat().st_size > 10_000


def test_a_missing_package_is_named():
    code = "import sys; sys.modules['typer'] = None; from gromap.cli import main; sys.exit(main(['--help']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("gromap: this needs typer")
    assert "pip install 'gromap[cli]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has other signals")
def test_ctrl_c_ends_with_130(clouds, tmp_path):
    """Interrupted in the middle of a long run; what is finished stays."""
    rng = np.random.default_rng(0)
    for name in "defghijk":
        np.save(clouds / f"{name}.npy", rng.normal(size=(500, 3)))
    command = [
        sys.executable,
        "-m",
        "gromap.cli",
        "pairwise",
        str(clouds),
        "--out",
        str(tmp_path / "out"),
        "--epsilon",
        "1e-3",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    kept = tmp_path / "out" / "pairwise.safetensors"
    for _ in range(600):
        if kept.exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["pairwise.safetensors"]

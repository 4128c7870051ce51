"""`gromap match` of parts, and with features."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import gromap
from gromap.cli import main
from gromap.mesh import Mesh, descriptors, read_mesh, write_mesh
from gromap.report.paint import LEFT_OUT
from tests.cli.conftest import FAST, refused


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

"""`gromap landscape` and `gromap pairwise`."""

from __future__ import annotations

import csv
import json
from importlib import import_module

import numpy as np
import pytest

import gromap
from gromap.cli import main
from tests.cli.conftest import refused


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

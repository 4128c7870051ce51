"""Shapes in files, and what commands say of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import KDTree

from gromap.cli import main
from gromap.datasets import humans
from gromap.mesh import Mesh, write_mesh

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

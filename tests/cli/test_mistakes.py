"""Mistakes get one line on stderr and exit code 2, before the long work."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from gromap.cli import main
from gromap.mesh import recipe
from tests.cli.conftest import refused


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

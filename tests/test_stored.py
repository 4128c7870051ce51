"""Result files that were edited, damaged, cut off or written on a full disk."""

from __future__ import annotations

import json
import resource
import signal
import sys
from dataclasses import fields
from pathlib import Path
from subprocess import run

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import gromap
from gromap._files import _checksum, write
from gromap._stats import EXAMPLES, Stats

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(14, 3)), RNG.normal(size=(11, 2))


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, Path]:
    """A file of each kind."""
    folder = tmp_path_factory.mktemp("results")
    return {
        "solution": gromap.solve(X, Y, epsilon=0.05).save(folder / "solution"),
        "landscape": gromap.landscape(X, Y, starts=6, epsilon=0.05).save(folder / "landscape"),
    }


READ = {"solution": gromap.load, "landscape": gromap.Landscape.load}


def opened(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as stored:
        return {name: stored.get_tensor(name).clone() for name in stored.keys()}, stored.metadata()  # noqa: SIM118


def edited(path: Path, new: Path, kind: str, tensors: dict, facts: dict) -> Path:
    """With a checksum that fits, so that only what is said in it can be wrong."""
    old, header = opened(path)
    return write(new, kind, old | tensors, json.loads(header[kind]) | facts)


@pytest.mark.parametrize("kind", READ)
def test_a_flipped_bit_is_noticed(results, tmp_path, kind):
    data, bad = results[kind].read_bytes(), tmp_path / "bad"
    for at in RNG.integers(len(data), size=60):
        flipped = bytearray(data)
        flipped[at] ^= 1 << int(RNG.integers(8))
        bad.write_bytes(flipped)
        try:
            again = READ[kind](bad)
        except ValueError as error:
            assert str(error).startswith(f"{bad} ")  # noqa: PT017
        else:  # in the name of the checksum itself: the file counts as an older one
            assert repr(again) == repr(READ[kind](results[kind]))


@pytest.mark.parametrize("kind", READ)
def test_files_without_a_checksum_are_older(results, tmp_path, kind):
    tensors, header = opened(results[kind])
    assert header.pop("checksum") == _checksum(tensors, header[kind])
    save_file(tensors, tmp_path / "old", header)
    assert repr(READ[kind](tmp_path / "old")) == repr(READ[kind](results[kind]))


def test_a_solution_does_not_change_with_its_file(results, tmp_path):
    path = tmp_path / "solution"
    path.write_bytes(results["solution"].read_bytes())
    sol = gromap.load(path)
    before = sol.plan.dense()
    path.write_bytes(bytes(path.stat().st_size))  # in place, as `cp` does
    assert np.array_equal(sol.plan.dense(), before)


WRONG_FACTS = [
    ("solution", {"value": "low"}, "its value is 'low', expected a finite number"),
    ("solution", {"value_gw": float("nan")}, "its value_gw is nan"),
    ("solution", {"value": None}, "its value is None"),
    ("solution", {"epsilon": -1.0}, "its epsilon is -1.0, expected a number > 0"),
    ("solution", {"epsilon": True}, "its epsilon is True"),
    ("solution", {"scale": [1.0]}, "its scale is .*expected two numbers > 0"),
    ("solution", {"scale": 3}, "its scale is 3"),
    ("solution", {"scale": "\n"}, r"its scale is '\\n'"),  # in one line
    ("solution", {"status": "GREAT"}, "its status is 'GREAT', expected one of CONVERGED"),
    ("solution", {"status": ["CONVERGED"]}, "its status is .* expected a word"),
    ("solution", {"numpy": "yes"}, "its numpy is 'yes', expected true or false"),
    ("solution", {"stats": 4}, "its stats is 4, expected a table"),
    ("solution", {"stats": {"seconds": [1]}}, "its stats have seconds"),
    ("solution", {"stats": {"explained": [1.0]}}, "its stats have explained"),
    ("solution", {"stats": {"minima": ["a"]}}, "its stats have minima"),
    ("solution", {"stats": {"levels": 3}}, "its stats have levels"),
    ("landscape", {"eps": 0.0}, "its eps is 0.0, expected a number > 0"),
    ("landscape", {"eps": float("inf")}, "its eps is inf"),
    ("landscape", {"starts": -2}, "its starts is -2"),
    ("landscape", {"continuous": 1}, "its continuous is 1"),
]


@pytest.mark.parametrize(("kind", "facts", "message"), WRONG_FACTS)
def test_edited_facts_are_named(results, tmp_path, kind, facts, message):
    with pytest.raises(ValueError, match=f"truncated or corrupted .{message}"):
        READ[kind](edited(results[kind], tmp_path / "bad", kind, {}, facts))


WRONG_TENSORS = [
    ("solution", {"u": torch.full((14,), float("nan")).double()}, "its u has NaN"),
    ("solution", {"v": torch.full((11,), float("inf")).double()}, "its v has NaN or infinite"),
    ("solution", {"a": -torch.ones(14).double()}, "its a has values below 0"),
    ("solution", {"b": torch.ones(12).double()}, "its b is .* expected floats of shape"),
    ("solution", {"q": torch.ones(14, 3).double()}, "its k is .* expected floats of shape"),
    ("solution", {"q": torch.ones(14).double()}, "its q is .* of shape"),
    ("solution", {"u": torch.zeros(14)}, "its plan is in several precisions"),
    ("solution", {"f": torch.zeros(3).double()}, "its f is .* of shape"),
    ("solution", {"gamma": torch.zeros(3).double()}, "its gamma is .* of shape"),
    ("solution", {"side_y": torch.zeros(3, 2).double()}, "its side_y is .* expected 11 points"),
    ("solution", {"history.energy": torch.zeros(3, 2)}, "its history.energy is .* expected a row of numbers"),
    ("landscape", {"gamma": torch.zeros(1, 2).double()}, "its gamma is .* of shape"),
    ("landscape", {"count": torch.zeros(1).double()}, "its count is .* of shape|no minima"),
    ("landscape", {"x": torch.full((14, 3), float("nan"))}, "its x is .* of shape|its x has NaN"),
]


@pytest.mark.parametrize(("kind", "tensors", "message"), WRONG_TENSORS)
def test_edited_tensors_are_named(results, tmp_path, kind, tensors, message):
    with pytest.raises(ValueError, match=f"truncated or corrupted .({message})"):
        READ[kind](edited(results[kind], tmp_path / "bad", kind, tensors, {}))


def test_a_solve_that_overflowed_can_be_read(results, tmp_path):
    """Its numbers are not finite, as its status says."""
    tensors = {"u": torch.full((14,), float("nan")).double()}
    facts = {"status": "NOT_FINITE", "value": float("nan")}
    sol = gromap.load(edited(results["solution"], tmp_path / "overflow", "solution", tensors, facts))
    assert sol.status is gromap.Status.NOT_FINITE
    path = edited(results["solution"], tmp_path / "bad", "solution", {"u": torch.zeros(14, 2).double()}, facts)
    with pytest.raises(ValueError, match="its u is"):
        gromap.load(path)


def test_all_stats_are_checked():
    assert EXAMPLES.keys() == {field.name for field in fields(Stats)}


def test_parts_of_a_pairwise_file_that_was_edited(tmp_path):
    spaces, path = [X, X[:9], X[::-1]], tmp_path / "pairs"
    values = gromap.pairwise(spaces, epsilon=0.1, path=path)
    assert np.array_equal(gromap.pairwise(spaces, epsilon=0.1, path=path), values)
    for tensors in ({"values": torch.zeros(2, 2).double()}, {"values": torch.zeros(3, 3)}, {"settled": torch.zeros(3)}):
        with pytest.raises(ValueError, match=r"truncated or corrupted .its values are"):
            gromap.pairwise(spaces, epsilon=0.1, path=edited(path, tmp_path / "bad", "pairwise", tensors, {}))


def test_two_pairwise_runs_keep_what_the_other_saved(tmp_path):
    """The slower of two saves its first pair after the other has saved them all."""
    spaces, path = [X, X[:9], X[::-1]], tmp_path / "pairs"

    def other_run(event) -> bool:
        gromap.pairwise(spaces, epsilon=0.1, path=path)
        return True

    gromap.pairwise(spaces, epsilon=0.1, path=path, callback=other_run)
    assert not opened(path)[0]["values"].isnan().any()


SAVE = """
import sys, numpy as np, resource, signal, gromap
sol, path = gromap.load(sys.argv[1]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    if path.endswith("ply"):
        gromap.mesh.write_mesh(gromap.mesh.Mesh(np.zeros((1000, 3)), np.zeros((0, 3), int)), path, force=True)
    else:
        sol.save(path)
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits on the size of files")
def test_a_limit_on_the_size_of_files(results, tmp_path):
    """As `ulimit -f` and a full disk: one line, the old file as it was, and no other."""
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN, "Python ignores it, so that writing fails"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    for name in ("sol.safetensors", "mesh.ply"):
        path = tmp_path / name
        path.write_text("mine")
        done = run([sys.executable, "-c", SAVE, str(results["solution"]), str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"cannot write {path} (")
        assert "File too large" in done.stdout
        assert done.stdout.endswith("free some space, or choose another place; the old file is as it was.\n")
        assert path.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"sol.safetensors", "mesh.ply"}

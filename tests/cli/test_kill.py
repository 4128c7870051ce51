"""kill -9 at any moment: no file is half written, and the next run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gromap
from gromap.mesh import read_mesh
from tests.cli.test_interrupt import bent

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")

KILLED = """
import json, os, signal, sys, time
import torch, numpy as np
from gromap.cli import main

torch.set_num_threads(1)
times, words = json.loads(sys.argv[1]), sys.argv[2:]
for seconds in times:
    child = os.fork()
    if child == 0:
        os._exit(main(words))
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    print(os.waitpid(child, 0)[1])
sys.exit(main(words))
"""

WHOLE = {
    ".safetensors": lambda path: path.name.startswith("pairwise") or gromap.load(path),
    ".txt": lambda path: len(np.loadtxt(path, int)),
    ".json": lambda path: json.loads(path.read_text("utf-8")),
    ".html": lambda path: path.read_text("utf-8").rstrip().endswith("</html>"),
    ".md": lambda path: path.read_text("utf-8").endswith("\n"),
    ".csv": lambda path: path.read_text("utf-8").endswith("\n"),
    ".ply": read_mesh,
    ".npy": np.load,
    ".png": lambda path: path.read_bytes().rstrip(b"\0").endswith(b"IEND\xaeB`\x82"),
}


def kill(folder: Path, words: list[str], times: list[float]) -> list[int]:
    """How each of these runs ended; then one that is left alone."""
    env = os.environ | {"GROMAP_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLED, json.dumps(times), *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.splitlines() if line.strip().isdigit()]


def check(folder: Path) -> None:
    """All files are whole but those that the killed runs were writing, which have other names."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            assert WHOLE[path.suffix](path) is not False, f"{path} is not whole"


COMMANDS = {
    "match": (["match", "40.npy", "30.npy", "--epsilon", "1e-2", "--starts", "2", "--force"], "report.json"),
    "pairwise": (["pairwise", ".", "--epsilon", "1e-2", "--force"], "distances.csv"),
    "barycenter": (["barycenter", "40.npy", "30.npy", "--steps", "4", "--epsilon", "0.1", "--force"], "report.json"),
    "bench paper": (["bench", "paper", "--only", "dims"], "report.html"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_kill_9(command, tmp_path):
    bent(tmp_path, 40, 30, 20)
    words, last = COMMANDS[command]
    rng = np.random.default_rng(len(command))
    ends = kill(tmp_path, [*words, "--quiet", "--out", "out"], (rng.random(5) * 1.2).round(3).tolist())
    assert 9 in ends
    check(tmp_path / "out")
    assert (tmp_path / "out" / last).exists()

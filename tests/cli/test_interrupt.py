"""Ctrl-C: what is kept, what is said, and code 130."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import gromap
from gromap.cli import main
from gromap.cli.show import Show
from gromap.mesh import recipe
from gromap.solvers import loop

MAPS = {"result.safetensors", "map.txt", "map_21.txt"}


def bent(folder: Path, *sizes: int) -> list[str]:
    """Clouds of these sizes, as words of the command line."""
    rng, words = np.random.default_rng(0), []
    for n in sizes:
        x = rng.normal(size=(n, 3)) * [4, 2, 1]
        x[:, 1] += 0.1 * x[:, 0] ** 2 * len(words)
        np.save(folder / f"{n}.npy", x)
        words.append(str(folder / f"{n}.npy"))
    return words


@pytest.fixture
def pair(tmp_path) -> list[str]:
    return bent(tmp_path, 90, 80)


def press_at(monkeypatch, stage: str) -> None:
    """Ctrl-C in the second step of the search, or of the steps on all points."""
    real, left = loop.sinkhorn, [2]

    def count(*args):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return real(*args) if stage == "search" else None

    if stage == "search":
        monkeypatch.setattr(loop, "sinkhorn", count)
    else:
        real_stage = Show.stage

        @contextmanager
        def stage(self, name):
            with real_stage(self, name) as tell:
                yield count if name == "match" else tell

        monkeypatch.setattr(Show, "stage", stage)


def said(capsys) -> str:
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if line.startswith("gromap: ")]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


@pytest.mark.parametrize("stage", ["search", "steps"])
def test_match_keeps_the_best_so_far(pair, tmp_path, capsys, monkeypatch, stage):
    out = tmp_path / "out"
    press_at(monkeypatch, stage)
    assert main(["match", *pair, "--out", str(out), "--epsilon", "1e-5", "--starts", "5"]) == 130
    assert said(capsys) == (
        f"gromap: interrupted; kept result.safetensors, map.txt, map_21.txt in {out}: the best match so far, which "
        "is not converged."
    )
    assert {path.name for path in out.iterdir()} == MAPS
    sol = gromap.load(out / "result.safetensors")
    assert sol.status is gromap.Status.INTERRUPTED
    assert sol.plan.shape == (90, 80)
    assert np.isfinite(sol.value)
    assert len(np.loadtxt(out / "map.txt", int)) == 90


def test_match_keeps_the_warm_solution(pair, tmp_path, capsys, monkeypatch):
    """Ctrl-C where the second solve has nothing to show yet."""
    real, sols = recipe.solve, []

    def solve(*args, **options):
        if sols:
            raise KeyboardInterrupt
        sols.append(real(*args, **options))
        return sols[0]

    monkeypatch.setattr(recipe, "solve", solve)
    out = tmp_path / "out"
    assert main(["match", *pair, "--out", str(out), "--epsilon", "1e-4", "--starts", "5"]) == 130
    assert "the best match so far" in said(capsys)
    assert gromap.load(out / "result.safetensors").value == sols[0].value


def test_nothing_to_keep(pair, tmp_path, capsys, monkeypatch):
    """Ctrl-C before the first solve has a state leaves the folder as it was."""

    def solve(*args, **options):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    out.mkdir()
    (out / "map.txt").write_text("mine")
    monkeypatch.setattr(recipe, "solve", solve)
    assert main(["match", *pair, "--out", str(out), "--force"]) == 130
    assert said(capsys) == "gromap: interrupted; what was finished is kept."
    assert [path.name for path in out.iterdir()] == ["map.txt"]
    assert (out / "map.txt").read_text() == "mine"


def test_ctrl_c_in_the_report_keeps_the_match(pair, tmp_path, capsys, monkeypatch):
    """And a report of an earlier run, which tells of another match, goes."""

    def write_report(*args, **options):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    out.mkdir()
    (out / "report.json").write_text("of an earlier run")
    (out / "notes.txt").write_text("mine")
    monkeypatch.setattr("gromap.report.page.write_report", write_report)
    args = ["match", *pair, "--out", str(out), "--epsilon", "1e-2", "--starts", "5", "--force", "--quiet"]
    assert main(args) == 130
    assert said(capsys) == (
        f"gromap: interrupted; kept result.safetensors, map.txt, map_21.txt, source.ply, target.ply in {out}."
    )
    assert {path.name for path in out.iterdir()} == MAPS | {"source.ply", "target.ply", "notes.txt"}
    assert gromap.load(out / "result.safetensors").status is not gromap.Status.INTERRUPTED


# -- the real entry point
# ---------------------------------------------------------------------------------------------


def press(words: list[str], sign: str, folder: Path) -> tuple[int, str]:
    """Run gromap in a terminal and press Ctrl-C when the sign appears in it: the exit code, and
    all that was shown."""
    import pty

    ours, theirs = pty.openpty()
    env = os.environ | {"TERM": "xterm", "COLUMNS": "200", "GROMAP_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "gromap.cli", *words]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env, cwd=folder) as process:
        os.close(theirs)
        shown, pressed, end = "", False, time.monotonic() + 120
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    sent = os.read(ours, 65536)
                except OSError:  # Linux, at the end
                    break
                if not sent:
                    break
                shown += sent.decode(errors="replace")
            if sign in shown and not pressed:
                process.send_signal(signal.SIGINT)
                pressed = True
        else:
            process.kill()
        os.close(ours)
        return process.wait(60), shown


@pytest.mark.skipif(os.name == "nt", reason="Windows has other signals and terminals")
def test_ctrl_c_in_a_terminal(tmp_path):
    """At a temperature that takes many seconds, while the solver takes its steps."""
    words = ["match", *bent(tmp_path, 400, 350), "--out", "out", "--epsilon", "1e-5", "--starts", "0"]
    code, shown = press(words, "match: sharpen, step 1", tmp_path)
    assert code == 130, shown
    assert "gromap: interrupted; kept result.safetensors, map.txt, map_21.txt in out: the best match so far" in shown
    assert "Traceback" not in shown
    assert {path.name for path in (tmp_path / "out").iterdir()} == MAPS
    assert gromap.load(tmp_path / "out" / "result.safetensors").epsilon == 1e-5


PRESS = """
import os, signal, sys

class Press:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press())
import gromap_command
sys.exit(gromap_command.main())
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has other signals")
@pytest.mark.parametrize("module", ["gromap", "torch._C", "scipy.sparse", "typer"])
def test_ctrl_c_while_gromap_is_imported(module):
    done = subprocess.run([sys.executable, "-c", PRESS, module], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "gromap: interrupted.\n")

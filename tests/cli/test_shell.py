"""`gromap` as it is called from a shell: help, the demo, pages, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import gromap
from gromap.cli import main
from tests.cli.conftest import FAST, refused


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

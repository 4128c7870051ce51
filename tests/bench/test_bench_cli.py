"""`gromap bench` and `gromap bench paper`, from the outside."""

from __future__ import annotations

import json

import pytest

from gromap.bench import paper
from gromap.cli import main
from tests.bench.test_paper import TINY


def test_bench_prints_a_table(capsys):
    assert main(["bench", "--sizes", "20", "--sizes", "30", "--epsilon", "1e-2"]) == 0
    out, err = capsys.readouterr()
    machine, names, *rows = out.splitlines()
    assert "cores, torch" in machine
    assert names.split()[:3] == ["n", "total", "s"]
    assert [row.split()[0] for row in rows] == ["20", "30"]
    assert "match 30 points" in err


def test_bench_as_json_and_quiet(capsys):
    assert main(["bench", "--sizes", "40", "--epsilon", "1e-2", "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert facts["matches"][0]["n"] == 40
    assert facts["matches"][0]["seconds"] > 0
    assert facts["machine"]["threads"] >= 1
    assert not err


def test_bench_paper_writes_a_report(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(paper.MODES, "quick", TINY)
    words = ["bench", "paper", "--out", str(tmp_path), "--only", "dims,", "--json", "--quiet"]
    assert main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["runs"], facts["mode"], facts["left_out"]) == (2, "quick", [])
    assert main([word for word in words if word != "--json" and word != "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("0 runs, ")
    assert f"wrote {tmp_path / 'report.html'}" in out
    assert "dims" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bench", "--sizes", "1"], "at least 2, got 1"),
        (["bench", "--device", "toaster"], "unknown device 'toaster'"),
        (["bench", "paper", "--only", "curve"], "did you mean 'curves'?"),
        (["bench", "papers"], "papers"),
    ],
)
def test_mistakes_end_with_one_line(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert not out
    assert "Traceback" not in err

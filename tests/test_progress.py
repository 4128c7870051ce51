"""What is shown while work goes on: a line that is rewritten in a terminal, plain lines now and
then elsewhere."""

from __future__ import annotations

import io
import sys
import time

import pytest

from gromap import Event
from gromap import _progress as module
from gromap._progress import Progress, now_and_then


@pytest.fixture
def clock(monkeypatch):
    """Seconds, which pass as a test says."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_lines_now_and_then(clock):
    lines: list[str] = []
    show = now_and_then(lines.append)
    for second in range(12):
        clock[0] = float(second)
        show(f"second {second}")
    assert lines == ["second 0", "second 5", "second 10"]


def test_a_file_gets_lines(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    show = Progress()
    for step in range(1, 4):
        clock[0] += 4
        show(Event("solve", step, 100, seconds=clock[0], value=0.5))
    show.close()
    lines = sys.stderr.getvalue()
    assert "\r" not in lines
    assert lines.count("\n") == 2
    assert lines.startswith("gromap: step 1 of at most 100, energy 0.5")


def test_a_terminal_gets_one_line(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    show = Progress()
    show("embedding")
    show(Event("solve", 50, 100))
    show.close()
    assert sys.stderr.getvalue().count("\r") == 2
    assert "[##########..........]" in sys.stderr.getvalue()
    assert sys.stderr.getvalue().endswith("\n")


def test_stages_without_a_terminal(clock, capsys):
    pytest.importorskip("rich")
    from gromap.cli.show import Show

    with Show(quiet=False).stage("match") as tell:
        for step in range(1, 5):
            clock[0] += 2
            tell(Event("solve", step, 9))
    lines = capsys.readouterr().err.splitlines()
    assert [line[:13] for line in lines[:2]] == ["match: step 1", "match: step 4"]
    assert lines[2].split()[0] == "match"
    assert len(lines) == 3


def test_a_stage_that_tells_nothing_is_named_when_it_takes_long(monkeypatch, capsys):
    pytest.importorskip("rich")
    from gromap.cli import show

    monkeypatch.setattr(show, "LINE_EVERY", 0.05)
    with show.Show(quiet=False).stage("starts"):
        time.sleep(0.3)
    with show.Show(quiet=False).stage("short"):
        pass
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "starts ..."
    assert [line.split()[0] for line in lines] == ["starts", "starts", "short"]

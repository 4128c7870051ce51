"""At the end of each process: how much was tried."""

from __future__ import annotations

from tests.fuzz.effort import write_tally


def pytest_sessionfinish() -> None:
    write_tally()

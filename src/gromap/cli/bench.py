"""`gromap bench` and `gromap bench paper`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gromap.bench import paper as experiments
from gromap.bench.machine import describe, table
from gromap.bench.match import RUNS, Match, row
from gromap.cli import folder, inputs
from gromap.cli.show import Show

SIZES = {"cpu": (1000, 4000, 10_000), "cuda": (4000, 20_000, 177_000, 1_000_000)}
COLUMNS = ("n", "total s", "embed", "search", "solve", "outer", "inner", "value", "marginal", "peak MiB", "status")


def match(sizes: Sequence[int], epsilon: float, seed: int, device: str, show: Show) -> dict[str, Any]:
    """Whole matches of the shipped pair: the machine, a record for each size, and both as text."""
    where = torch.device(inputs.device(device, 0))
    if any(n < 2 for n in sizes):
        raise ValueError(f"--sizes are points of each cloud, at least 2, got {min(sizes)}: ask for more.")
    facts, records = describe(where), []
    for n in sizes or SIZES[where.type]:
        with show.stage(f"match {n:,} points"):
            records.append(Match("human", n, where, epsilon, seed, RUNS[where.type]).measure())
    rows = [{name: cell for name, cell in row(r).items() if name in COLUMNS} for r in records]
    stopped = [f"{r['n']:,} points: {r['stopped']}" for r in records if "stopped" in r]
    versions = f"torch {facts['torch']}, gromap {facts['gromap']}"
    machine = f"{facts['device']}, {facts['cores']} cores, {versions}, epsilon {epsilon:g}"
    return {
        "machine": facts,
        "epsilon": epsilon,
        "matches": records,
        "text": "\n".join([machine, table(rows), *stopped]),
    }


def paper(out: Path | None, full: bool, only: Sequence[str], device: str, show: Show) -> dict[str, Any]:
    """What was run, how long it took, and where the report is."""
    where = torch.device(inputs.device(device, 0))
    names = [name for words in only for name in words.split(",") if name]
    place = folder.ready(out or Path("paper"), [], force=True)
    facts = experiments.run(place, "full" if full else "quick", names, where, show.stage)
    lines = [*facts["left_out"]]
    recorded = sum(facts["recorded_seconds"].values())
    lines.append(
        f"{facts['runs']} runs, {minutes(facts['seconds'])} in all; the runs on record took {minutes(recorded)}"
    )
    return facts | {"text": "\n".join([*lines, *(f"wrote {path}" for path in facts["files"])])}


def minutes(seconds: float) -> str:
    """A length of time in words.

    >>> minutes(42.0), minutes(605.0)
    ('42 s', '10.1 min')
    """
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"

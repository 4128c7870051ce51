"""The paper's experiments on solvers, reproduced: its table, textures, flows, curves, run times
and errors, as one report.

Each run is kept as one JSON file, raw/<mode>/<experiment>/<key>.json: an interrupted call continues
where it stopped, and a file that is removed is computed again. The report is written at the end,
from these files alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from gromap._check import choice
from gromap._files import replacing
from gromap.bench.curves import curves, others, thresholds
from gromap.bench.jobs import Tell, keep_all, seconds
from gromap.bench.machine import describe
from gromap.bench.matches import dims, matches
from gromap.bench.plans import costs, flows, oscillation, textures
from gromap.bench.report import write
from gromap.bench.settings import FULL, QUICK, Sizes
from gromap.bench.trajectories import trajectories
from gromap.report.figures import require_matplotlib

EACH = (oscillation, trajectories, dims, costs, matches, textures, flows, others, thresholds, curves)
EXPERIMENTS = {e.__name__: e for e in EACH}
MODES = {"quick": QUICK, "full": FULL}
Stage = Callable[[str], AbstractContextManager[Tell]]


def run(
    out: Path, mode: str, only: Sequence[str], device: torch.device, stage: Stage, sizes: Sizes | None = None
) -> dict[str, Any]:
    """Run what is missing, write the report, and return what there is to say: runs, seconds,
    what was left out, the files.

    only: names of experiments, or none for all.  stage: given a name, a context that yields a
    function to report progress to.
    sizes: in place of those of the mode.
    """
    names = [choice(name, EXPERIMENTS, "experiment") for name in only] or list(EXPERIMENTS)
    require_matplotlib()  # before the work, not after it
    begin, folder = time.perf_counter(), out / "raw" / mode
    folder.mkdir(parents=True, exist_ok=True)
    facts = describe(device)
    with replacing(folder / "machine.json") as temporary:
        temporary.write_text(json.dumps(facts), encoding="utf-8")
    count, left_out = 0, []
    for name in names:
        with stage(name) as tell:
            ran, absent = keep_all(EXPERIMENTS[name](sizes or MODES[mode], device), folder, tell)
        count, left_out = count + ran, left_out + absent
    with stage("write the report"):
        paths = write(folder, out, left_out)
    took = time.perf_counter() - begin
    facts = {"mode": mode, "machine": facts, "runs": count, "seconds": took, "recorded_seconds": seconds(folder)}
    return facts | {"left_out": left_out, "files": [str(path) for path in paths]}

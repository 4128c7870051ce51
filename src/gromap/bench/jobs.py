"""Runs kept on disk, each as one JSON file: an interrupted benchmark goes on, and a removed file
is computed again."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gromap._files import replacing

Records = dict[tuple[str, ...], dict[str, Any]]  # by the parts of their keys
Tell = Callable[[str], Any]


@dataclass(frozen=True)
class Job:
    """One run of an experiment; the key names it, in parts with slashes between."""

    experiment: str
    key: str
    run: Callable[[], dict[str, Any]]

    def path(self, folder: Path) -> Path:
        """Its file, under a name that every system takes."""
        plain = self.key.replace("/", "__").replace("²", "2").replace("½", "0.5").replace("σ", "s")
        return folder / self.experiment / (re.sub(r"[^A-Za-z0-9_.-]+", "-", plain) + ".json")


def keep(job: Job, folder: Path) -> bool:
    """Run a job and write its record, unless there is one; returns whether it was run."""
    path = job.path(folder)
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    record = job.run()
    with replacing(path) as temporary:
        text = json.dumps({"key": job.key, "took": time.perf_counter() - begin, **record})
        temporary.write_text(text, encoding="utf-8")
    return True


def keep_all(jobs: Iterable[Job], folder: Path, tell: Tell) -> tuple[int, list[str]]:
    """Run all jobs without a record; returns how many there were, and what was left out for want
    of a file or a package."""
    jobs, ran, absent = list(jobs), 0, {}
    for number, job in enumerate(jobs, 1):
        tell(f"{number} of {len(jobs)}, {job.key}")
        try:
            ran += keep(job, folder)
        except (FileNotFoundError, ImportError) as error:
            absent.setdefault(str(error), job)
    return ran, [f"left out, {job.experiment} of {job.key.split('/')[0]}: {why}" for why, job in absent.items()]


def read(folder: Path, experiment: str) -> Records:
    """All records of an experiment."""
    records = (json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / experiment).glob("*.json")))
    return {tuple(r["key"].split("/")): r for r in records}


def seconds(folder: Path) -> dict[str, float]:
    """How long the runs of each experiment took, whenever they were made."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    return {name: sum(r["took"] for r in read(folder, name).values()) for name in names}

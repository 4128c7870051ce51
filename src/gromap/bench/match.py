"""A whole match, measured: time of each stage, memory, energy, and what the truncation left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import gromap
from gromap.bench.machine import Meter
from gromap.bench.shapes import surface_pair

SIZES = {"cpu": [4000, 20_000], "cuda": [4000, 20_000, 60_000, 177_000, 1_000_000]}
RUNS = {"cpu": 1, "cuda": 2}  # of which the last one counts: the first on a CUDA device compiles
CHECKED = 20_000  # points up to which `Match.measure` can solve again, over all pairs in float64


@dataclass(frozen=True)
class Match:
    """What to match, where and how."""

    shapes: str
    n: int
    device: torch.device
    epsilon: float
    seed: int
    runs: int  # the last one counts

    def measure(self, check: bool = False) -> dict[str, Any]:
        """The record of this match, or why there is none."""
        start = {"shapes": self.shapes, "n": self.n}
        x, y = surface_pair(self.shapes, self.n, self.seed, self.device)
        try:
            for _ in range(self.runs - 1):
                self.solve(x, y)
            solution, seconds, peak = self.solve(x, y)
        except MemoryError as error:
            return start | {"stopped": str(error)}
        record = start | {"seconds": seconds, "peak_bytes": peak} | facts(solution)
        return record | (self.difference(x, y, solution) if check and self.n <= CHECKED else {})

    def solve(self, x: Tensor, y: Tensor, **options: Any) -> tuple[gromap.Solution, float, int]:
        """The solution, its seconds, and its peak of memory in bytes."""
        meter = Meter.start(self.device)
        solution = gromap.solve(x, y, epsilon=self.epsilon, scale="radius", **options)
        return solution, *meter.read()

    def difference(self, x: Tensor, y: Tensor, solution: gromap.Solution) -> dict[str, Any]:
        """The energy of the same minimum over all pairs, in float64, and how far ours is from
        it."""
        method = gromap.CntGW(truncation=None)
        exact, seconds, _ = self.solve(x.double(), y.double(), method=method, init=solution.gamma)
        ours, theirs = (float(s.history["energy"][-1]) for s in (solution, exact))
        found = {"energy": theirs, "value": exact.value, "seconds": seconds, "status": exact.status.name}
        return {"exact": found, "energy_difference": (ours - theirs) / theirs}


def facts(solution: gromap.Solution) -> dict[str, Any]:
    """What a solution says about how it was found."""
    stats, history = solution.stats, solution.history
    return {
        "stages": stats.seconds,
        "levels": list(stats.levels) or [solution.plan.shape[0]],
        "engine": stats.engine,
        "tiles": 1.0 if stats.tiles is None else stats.tiles,
        "neglected_mass": stats.neglected_mass or 0.0,
        "outer": len(history["energy"]),
        "inner": int(history["inner_steps"].sum()),
        "energy": float(history["energy"][-1]),
        "value": solution.value,
        "marginal_error": solution.plan.marginal_error,
        "estimated_bytes": stats.memory,
        "status": solution.status.name,
    }


def row(record: dict[str, Any]) -> dict[str, str]:
    """A record as cells of a table."""
    start = {"shapes": record["shapes"], "n": str(record["n"])}
    if "stopped" in record:
        return start | {"total s": "stopped"}
    cells = start | {"total s": f"{record['seconds']:.2f}"} | {name: f"{s:.2f}" for name, s in record["stages"].items()}
    cells |= {
        "tiles": f"{record['tiles']:.1%}",
        "neglected": f"{record['neglected_mass']:.0e}",
        "outer": str(record["outer"]),
        "inner": str(record["inner"]),
        "energy": f"{record['energy']:.6f}",
        "value": f"{record['value']:.6f}",
        "marginal": f"{record['marginal_error']:.0e}",
        "peak MiB": f"{record['peak_bytes'] / 2**20:.0f}",
        "estimate": f"{record['estimated_bytes'] / 2**20:.0f}",
        "status": record["status"],
    }
    if "energy_difference" in record:
        cells["vs float64"] = f"{record['energy_difference']:+.1e}"
    return cells | {"levels": " ".join(map(str, record["levels"]))}

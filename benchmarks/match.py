"""Whole matches, end to end: time of each stage, memory, energy, and what the truncation left out.

    python benchmarks/match.py --sizes 4000 20000 --shapes human dog
    PYTHONPATH=src python benchmarks/match.py --device cuda --sizes 4000 20000 60000 177000 1000000

Points are drawn uniformly on both surfaces and lie on the device before the clock starts; `gromap.solve` then runs with its
default options, embedding included. On a CUDA device the last of two runs counts, since the first compiles the kernels. Memory
is the growth from the start of the solve to its peak: tensors on a CUDA device, the resident set on a CPU. With --check, up to
20,000 points, the energy is compared with that of a solve over all pairs in float64 which starts from the linear map found, and
which on a CPU takes minutes at such sizes.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from typing import Any

import torch
from machine import Meter, add_options, describe, table, use
from shapes import PAIRS, surface_pair
from torch import Tensor

import gromap

SIZES = {"cpu": [4000, 20_000], "cuda": [4000, 20_000, 60_000, 177_000, 1_000_000]}
RUNS = {"cpu": 1, "cuda": 2}
CHECKED = 20_000  # points up to which --check solves again, over all pairs in float64


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
        print(f"{self.shapes}, {self.n} points ...", file=sys.stderr, flush=True)
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
        solution = gromap.solve(x, y, epsilon=self.epsilon, **options)
        return solution, *meter.read()

    def difference(self, x: Tensor, y: Tensor, solution: gromap.Solution) -> dict[str, Any]:
        """The energy of the same minimum over all pairs, in float64, and how far ours is from it."""
        print("the same in float64, over all pairs ...", file=sys.stderr, flush=True)
        method = gromap.CntGW(truncation=None)
        exact, seconds, _ = self.solve(x.double(), y.double(), method=method, init=solution.gamma)
        ours, theirs = (float(s.history["energy"][-1]) for s in (solution, exact))
        found = {"energy": theirs, "value": exact.value, "seconds": seconds, "status": exact.status.name}
        return {"exact": found, "energy_difference": (ours - theirs) / theirs}


def facts(solution: gromap.Solution) -> dict[str, Any]:
    """What a solution tells of itself."""
    info, history = solution.info, solution.history
    return {
        "stages": info["seconds"],
        "levels": info.get("levels", [solution.plan.shape[0]]),
        "engine": info["engine"],
        "tiles": info.get("tiles", 1.0),
        "neglected_mass": info.get("neglected_mass", 0.0),
        "outer": len(history["energy"]),
        "inner": int(history["inner_steps"].sum()),
        "energy": float(history["energy"][-1]),
        "value": solution.value,
        "marginal_error": solution.plan.marginal_error,
        "estimated_bytes": info["memory"],
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", help="points of each cloud (4000 20000; on CUDA up to 1000000)")
    parser.add_argument("--shapes", nargs="+", choices=PAIRS, default=["human"], help="pairs; human ships with gromap")
    parser.add_argument("--epsilon", type=float, default=1e-3, help="temperature")
    parser.add_argument("--seed", type=int, default=0, help="of the points")
    parser.add_argument("--runs", type=int, help="solves of each match, the last one counts (1, or 2 on CUDA)")
    parser.add_argument("--check", action="store_true", help=f"compare with float64 over all pairs, up to {CHECKED} points")
    add_options(parser)
    args = parser.parse_args()
    device = use(args)
    print(json.dumps(describe(device) | {"epsilon": args.epsilon, "seed": args.seed}), flush=True)
    records = []
    for shapes in args.shapes:
        for n in args.sizes or SIZES[device.type]:
            match = Match(shapes, n, device, args.epsilon, args.seed, args.runs or RUNS[device.type])
            records.append(match.measure(args.check))
            print(json.dumps(records[-1]), flush=True)
    print("\n" + table([row(record) for record in records]))
    for record in records:
        if "stopped" in record:
            print(f"{record['shapes']}, {record['n']} points: {record['stopped']}")


if __name__ == "__main__":
    main()

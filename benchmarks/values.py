"""The values of fixed problems, to compare two versions of the code on one machine.

    git worktree add ../before REVISION
    PYTHONPATH=../before/src python benchmarks/values.py before.json
    PYTHONPATH=src python benchmarks/values.py after.json --against before.json

Every method from three starts on small clouds, and the default on the 13 pairs of shapes (those
beyond the shipped one are read from $GROMAP_DATA); one thread, seed 0. It uses only what versions
have in common, so that an older one can run it too. Times are process seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gromap
from gromap.bench.shapes import PAIRS, surface_pair
from gromap.solvers import METHODS

GEODESIC = ("hips", "vessels", "man53k")  # with distances along the surfaces


def problems(points: int) -> Iterator[tuple[str, Callable[[], gromap.Solution]]]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)) * [3, 2, 1], rng.normal(size=(50, 2)) * [2.5, 1]
    a, b = rng.random(60), rng.random(50)
    for method in METHODS:
        for init in ("auto", "zero", "random"):
            options = {"epsilon": 0.02, "method": method, "init": init}
            yield f"{method}, {init}", lambda o=options: gromap.solve(x, y, a, b, **o)
    for name in PAIRS:
        clouds = surface_pair(name, points, 0, torch.device("cpu"), name in GEODESIC)
        yield name, lambda z=clouds: gromap.solve(*z)


def record(run: Callable[[], gromap.Solution]) -> dict[str, Any]:
    begin = time.process_time()
    sol = run()
    seconds = time.process_time() - begin
    energy = float(sol.history["energy"][-1])
    return {"value": sol.value, "energy": energy, "status": sol.status.name, "seconds": seconds}


def compare(old: dict[str, Any], new: dict[str, Any]) -> None:
    print(f"\n{'problem':<28} {'before':>12} {'after':>12} {'relative':>9} {'seconds':>13}")
    for name, after in new.items():
        before = old[name]
        gap = abs(after["value"] / before["value"] - 1)
        times = f"{before['seconds']:.2f} / {after['seconds']:.2f}"
        print(f"{name:<28} {before['value']:12.8f} {after['value']:12.8f} {gap:9.1e} {times:>13}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the JSON file to write")
    parser.add_argument("--against", type=Path, help="a file of another version, to compare with")
    parser.add_argument("--points", type=int, default=1000, help="of each shape")
    args = parser.parse_args()
    torch.set_num_threads(1)
    records = {}
    for name, run in problems(args.points):
        records[name] = record(run)
        print(name, records[name], flush=True)
    args.out.write_text(json.dumps(records, indent=1))
    if args.against:
        compare(json.loads(args.against.read_text()), records)


if __name__ == "__main__":
    main()

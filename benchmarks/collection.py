"""Collections of shapes: seconds a pair, alone and in batches, and the share of pairs that
`nearest` solves.

    OMP_NUM_THREADS=1 python benchmarks/collection.py pairs --shapes 60 --points 200 --seconds 120
    OMP_NUM_THREADS=1 python benchmarks/collection.py nearest --shapes 100 --points 60 --k 5
    PYTHONPATH=src python benchmarks/collection.py many --shapes 46 --device cuda --alone 20

`pairs` stops after so many seconds, and says how many pairs they were for. With --check,
`nearest` solves all other pairs too, and compares its neighbors with those of the whole matrix.
`many` takes all pairs in batches, and some of them one by one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gromap

FAMILIES = ("ball", "shell", "ring", "helix", "plate", "stick", "torus", "dumbbell", "cone", "star")


def shape(family: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """n points of one of these forms, each axis up to a fifth longer or shorter, turned.  (n, 3)"""
    s, t, z = rng.random((3, n))
    angle = 2 * np.pi * t
    circle = np.stack([np.cos(angle), np.sin(angle), 0 * t], 1)
    ball = rng.normal(size=(n, 3))
    unit = ball / np.linalg.norm(ball, axis=1, keepdims=True)
    form = {
        "ball": unit * s[:, None] ** (1 / 3),
        "shell": unit,
        "ring": circle + 0.05 * ball,
        "helix": np.stack([np.cos(3 * angle), np.sin(3 * angle), 2 * t - 1], 1),
        "plate": np.stack([2 * s - 1, 2 * t - 1, 0.1 * z], 1),
        "stick": np.stack([4 * s - 2, 0.2 * t, 0.2 * z], 1),
        "torus": circle * (1 + 0.4 * np.cos(2 * np.pi * s))[:, None] + [0, 0, 0.4] * np.sin(2 * np.pi * s)[:, None],
        "dumbbell": 0.5 * unit + np.where(t < 0.5, -1, 1)[:, None] * [1, 0, 0],
        "cone": np.stack([s * np.cos(angle), s * np.sin(angle), 2 * s - 1], 1),
        "star": np.eye(3)[rng.integers(3, size=n)] * (3 * s - 1.5)[:, None] + 0.05 * ball,
    }[family]
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return form * rng.uniform(0.8, 1.2, 3) @ turn


def shapes(count: int, points: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [shape(FAMILIES[k % len(FAMILIES)], points, rng) for k in range(count)]


def pairs(clouds: list[np.ndarray], seconds: float, jobs: int) -> None:
    seen: list[gromap.Event] = []

    def watch(event: gromap.Event) -> bool:
        seen.append(event)
        return event.seconds > seconds

    gromap.pairwise(clouds, n_jobs=jobs, callback=watch)
    matched = seen[len(clouds) :]  # self terms come first
    took = matched[-1].seconds - seen[len(clouds) - 1].seconds
    print(f"{len(matched)} pairs in {took:.1f} s, {took / len(matched):.3f} s a pair, {jobs} jobs")
    print(f"{len(clouds)} embeddings and self terms in {seen[len(clouds) - 1].seconds:.1f} s")


def many(clouds: list[np.ndarray], device: str, alone: int) -> None:
    spaces = [gromap.Space(np.float32(z), device=device) for z in clouds]
    found = [(x, y) for k, x in enumerate(spaces) for y in spaces[:k]]
    few = [found[k] for k in np.random.default_rng(0).permutation(len(found))[:alone]]
    gromap.solve_many(few)  # compiles kernels, and embeds the spaces

    def timed(work: Callable[[], list[Any]]) -> tuple[list[Any], float]:
        begin = time.perf_counter()
        return work(), time.perf_counter() - begin

    matches, took = timed(lambda: gromap.solve_many(found))
    print(f"{len(found)} pairs in batches: {took:.1f} s, {1e3 * took / len(found):.2f} ms a pair")
    single, took = timed(lambda: [gromap.solve(x, y) for x, y in few])
    print(f"{len(few)} of them alone: {1e3 * took / len(few):.0f} ms a pair")
    value = {(id(x), id(y)): match.value for (x, y), match in zip(found, matches, strict=True)}
    gap = 100 * np.array([value[id(x), id(y)] / sol.value - 1 for (x, y), sol in zip(few, single, strict=True)])
    print(f"values in batches over those alone: {gap.min():+.2f} to {gap.max():+.2f} %, median {np.median(gap):+.3f} %")
    print(f"more than 0.1 % higher: {(gap > 0.1).sum()}, lower: {(gap < -0.1).sum()}")


def neighbors(clouds: list[np.ndarray], k: int, jobs: int, check: bool) -> None:
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.safetensors"  # so that the matrix goes on from the neighbors
        found = gromap.nearest(clouds, k, n_jobs=jobs, path=path)
        took = time.perf_counter() - begin
        whole = gromap.pairwise(clouds, n_jobs=jobs, path=path) if check else None
    print(f"{found}, {took:.0f} s")
    same = np.mean((found.indices % len(FAMILIES)) == (np.arange(len(clouds)) % len(FAMILIES))[:, None])
    print(f"{100 * same:.1f} % of the neighbors are of the same family")
    if whole is not None:
        np.fill_diagonal(whole, np.inf)
        print("the same neighbors as in the whole matrix:", np.array_equal(whole.argsort(1)[:, :k], found.indices))
        print(f"the whole matrix took {time.perf_counter() - begin:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pairs", "nearest", "many"])
    parser.add_argument("--shapes", type=int, default=60)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--alone", type=int, default=20)
    args = parser.parse_args()
    clouds = shapes(args.shapes, args.points)
    if args.what == "pairs":
        pairs(clouds, args.seconds, args.jobs)
    elif args.what == "many":
        many(clouds, args.device, args.alone)
    else:
        neighbors(clouds, args.k, args.jobs, args.check)


if __name__ == "__main__":
    main()

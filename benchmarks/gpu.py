"""Speed on a CUDA device: one symmetrised Sinkhorn step at a solution, and whole matches of the shipped pair.

    PYTHONPATH=src python benchmarks/gpu.py --step 20000 177000 --match 4000 20000 60000 177000 1000000

Points are drawn uniformly on both surfaces. Row sums are compared with float64 on 256 rows. The same step the KeOps way (two
log-sum-exp reductions) stands beside it where pykeops can be imported. Matches start with the points on the device, run with
default options, embedding included, and are timed at the second of two runs (the first compiles the kernels).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

import gromap
from gromap.datasets import Mesh, humans
from gromap.engine import LowRank, apply, lse, sums
from gromap.objective import lifted_score
from gromap.solvers.cnt import scaled_features

COARSE, EPSILON = 4000, 1e-3


def surface_points(mesh: Mesh, n: int, seed: int) -> Tensor:
    """n points drawn uniformly on a surface.  (n, 3) float32 on the device"""
    rng = np.random.default_rng(seed)
    corners, areas = mesh.vertices[mesh.faces].astype(np.float64), np.linalg.norm(mesh.face_normals(), axis=1)
    face, (s, t) = rng.choice(len(areas), n, p=areas / areas.sum()), rng.random((2, n, 1))
    s, t = np.where(s + t > 1, 1 - s, s), np.where(s + t > 1, 1 - t, t)
    p, q, r = np.moveaxis(corners[face], 1, 0)
    return torch.tensor(p + s * (q - p) + t * (r - p), dtype=torch.float32, device="cuda")


def milliseconds(run: Callable[[], Any], repeats: int) -> float:
    """The median of several runs, by events on the device, after two that are not counted."""
    times = []
    for k in range(repeats + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if k >= 2:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def keops(score: LowRank, u: Tensor, v: Tensor) -> Callable[[], Any]:
    lazy = import_module("pykeops.torch").LazyTensor
    s = (lazy(score.q[:, None].contiguous()) * lazy(score.k[None].contiguous())).sum(2)
    rows, cols = s + lazy(v[None, :, None].contiguous()), s + lazy(u[:, None, None].contiguous())
    return lambda: (rows.logsumexp(dim=1), cols.logsumexp(dim=0))


def step(n: int) -> dict[str, Any]:
    """The reductions at a solution of the whole problem."""
    x, y = (surface_points(mesh, n, seed) for seed, mesh in enumerate((humans().source, humans().target)))
    spaces = gromap.Space(x), gromap.Space(y)
    solution = gromap.solve(*spaces, epsilon=EPSILON)
    fx, fy = (scaled_features(space, space.scale) for space in spaces)
    score, u, v = lifted_score(solution.gamma, fx, fy, EPSILON), solution.plan.u, solution.plan.v
    some = torch.arange(0, n, max(1, n // 256), device="cuda")
    exact = (score.q[some].double() @ score.k.double().mT + u[some].double()[:, None] + v.double()).exp().sum(1)
    times = {
        "sums": milliseconds(lambda: sums(score, u, v), 9),
        "lse": milliseconds(lambda: lse(score, v), 5),
        "apply 22 columns": milliseconds(lambda: apply(score, u, v, torch.cat([fy, fy[:, :2]], 1)), 5),
    }
    if find_spec("pykeops"):
        times["KeOps, two lse"] = milliseconds(keops(score, u, v), 3)
    error = float(((sums(score, u, v)[0][some].double() - exact) / exact).abs().max())
    return {"n": n, "row_error": error, "milliseconds": times, "gpairs": {k: n * n / t / 1e6 for k, t in times.items()}}


def match(n: int) -> dict[str, Any]:
    x, y = (surface_points(mesh, n, seed) for seed, mesh in enumerate((humans().source, humans().target)))
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        solution = gromap.solve(x, y, epsilon=EPSILON)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
    return {
        "n": n,
        "seconds": seconds,
        "phases": solution.info["seconds"],
        "levels": solution.info.get("levels", [n]),
        "fine_steps": int(solution.history["inner_steps"].sum()),
        "value": solution.value,
        "energy": float(solution.history["energy"][-1]),
        "marginal_error": solution.plan.marginal_error,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "status": solution.status.name,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, nargs="*", default=[20_000, 177_000], help="sizes of the single step")
    parser.add_argument("--match", type=int, nargs="*", default=[4_000, 20_000, 177_000], help="sizes of whole matches")
    args = parser.parse_args()
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}))
    for n in args.step:
        r = step(n)
        print(json.dumps(r), flush=True)
        for name, t in r["milliseconds"].items():
            print(f"{n:>8} {name:<18} {t:>9.3f} ms {r['gpairs'][name]:>8.0f} Gpair/s", flush=True)
        print(f"{n:>8} largest relative error of a row sum: {r['row_error']:.1e}", flush=True)
    for n in args.match:
        r = match(n)
        print(json.dumps(r), flush=True)
        phases = ", ".join(f"{k} {s:.2f}" for k, s in r["phases"].items())
        print(
            f"{n:>8} {r['seconds']:>7.2f} s ({phases})  energy {r['energy']:.6f}  marginal {r['marginal_error']:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()

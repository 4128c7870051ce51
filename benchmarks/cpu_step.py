"""Speed of one symmetrised Sinkhorn step on the CPU: row and column sums of exp(s + u + v) over N x N pairs.

    python benchmarks/cpu_step.py

The scores are those of a real match: 20 + 1 lifted features of the man pair at a solution, with its potentials, so that most
exponentials underflow as they do in a solve. Beside it, if pykeops is installed, the same step the KeOps way (two log-sum-exp
reductions, float32), and exp2 alone, on one block that stays in the cache, once per pair: the bound for any dense sweep.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from shapes import man_pair
from torch import Tensor

import gromap
from gromap.engine import LowRank, sums
from gromap.engine.tiles import CPU_TILE_BYTES, FLOOR, LOG2E
from gromap.objective import lifted_score
from gromap.sinkhorn import Potentials, Sinkhorn, half_step, sinkhorn

COARSE = 2000  # points of the match that gives Γ
SETTLE = 20  # Sinkhorn steps on all points
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Step(NamedTuple):
    """The arguments of one step: π_ij = exp(<q_i, k_j> + u_i + v_j)."""

    score: LowRank
    u: Tensor
    v: Tensor

    def to(self, dtype: torch.dtype) -> Step:
        return Step(LowRank(self.score.q.to(dtype), self.score.k.to(dtype)), self.u.to(dtype), self.v.to(dtype))

    def first(self, n: int) -> Step:
        return Step(LowRank(self.score.q[:n], self.score.k[:n]), self.u[:n], self.v[:n])


def real_step(n: int, epsilon: float) -> tuple[Step, float]:
    """The step at a solution, in float64, and its marginal error.

    Γ comes from a match of the first points; all points are projected on that embedding, their potentials come from
    half-steps against the few (Alg. Interpolate), and a few Sinkhorn steps on all points settle them.
    """
    pair = man_pair(n)
    spaces = [gromap.Space(points[:COARSE]) for points in (pair.source, pair.target)]
    solution = gromap.solve(*spaces, epsilon=epsilon, scale=None)
    gamma, few_f, few_g = (torch.from_numpy(z) for z in (solution.gamma, *solution.potentials))
    few_x, few_y = (torch.from_numpy(space.features) for space in spaces)
    x, y = (torch.from_numpy(s.project(points)) for s, points in zip(spaces, (pair.source, pair.target), strict=True))
    log_few, log_all = (torch.full((k,), -math.log(k), dtype=x.dtype) for k in (len(few_x), n))
    f = half_step(lifted_score(gamma, x, few_y, epsilon), log_few, few_g / epsilon)
    g = half_step(lifted_score(gamma, few_x, y, epsilon).mT, log_few, few_f / epsilon)
    score = lifted_score(gamma, x, y, epsilon)
    end = sinkhorn(score, log_all, log_all, Potentials(f, g), Sinkhorn(steps=SETTLE))
    return Step(score, end.f + log_all, end.g + log_all), float(end.error)


def share_of_zeros(step: Step, rows: int = 512) -> float:
    """The share of pairs that the tiles clamp, on some rows."""
    block = step.score.q[:rows] @ step.score.k.mT + step.u[:rows, None] + step.v
    return float((LOG2E * block < FLOOR[block.dtype]).double().mean())


def clock(run: Callable[[], Any], n: int, repeats: int) -> dict[str, float]:
    """Gpair/s at the median and at the shortest of several runs over n x n pairs, after one that is not counted."""
    run()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    median, least = statistics.median(seconds), min(seconds)
    return {"n": n, "seconds": median, "gpairs": n * n / median / 1e9, "best_gpairs": n * n / least / 1e9}


def row_error(rows: Tensor, exact: Step) -> float:
    """The largest relative error of row sums, against float64."""
    truth = sums(*exact)[0]
    return float(((rows.double() - truth).abs() / truth).max())


def exp2_alone(step: Step) -> Callable[[], None]:
    """exp2 of as many numbers as there are pairs, in blocks of the size that the tiles use, with the scores of the step."""
    rows = max(1, CPU_TILE_BYTES // step.u.element_size() // len(step.v))
    bits = LOG2E * (step.score.q[:rows] @ step.score.k.mT + step.u[:rows, None] + step.v)
    bits = bits.clamp_(min=FLOOR[bits.dtype]).flatten()
    out = torch.empty_like(bits)
    whole, rest = divmod(len(step.u) * len(step.v), len(bits))

    def run() -> None:
        for _ in range(whole):
            torch.exp2(bits, out=out)
        torch.exp2(bits[:rest], out=out[:rest])

    return run


def keops(step: Step) -> Callable[[], tuple[Tensor, Tensor]]:
    """log Σ_j exp(s_ij + v_j) and log Σ_i exp(s_ij + u_i): two reductions over all pairs, compiled by KeOps."""
    import_module("pykeops").set_verbose(False)
    lazy = import_module("pykeops.torch").LazyTensor
    q, k, u, v = step.score.q, step.score.k, step.u, step.v
    score = (lazy(q[:, None].contiguous()) * lazy(k[None].contiguous())).sum(2)
    rows, cols = score + lazy(v[None, :, None].contiguous()), score + lazy(u[:, None, None].contiguous())
    return lambda: (rows.logsumexp(dim=1)[:, 0], cols.logsumexp(dim=0)[:, 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=8192, help="points of each cloud")
    parser.add_argument("--keops-n", type=int, default=2048, help="points of each cloud for KeOps; 0 leaves it out")
    parser.add_argument("--epsilon", type=float, default=1e-3, help="temperature")
    parser.add_argument("--repeats", type=int, default=7, help="timed runs of each kind")
    parser.add_argument("--cores", type=int, help="use this many threads only; fewer than all if the machine is busy")
    args = parser.parse_args()
    if args.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
        torch.set_num_threads(args.cores)

    print(f"matching {COARSE} points, extending to {args.n} ...", file=sys.stderr, flush=True)
    step, error = real_step(args.n, args.epsilon)
    machine: dict[str, Any] = {
        "n": args.n,
        "features": step.score.q.shape[1],
        "epsilon": args.epsilon,
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "marginal_error": error,
        "zeros": {name: share_of_zeros(step.to(dtype)) for name, dtype in DTYPES.items()},
    }
    results: dict[str, dict[str, float]] = {}
    for name, dtype in DTYPES.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        typed = step.to(dtype)
        results[f"gromap {name}"] = clock(lambda s=typed: sums(*s), args.n, args.repeats)
        if dtype is not torch.float64:
            results[f"gromap {name}"]["row_error"] = row_error(sums(*typed)[0], step)
        results[f"exp2 alone {name}"] = clock(exp2_alone(typed), args.n, args.repeats)
    if args.keops_n and find_spec("pykeops"):
        print("KeOps ...", file=sys.stderr, flush=True)
        machine["pykeops"] = metadata.version("pykeops")
        few = step.first(args.keops_n)
        run = keops(few.to(torch.float32))
        results["KeOps float32"] = clock(run, len(few.u), args.repeats)
        results["KeOps float32"]["row_error"] = row_error((run()[0] + few.u).exp(), few)
        machine["ratio_to_keops"] = results["gromap float32"]["gpairs"] / results["KeOps float32"]["gpairs"]

    print(json.dumps(machine | {"results": results}))
    zeros = ", ".join(f"{share:.0%} in {name}" for name, share in machine["zeros"].items())
    print(
        f"\n{machine['features']} features, {machine['threads']} threads, torch {machine['torch']}; zeros among pairs: {zeros}"
    )
    print(f"{'one symmetrised step':<20} {'n':>6} {'median ms':>10} {'Gpair/s':>8} {'best':>8} {'row error':>10}")
    for name, r in results.items():
        accuracy = f"{r['row_error']:.1e}" if "row_error" in r else ""
        speed = f"{1e3 * r['seconds']:>10.1f} {r['gpairs']:>8.4f} {r['best_gpairs']:>8.4f}"
        print(f"{name:<20} {int(r['n']):>6} {speed} {accuracy:>10}")
    if "ratio_to_keops" in machine:
        print(f"gromap float32 / KeOps: {machine['ratio_to_keops']:.1f} x")


if __name__ == "__main__":
    main()

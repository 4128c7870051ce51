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


def clock(run: Callable[[], Any], pairs: int, repeats: int) -> dict[str, float]:
    """Gpair/s at the median and at the shortest of several runs, after one that is not counted."""
    run()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    median, least = statistics.median(seconds), min(seconds)
    return {"seconds": median, "least_seconds": least, "gpairs": pairs / median / 1e9, "best_gpairs": pairs / least / 1e9}


def exp2_alone(step: Step) -> Callable[[], None]:
    """exp2 of as many numbers as there are pairs, in blocks of the size that the tiles use, with the scores of the step."""
    size = CPU_TILE_BYTES // step.u.element_size()
    rows = max(1, size // len(step.v))
    block = LOG2E * (step.score.q[:rows] @ step.score.k.mT + step.u[:rows, None] + step.v)
    block.clamp_(min=FLOOR[block.dtype])
    out = torch.empty_like(block)
    times = round(len(step.u) * len(step.v) / block.numel())

    def run() -> None:
        for _ in range(times):
            torch.exp2(block, out=out)

    return run


def keops(step: Step) -> Callable[[], Any]:
    """log Σ_j exp(s_ij + v_j) and log Σ_i exp(s_ij + u_i): two reductions over all pairs, compiled by KeOps."""
    lazy = import_module("pykeops.torch").LazyTensor
    (q, k), u, v = step
    score = (lazy(q[:, None].contiguous()) * lazy(k[None].contiguous())).sum(2)
    rows, cols = score + lazy(v[None, :, None].contiguous()), score + lazy(u[:, None, None].contiguous())
    return lambda: (rows.logsumexp(dim=1), cols.logsumexp(dim=0))


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
        (score, u, v), pairs = step.to(dtype), args.n**2
        results[f"gromap {name}"] = clock(lambda s=score, u=u, v=v: sums(s, u, v), pairs, args.repeats)
        results[f"exp2 alone {name}"] = clock(exp2_alone(step.to(dtype)), pairs, args.repeats)
    if args.keops_n and find_spec("pykeops"):
        print("KeOps ...", file=sys.stderr, flush=True)
        machine["pykeops"] = metadata.version("pykeops")
        small = step.first(min(args.keops_n, args.n)).to(torch.float32)
        results["KeOps float32"] = clock(keops(small), len(small.u) ** 2, args.repeats) | {"n": len(small.u)}
        results["KeOps float32"]["gromap_ratio"] = results["gromap float32"]["gpairs"] / results["KeOps float32"]["gpairs"]

    print(json.dumps(machine | {"results": results}))
    zeros = ", ".join(f"{share:.0%} in {name}" for name, share in machine["zeros"].items())
    print(
        f"\n{machine['features']} features, {machine['threads']} threads, torch {machine['torch']}; zeros among pairs: {zeros}"
    )
    print(f"{'one symmetrised step':<22} {'n':>6} {'median ms':>10} {'Gpair/s':>8} {'best':>7}")
    for name, r in results.items():
        print(
            f"{name:<22} {int(r.get('n', args.n)):>6} {1e3 * r['seconds']:>10.1f} {r['gpairs']:>8.3f} {r['best_gpairs']:>7.3f}"
        )
    if "KeOps float32" in results:
        print(f"gromap float32 / KeOps: {results['KeOps float32']['gromap_ratio']:.1f} x")


if __name__ == "__main__":
    main()

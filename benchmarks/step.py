"""Speed of one symmetrized Sinkhorn step: row and column sums of exp(s + u + v) over N x N
pairs, at a solution.

    python benchmarks/step.py --sizes 8192
    PYTHONPATH=src python benchmarks/step.py --device cuda --sizes 20000 177000

The scores are those of a real match, 20 + 1 lifted features with their potentials: on a CPU the man
pair, matched on few points and extended to all; on a CUDA device points of the shipped humans,
matched. Dense means all tiles, truncated those that matter (from 8,000 points on a CPU, 40,000 on a
CUDA device); Gpair/s count all N x N pairs. Beside them, where installed:

    KeOps            the same step as two log-sum-exp reductions, in float32
    flash-sinkhorn   the same step as two log-sum-exp in one kernel, in float32 (CUDA), with and
                     without tf32 products
    exp limit        one exp2 per pair and nothing else: measured in the cache, or SMs x 16 per
                     clock x the highest clock

Row errors are the largest relative ones against float64, on 256 rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from steps import Step, extended_step, solved_step
from torch import Tensor

from gromap.bench.machine import add_options, clock, describe, exp2_rate, table, use
from gromap.transport import Score, Truncated
from gromap.transport.tiles import CPU_TILE_BYTES, FLOOR, LOG2E

SIZES = {"cpu": [8192], "cuda": [20_000, 177_000]}
KEOPS_SIZE = {"cpu": 2048, "cuda": 200_000}  # points at most
DOUBLE_SIZE = {"cpu": 20_000, "cuda": 60_000}  # points up to which float64 is run too
SAMPLE, COLUMNS = 256, 22


class Kernel(NamedTuple):
    """Something to time, and how to read the row sums of π from what it returns."""

    run: Callable[[], Any]
    rows: Callable[[Any], Tensor]


def reductions(step: Step, score: Score) -> dict[str, Kernel]:
    """Those of gromap, on all tiles or on some."""
    u, v, ones = step.u, step.v, step.v.new_ones(len(step.v), COLUMNS)
    return {
        "sums": Kernel(lambda: score.sums(u, v), lambda out: out[0]),
        "lse": Kernel(lambda: score.lse(v), lambda out: (out + u).exp()),
        f"apply, {COLUMNS} columns": Kernel(lambda: score.apply(u, v, ones), lambda out: out[:, 0]),
    }


def keops(step: Step) -> Kernel:
    import_module("pykeops").set_verbose(False)
    lazy = import_module("pykeops.torch").LazyTensor
    score = (lazy(step.score.q[:, None].contiguous()) * lazy(step.score.k[None].contiguous())).sum(2)
    rows, cols = score + lazy(step.v[None, :, None].contiguous()), score + lazy(step.u[:, None, None].contiguous())
    return Kernel(lambda: (rows.logsumexp(dim=1), cols.logsumexp(dim=0)), lambda out: (out[0][:, 0] + step.u).exp())


def flash_sinkhorn(step: Step, tf32: bool) -> Kernel:
    """Its cost |x - y|² / 2 at ε = 1 is our score, up to squared norms that it keeps in the
    potentials as we do."""
    fused = import_module("flash_sinkhorn.kernels.sinkhorn_flashstyle_sqeuclid").flashsinkhorn_symmetric_step
    arguments = (step.score.q, step.score.k, *step.potentials, 1.0)
    f, _, log_a, _ = step.potentials
    # f' = (f - lse) / 2, and the row sum is a exp(lse + f)
    return Kernel(
        lambda: fused(*arguments, cost_scale=0.5, allow_tf32=tf32), lambda out: (log_a + 2 * (f - out[0])).exp()
    )


def peers(step: Step, device: torch.device) -> Iterator[tuple[str, Step, Callable[[Step], Kernel]]]:
    if find_spec("pykeops"):
        yield "KeOps, two lse", step.first(KEOPS_SIZE[device.type]), keops
    if find_spec("flash_sinkhorn") and device.type == "cuda":
        yield "flash-sinkhorn", step, partial(flash_sinkhorn, tf32=False)
        yield "flash-sinkhorn, tf32", step, partial(flash_sinkhorn, tf32=True)


class Rows(NamedTuple):
    """Some rows in float64."""

    which: Tensor
    sums: Tensor
    zeros: float  # share of pairs that count as zero in float32
    lost: float  # share of the mass in tiles left out


def some_rows(step: Step, truncated: Truncated | None = None) -> Rows:
    n = len(step.u)
    which = torch.arange(0, n, max(1, n // SAMPLE), device=step.u.device)[:SAMPLE]
    q, k, u, v = (z.double() for z in (step.score.q, step.score.k, step.u, step.v))
    total, zeros, lost = [], 0.0, 0.0
    for i in which.tolist():
        log_pi = k @ q[i] + u[i] + v
        pi = log_pi.exp()
        total.append(pi.sum())
        zeros += float((LOG2E * log_pi < FLOOR[torch.float32]).double().mean())
        if truncated is not None:
            lost += float(pi[~visited(truncated, i)].sum() / total[-1])
    return Rows(which, torch.stack(total), zeros / len(which), lost / len(which))


def visited(score: Truncated, i: int) -> Tensor:
    """The columns that row i of a truncated score visits.  (M,) bool"""
    assert score.grid is not None
    assert score.active is not None
    rows, cols, _ = score.grid
    starts, items = score.active.by_row
    cell = int(rows.place[i]) // rows.size
    mask = torch.zeros(-(-len(cols.place) // cols.size), dtype=torch.bool, device=items.device)
    mask[items[int(starts[cell]) : int(starts[cell + 1])].long()] = True
    return mask[cols.place // cols.size]


def speed(run: Callable[[], Any], n: int, device: torch.device, repeats: int) -> dict[str, Any]:
    seconds = clock(run, device, repeats)
    median, least = statistics.median(seconds), min(seconds)
    return {"n": n, "ms": 1e3 * median, "gpairs": n * n / median / 1e9, "best_gpairs": n * n / least / 1e9}


def exp_limit(step: Step, device: torch.device, repeats: int) -> dict[str, Any] | None:
    """One exp2 per pair: on a CPU measured on one block in the cache, over and over; on a CUDA
    device from its data sheet."""
    n = len(step.u)
    if device.type == "cuda":
        rate = exp2_rate(device)
        return {"n": n, "ms": 1e3 * n * n / rate, "gpairs": rate / 1e9} if rate else None
    rows = max(1, CPU_TILE_BYTES // step.u.element_size() // n)
    bits = LOG2E * (step.score.q[:rows] @ step.score.k.mT + step.u[:rows, None] + step.v)
    bits = bits.clamp_(min=FLOOR[bits.dtype]).flatten()
    out = torch.empty_like(bits)
    whole_blocks, rest = divmod(n * n, len(bits))

    def run() -> None:
        for _ in range(whole_blocks):
            torch.exp2(bits, out=out)
        torch.exp2(bits[:rest], out=out[:rest])

    return speed(run, n, device, repeats)


def measure(n: int, epsilon: float, device: torch.device, repeats: int) -> dict[str, Any]:
    """Everything at one size."""
    made = extended_step(n, epsilon) if device.type == "cpu" else solved_step(n, epsilon, device)
    results: dict[str, dict[str, Any]] = {}

    def add(name: str, kernel: Kernel, step: Step, exact: Rows) -> None:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows = kernel.rows(kernel.run())[exact.which].double()
        error = float(((rows - exact.sums) / exact.sums).abs().max())
        results[name] = speed(kernel.run, len(step.u), device, repeats) | {"row_error": error}

    step = made.to(torch.float32)
    found = step.score.truncate(*step.potentials)
    truncated = found if isinstance(found, Truncated) else None
    exact = some_rows(step, truncated)
    r, c = step.score.sums(step.u, step.v)
    error = float((r - step.log_a.exp()).abs().sum() + (c - step.log_b.exp()).abs().sum())
    record: dict[str, Any] = {"n": n, "features": step.score.q.shape[1], "epsilon": epsilon, "marginal_error": error}
    record["zeros"] = exact.zeros
    for name, kernel in reductions(step, step.score).items():
        add(f"dense {name}", kernel, step, exact)
    if truncated:
        record |= {"tiles": truncated.tile_share, "neglected_bound": truncated.neglected_mass, "lost": exact.lost}
        again = clock(lambda: step.score.truncate(*step.potentials), device, repeats)
        record["truncation_ms"] = 1e3 * statistics.median(again)
        for name, kernel in reductions(step, truncated).items():
            add(f"truncated {name}", kernel, step, exact)
    if n <= DOUBLE_SIZE[device.type]:
        double = step.to(torch.float64)
        for kind, score in (("dense", double.score), ("truncated", double.score.truncate(*double.potentials))):
            if kind == "dense" or truncated:
                add(f"{kind} sums, float64", reductions(double, score)["sums"], double, exact)
    for name, few, make in peers(step, device):
        try:
            add(name, make(few), few, exact if few is step else some_rows(few))
        except Exception as failure:  # whatever a peer's build or kernel may raise
            print(f"{name} does not run here: {failure!r}", file=sys.stderr, flush=True)
    limit = exp_limit(step, device, repeats)
    return record | {"results": results | ({"exp limit": limit} if limit else {})}


def show(record: dict[str, Any]) -> str:
    """A record as text."""
    rows = [
        {
            "one step, float32": name,
            "n": str(r["n"]),
            "ms": f"{r['ms']:.3f}",
            "Gpair/s": f"{r['gpairs']:.4g}",
            "best": f"{r['best_gpairs']:.4g}" if "best_gpairs" in r else "",
            "row error": f"{r['row_error']:.1e}" if "row_error" in r else "",
        }
        for name, r in record["results"].items()
    ]
    told = f"\n{record['n']} points, {record['features']} features, marginal error {record['marginal_error']:.1e}, "
    told += f"{record['zeros']:.0%} of pairs underflow in float32\n"
    if "tiles" in record:
        told += f"truncated: {record['tiles']:.1%} of tiles, found in {record['truncation_ms']:.2f} ms; mass left out: "
        told += f"{record['lost']:.1e} on {SAMPLE} rows, at most {record['neglected_bound']:.1e} in all\n"
    told += table(rows)
    mine = record["results"]["dense sums"]["gpairs"]
    others = (name for name in record["results"] if name.startswith(("KeOps", "flash")))
    return told + "".join(f"\ndense sums / {name}: {mine / record['results'][name]['gpairs']:.1f} x" for name in others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", help="points of each cloud (8192, or on CUDA 20000 177000)")
    parser.add_argument("--epsilon", type=float, default=1e-3, help="temperature")
    parser.add_argument("--repeats", type=int, default=7, help="timed runs of each kind")
    add_options(parser)
    args = parser.parse_args()
    device = use(args)
    print(json.dumps(describe(device)), flush=True)
    for n in args.sizes or SIZES[device.type]:
        print(f"a match for {n} points ...", file=sys.stderr, flush=True)
        record = measure(n, args.epsilon, device, args.repeats)
        print(json.dumps(record))
        print(show(record), flush=True)


if __name__ == "__main__":
    main()

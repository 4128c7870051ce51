"""Whether the default is right on any data: ten kinds, many sizes, temperatures and dimensions.

    python benchmarks/anydata.py --sizes 20 60 200 --epsilon 1e-2 1e-3 1e-4 1e-5 --dims 2 20

For each problem the energy of the default's plan, rounded to exact marginals, is compared with the
lowest of those that other starts lead to, each run to its end at the same temperature and rounded:
Γ = 0, the true match where one is known, a longer search with 200 random starts, POT's conditional
gradient, and the default itself. A copy is matched right if the energy is that of the true match,
blurred by the same ε, to 0.1 %.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kinds import IN_ANY_DIMENSION, KINDS, Problem, problems

import gromap
from gromap import Loop, Search, SearchBudget, Sinkhorn
from gromap._pair import Pair
from gromap._plan import round_to

END = Loop(Sinkhorn(200), max_steps=3_000, max_iter=200, tol=1e-7, marginal_tol=1e-5)
MANY = Search(
    starts=200, budget=SearchBudget(kept=8, patience=10, agreed_patience=6, rounds=64, shaken_pairs=30_000_000)
)


def energy(pair: Pair, plan: np.ndarray) -> float:
    """L(π) + ε KL of the plan rounded to a coupling, with the embedded costs of the pair."""
    (x, y), (a, b) = ([z.double() for z in side] for side in (pair.features, pair.weights))
    pi = round_to(torch.from_numpy(plan).double(), a, b)
    cx, cy = (torch.cdist(z, z).square() for z in (x, y))
    loss = a @ cx.square() @ a + b @ cy.square() @ b - 2 * (pi * (cx @ pi @ cy)).sum()
    return float(loss + pair.eps * torch.special.xlogy(pi, pi / torch.outer(a, b)).sum())


def run(p: Problem, eps: float) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clock = time.perf_counter()
        sol = gromap.solve(p.x, p.y, epsilon=eps, **p.options)
        seconds = time.perf_counter() - clock
    warnings.simplefilter("ignore")
    pair = Pair.of(p.x, p.y, epsilon=eps, **p.options)
    method = {"kernel": gromap.KernelGW(END)}.get(sol.stats.method, gromap.CntGW(END, truncation=None))
    found = energy(pair, sol.plan.dense())
    starts: dict[str, Any] = {"default": sol, "zero": "zero", "many": MANY, "pot": _pot(pair)}
    if p.truth is not None:
        starts["truth"] = p.truth
    ends = {"as returned": found}
    for name, init in starts.items():
        if init is not None:
            end = gromap.solve(p.x, p.y, epsilon=eps, method=method, init=init, **p.options)
            ends[name] = energy(pair, end.plan.dense())
    best = min(ends.values())
    return {
        "name": p.name,
        "n": len(p.x),
        "epsilon": eps,
        "seconds": seconds,
        "gap": found / best - 1,
        "end_gap": ends["default"] / best - 1,
        "best": min(ends, key=lambda k: ends[k]),
        "right": bool(found <= 1.001 * ends["truth"]) if p.exact else None,
        "truth_gap": ends["truth"] / best - 1 if "truth" in ends else None,
        "status": str(sol.status),
        "warned": sorted({str(w.message)[:90] for w in caught}),
        "minima_starts": None if sol.stats.minima_starts is None else int(sol.stats.minima_starts[0]),
    }


def _pot(pair: Pair) -> np.ndarray | None:
    """The plan of POT's conditional gradient, from the product of the weights."""
    if max(pair.shape) > 500:
        return None
    import ot

    costs = [s.cost(s.measure.points, s.measure.points).double().numpy() for s in (pair.x, pair.y)]
    a, b = (w.double().numpy() for w in pair.weights)
    plan: Any = ot.gromov.gromov_wasserstein(costs[0] / pair.units[0], costs[1] / pair.units[1], a, b)
    return plan


def table(records: list[dict[str, Any]]) -> str:
    names = "kind", "runs", "within 0.1 %", "within 1 %", "worst", "misses warned", "copies right", "s, median"
    lines = [f"| {' | '.join(names)} |", len(names) * "|---" + "|"]
    for kind in (*KINDS, "all"):
        some = [r for r in records if kind in (r["kind"], "all")]
        if some:
            gaps = np.array([r["gap"] for r in some])
            copies = [r["right"] for r in some if r["right"] is not None]
            share = f"{sum(copies)} of {len(copies)}" if copies else ""
            close, near = (gaps <= 1e-3).sum(), (gaps <= 1e-2).sum()
            seconds = np.median([r["seconds"] for r in some])
            missed = [r for r in some if r["gap"] > 1e-3]
            told = f"{sum(any('lowest' in w for w in r['warned']) for r in missed)} of {len(missed)}" if missed else ""
            row = kind, len(some), close, near, f"{gaps.max():+.2%}", told, share, f"{seconds:.2f}"
            lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines)


def tasks_of(kind: str, options: argparse.Namespace) -> list[tuple[str, int, int, int, int]]:
    """The arguments of `run_one` for all problems of a kind."""
    dims = options.dims if kind in IN_ANY_DIMENSION else [2, 3] if kind == "shapes" else [3]
    draws = [(n, dim, len(problems(kind, n, dim, options.seed))) for n in options.sizes for dim in dims]
    return [(kind, n, dim, options.seed, k) for n, dim, count in draws for k in range(count)]


def run_one(
    kind: str, n: int, dim: int, seed: int, index: int, temperatures: list[float], end: float
) -> list[dict[str, Any]]:
    """The records of one problem of a draw at each temperature; those begun before the time is
    over."""
    torch.set_num_threads(1)
    p = problems(kind, n, dim, seed)[index]
    return [{"kind": kind, "dim": dim} | run(p, eps) for eps in temperatures if time.time() < end]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[20, 60, 200])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1e-2, 1e-3, 1e-4, 1e-5])
    parser.add_argument("--dims", nargs="+", type=int, default=[2, 20])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="after which no other problem is begun")
    parser.add_argument("--out", type=Path, help="a file for the records, JSON")
    options = parser.parse_args()
    tasks = [task for kind in options.kinds for task in tasks_of(kind, options)]
    random.Random(0).shuffle(tasks)  # so that what is left out is of all kinds
    end, records = time.time() + 60 * options.minutes, list[dict[str, Any]]()
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run_one, *task, options.epsilon, end) for task in tasks]):
            for record in done.result():
                records.append(record)
                if record["gap"] > 1e-3:
                    print(json.dumps(record), file=sys.stderr, flush=True)
            if options.out:
                options.out.write_text(json.dumps(records, indent=1))
    print(f"{len(records)} of {len(tasks) * len(options.epsilon)} runs\n" + table(records))


if __name__ == "__main__":
    main()

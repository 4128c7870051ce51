"""What the default search costs as axes grow: two samples of one mixture of eight Gaussians.

    python benchmarks/search.py --sizes 1000 5000
    PYTHONPATH=src python benchmarks/search.py --device cuda --sizes 5000 20000

"search" is all that comes before the steps on all points, coarse levels of the pyramid included; on
a CUDA device the last of three solves counts, since the first compiles. "met" is how many starts
came to the lowest minimum: few where the data have many minima.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np
import torch

import gromap
from gromap.bench.machine import add_options, describe, table, use


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000])
    parser.add_argument("--dims", type=int, nargs="+", default=[20, 64, 100, 200])
    add_options(parser)
    args = parser.parse_args()
    device = use(args)
    print(json.dumps(describe(device)), flush=True)
    warnings.simplefilter("ignore")  # of searches that are not sure
    rng, rows = np.random.default_rng(0), []
    for n in args.sizes:
        for dim in args.dims:
            centers = rng.normal(size=(8, dim))
            x, y = (
                torch.from_numpy(
                    centers[rng.integers(8, size=n)] + 0.3 * rng.normal(size=(n, dim)) * np.linspace(1, 0.3, dim)
                ).to(device, torch.float32)
                for _ in range(2)
            )
            for _ in range(3 if device.type == "cuda" else 1):
                begin = time.perf_counter()
                sol = gromap.solve(x, y, dim=dim)
                seconds = time.perf_counter() - begin
            met = "-" if sol.stats.minima_starts is None else str(sol.stats.minima_starts[0])
            rows.append({"points": str(n), "dim": str(dim), "search s": f"{sol.stats.seconds['search']:.2f}"})
            rows[-1] |= {"total s": f"{seconds:.2f}", "value": f"{sol.value:.6f}", "met": met}
    print("\n" + table(rows))


if __name__ == "__main__":
    main()

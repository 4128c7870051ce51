"""Whole matches, end to end: time of each stage, memory, energy, and what the truncation left out.

    python benchmarks/match.py --sizes 4000 20000 --shapes human dog
    PYTHONPATH=src python benchmarks/match.py --device cuda --sizes 4000 20000 60000 177000 1000000

Points are drawn uniformly on both surfaces and lie on the device before the clock starts;
`gromap.solve` then runs with its default options, embedding included. On a CUDA device the last of
two runs counts, since the first compiles the kernels. Memory is the growth from the start of the
solve to its peak: tensors on a CUDA device, the resident set on a CPU. With --check, up to 20,000
points, the energy is compared with that of a solve over all pairs in float64 which starts from the
linear map found, and which on a CPU takes minutes at such sizes.
"""

from __future__ import annotations

import argparse
import json
import sys

from gromap.bench.machine import add_options, describe, table, use
from gromap.bench.match import CHECKED, RUNS, SIZES, Match, row
from gromap.bench.shapes import PAIRS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", help="points of each cloud (4000 20000; on CUDA up to 1000000)")
    parser.add_argument("--shapes", nargs="+", choices=PAIRS, default=["human"], help="pairs; human ships with gromap")
    parser.add_argument("--epsilon", type=float, default=1e-3, help="temperature")
    parser.add_argument("--seed", type=int, default=0, help="of the points")
    parser.add_argument("--runs", type=int, help="solves of each match, the last one counts (1, or 2 on CUDA)")
    parser.add_argument(
        "--check", action="store_true", help=f"compare with float64 over all pairs, up to {CHECKED} points"
    )
    add_options(parser)
    args = parser.parse_args()
    device = use(args)
    print(json.dumps(describe(device) | {"epsilon": args.epsilon, "seed": args.seed}), flush=True)
    records = []
    for shapes in args.shapes:
        for n in args.sizes or SIZES[device.type]:
            print(f"{shapes}, {n} points ...", file=sys.stderr, flush=True)
            match = Match(shapes, n, device, args.epsilon, args.seed, args.runs or RUNS[device.type])
            records.append(match.measure(args.check))
            print(json.dumps(records[-1]), flush=True)
    print("\n" + table([row(record) for record in records]))
    for record in records:
        if "stopped" in record:
            print(f"{record['shapes']}, {record['n']} points: {record['stopped']}")


if __name__ == "__main__":
    main()

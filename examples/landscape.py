"""The landscape of two poses of a human: its minima, their basins, and the matchings they stand
for.

    python examples/landscape.py --out landscape.png

The shipped pair, Euclidean cost, 500 random starts on coarse clouds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gromap
from gromap.datasets import humans


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("landscape.png"))
    parser.add_argument("--starts", type=int, default=500)
    args = parser.parse_args()
    pair = humans()
    land = gromap.landscape(pair.source.vertices, pair.target.vertices, starts=args.starts)
    print(land)
    land.plot(args.out)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()

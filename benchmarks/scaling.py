"""How the time of a whole match grows with the number of points: the exponent of a fit, and a
picture.

    python benchmarks/scaling.py --plot scaling.png
    PYTHONPATH=src python benchmarks/scaling.py --device cuda --sizes 177000 500000 1400000 10000000

Every size is a match of match.py, with its clock and its default options. Exponents are slopes of
least-squares lines through (log n, log seconds), of the whole and of each stage. Sizes that do not
fit in memory are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from gromap.bench.machine import add_options, describe, table, use
from gromap.bench.match import RUNS, Match, row
from gromap.bench.scores import Array
from gromap.bench.shapes import PAIRS

SIZES = {"cpu": [2000, 4000, 8000, 16_000, 32_000], "cuda": [177_000, 500_000, 1_400_000, 3_800_000, 10_000_000]}
NAMES = {"total": "total", "embed": "embedding"}  # of the curves; other stages keep their own
COLORS = {"total": "black", "embed": "#0072b2", "search": "#e69f00", "solve": "#009e73"}


@dataclass(frozen=True)
class Line:
    """seconds = factor * n ** exponent"""

    exponent: float
    factor: float

    def __call__(self, n: Array) -> Array:
        return self.factor * n**self.exponent


def fit(n: Sequence[float], seconds: Sequence[float]) -> Line:
    """The line of least squares in log-log.

    >>> line = fit([1, 10, 100], [2, 20, 200])
    >>> round(line.exponent, 6), round(line.factor, 6)
    (1.0, 2.0)
    """
    slope, height = np.polyfit(np.log(n), np.log(seconds), 1)
    return Line(float(slope), float(np.exp(height)))


def curves(records: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Seconds of the whole and of each stage, at every size."""
    stages = {name: [r["stages"][name] for r in records] for name in records[0]["stages"]}
    return {"total": [r["seconds"] for r in records]} | stages


def plot(n: Sequence[int], times: dict[str, list[float]], lines: dict[str, Line], title: str, path: Path) -> None:
    """The curves, the fitted line through their total, and a guide of slope 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5.5), layout="constrained")
    axes = figure.add_subplot()
    ends = np.array([n[0], n[-1]], float)
    for name, seconds in times.items():
        label, width = f"{NAMES.get(name, name)}  ($n^{{{lines[name].exponent:.2f}}}$)", 2.2 if name == "total" else 1.4
        axes.plot(n, seconds, "o-", color=COLORS.get(name), linewidth=width, markersize=5, label=label)
    total = lines["total"]
    axes.plot(
        ends, total(ends), "--", color="#d55e00", linewidth=1.6, label=f"fit of the total, $n^{{{total.exponent:.2f}}}$"
    )
    guide = times["total"][0] * ends / ends[0]
    axes.plot(ends, guide, ":", color="0.5", linewidth=1.6, label="slope 1")
    axes.set(xscale="log", yscale="log", xlabel="points of each shape, n", ylabel="seconds", title=title)
    axes.set_xticks(n, [f"{size:,}" for size in n])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="points of each cloud (2000 to 32000; on CUDA 177000 to 10000000)"
    )
    parser.add_argument("--shapes", choices=PAIRS, default="human", help="the pair; human ships with gromap")
    parser.add_argument("--epsilon", type=float, default=1e-3, help="temperature")
    parser.add_argument("--seed", type=int, default=0, help="of the points")
    parser.add_argument("--runs", type=int, help="solves of each match, the last one counts (1, or 2 on CUDA)")
    parser.add_argument(
        "--plot", type=Path, default=Path("scaling.png"), help="where to write the picture (%(default)s)"
    )
    add_options(parser)
    args = parser.parse_args()
    device = use(args)
    sizes = sorted(set(args.sizes or SIZES[device.type]))
    if len(sizes) < 2:
        parser.error("an exponent needs two sizes or more")
    machine = describe(device)
    print(json.dumps(machine | {"epsilon": args.epsilon, "seed": args.seed}), flush=True)
    records = []
    for n in sizes:
        print(f"{args.shapes}, {n} points ...", file=sys.stderr, flush=True)
        record = Match(args.shapes, n, device, args.epsilon, args.seed, args.runs or RUNS[device.type]).measure()
        print(json.dumps(record), flush=True)
        records.append(record)
    print("\n" + table([row(record) for record in records]))
    done = [record for record in records if "stopped" not in record]
    if len(done) < 2:
        raise SystemExit("Fewer than two sizes ran, so there is nothing to fit: pass smaller --sizes.")
    reached, times = [record["n"] for record in done], curves(done)
    lines = {name: fit(reached, seconds) for name, seconds in times.items()}
    exponents = {name: line.exponent for name, line in lines.items()}
    print(json.dumps({"sizes": reached, "exponents": exponents}))
    print(
        f"exponents from {reached[0]} to {reached[-1]}: "
        + ", ".join(f"{name} {e:.2f}" for name, e in exponents.items())
    )
    for record in records:
        if "stopped" in record:
            print(f"{record['n']} points were left out: {record['stopped']}")
    if find_spec("matplotlib") is None:
        print("No picture: install matplotlib to get one.")
        return
    plot(reached, times, lines, f"Time of a whole match, {args.shapes} pair, {machine['device']}", args.plot)
    print(f"wrote {args.plot}")


if __name__ == "__main__":
    main()

"""The price of a loss: a first call, with its search; a later one, from where the last ended;
and the backward pass.

    python benchmarks/loss.py --sizes 500 2000
    PYTHONPATH=src python benchmarks/loss.py --device cuda --sizes 50000

Points are drawn on the surfaces of a pair and lie on the device before the clock starts. Between
two calls the source moves by a thousandth of its size, as in a descent. Gradients are worked out in
the forward pass of a call whose inputs ask for them, so "value" is a call without gradients and
"value + grad" one with them, backward() included. Seconds are medians, and memory is the growth
from before the call to its peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

import torch
from torch import Tensor

import gromap
from gromap.bench.machine import Meter, add_options, describe, table, use
from gromap.bench.shapes import PAIRS, surface_pair

SIZES = {"cpu": [500, 2000], "cuda": [500, 5000, 50_000]}


def measure(shapes: str, n: int, device: torch.device, method: str, epsilon: float, repeats: int) -> dict[str, Any]:
    """The record of one size."""
    print(f"{shapes}, {n} points ...", file=sys.stderr, flush=True)
    x, y = surface_pair(shapes, n, 0, device)
    loss = gromap.GromovLoss(epsilon=epsilon, method=method)
    generator = torch.Generator(device).manual_seed(0)
    size = float((x - x.mean(0)).norm(dim=1).mean())

    def moved() -> Tensor:
        return x + 1e-3 * size * torch.randn(x.shape, device=device, generator=generator)

    first, _ = timed(loss, x, y, device)
    values = [timed(loss, moved(), y, device) for _ in range(repeats + 1)][1:]
    whole = [timed(loss, moved().requires_grad_(), y, device) for _ in range(repeats)]
    return {
        "shapes": shapes,
        "n": n,
        "method": method,
        "first": first,
        "value": statistics.median(seconds for seconds, _ in values),
        "value_and_gradient": statistics.median(seconds for seconds, _ in whole),
        "peak_bytes": max(peak for _, peak in whole),
        "status": loss.status.name if loss.status else "",
    }


def timed(loss: gromap.GromovLoss, x: Tensor, y: Tensor, device: torch.device) -> tuple[float, int]:
    """Seconds and peak bytes of one call, backward included where x asks for it."""
    meter = Meter.start(device)
    value = loss(x, y)
    if value.requires_grad:
        value.backward()
    return meter.read()


def row(record: dict[str, Any]) -> dict[str, str]:
    cells = {"shapes": record["shapes"], "n": str(record["n"]), "method": record["method"]}
    cells |= {"first s": f"{record['first']:.2f}", "value s": f"{record['value']:.3f}"}
    cells |= {
        "value + grad s": f"{record['value_and_gradient']:.3f}",
        "peak MiB": f"{record['peak_bytes'] / 2**20:.0f}",
    }
    return cells | {"status": record["status"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", help="points of each cloud (500 2000; on CUDA 500 5000 50000)")
    parser.add_argument("--shapes", nargs="+", choices=PAIRS, default=["human"], help="pairs; human ships with gromap")
    parser.add_argument("--method", choices=["auto", "cnt", "kernel", "multiscale"], default="auto")
    parser.add_argument("--epsilon", type=float, default=1e-3, help="temperature, in the units of the data")
    parser.add_argument("--repeats", type=int, default=5)
    add_options(parser)
    args = parser.parse_args()
    device = use(args)
    print(json.dumps(describe(device) | {"epsilon": args.epsilon}), flush=True)
    records = []
    for shapes in args.shapes:
        for n in args.sizes or SIZES[device.type]:
            records.append(measure(shapes, n, device, args.method, args.epsilon, args.repeats))
            print(json.dumps(records[-1]), flush=True)
    print("\n" + table([row(record) for record in records]))


if __name__ == "__main__":
    main()

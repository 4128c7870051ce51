"""From a cross to a heart: the entropic bias of GW_ε, what debiasing mends, and what a large
temperature breaks.

    python examples/flow_bias.py --out flow_bias.png

Wasserstein gradient flows of GW_ε and SGW_ε at three temperatures, in the units of the data (the
shapes are about 1 wide). GW_ε collapses the cloud into clusters, SGW_ε reaches the heart, and at a
large temperature it no longer sees one. Shapes are read from the folder that the environment
variable GROMAP_DATA names.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from planar import add_data

import gromap
from gromap.bench.shapes import planar_shape
from gromap.report.flow import flow_figure

TEMPERATURES = (1e-3, 1e-2, 3e-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("flow_bias.png"))
    parser.add_argument("--gif", type=Path, help="also write the SGW flow at the lowest temperature as an animation")
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--quick", action="store_true", help="few points and steps")
    add_data(parser)
    args = parser.parse_args()
    n, steps = (60, 25) if args.quick else (args.points, args.steps)
    x, y = planar_shape(args.data, "cross", n, 0), planar_shape(args.data, "heart", n, 1)
    rows = []
    for debias, name in ((False, "GW"), (True, "SGW")):
        for eps in TEMPERATURES:
            flow = gromap.gradient_flow(x, y, steps=steps, epsilon=eps, debias=debias, tol=1e-5)
            change = f"{flow.losses[0]:.2e} to {flow.losses[-1]:.2e}"
            print(f"{name}, eps = {eps:g}: {change} in {len(flow.losses) - 1} steps. {flow.status.value}", flush=True)
            rows.append((f"{name}, ε = {eps:g}", flow))
            if debias and eps == TEMPERATURES[0] and args.gif:
                print(f"wrote {flow.animate(args.gif)}")
    flow_figure(rows).savefig(args.out, dpi=110)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()

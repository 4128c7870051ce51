"""What a base cost sees: a reversed "5" flows to a "C" under squared norms, norms, root norms
and exponential kernels.

    python examples/flow_costs.py --out flow_costs.png

Each cost twice: with exact gradients (Kernel-GW), and with Γ cut to 50 axes of a kernel PCA.
Temperatures are a thousandth of the squared unit of each cost. Shapes are read from the folder that
the environment variable GROMAP_DATA names.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from planar import add_data

from gromap.bench.plans import FLOW_METHODS, flow_between
from gromap.bench.settings import FLOW_COSTS
from gromap.bench.shapes import planar_shape
from gromap.report.flow import flow_figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("flow_costs.png"))
    parser.add_argument("--points", type=int, default=250)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--quick", action="store_true", help="few points, few steps and three costs")
    add_data(parser)
    args = parser.parse_args()
    n, steps = (80, 15) if args.quick else (args.points, args.steps)
    x, y = planar_shape(args.data, "five", n, 0) * [-1, 1], planar_shape(args.data, "C", n, 1)
    rows = []
    for name, cost in list(FLOW_COSTS.items())[: 3 if args.quick else None]:
        for kind, method in FLOW_METHODS.items():
            flow = flow_between(x, y, cost, method, steps)
            change = f"{flow.losses[0]:.2e} to {flow.losses[-1]:.2e}"
            print(f"{name}, {kind}: {change} in {len(flow.losses) - 1} steps. {flow.status.value}", flush=True)
            rows.append((f"{name}\n{kind}", flow))
    flow_figure(rows).savefig(args.out, dpi=90)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()

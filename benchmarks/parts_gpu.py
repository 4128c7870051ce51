"""Parts and features at size: seconds of a match, balanced and with features and reach, and of one
loss with its gradient.

    python benchmarks/parts_gpu.py --device cuda --sizes 20000 177000 --loss 50000

The human pair, points drawn on both surfaces, their heights as features, ε = 1e-3, reach = 0.1; the
second of two runs, peak memory of the device for the loss.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import gromap
from gromap.bench.machine import add_options, describe, table, use
from gromap.bench.shapes import surface_pair


def second(run: Callable[[], Any]) -> tuple[Any, float]:
    """What the second of two runs gives, and its seconds."""
    run()
    begin = time.perf_counter()
    found = run()
    return found, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[3000])
    parser.add_argument("--loss", type=int, nargs="*", default=[1000])
    add_options(parser)
    options = parser.parse_args()
    device = use(options)
    print(describe(device))
    rows = list[dict[str, str]]()
    for n in options.sizes:
        x, y = surface_pair("human", n, 0, device)
        features = x[:, 1], y[:, 1]
        for name, given in {"fixed": {}, "reach": {"reach": 0.1}, "both": {"reach": 0.1, "features": features}}.items():
            sol, seconds = second(partial(gromap.solve, x, y, **given))
            steps = f"{len(sol.history['energy'])}, {int(sol.history['inner_steps'].sum())}"
            row = {"points": str(n), "what": name, "s": f"{seconds:.3f}", "steps": steps, "status": sol.status.name}
            rows.append(row | {"value": f"{sol.value:.6f}"} | {k: f"{v:.3f}" for k, v in sol.stats.seconds.items()})
            print(rows[-1], flush=True)
            del sol
        del x, y, features
    for n in options.loss:
        x, y = (z.requires_grad_() for z in surface_pair("human", n, 0, device))
        loss = gromap.GromovLoss(epsilon=1e-2, reach=0.3, debias=False)

        def gradient(n: int = n, x: Any = x, y: Any = y, loss: Any = loss) -> Any:
            loss.reset()
            return torch.autograd.grad(loss(x, y, features=(x[:, 1:2].detach(), y[:, 1:2].detach())), x)[0].norm()

        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        norm, seconds = second(gradient)
        peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
        rows.append({"points": str(n), "what": "loss", "s": f"{seconds:.3f}", "value": f"{float(norm):.4f}"})
        rows[-1] |= {"status": str(loss.status), "steps": f"{peak:.2f} GiB"}
        print(rows[-1], flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()

"""The path of Γ in a dual landscape that fits on a page: a cloud on a line against one in the
plane, Γ in R^{1x2}.

    python examples/dual_trajectory.py --out dual_trajectory.png

Background: the objective C + 8 D_ε(Γ). Dots: Γ of the plan after each outer step, from Γ = 0. The
star is the minimum. With ten Sinkhorn steps in each, Entropic-GW as published stops short of it,
towards the origin: a standard step meets one marginal only. Symmetrized, it goes there straight.
With two steps in each, Entropic-GW is lost even so, since its costs are not centered and wrong
marginals move them; Kernel-GW is not.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import gromap
from gromap._pair import Pair
from gromap.search.landscape import objective
from gromap.solvers.loop import alternate
from gromap.solvers.protocol import Begin

EPSILON, POINTS, OUTER = 0.005, 120, 25
PANELS = (
    (gromap.EntropicGW, "standard", 10),
    (gromap.EntropicGW, "symmetric", 10),
    (gromap.EntropicGW, "symmetric", 2),
    (gromap.KernelGW, "symmetric", 2),
)


def clouds() -> tuple[np.ndarray, np.ndarray]:
    """A stick with a knob, on a line; and a bent one, in the plane."""
    rng = np.random.default_rng(0)
    t = np.concatenate([rng.random(POINTS - 30), 0.9 + 0.1 * rng.random(30)])
    bent = np.stack([t, 0.35 * np.sin(2.5 * t)], 1) + 0.02 * rng.normal(size=(POINTS, 2))
    return t[:, None], bent


def trajectory(pair: Pair, method: Any, update: Any, steps: int) -> np.ndarray:
    """Γ = 0, and Γ = Xᵀ π Y after each outer step.  (OUTER + 1, 2)"""
    loop = gromap.Loop(gromap.Sinkhorn(steps, update=update), adaptive=False, tol=1e-14, max_iter=OUTER)
    problem = method(loop).problem(pair)
    left, right = pair.features
    path, correlate = [np.zeros(2)], problem.correlate

    def recorded(*args: Any) -> Any:
        new, rows = correlate(*args)
        path.append((left.T @ new.pi @ right).numpy()[0])
        return new, rows

    problem.correlate = recorded
    alternate(problem, Begin(problem.start(torch.zeros(1, 2)), problem.zero_potentials()), loop)
    return np.array(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("dual_trajectory.png"))
    args = parser.parse_args()
    pair = Pair.of(*clouds(), cost="sqeuclidean", epsilon=EPSILON)
    best = trajectory(pair, gromap.KernelGW, "accelerated", 500)[-1]
    s, t = np.linspace(-0.06, 0.27, 34), np.linspace(-0.14, 0.16, 31)
    problem = gromap.CntGW().problem(pair)
    grid = torch.tensor(np.stack(np.meshgrid(s, t), -1).reshape(-1, 1, 2))
    values = torch.cat([objective(problem, part) for part in grid.split(200)]).view(len(t), len(s)).numpy()

    figure = Figure(figsize=(15, 4.2), layout="constrained")
    for axes, (method, update, steps) in zip(figure.subplots(1, 4, sharey=True), PANELS, strict=True):
        path = trajectory(pair, method, update, steps)
        axes.contourf(s, t, values, levels=25, cmap="Blues_r")
        axes.contour(s, t, values, levels=25, colors="#335577", linewidths=0.4)
        axes.plot(*path.T, "o-", color="#d1495b", markersize=4, linewidth=1.2)
        axes.plot(*path[-1], "o", color="white", markeredgecolor="#d1495b", markersize=6, zorder=4)
        axes.plot(*best, "*", color="#ffd23f", markeredgecolor="black", markersize=17, zorder=3)
        name = {gromap.EntropicGW: "Entropic-GW", gromap.KernelGW: "Kernel-GW"}[method]
        axes.set(
            title=f"{name}, {update}, {steps} steps each", xlabel="Γ₁", aspect="equal", xlim=s[[0, -1]], ylim=t[[0, -1]]
        )
    figure.axes[0].set_ylabel("Γ₂")
    figure.savefig(args.out, dpi=110)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()

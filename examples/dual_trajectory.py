"""The path of Γ in a dual landscape that fits on a page: a cloud on a line against one in the plane, Γ in R^{1x2}.

    python examples/dual_trajectory.py --out dual_trajectory.png

Background: the objective C + 8 D_ε(Γ). Dots: Γ after each outer step, with few Sinkhorn steps in each, as usual and
symmetrised. A standard step meets one marginal only, so Γ, which is taken from the plan, is off to one side of the true step,
systematically; the symmetrised one goes straight to the minimum.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

import gromap
from gromap.landscape import objective

EPSILON, POINTS, STEPS, OUTER = 0.02, 120, 3, 25


def clouds() -> tuple[np.ndarray, np.ndarray]:
    """A stick with a knob, on a line; and a bent one, in the plane."""
    rng = np.random.default_rng(0)
    t = np.concatenate([rng.random(POINTS - 30), 0.9 + 0.1 * rng.random(30)])
    bent = np.stack([t, 0.35 * np.sin(2.5 * t)], 1) + 0.02 * rng.normal(size=(POINTS, 2))
    return t[:, None], bent


def trajectory(x: gromap.Space, y: gromap.Space, update: str) -> np.ndarray:
    """Γ after each outer step.  (OUTER, 2)"""
    loop = gromap.Loop(gromap.Sinkhorn(STEPS, update=update), adaptive=False, tol=1e-12)  # type: ignore[arg-type]
    solver, path = gromap.CntGW(loop), []
    init: np.ndarray | gromap.Solution = np.array([[0.02, 0.16]])
    for _ in range(OUTER):
        init = gromap.solve(x, y, method=solver, epsilon=EPSILON, init=init, max_iter=1)
        path.append(init.gamma.ravel())
    return np.array(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("dual_trajectory.png"))
    args = parser.parse_args()
    x, y = (gromap.Space(z, cost="sqeuclidean") for z in clouds())
    paths = {update: trajectory(x, y, update) for update in ("standard", "symmetric")}
    reach = 1.25 * max(np.abs(path).max() for path in paths.values())
    s = np.linspace(-reach, reach, 61)
    problem = gromap.CntGW().problem(x, y, (x.scale, y.scale), EPSILON)
    grid = torch.tensor(np.stack(np.meshgrid(s, s), -1).reshape(-1, 1, 2))
    values = torch.cat([objective(problem, part) for part in grid.split(200)]).view(61, 61).numpy()

    figure = Figure(figsize=(12, 6.2), layout="constrained")
    for axes, (update, path) in zip(figure.subplots(1, 2), paths.items(), strict=True):
        axes.contourf(s, s, values, levels=25, cmap="Blues_r")
        axes.contour(s, s, values, levels=25, colors="#335577", linewidths=0.5)
        axes.plot(*path.T, "o-", color="#d1495b", markersize=4, linewidth=1.2)
        axes.plot(*path[0], "o", color="white", markeredgecolor="#d1495b", markersize=9)
        axes.plot(*path[-1], "*", color="#ffd23f", markeredgecolor="black", markersize=16)
        name = {"standard": "Sinkhorn as usual", "symmetric": "symmetrised Sinkhorn"}[update]
        axes.set(title=f"{name}, {STEPS} steps each", xlabel="Γ₁", ylabel="Γ₂", aspect="equal")
    figure.savefig(args.out, dpi=130)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()

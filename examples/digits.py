"""A small network trained through GromovLoss: handwritten digits, 64 pixels each, go to the
plane with their distances.

    python examples/digits.py --out digits.png

The loss is SGW_ε between the digits (64 dimensions, Euclidean distances, in units of their spread)
and their images. It needs scikit-learn for the digits: `pip install scikit-learn`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure

import gromap


def digits(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of digits, centered and in units of their spread, and what they show.  (n, 64),
    (n,)"""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-not-found]
    except ImportError:
        sys.exit("This example shows the digits of scikit-learn, which is not installed: pip install scikit-learn")
    images, shown = load_digits(return_X_y=True)
    x = torch.tensor(images[:n], dtype=torch.float32)
    x = x - x.mean(0)
    return x / x.square().sum(1).mean().sqrt(), torch.tensor(shown[:n])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("digits.png"))
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--quick", action="store_true", help="few points and steps")
    args = parser.parse_args()
    n, steps = (100, 40) if args.quick else (args.points, args.steps)
    x, labels = digits(n)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    loss = gromap.GromovLoss(epsilon=0.05)
    target = gromap.Space(x, dim=50)  # fixed: embedded once, its self term solved once
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    values = []
    for step in range(steps):
        optimizer.zero_grad()
        value = loss(network(x), target)
        value.backward()
        optimizer.step()
        values.append(value.item())
        if step % 10 == 0:
            print(f"step {step}: {values[-1]:.4f}", flush=True)
    print(f"{values[0]:.4f} to {values[-1]:.4f}: {values[0] / values[-1]:.1f} times lower")
    figure = Figure(figsize=(9.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogy(values, color="#d1495b")
    left.set(xlabel="step", ylabel="SGW")
    image = network(x).detach().numpy()
    points = right.scatter(*image.T, c=labels, cmap="tab10", s=12, linewidths=0)
    right.set(aspect="equal", xticks=[], yticks=[], title="digits in the plane")
    right.legend(*points.legend_elements(), fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(args.out, dpi=110)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()

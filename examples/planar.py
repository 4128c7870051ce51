"""Points drawn inside flat shapes, for the examples."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np


def add_data(parser: argparse.ArgumentParser) -> None:
    default = os.environ.get("GROMAP_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(default), help="the folder that holds shapes2d/ (%(default)s)")


def planar_shape(data: Path, name: str, n: int, seed: int) -> np.ndarray:
    """n points of one of the shapes.  (n, 2)"""
    path = data / "shapes2d" / f"{name}.npy"
    if not path.exists():
        sys.exit(f"No shape {path}: set GROMAP_DATA, or --data, to the folder that holds shapes2d/{name}.npy.")
    points = np.load(path).astype(np.float64)
    return points[np.random.default_rng(seed).choice(len(points), n, replace=False)]

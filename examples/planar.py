"""Where the examples find their shapes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def add_data(parser: argparse.ArgumentParser) -> None:
    default = os.environ.get("GROMAP_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(default), help="the folder that holds shapes2d/ (%(default)s)")

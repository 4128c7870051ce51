"""Where the examples find their shapes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def add_data(parser: argparse.ArgumentParser) -> None:
    default = Path(os.environ.get("GROMAP_DATA", "data"))
    parser.add_argument(
        "--data", type=Path, default=default, help="the folder of the shapes (GROMAP_DATA, else %(default)s)"
    )

"""`make fuzz`: rounds of all tests of this folder with new random cases, until so many minutes are
over or one fails."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    command = [sys.executable, "-m", "pytest", "-n", str(options.processes), "-p", "no:cacheprovider"]
    begin, rounds, code = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while code == 0 and time.monotonic() - begin < 60 * options.minutes:
            env = os.environ | {"GROMAP_FUZZ": folder}
            code = subprocess.run([*command, str(Path(__file__).parent)], env=env, check=False).returncode
            rounds += 1
        tally: Counter[str] = Counter()
        for path in Path(folder).glob("*.json"):
            tally.update(json.loads(path.read_text()))
    minutes = (time.monotonic() - begin) / 60
    print(f"{rounds} rounds in {minutes:.1f} minutes, {'no fault' if code == 0 else 'the last with a fault'}:")
    for name, count in sorted(tally.items()):
        print(f"{count:10,} {name}")
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Peak memory, measured in a fresh process."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import resource, numpy as np, torch, gromap
from gromap import CntGW, Loop, Sinkhorn
rng = np.random.default_rng(0)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20   # GiB on Linux
gromap.solve(rng.normal(size=(50, 3)), rng.normal(size=(50, 3)))            # load everything first
base = peak()
x, y = (rng.normal(size=(20_000, 3)).astype("float32") for _ in range(2))
sol = gromap.solve(x, y, method=CntGW(Loop(Sinkhorn(2), adaptive=False, max_iter=2)))
print(peak() - base)
"""


def test_twenty_thousand_points_stay_under_a_gibibyte():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[-1]) < 1.0

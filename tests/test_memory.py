"""Peak memory, measured in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="elsewhere an earlier peak hides a lower one"
)

CODE = """
import numpy as np, torch, gromap
from gromap import CntGW, Loop, Sinkhorn
from gromap.bench.machine import Meter
rng = np.random.default_rng(0)
gromap.solve(rng.normal(size=(50, 3)), rng.normal(size=(50, 3)))            # load everything first
meter = Meter.start(torch.device("cpu"))
x, y = (rng.normal(size=(20_000, 3)).astype("float32") for _ in range(2))
sol = gromap.solve(x, y, method=CntGW(Loop(Sinkhorn(2), adaptive=False, max_iter=2)), init="zero")
print(meter.read()[1] / 2**20)
"""


def run(code: str, *args: str) -> list[float]:
    """The numbers that such a program prints last; memory in MiB."""
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return [float(z) for z in done.stdout.splitlines()[-1].split()]


def test_twenty_thousand_points_stay_under_a_gibibyte():
    assert run(CODE)[-1] < 1024


LOSS = """
import sys, numpy as np, torch, gromap
from gromap import CntGW, Loop, Sinkhorn
from gromap.bench.machine import Meter
rng = np.random.default_rng(0)
method = CntGW(Loop(Sinkhorn(1), adaptive=False, max_iter=1))
def run(n):
    x = torch.tensor(rng.normal(size=(n, 3)), dtype=torch.float32, requires_grad=True)
    y = torch.tensor(rng.normal(size=(n, 3)), dtype=torch.float32)
    gromap.GromovLoss(epsilon=1.0, debias=False, method=method, init="zero", dim=10)(x, y).backward()
    return float(x.grad.norm())
run(2000)                                                                   # load everything first
meter = Meter.start(torch.device("cpu"))
run(int(sys.argv[1]))
print(meter.read()[1] / 2**20)
"""


def test_a_loss_and_its_gradient_take_linear_memory():
    """Four times the points take no more than four times the memory; one N x N block would be
    1.6 GB."""
    used = [run(LOSS, str(n))[-1] for n in (5000, 20_000)]
    assert used[1] < 4 * used[0] + 50
    assert used[1] < 400


DENSE = """
import sys, numpy as np, torch, gromap
from gromap import Loop, Sinkhorn
from gromap.bench.machine import Meter
from gromap.solvers import METHODS
rng = np.random.default_rng(0)
method = METHODS[sys.argv[1]].with_loop(Loop(Sinkhorn(1), adaptive=False, max_iter=3))
def run(n, m):
    x, y = (torch.tensor(rng.normal(size=(k, 3)), dtype=torch.float32) for k in (n, m))
    return gromap.solve(x, y, method=method, init="zero").stats.memory / 2**20
run(60, 50)                                                                 # load everything first
meter = Meter.start(torch.device("cpu"))
print(run(3000, 4000), meter.read()[1] / 2**20)
"""


@pytest.mark.parametrize("method", ["kernel", "entropic", "proximal", "proximal-kernel"])
def test_a_dense_solve_takes_what_it_says(method):
    said, used = run(DENSE, method)
    assert 0.8 * said < used < said + 100

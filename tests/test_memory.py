"""Peak memory, measured in a fresh process."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, numpy as np, torch, gromap
from gromap import CntGW, Loop, Sinkhorn
rng = np.random.default_rng(0)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20   # GiB on Linux
gromap.solve(rng.normal(size=(50, 3)), rng.normal(size=(50, 3)))            # load everything first
base = peak()
x, y = (rng.normal(size=(20_000, 3)).astype("float32") for _ in range(2))
sol = gromap.solve(x, y, method=CntGW(Loop(Sinkhorn(2), adaptive=False, max_iter=2)), init="zero")
print(peak() - base)
"""


def test_twenty_thousand_points_stay_under_a_gibibyte():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[-1]) < 1.0


LOSS = """
import resource, sys, numpy as np, torch, gromap
from gromap import CntGW, Loop, Sinkhorn
rng = np.random.default_rng(0)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10   # MiB on Linux
method = CntGW(Loop(Sinkhorn(1), adaptive=False, max_iter=1))
def run(n):
    x = torch.tensor(rng.normal(size=(n, 3)), dtype=torch.float32, requires_grad=True)
    y = torch.tensor(rng.normal(size=(n, 3)), dtype=torch.float32)
    gromap.GromovLoss(epsilon=1.0, debias=False, method=method, init="zero", dim=10)(x, y).backward()
    return float(x.grad.norm())
run(2000)                                                                   # load everything first
base = peak()
run(int(sys.argv[1]))
print(peak() - base)
"""


def test_a_loss_and_its_gradient_take_linear_memory():
    """Four times the points take no more than four times the memory; one N x N block would be 1.6 GB."""
    used = []
    for n in (5000, 20_000):
        done = subprocess.run([sys.executable, "-c", LOSS, str(n)], capture_output=True, text=True, check=True)
        used.append(float(done.stdout.split()[-1]))
    assert used[1] < 4 * used[0] + 50
    assert used[1] < 400


DENSE = """
import resource, sys, numpy as np, torch, gromap
from gromap import Loop, Sinkhorn
from gromap.solvers import METHODS
from dataclasses import replace
rng = np.random.default_rng(0)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10   # MiB on Linux
method = replace(METHODS[sys.argv[1]], loop=Loop(Sinkhorn(1), adaptive=False, max_iter=3))
def run(n, m):
    x, y = (gromap.Space(torch.tensor(rng.normal(size=(k, 3)), dtype=torch.float32)) for k in (n, m))
    gromap.solve(x, y, method=method, init="zero")
    return method.memory(x, y) / 2**20
run(60, 50)                                                                 # load everything first
base = peak()
print(run(3000, 4000), peak() - base)
"""


@pytest.mark.parametrize("method", ["kernel", "entropic", "proximal", "proximal-kernel"])
def test_a_dense_solve_takes_what_it_says(method):
    done = subprocess.run([sys.executable, "-c", DENSE, method], capture_output=True, text=True, check=True)
    said, used = (float(z) for z in done.stdout.split()[-2:])
    assert 0.8 * said < used < said + 100

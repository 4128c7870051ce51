"""Whole solves through the fused kernels, in Triton's interpreter: what a GPU runs."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed")

from gromap import CntGW, GromovLoss, Loop, Multiscale, Search, SearchBudget, Sinkhorn, solve
from tests.conftest import cloud

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/test_gpu.py runs these on the GPU itself"),
    pytest.mark.filterwarnings("ignore:overflow"),  # a step after a jump of Γ may overflow, and is then taken again
]
FEW = SearchBudget(
    cells=16, whole=16, finer=((24, 0.15), (30, 0.01)), rounds=1, shaken=3, fused_batch=1, unsure_starts=2
)
OPTIONS = {"epsilon": 0.05, "dim": (6, 5)}


@pytest.fixture
def clouds():
    (x, a), (y, b) = cloud(40, 3, 0, "float32"), cloud(31, 2, 1, "float32")
    return [torch.from_numpy(z) for z in (x, y, a, b)]


@pytest.fixture
def fuse(monkeypatch):
    """Send all float32 data to the kernels, from now on."""

    def send():
        for name, module in list(sys.modules.items()):
            if name.startswith("gromap.") and "fused_for" in vars(module):
                monkeypatch.setattr(module, "fused_for", lambda x: x.dtype == torch.float32)

    return send


@pytest.mark.parametrize("method", [CntGW(), Multiscale(levels=2, ratio=0.5)], ids=lambda m: m.name)
def test_a_solve(clouds, fuse, method):
    plain = solve(*clouds, init="zero", method=method, **OPTIONS)
    fuse()
    fused = solve(*clouds, init="zero", method=method, **OPTIONS)
    assert (plain.stats.engine, fused.stats.engine) == ("tiles", "triton")
    assert fused.history["energy"][-1] == pytest.approx(plain.history["energy"][-1], rel=1e-4)
    assert (fused.map() == plain.map()).float().mean() > 0.9
    torch.testing.assert_close(fused.plan @ clouds[1], plain.plan @ clouds[1], rtol=0, atol=1e-3)


def test_a_search(clouds, fuse):
    """Batches of starts in one launch, k-means from farthest points, steps of the potentials."""
    zero = solve(*clouds, init="zero", **OPTIONS)
    fuse()
    found = solve(*clouds, init=Search(starts=1, budget=FEW), **OPTIONS)
    assert found.stats.minima is not None
    assert found.history["energy"][-1] <= 1.001 * zero.history["energy"][-1]


def test_tiles_left_out(fuse, monkeypatch):
    monkeypatch.setattr("gromap.solvers.embedded.TRUNCATED_PAIRS", {"cpu": 0})
    t = torch.linspace(0, 1, 640)
    x = torch.stack([t, 0.2 * t**2], 1)
    loop = Loop(Sinkhorn(6), adaptive=False, max_iter=1)
    gamma = solve(x[::8], x[::8], epsilon=3e-4, init=np.arange(80), dim=20).gamma
    plain = solve(x, x, epsilon=3e-4, init=gamma, method=CntGW(loop))
    fuse()
    fused = solve(x, x, epsilon=3e-4, init=gamma, method=CntGW(loop))
    assert plain.stats.tiles is not None
    assert fused.stats.tiles == pytest.approx(plain.stats.tiles, abs=0.1)
    torch.testing.assert_close(fused.plan.marginals[1], plain.plan.marginals[1], rtol=1e-2, atol=1e-6)


def test_a_loss_and_its_gradient(clouds, fuse):
    x, y, a, b = clouds
    method = CntGW(Loop(Sinkhorn(30), max_iter=5, marginal_tol=1e-3))
    found = []
    for send in (lambda: None, fuse):
        send()
        points = x.clone().requires_grad_()
        value = GromovLoss(epsilon=1.0, method=method, init="zero", dim=(6, 5))(points, y, a, b)
        value.backward()
        found.append((value.detach(), points.grad))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-3, atol=0)
    assert float((found[1][1] - found[0][1]).norm() / found[0][1].norm()) < 2e-2

"""The same calls on a CUDA device: tensors stay there, and the answers are those of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gromap import solve
from gromap.datasets import humans

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["cnt", "kernel"])
def test_cuda_equals_cpu(dtype, method):
    pair = humans()
    x, y = (torch.from_numpy(m.vertices[:800]).to(dtype) for m in (pair.source, pair.target))
    here = solve(x, y, method=method, epsilon=5e-3)
    there = solve(x.cuda(), y.cuda(), method=method, epsilon=5e-3)
    assert there.gamma.device.type == there.push(x.cuda()).device.type == "cuda"
    assert there.value == pytest.approx(here.value, rel=1e-3)
    assert float((there.p2p_12.cpu() == here.p2p_12).double().mean()) > 0.95
    moved = solve(x.numpy(), y.numpy(), method=method, epsilon=5e-3, device="cuda")
    assert isinstance(moved.gamma, np.ndarray)
    assert moved.info["device"].startswith("cuda")


def test_twenty_thousand_points_on_the_gpu():
    pair = humans()
    rng = np.random.default_rng(0)
    x, y = (
        m.vertices[rng.integers(0, len(m.vertices), 20_000)] + 0.003 * rng.normal(size=(20_000, 3))
        for m in (pair.source, pair.target)
    )
    sol = solve(torch.tensor(x, dtype=torch.float32).cuda(), torch.tensor(y, dtype=torch.float32).cuda())
    assert sol.converged
    print(sol)

"""Sums over the costs of all pairs, tile by tile and in a fused kernel, and the derivatives of
costs."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gromap.geometry.cost_sums import cost_apply, cost_gradient
from gromap.geometry.costs import Custom, Exponential, Gaussian, Power
from gromap.geometry.measure import farthest_points
from gromap.transport import Dense, LowRank, tiles

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("rows", [16, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cost_apply(dtype, rows, monkeypatch):
    monkeypatch.setattr(tiles, "CPU_TILE_ROWS", rows)
    x, y, w = (torch.randn(n, d, dtype=dtype) for n, d in ((70, 3), (45, 3), (45, 5)))
    want = torch.cdist(x.double(), y.double()) @ w.double()
    single = dtype == torch.float32
    torch.testing.assert_close(cost_apply(Power(1), x, y, w).double(), want, rtol=1e-4, atol=1e-4 if single else 1e-12)


@pytest.mark.parametrize("cost", [Power(0.5), Power(1.0), Power(2.0), Power(4.0), Gaussian(0.7), Exponential(0.7)])
def test_written_derivatives_equal_those_of_autograd(cost):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(110, 3, dtype=torch.float64, generator=g)
    x[7], x[8] = x[3], x[3] + 1e-200  # coincident points push nobody
    a, w = torch.rand(len(x), dtype=x.dtype, generator=g), torch.randn(len(x), len(x), dtype=x.dtype, generator=g)
    got, expected = (cost_gradient(c, x, a, Dense(w)) for c in (cost, Custom(cost)))
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    single = cost_gradient(cost, x.float(), a.float(), Dense(w.float()))
    assert float((single - got).norm() / got.norm()) < 1e-5


def test_weights_of_low_rank_are_those_of_their_matrix():
    x, q, k = (torch.randn(40, d, dtype=torch.float64) for d in (3, 2, 2))
    a = torch.rand(40, dtype=torch.float64)
    thin, full = (cost_gradient(Power(1.0), x, a, w) for w in (LowRank(q, k), Dense(q @ k.mT)))
    torch.testing.assert_close(thin, full, rtol=1e-12, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("cost", [Power(1), Power(2), Power(0.5), Gaussian(0.8), Exponential(1.3), Gaussian(50.0)])
@pytest.mark.parametrize("dims", [1, 3, 17])
def test_fused_cost_apply(cost, dims):
    pytest.importorskip("triton", reason="Triton is not installed")
    from gromap.geometry import kernels

    x, y, w = torch.randn(70, dims), torch.randn(45, dims), torch.randn(45, 5)
    y[:3] = x[:3]
    assert cost.radial is not None
    got = kernels.cost_apply(*cost.radial, x.to(DEVICE), y.to(DEVICE), w.double().to(DEVICE)).cpu()
    want = cost(x.double(), y.double()) @ w.double()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5 * float(cost(x, y).max()) * 10)


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "d", "k"), [(5, 1, 3), (300, 3, 40), (700, 21, 9)])
def test_fused_farthest_points_are_those_of_the_loop(n, d, k):
    pytest.importorskip("triton", reason="Triton is not installed")
    from gromap.geometry import kernels

    x = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    want = farthest_points(lambda i: (x - x[i]).square().sum(-1), x.square().sum(-1).argmax(), k)
    assert kernels.farthest(x.to(DEVICE), k).tolist() == want.tolist()

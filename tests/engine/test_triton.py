"""The fused kernels against float64: in Triton's interpreter on small ragged sizes, and on a GPU at real ones."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed")

from gromap.costs import Exponential, Gaussian, Power
from gromap.engine import triton as fused
from tests.engine.test_tiles import make

pytestmark = pytest.mark.gpu  # `make test-gpu` runs these too
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [((), 5, 7, 1), ((), 130, 67, 21), ((2,), 33, 150, 3), ((), 140, 129, 64)]


def on_device(score, *tensors):
    return type(score)(score.q.to(DEVICE), score.k.to(DEVICE)), *(t.to(DEVICE) for t in tensors)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("reach", "rtol"), [(10.0, 2e-5), (2000.0, 3e-3)])
def test_kernels_equal_their_dense_formula(shape, reach, rtol):
    score, u, v, s = make(shape, torch.float32, "low rank", reach)
    balance = (score.k.abs().max() / score.q.abs().max()).sqrt()
    score = type(score)(score.q * balance, score.k / balance)
    s = score.q.double() @ score.k.double().mT
    u = -(s + v.double()[..., None, :]).logsumexp(-1).float()
    p = (s + u.double()[..., None] + v.double()[..., None, :]).exp()
    w = torch.randn(*shape[0], shape[2], 22).abs()
    score, u, v, w = on_device(score, u, v, w)
    rows, cols = (z.cpu().double() for z in fused.sums(score, u, v))
    torch.testing.assert_close(rows, p.sum(-1), rtol=rtol, atol=0)
    torch.testing.assert_close(cols, p.sum(-2), rtol=rtol, atol=rtol * float(p.sum(-2).max()))
    moved = p @ w.cpu().double()
    torch.testing.assert_close(fused.apply(score, u, v, w).cpu().double(), moved, rtol=rtol, atol=rtol * float(moved.max()))
    full = s + v.cpu().double()[..., None, :]
    assert float((fused.lse(score, v).cpu().double() - full.logsumexp(-1)).abs().max()) < rtol
    best = fused.argmax(score, v).cpu()
    gap = full.max(-1).values - full.gather(-1, best[..., None])[..., 0]
    assert float(gap.abs().max()) < rtol * max(1.0, reach / 100)


def test_lse_is_skipped_unless_needed():
    score, _, v, _ = make(((), 20, 30, 3), torch.float32, "low rank")
    score, v = on_device(score, v)
    wanted = fused.lse(score, v)
    torch.testing.assert_close(fused.lse(score, v, torch.tensor(True, device=DEVICE)), wanted)
    fused.lse(score, v, torch.tensor(False, device=DEVICE))  # returns at once, whatever it holds


def test_no_mass_is_no_mass():
    score, u, v, _ = make(((), 40, 30, 3), torch.float32, "low rank")
    v[4], u[7] = -torch.inf, -torch.inf
    score, u, v = on_device(score, u, v)
    rows, cols = fused.sums(score, u, v)
    assert float(rows[7]) == float(cols[4]) == 0
    assert bool(torch.isfinite(fused.lse(score, v)).all())


@pytest.mark.parametrize("cost", [Power(1), Power(2), Power(0.5), Gaussian(0.8), Exponential(1.3), Gaussian(50.0)])
@pytest.mark.parametrize("dims", [1, 3, 17])
def test_cost_apply(cost, dims):
    x, y, w = torch.randn(70, dims), torch.randn(45, dims), torch.randn(45, 5)
    y[:3] = x[:3]
    assert cost.radial is not None
    got = fused.cost_apply(*cost.radial, x.to(DEVICE), y.to(DEVICE), w.double().to(DEVICE)).cpu()
    want = cost(x.double(), y.double()) @ w.double()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5 * float(cost(x, y).max()) * 10)

"""The fused kernels against float64: in Triton's interpreter on small ragged sizes, and on a GPU at real ones."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed")

from gromap.costs import Exponential, Gaussian, Power
from gromap.engine import tiles, truncation
from gromap.engine import triton as fused
from gromap.engine.score import Near
from gromap.measure import farthest_points
from tests.engine.test_tiles import make

pytestmark = pytest.mark.gpu  # `make test-gpu` runs these too
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [((), 5, 7, 1), ((), 130, 67, 21), ((2,), 33, 150, 3), ((), 140, 129, 64), ((), 70, 65, 128)]


def on(device, score, *tensors):
    return type(score)(score.q.to(device), score.k.to(device)), *(t.to(device) for t in tensors)


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
    score, u, v, w = on(DEVICE, score, u, v, w)
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


@pytest.mark.parametrize("why", ["no tensor cores", "out of the range of fp16"])
def test_the_fp32_path(why, monkeypatch):
    score, _, v, _ = make(((), 130, 67, 21), torch.float32, "low rank", 50.0)
    if why == "no tensor cores":
        monkeypatch.setattr(fused, "has_tensor_cores", lambda device: False)
    else:
        score = type(score)(1e-7 * score.q, 1e7 * score.k)
    s = score.q.double() @ score.k.double().mT
    u = -(s + v.double()).logsumexp(-1).float()
    p, w = (s + u.double()[:, None] + v.double()).exp(), torch.randn(67, 5)
    score, u, v, w = on(DEVICE, score, u, v, w)
    rows, cols = fused.sums(score, u, v)
    torch.testing.assert_close((rows.cpu().double(), cols.cpu().double()), (p.sum(1), p.sum(0)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fused.apply(score, u, v, w).cpu().double(), p @ w.cpu().double(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fused.lse(score, v), -u, rtol=1e-5, atol=1e-4)


LISTS = [(300, 517, 0.4, (128, 128)), (128, 130, 0.5, (128, 256)), (40, 400, 0.5, (128, 128)), (260, 270, 0.0, (256, 128))]


@pytest.mark.parametrize(("n", "m", "share", "sizes"), LISTS)
def test_truncated_kernels_equal_truncated_tiles(n, m, share, sizes):
    score, u, v, _ = make(((), n, m, 21), torch.float32, "low rank")
    w = torch.randn(m, 5)
    active = torch.rand(-(-n // sizes[0]), -(-m // sizes[1])) < share

    def run(engine, device):
        near = Near(score, truncation.lists(active.to(device)), truncation.lists(active.mT.to(device)), sizes, share, u)
        z, *biases = on(device, score, u, v, w)
        us, vs, ws = biases
        return *engine.sums(z, us, vs, near), engine.apply(z, us, vs, ws, near), engine.lse(z, vs, near)

    got, want = run(fused, DEVICE), run(tiles, "cpu")
    torch.testing.assert_close(tuple(t.cpu() for t in got), want, rtol=1e-4, atol=1e-4 * (1 + float(want[2].abs().max())))


def test_no_mass_is_no_mass():
    score, u, v, _ = make(((), 40, 30, 3), torch.float32, "low rank")
    v[4], u[7] = -torch.inf, -torch.inf
    score, u, v = on(DEVICE, score, u, v)
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


@pytest.mark.parametrize(("n", "d", "k"), [(5, 1, 3), (300, 3, 40), (700, 21, 9)])
def test_farthest_points_are_those_of_the_loop(n, d, k):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    want = farthest_points(lambda i: (x - x[i]).square().sum(-1), x.square().sum(-1).argmax(), k)
    assert fused.farthest(x.to(DEVICE), k).tolist() == want.tolist()

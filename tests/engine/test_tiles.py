"""Every reduction against its dense float64 formula: ragged tiles, batches, both kinds of score, extreme scores."""

from __future__ import annotations

import pytest
import torch

from gromap.costs import Custom, Exponential, Gaussian, Power
from gromap.engine import LowRank, apply, argmax, cost_apply, lse, sums, tiles, topk

SHAPES = [((), 5, 7, 3), ((), 130, 67, 21), ((3,), 33, 50, 4), ((2, 2), 9, 4, 1), ((), 1, 1, 2)]


@pytest.fixture(autouse=True, params=["one tile", "many tiles"])
def _tile_size(request, monkeypatch):
    if request.param == "many tiles":
        monkeypatch.setattr(tiles, "CPU_TILE_BYTES", 16 * 24 * 8)
        monkeypatch.setattr(tiles, "CPU_TILE_ROWS", 16)


def make(shape, dtype, kind, reach=8.0):
    """A score whose largest entry is `reach`, biases, and the dense float64 matrix of s + u + v."""
    batch, n, m, r = shape
    generator = torch.Generator().manual_seed(n * m + r)
    draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64)  # noqa: E731
    q, k = draw(*batch, n, r), draw(*batch, m, r)
    q = (q * (reach / (q @ k.mT).abs().max())).to(dtype)
    k, u, v = k.to(dtype), draw(*batch, n).to(dtype), draw(*batch, m).to(dtype)
    score = LowRank(q, k) if kind == "low rank" else q @ k.mT
    s = q.double() @ k.double().mT if kind == "low rank" else score.double()
    return score, u, v, s


def close(got, want, rtol):
    torch.testing.assert_close(got.double(), want, rtol=rtol, atol=rtol * 1e-3 * float(want.abs().max()) + 1e-300)


CASES = [
    (torch.float64, 8.0, 1e-10),
    (torch.float64, 2000.0, 1e-10),
    (torch.float32, 50.0, 1e-5),
    (torch.float32, 2000.0, 1e-3),
]


@pytest.mark.parametrize("kind", ["low rank", "dense"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "reach", "rtol"), CASES)
def test_reductions_equal_their_dense_formula(kind, shape, dtype, reach, rtol):
    score, u, v, s = make(shape, dtype, kind, reach)
    u = -(s + v.double()[..., None, :]).logsumexp(-1).to(dtype)  # rows near mass one, whatever the scores
    p = (s + u.double()[..., None] + v.double()[..., None, :]).exp()
    w = torch.randn(*shape[0], shape[2], 4, dtype=dtype).abs()
    rows, cols = sums(score, u, v)
    close(rows, p.sum(-1), rtol)
    torch.testing.assert_close(cols.double(), p.sum(-2), rtol=rtol, atol=rtol * float(p.sum(-2).max()))
    close(apply(score, u, v, w), p @ w.double(), rtol)
    want = (s + v.double()[..., None, :]).logsumexp(-1)
    torch.testing.assert_close(lse(score, v).double(), want, rtol=rtol, atol=rtol)
    want = (s + u.double()[..., None]).logsumexp(-2)
    torch.testing.assert_close(lse(score.mT, u).double(), want, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("kind", ["low rank", "dense"])
@pytest.mark.parametrize("shape", SHAPES)
def test_maxima(kind, shape):
    score, _, v, s = make(shape, torch.float64, kind)
    full = s + v[..., None, :]
    assert torch.equal(argmax(score, v), full.argmax(-1))
    k = min(3, shape[2])
    values, columns = topk(score, v, k)
    torch.testing.assert_close(values, full.topk(k, -1).values)
    assert torch.equal(full.gather(-1, columns).argsort(-1, descending=True), torch.arange(k).expand(columns.shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cost_apply(dtype):
    x, y, w = (torch.randn(n, d, dtype=dtype) for n, d in ((70, 3), (45, 3), (45, 5)))
    want = torch.cdist(x.double(), y.double()) @ w.double()
    torch.testing.assert_close(
        cost_apply(Power(1), x, y, w).double(), want, rtol=1e-4, atol=1e-4 if dtype == torch.float32 else 1e-12
    )


def test_underflow_is_zero_and_minus_infinity_is_no_mass():
    q = torch.full((3, 1), 40.0)
    score = LowRank(q, torch.tensor([[-40.0], [-40.0]]))
    rows, cols = sums(score, torch.zeros(3), torch.zeros(2))
    assert not rows.any()
    assert not cols.any()
    v = torch.tensor([0.0, -torch.inf])
    torch.testing.assert_close(lse(score, v), torch.full((3,), -1600.0))
    torch.testing.assert_close(sums(score, torch.full((3,), 1600.0), v), (torch.ones(3), torch.tensor([3.0, 0.0])))


@pytest.mark.parametrize("kind", ["low rank", "dense"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradient_of_lse(kind, batch):
    q, k, v = (torch.randn(*batch, *size, dtype=torch.float64, requires_grad=True) for size in ((5, 3), (7, 3), (7,)))
    if kind == "low rank":
        assert torch.autograd.gradcheck(lambda q, k, v: lse(LowRank(q, k), v), (q, k, v))
    else:
        s = (q @ k.mT).detach().requires_grad_()
        assert torch.autograd.gradcheck(lse, (s, v))


def test_gradient_of_a_shared_factor():
    q = torch.randn(3, 5, 2, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((4, 2), (4,)))
    assert torch.autograd.gradcheck(lambda q, k, v: lse(LowRank(q, k), v), (q, k, v))


def test_second_derivatives_are_refused():
    q, k, v = (torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((5, 3), (7, 3), (7,)))
    (grad,) = torch.autograd.grad(lse(LowRank(q, k), v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable once"):
        grad.sum().backward()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["low rank", "dense"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_numbers_on_the_gpu(kind, dtype):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    score, u, v, s = make(((), 3000, 2500, 21), dtype, kind)
    there = LowRank(score.q.cuda(), score.k.cuda()) if isinstance(score, LowRank) else score.cuda()
    p = (s + u.double()[:, None] + v.double()).exp()
    rows, cols = sums(there, u.cuda(), v.cuda())
    rtol = 1e-10 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close((rows.cpu().double(), cols.cpu().double()), (p.sum(1), p.sum(0)), rtol=rtol, atol=0)
    torch.testing.assert_close(lse(there, v.cuda()).cpu().double(), (s + v.double()).logsumexp(1), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("cost", [Power(0.5), Power(1.0), Power(2.0), Power(4.0), Gaussian(0.7), Exponential(0.7)])
def test_written_derivatives_equal_those_of_autograd(cost):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(110, 3, dtype=torch.float64, generator=g)
    x[7], x[8] = x[3], x[3] + 1e-200  # coincident points push nobody
    a, w = torch.rand(len(x), dtype=x.dtype, generator=g), torch.randn(len(x), len(x), dtype=x.dtype, generator=g)
    got, expected = (tiles.cost_gradient(c, x, a, w) for c in (cost, Custom(cost)))
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    single = tiles.cost_gradient(cost, x.float(), a.float(), w.float())
    assert float((single - got).norm() / got.norm()) < 1e-5

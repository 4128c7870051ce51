"""Every kind of score, and every engine, through one suite; then what is special to some."""

from __future__ import annotations

import os

import pytest
import torch

from gromap.transport import Dense, Grid, LowRank, Mixture, Score, Truncated, split_cells
from tests.transport.score_suite import ScoreSuite, draw, factors, many_tiles  # noqa: F401 - a fixture

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"
SINGLE = ((50.0, 1e-5), (2000.0, 1e-3))


class TestLowRank(ScoreSuite):
    def make(self, batch, n, m, rank, reach):
        q, k = (z.to(self.device, self.dtype) for z in factors(batch, n, m, rank, reach))
        return LowRank(q, k)


class TestLowRankSingle(TestLowRank):
    dtype, accuracy = torch.float32, SINGLE


@pytest.mark.usefixtures("many_tiles")
class TestLowRankInManyTiles(TestLowRank):
    pass


class TestSharedFactor(TestLowRank):
    """A batch whose columns are the same for all."""

    shapes = (((3,), 33, 50, 4),)

    def make(self, batch, n, m, rank, reach):
        q, _ = factors(batch, n, m, rank, reach)
        _, k = factors((), n, m, rank, reach)
        return LowRank(q, k)


class TestDense(ScoreSuite):
    def make(self, batch, n, m, rank, reach):
        q, k = factors(batch, n, m, rank, reach)
        return Dense((q @ k.mT).to(self.dtype))


class TestDenseSingle(TestDense):
    dtype, accuracy = torch.float32, SINGLE


@pytest.mark.usefixtures("many_tiles")
class TestDenseInManyTiles(TestDense):
    pass


class TestMixture(ScoreSuite):
    batches, accuracy = False, ((8.0, 1e-10), (200.0, 1e-10))

    def make(self, batch, n, m, rank, reach):
        q, k = factors(batch, n, m, rank, reach)
        return Mixture(q.to(self.dtype), k.to(self.dtype))


class TestMixtureSingle(TestMixture):
    dtype, accuracy = torch.float32, ((8.0, 1e-5), (50.0, 1e-4))


@pytest.mark.usefixtures("many_tiles")
class TestMixtureInManyTiles(TestMixture):
    pass


class TestTruncated(ScoreSuite):
    """At potentials where no tile may be left out, the lists hold them all."""

    batches, shapes = False, (((), 5, 7, 3), ((), 300, 270, 6))

    def make(self, batch, n, m, rank, reach):
        q, k = factors(batch, n, m, rank, reach)
        score = LowRank(q, k, Grid(split_cells(q, 64), split_cells(k, 64), 1e-12))
        tiles = -(-n // 64), -(-m // 64)
        from gromap.transport.truncation import Tiles, lists

        active = torch.ones(tiles, dtype=torch.bool)
        return Truncated(
            q, k, score.grid, score, Tiles(lists(active), lists(active.mT), (64, 64), 1.0, torch.zeros(()))
        )


@pytest.mark.gpu
class TestFused(ScoreSuite):
    """The kernels of triton.py: on a GPU, or in Triton's interpreter."""

    dtype, accuracy, device = torch.float32, ((10.0, 2e-5), (2000.0, 3e-3)), "cuda" if HAS_GPU else "cpu"
    shapes = (((), 5, 7, 1), ((), 130, 67, 21), ((2,), 33, 150, 3))

    @pytest.fixture(autouse=True)
    def _fused(self, monkeypatch):
        pytest.importorskip("triton", reason="Triton is not installed")
        monkeypatch.setattr("gromap.transport.lowrank.fused_for", lambda x: x.dtype == torch.float32)

    make = TestLowRank.make

    def test_the_engine_is_named(self):
        assert next(self.cases())[0].engine == "triton"


class TestWrittenOutside(ScoreSuite):
    """A new kind of score needs four members, and inherits the rest."""

    batches = False

    class Product(Score):
        def __init__(self, q, k):
            self.q, self.k = q, k

        shape = property(lambda self: torch.Size((len(self.q), len(self.k))))
        like = property(lambda self: self.q)
        mT = property(lambda self: type(self)(self.k, self.q))  # noqa: N815

        def entries(self, b, i, j):
            return (self.q[i] @ self.k[j].mT)[None]

        def tensors(self):
            return {"q": self.q, "k": self.k}

    def make(self, batch, n, m, rank, reach):
        return self.Product(*factors(batch, n, m, rank, reach))


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dense", [False, True])
def test_same_numbers_on_the_gpu(dense, dtype):
    q, k = (z.to(dtype) for z in factors((), 3000, 2500, 21, 8.0))
    there = Dense((q @ k.mT).cuda()) if dense else LowRank(q.cuda(), k.cuda())
    s, u, v = q.double() @ k.double().mT, draw(3000).to(dtype), draw(2500, seed=1).to(dtype)
    p = (s + u.double()[:, None] + v.double()).exp()
    rows, cols = there.sums(u.cuda(), v.cuda())
    rtol = 1e-10 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close((rows.cpu().double(), cols.cpu().double()), (p.sum(1), p.sum(0)), rtol=rtol, atol=0)
    torch.testing.assert_close(there.lse(v.cuda()).cpu().double(), (s + v.double()).logsumexp(1), rtol=rtol, atol=rtol)


def test_underflow_is_zero_and_minus_infinity_is_no_mass():
    q = torch.full((3, 1), 40.0)
    score = LowRank(q, torch.tensor([[-40.0], [-40.0]]))
    rows, cols = score.sums(torch.zeros(3), torch.zeros(2))
    assert not rows.any()
    assert not cols.any()
    v = torch.tensor([0.0, -torch.inf])
    torch.testing.assert_close(score.lse(v), torch.full((3,), -1600.0))
    torch.testing.assert_close(score.sums(torch.full((3,), 1600.0), v), (torch.ones(3), torch.tensor([3.0, 0.0])))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradient_of_lse(dense, batch):
    q, k, v = (torch.randn(*batch, *size, dtype=torch.float64, requires_grad=True) for size in ((5, 3), (7, 3), (7,)))
    if dense:
        s = (q @ k.mT).detach().requires_grad_()
        assert torch.autograd.gradcheck(lambda s, v: Dense(s).lse(v), (s, v))
    else:
        assert torch.autograd.gradcheck(lambda q, k, v: LowRank(q, k).lse(v), (q, k, v))


def test_gradient_of_a_shared_factor():
    q = torch.randn(3, 5, 2, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((4, 2), (4,)))
    assert torch.autograd.gradcheck(lambda q, k, v: LowRank(q, k).lse(v), (q, k, v))


def test_second_derivatives_are_refused():
    q, k, v = (torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((5, 3), (7, 3), (7,)))
    (grad,) = torch.autograd.grad(LowRank(q, k).lse(v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable once"):
        grad.sum().backward()


@pytest.mark.parametrize("make", [LowRank, lambda q, k: Dense(q @ k.mT)])
def test_sums_and_products_of_scores_as_matrices(make):
    """What the gradients of losses are added up by."""
    one, two = (make(draw(6, 2, seed=s), draw(6, 2, seed=s + 1)) for s in (0, 2))
    w = draw(6, 3, seed=9)
    torch.testing.assert_close((one + two).dense(), one.dense() + two.dense())
    torch.testing.assert_close((one + two * -1.0) @ w, (one.dense() - two.dense()) @ w)

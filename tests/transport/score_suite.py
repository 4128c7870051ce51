"""One suite for all scores: every reduction against its dense float64 formula. Subclasses say
what a score is made of.

class TestLowRank(ScoreSuite):
    def make(self, batch, n, m, rank, reach): ...
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gromap.transport import Score

SHAPES = [((), 5, 7, 3), ((), 130, 67, 21), ((3,), 33, 50, 4), ((2, 2), 9, 4, 1), ((), 1, 1, 2)]


def draw(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def factors(batch, n: int, m: int, rank: int, reach: float) -> tuple[Tensor, Tensor]:
    """Balanced factors of a score whose largest entry is `reach`, in float64."""
    q, k = draw(*batch, n, rank, seed=n * m + rank), draw(*batch, m, rank, seed=n + m)
    size = (reach / (q @ k.mT).abs().max()).sqrt()
    return size * q, size * k


class ScoreSuite:
    """Inherited by the tests of each kind of score and of each engine."""

    dtype = torch.float64
    batches = True
    device = "cpu"
    accuracy = ((8.0, 1e-10), (2000.0, 1e-10))  # largest score, and the relative error that is allowed for
    shapes = SHAPES

    def make(self, batch, n: int, m: int, rank: int, reach: float) -> Score:
        raise TypeError(f"{type(self).__name__} makes no scores: define make().")

    def cases(self):
        for batch, *size in self.shapes:
            if self.batches or not batch:
                for reach, rtol in self.accuracy:
                    yield self.make(batch, *size, reach), rtol

    def biases(self, score: Score) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows near mass one, whatever the scores: u, v, and both in float64 on the CPU."""
        *batch, n, m = score.shape
        v = draw(*batch, m, seed=n).to(self.dtype)
        s = self.matrix(score)
        u = -(s + v.double()[..., None, :]).logsumexp(-1).to(self.dtype)
        return u.to(self.device), v.to(self.device), u.double(), v.double()

    @staticmethod
    def matrix(score: Score) -> Tensor:
        """The score as the float64 matrix that its own numbers stand for."""
        kept = {name: z.double().cpu() for name, z in score.tensors().items()}
        if "score" in kept:
            return kept["score"]
        if "q" in kept:
            return kept["q"] @ kept["k"].mT
        return (kept["log_q"].unsqueeze(-2) + kept["log_k"].unsqueeze(-3)).logsumexp(-1)

    def test_sums_apply_and_lse_equal_their_dense_formula(self):
        for score, rtol in self.cases():
            s, (u, v, u64, v64) = self.matrix(score), self.biases(score)
            p = (s + u64[..., None] + v64[..., None, :]).exp()
            w = draw(*score.batch, score.shape[-1], 4, seed=5).abs().to(self.dtype)
            rows, cols = (z.cpu().double() for z in score.sums(u, v))
            torch.testing.assert_close(rows, p.sum(-1), rtol=rtol, atol=0)
            torch.testing.assert_close(cols, p.sum(-2), rtol=rtol, atol=rtol * float(p.sum(-2).max()))
            moved, want = score.apply(u, v, w.to(self.device)).cpu().double(), p @ w.double()
            torch.testing.assert_close(moved, want, rtol=rtol, atol=rtol * float(want.max()))
            for got, want in (
                (score.lse(v), (s + v64[..., None, :]).logsumexp(-1)),
                (score.mT.lse(u), (s + u64[..., None]).logsumexp(-2)),
            ):
                torch.testing.assert_close(got.cpu().double(), want, rtol=rtol, atol=rtol)

    def test_the_transpose_of_a_sum(self):
        for score, rtol in self.cases():
            u, v, *_ = self.biases(score)
            rows, cols = score.sums(u, v)
            again = score.mT.sums(v, u)
            torch.testing.assert_close(
                (again[1], again[0]), (rows, cols), rtol=2 * rtol, atol=2 * rtol * float(cols.max())
            )
            assert score.mT.shape == (*score.batch, score.shape[-1], score.shape[-2])

    def test_maxima(self):
        for score, rtol in self.cases():
            _, v, _, v64 = self.biases(score)
            full, k = self.matrix(score) + v64[..., None, :], min(3, score.shape[-1])
            top = full.max(-1).values
            tiny = rtol * (1 + full.abs().max())
            assert float((top - full.gather(-1, score.argmax(v).cpu()[..., None])[..., 0]).max()) <= tiny
            values, columns = (z.cpu() for z in score.topk(v, k))
            assert float((values.double() - full.topk(k, -1).values).abs().max()) <= tiny
            assert float((values.double() - full.gather(-1, columns)).abs().max()) <= tiny
            assert bool((columns.sort(-1).values.diff(dim=-1) > 0).all())  # k different ones

    def test_points_without_mass_have_none(self):
        score, _ = next(self.cases())
        u, v, *_ = self.biases(score)
        u[..., 1], v[..., 2] = -torch.inf, -torch.inf
        rows, cols = score.sums(u, v)
        assert not rows[..., 1].any()
        assert not cols[..., 2].any()
        assert bool(torch.isfinite(score.lse(v)).all())

    def test_parts_of_the_matrix(self):
        for score, rtol in self.cases():
            s = self.matrix(score)
            close = {"rtol": rtol, "atol": rtol * float(s.abs().max())}
            torch.testing.assert_close(score.dense().cpu().double(), s, **close)
            if not score.batch:
                index = torch.tensor([0, score.shape[0] - 1], device=self.device)
                torch.testing.assert_close(score.rows(index).cpu().double(), s[index.cpu()], **close)
            if score.shape[-1] == score.shape[-2]:
                torch.testing.assert_close(score.diagonal().cpu().double(), s.diagonal(dim1=-2, dim2=-1), **close)

    def test_another_temperature(self):
        for score, rtol in self.cases():
            try:
                half = score * 0.5
            except (TypeError, ValueError) as error:
                assert "temperature" in str(error)  # noqa: PT017 - some scores have none
                return
            torch.testing.assert_close(half.dense(), 0.5 * score.dense(), rtol=10 * rtol, atol=0)

    def test_a_score_without_order_is_its_own_truncation(self):
        score, _ = next(self.cases())
        u, v, *_ = self.biases(score)
        if not score.truncates:
            assert score.truncate(u, v, u, v) is score
            assert score.tile_share is None
        assert score.full.tile_share is None


@pytest.fixture
def many_tiles(monkeypatch):
    from gromap.transport import tiles

    monkeypatch.setattr(tiles, "CPU_TILE_BYTES", 16 * 24 * 8)
    monkeypatch.setattr(tiles, "CPU_TILE_ROWS", 16)

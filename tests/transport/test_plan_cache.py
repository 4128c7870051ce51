"""Cached plans, against float64 tiles."""

from __future__ import annotations

import math

import pytest
import torch

from gromap.transport import Dense, LowRank
from gromap.transport.plan_cache import MAX_BYTES, PlanCache, cached

CASES = [((), ()), ((3,), (3,)), ((4,), ()), ((2, 3), (3,))]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("rows", "cols"), CASES)
@pytest.mark.parametrize("move", [0.01, 3.0, 80.0, 500.0])
def test_sums_where_the_potentials_move(rows, cols, dense, dtype, move):
    exact = LowRank(draw(*rows, 23, 5), draw(*cols, 17, 5, seed=1))
    batch = exact.shape[:-2]
    score = LowRank(exact.q.to(dtype), exact.k.to(dtype))
    plan = PlanCache(Dense(score.dense()) if dense else score)
    u, v = draw(*batch, 23, seed=2), draw(*batch, 17, seed=3)
    for step in range(4):
        shift = move * draw(*batch, 1, seed=10 + step)  # along here nothing changes, so that sums stay finite
        u, v = u + shift + 0.3 * draw(*batch, 23, seed=20 + step), v - shift + 0.3 * draw(*batch, 17, seed=30 + step)
        got = plan.sums(u.to(dtype), v.to(dtype))
        rtol = 1e-11 * (1 + move) if dtype == torch.float64 else 1e-5 * (1 + move)
        for z, want in zip(got, exact.sums(u, v), strict=True):
            assert z.dtype == dtype
            torch.testing.assert_close(z.double(), want, rtol=rtol, atol=0)


def test_points_without_mass_and_rows_without_any():
    score, u, v = torch.zeros(3, 4), torch.zeros(3), torch.zeros(4)
    v[1], score[2] = -math.inf, -1000.0
    plan = PlanCache(Dense(score))
    for _ in range(2):
        r, c = plan.sums(u, v)
        torch.testing.assert_close(r, torch.tensor([3.0, 3.0, 0.0]))
        torch.testing.assert_close(c, torch.tensor([2.0, 0.0, 2.0, 2.0]))
        assert float(r[2]) == 0.0  # exactly: this is how a lost row is seen
    r, c = plan.sums(u + 50.0, v - 50.0)
    torch.testing.assert_close(r, torch.tensor([3.0, 3.0, 0.0]))


def test_overflow_shows():
    r, c = PlanCache(Dense(torch.full((2, 2), 200.0))).sums(torch.zeros(2), torch.zeros(2))
    assert not bool(torch.isfinite(r).any() | torch.isfinite(c).any())


def test_large_scores_are_not_cached():
    n = math.isqrt(MAX_BYTES // 4)
    small, large = (LowRank(torch.zeros(n, 1), torch.zeros(m, 1)) for m in (n, n + 1))
    assert isinstance(cached(small), PlanCache)
    assert cached(large) is large

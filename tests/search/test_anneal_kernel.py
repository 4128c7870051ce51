"""Sinkhorn steps of a batch of plans in one kernel: in Triton's interpreter on small ragged sizes,
and on a GPU as the search runs them."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed")

from gromap import CntGW, SearchBudget
from gromap._pair import Pair
from gromap.search import anneal, small
from gromap.search.anneal import SmallPair
from gromap.search.anneal_kernel import scale, serves
from gromap.search.small import FARTHEST, LOOK, Clouds
from tests.conftest import cloud

pytestmark = pytest.mark.gpu  # `make test-gpu` runs these too
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def plans(batch, n, m, spread, seed=0):
    """Plans with exact rows, one of them nearly a permutation."""
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.rand(k, generator=generator) + 0.1 for k in (n, m))
    s = spread * torch.randn(batch, n, m, generator=generator)
    a, b = a / a.sum(), b / b.sum()
    return [z.to(DEVICE) for z in (torch.softmax(s, -1) * a[:, None], a, b)]


@pytest.mark.parametrize(("n", "m", "spread"), [(5, 7, 1.0), (33, 20, 5.0), (70, 130, 3.0), (90, 17, 30.0)])
@pytest.mark.parametrize("steps", [1, 7, 60])
@pytest.mark.parametrize("alike", [True, False], ids=["one pair", "a pair each"])
def test_the_kernel_takes_the_steps_of_the_loop(monkeypatch, n, m, spread, steps, alike):
    plan, a, b = plans(3, n, m, spread)
    if not alike:  # other weights for each plan, and a column and a row without any
        a, b = (w * torch.linspace(0.5, 1.5, 3 * len(w), device=DEVICE).view(3, -1) for w in (a, b))
        a[1, -1] = b[2, 0] = 0.0
        a, b = (w / w.sum(1, keepdim=True) for w in (a, b))
        plan = plan * (a / plan.sum(2))[..., None]
        plan[2, :, 0] = 0.0
        plan = plan * (a / plan.sum(2).clamp(min=1e-30))[..., None]
    a, b = (w.view(-1, w.shape[-1]) for w in (a, b))
    tiny = 100 * torch.finfo(torch.float32).tiny
    u, log_v = scale(plan, a, b, steps, 0.0, LOOK, FARTHEST, tiny)
    monkeypatch.setattr(small, "fused_for", lambda x: False)
    x, one = a[..., None], torch.ones(len(a), device=DEVICE)
    clouds = Clouds.of(x, b[..., None], x, b[..., None], a, b, one, one)
    expected_u, _, expected = clouds._sinkhorn(plan, steps, 0.0)
    torch.testing.assert_close(log_v, expected[:, 0], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(u, expected_u[:, 0], rtol=5e-3, atol=1e-9)
    rows = u * torch.bmm(plan, log_v.exp()[..., None])[..., 0]
    torch.testing.assert_close(rows, a.expand_as(rows), rtol=1e-5, atol=1e-7)


def test_a_plan_stops_where_its_marginals_hold():
    """By itself: what another plan of the batch needs does not change it."""
    plan, a, b = plans(2, 24, 18, 2.0)
    hard = plans(1, 24, 18, 30.0)[0]
    both = scale(torch.cat([plan, hard]), a[None], b[None], 400, 1e-3, LOOK, FARTHEST, 1e-36)
    alone = scale(plan, a[None], b[None], 400, 1e-3, LOOK, FARTHEST, 1e-36)
    for one, other in zip(both, alone, strict=True):
        torch.testing.assert_close(one[:2], other)
    u, v = alone[0], alone[1].exp()
    cols = v * torch.bmm(u[:, None], plan)[:, 0]
    assert float((cols - b).abs().sum(-1).max()) < 1e-2


def test_cooling_ends_where_it_ends_without_the_kernel(monkeypatch):
    (x, a), (y, b) = cloud(30, 3, 0, "float32"), cloud(22, 2, 1, "float32")
    pair = Pair.of(*(torch.from_numpy(z).to(DEVICE) for z in (x, y, a, b)), dim=(6, 5), epsilon=0.05)
    cooled = SmallPair(CntGW().problem(pair), torch.float32)
    start, hot = cooled.x.new_zeros(1, cooled.x.shape[1], cooled.y.shape[1]), torch.tensor([0.1])
    ends = []
    for fused in (True, False):
        for module in (anneal, small):
            monkeypatch.setattr(module, "fused_for", lambda x, fused=fused: fused)
        ends.append(cooled.cool(start, hot, 0.05, SearchBudget()).value)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-3, atol=1e-5)


def test_large_plans_are_not_served():
    assert serves(torch.zeros(1, 5000, 2000))
    assert not serves(torch.zeros(1, 5, 2049))

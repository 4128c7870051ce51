"""The fused kernels against float64: in Triton's interpreter on small ragged sizes, and on a GPU
at real ones."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed")

from gromap.transport import LowRank, tiles, truncation
from gromap.transport import triton as fused
from gromap.transport.lowrank import _Listed
from gromap.transport.truncation import Tiles
from tests.transport.score_suite import draw, factors

pytestmark = pytest.mark.gpu  # `make test-gpu` runs these too
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make(n, m, rank, reach=8.0):
    """A float32 score and biases."""
    q, k = (z.float() for z in factors((), n, m, rank, reach))
    return LowRank(q, k), draw(n, seed=1).float(), draw(m, seed=2).float()


def on(device, score, *tensors):
    return LowRank(score.q.to(device), score.k.to(device)), *(t.to(device) for t in tensors)


@pytest.mark.parametrize("rank", [22, 27, 64, 128])  # the last chunk may be shorter
def test_features_in_several_chunks(rank):
    score, _, v = make(140, 129, rank, 10.0)
    s = score.q.double() @ score.k.double().mT
    u = -(s + v.double()).logsumexp(-1).float()
    p = (s + u.double()[:, None] + v.double()).exp()
    score, u, v = on(DEVICE, score, u, v)
    rows, cols = fused.sums(score, u, v)
    torch.testing.assert_close((rows.cpu().double(), cols.cpu().double()), (p.sum(1), p.sum(0)), rtol=2e-5, atol=1e-6)
    torch.testing.assert_close(
        fused.lse(score, v).cpu().double(), (s + v.cpu().double()).logsumexp(-1), rtol=0, atol=2e-5
    )


@pytest.mark.parametrize("why", ["no tensor cores", "out of the range of fp16"])
def test_the_fp32_path(why, monkeypatch):
    score, _, v = make(130, 67, 21, 50.0)
    if why == "no tensor cores":
        monkeypatch.setattr(fused, "has_tensor_cores", lambda device: False)
    else:
        score = LowRank(1e-7 * score.q, 1e7 * score.k)
    s = score.q.double() @ score.k.double().mT
    u = -(s + v.double()).logsumexp(-1).float()
    p, w = (s + u.double()[:, None] + v.double()).exp(), torch.randn(67, 5)
    score, u, v, w = on(DEVICE, score, u, v, w)
    rows, cols = fused.sums(score, u, v)
    torch.testing.assert_close((rows.cpu().double(), cols.cpu().double()), (p.sum(1), p.sum(0)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fused.apply(score, u, v, w).cpu().double(), p @ w.cpu().double(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fused.lse(score, v), -u, rtol=1e-5, atol=1e-4)


LISTS = [
    (300, 517, 0.4, (128, 128)),
    (128, 130, 0.5, (128, 256)),
    (40, 400, 0.5, (128, 128)),
    (260, 270, 0.0, (256, 128)),
]


@pytest.mark.parametrize(("n", "m", "share", "sizes"), LISTS)
def test_truncated_kernels_equal_truncated_tiles(n, m, share, sizes):
    score, u, v = make(n, m, 21)
    w = torch.randn(m, 5)
    active = torch.rand(-(-n // sizes[0]), -(-m // sizes[1])) < share

    def lists(device):
        by = truncation.lists(active.to(device)), truncation.lists(active.mT.to(device))
        return Tiles(*by, sizes, share, torch.zeros(()))

    z, us, vs, ws = on(DEVICE, score, u, v, w)
    got = (
        *fused.sums(z, us, vs, lists(DEVICE)),
        fused.apply(z, us, vs, ws, lists(DEVICE)),
        fused.lse(z, vs, lists(DEVICE)),
    )
    listed = _Listed(score, lists("cpu"))
    want = *tiles.sums(listed, u, v), tiles.apply(listed, u, v, w), tiles.lse(listed, v)
    torch.testing.assert_close(
        tuple(t.cpu() for t in got), want, rtol=1e-4, atol=1e-4 * (1 + float(want[2].abs().max()))
    )


@pytest.mark.parametrize(("cells", "size", "rank", "count"), [(3, 128, 21, 70), (1, 2, 3, 1), (2, 200, 40, 5)])
def test_largest_scores_of_cells(cells, size, rank, count):
    q, f, d = torch.randn(cells, size, rank), torch.randn(cells, size), torch.randn(count, rank)
    found = fused.cell_max(*(z.to(DEVICE) for z in (q, f, d)))
    expected = (f[..., None].double() + q.double() @ d.double().mT).amax(1)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5)


def test_no_mass_is_no_mass():
    score, u, v = make(40, 30, 3)
    v[4], u[7] = -torch.inf, -torch.inf
    score, u, v = on(DEVICE, score, u, v)
    rows, cols = fused.sums(score, u, v)
    assert float(rows[7]) == float(cols[4]) == 0
    assert bool(torch.isfinite(fused.lse(score, v)).all())

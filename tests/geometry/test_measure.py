"""Weighted clouds: the nearest center, and points that are drawn."""

from __future__ import annotations

import pytest
import torch

from gromap.geometry import measure
from gromap.geometry.measure import coarsen, drawn_points, nearest, own_generator


@pytest.mark.parametrize("dense", [1 << 24, 0])  # all distances, or by tiles
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1.0, 1e3), (1e25, 0.0), (1e-25, 1e3)])
def test_the_nearest_center(dense, scale, offset, monkeypatch):
    monkeypatch.setattr(measure, "DENSE_PAIRS", dense)
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(300, 3, generator=generator) + offset) * scale
    found = nearest(x, x[:40])
    apart = torch.cdist(x.double(), x[:40].double())
    assert float((apart.gather(1, found[:, None])[:, 0] - apart.min(1).values).max()) <= 1e-3 * scale
    assert found[:40].tolist() == list(range(40))


def test_points_are_drawn_by_weight_and_once():
    weights = torch.cat([torch.full((50,), 1e-3), torch.ones(50), torch.zeros(20)])
    chosen = drawn_points(weights, 40, own_generator(0))
    assert len(chosen.unique()) == 40
    assert int((chosen >= 100).sum()) == 0  # none without weight
    assert int((chosen >= 50).sum()) > 35


@pytest.mark.parametrize("spread", [500, 0])  # cells from farthest points, or from drawn ones
def test_points_that_coincide_share_a_cell(spread, monkeypatch):
    monkeypatch.setattr(measure, "FARTHEST_CELLS", spread)
    places = torch.tensor([[1e3, 0.0], [1e3 + 2, 0.0], [1e3 + 1, 3.0]])
    x, a = places.repeat(10, 1), torch.arange(1.0, 31.0) / 465
    centers, mass = coarsen(x, a, 29)
    order = centers[:, 1].mul(10).add(centers[:, 0]).argsort()
    torch.testing.assert_close(centers[order], places)
    torch.testing.assert_close(mass[order], a.view(10, 3).sum(0))

"""Functions that are no costs are refused, wherever the pair lies that tells so."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gromap
from gromap import Space

X = np.random.default_rng(0).normal(size=(700, 3))


def euclidean(x, y):
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def beyond(x, y):
    """Pairs of a point with a large first coordinate and one with a negative first coordinate."""
    return (x[:, 0] > 2.4)[:, None] & (y[:, 0] < 0)


WRONG = {
    "not symmetric": (lambda x, y: euclidean(x, y) * (1 + 0.1 * beyond(x, y)), "c.x, y. and c.y, x. differ by up to"),
    "negative": (
        lambda x, y: euclidean(x, y) * torch.where(beyond(x, y) | beyond(y, x).mT, -1.0, 1.0),
        r"the cost of X is negative \(down to -",
    ),
    "not zero": (
        lambda x, y: euclidean(x, y) + ((x[:, 0] > 2.4)[:, None] & (y[:, 0] > 2.4)),
        r"is not zero on the diagonal: c\(x, x\) = 1\.",
    ),
    "negative everywhere": (lambda x, y: -euclidean(x, y), r"the cost of X is negative \(down to -"),
    "a sum": (lambda x, y: euclidean(x, y).sum(), r"an \(n, m\) tensor, got \(\) for n = m = 64"),
    "no tensor": (lambda x, y: 1.0, r"an \(n, m\) tensor, got float"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_cost(case):
    cost, message = WRONG[case]
    assert not (X[:64, 0] > 2.4).any()  # beyond the points that all costs are checked on
    for call in (lambda: Space(X, cost=cost), lambda: gromap.solve(X, X, cost=cost)):
        with pytest.raises(ValueError, match=message):
            call()


def test_costs_are_accepted():
    sphere = X / np.linalg.norm(X, axis=1, keepdims=True)
    for points, cost in ((X, euclidean), (X, "euclidean"), (sphere, "spherical"), (sphere / 2, "hyperbolic")):
        assert len(Space(points, cost=cost)) == 700
        assert len(Space(points.astype(np.float32), cost=cost)) == 700

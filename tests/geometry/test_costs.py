from __future__ import annotations

import numpy as np
import pytest
import torch

from gromap import Custom, Exponential, Gaussian, Hyperbolic, Power, Precomputed, Space, Spherical, Tree
from gromap.geometry.costs import as_cost

X = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
PARENTS = [-1, 0, 0, 1, 1, 2, 5, 5, 3]
LENGTHS = [0, 1.5, 0.5, 2.0, 0.25, 1.0, 3.0, 0.75, 1.25]

CASES = {
    "sqeuclidean": (Power(2), X),
    "euclidean": (Power(1), X),
    "root": (Power(0.5), X),
    "power 1.5": (Power(1.5), X),
    "gaussian": (Gaussian(0.7), X),
    "exponential": (Exponential(0.7), X),
    "spherical": (Spherical(), X / X.norm(dim=1, keepdim=True)),
    "hyperbolic": (Hyperbolic(), 0.9 * X / X.norm(dim=1).max()),
    "tree": (Tree.from_parents(PARENTS, LENGTHS), torch.arange(9)[:, None]),
    "precomputed": (Precomputed(torch.cdist(X, X)), torch.arange(60)[:, None]),
    "custom": (Custom(lambda x, y: torch.cdist(x, y, p=1)), X),  # the l1 norm is CNT
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_on_the_diagonal_symmetric_and_cnt(name, dtype):
    cost, points = CASES[name]
    points = points.to(dtype) if points.is_floating_point() else points
    c = cost(points, points)
    assert not c.diagonal().any() or name in ("precomputed", "custom"), "c(x, x) = 0 exactly"
    torch.testing.assert_close(c, c.mT)
    assert bool((c >= 0).all())
    space = Space(points if points.is_floating_point() else points[:, 0], cost=cost)
    assert space.negative_mass < 1e-5


def test_formulas():
    x, y = X[:4], X[4:9]
    d = torch.cdist(x, y)
    torch.testing.assert_close(Power(1.5)(x, y), d**1.5)
    torch.testing.assert_close(Gaussian(0.7)(x, y), 2 - 2 * torch.exp(-(d**2) / (2 * 0.7**2)))
    torch.testing.assert_close(Exponential(0.7)(x, y), 2 - 2 * torch.exp(-d / 0.7))
    u, v = x / x.norm(dim=1, keepdim=True), y / y.norm(dim=1, keepdim=True)
    torch.testing.assert_close(Spherical()(u, v), torch.acos(u @ v.mT))
    p, q = 0.2 * x, 0.2 * y
    ratio = torch.cdist(p, q) ** 2 / ((1 - (p**2).sum(1))[:, None] * (1 - (q**2).sum(1)))
    torch.testing.assert_close(Hyperbolic()(p, q), torch.acosh(1 + 2 * ratio))


def test_tree_distance_is_the_path_length():
    n = len(PARENTS)
    want = np.full((n, n), np.inf)
    np.fill_diagonal(want, 0)
    for child, parent in enumerate(PARENTS):
        if parent >= 0:
            want[child, parent] = want[parent, child] = LENGTHS[child]
    for k in range(n):  # Floyd and Warshall
        want = np.minimum(want, want[:, k, None] + want[k])
    nodes = torch.arange(n)[:, None]
    np.testing.assert_allclose(Tree.from_parents(PARENTS, LENGTHS)(nodes, nodes).numpy(), want, atol=1e-12)


@pytest.mark.parametrize("cost", [Power(0.5), Power(1.0), Power(1.5), Gaussian(1.0), Exponential(1.0)])
def test_gradients_are_finite_at_coincident_points(cost):
    x = X[:5].clone().requires_grad_()
    cost(x, x).sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())


def test_costs_that_are_not_cnt_are_measured():
    assert Space(X.numpy(), cost=Power(4)).negative_mass > 0.05
    assert Space(X.numpy(), cost=Power(2.0)).negative_mass < 1e-10


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Power(0), "p > 0"),
        (lambda: Gaussian(-1.0), "sigma > 0"),
        (lambda: as_cost("euclidian"), "did you mean 'euclidean'"),
        (lambda: as_cost(3), "must be a name"),
        (lambda: Tree.from_parents([-1, -1]), "single root"),
        (lambda: Tree.from_parents([-1, 2, 1]), "cycle"),
        (lambda: Tree.from_parents([-1, 0], [0, -1.0]), ">= 0"),
        (lambda: Space(2 * X.numpy(), cost="spherical"), "unit vectors"),
        (lambda: Space(2 * X.numpy(), cost="hyperbolic"), "unit ball"),
        (lambda: Space(np.array([0, 9]), cost=Tree.from_parents(PARENTS)), "got index 9"),
        (lambda: Space(X.numpy(), cost=Tree.from_parents(PARENTS)), "integer indices"),
        (lambda: Space(X.numpy(), cost=lambda x, y: torch.cdist(x, y) + 1), "not zero on the diagonal"),
        (lambda: Space(X.numpy(), cost=lambda x, y: x @ y.mT * 0 + x[:, :1] - y[:, 0]), "not symmetric"),
        (lambda: Space(X.numpy(), cost=lambda x, y: x), "to an \\(n, m\\) tensor"),
        (lambda: Space(X.numpy(), cost=lambda x, y: torch.cdist(x, y).log()), "NaN or infinite"),
    ],
)
def test_bad_costs_say_what_is_wrong(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()

from __future__ import annotations

import numpy as np
import pytest
import torch

from gromap import Custom, Gaussian, KernelPCA, Nystrom, Power, Space
from gromap.geometry import eigen, embedding
from gromap.geometry.embedding import embed, kernel_matrix, signed_factors
from gromap.geometry.measure import Measure
from tests.conftest import cloud

COSTS = [Power(1.0), Power(0.5), Gaussian(1.5)]


@pytest.mark.parametrize("cost", COSTS)
def test_full_embedding_reproduces_the_cost(cost):
    x, a = cloud(50, 3, 0)
    space = Space(x, a, cost=cost, dim=50)
    z = torch.from_numpy(space.features)
    torch.testing.assert_close(
        torch.cdist(z, z) ** 2, cost(torch.from_numpy(x), torch.from_numpy(x)), atol=1e-9, rtol=1e-9
    )
    np.testing.assert_allclose(space.weights @ space.features, 0, atol=1e-12)
    assert space.explained == pytest.approx(1.0)


@pytest.mark.parametrize("cost", COSTS)
def test_krylov_equals_dense_eigenvectors(cost, monkeypatch):
    x, a = cloud(300, 3, 1)
    dense = Space(x, a, cost=cost, dim=10)
    assert dense.embedding.residual == 0  # found now, directly
    monkeypatch.setattr(eigen, "DIRECT_POINTS", 10)
    monkeypatch.setattr(eigen, "DENSE_POINTS", 100)  # stream the costs, never the (N, N) matrix
    streamed = Space(x, a, cost=cost, dim=10, embedding=KernelPCA(tol=1e-9))
    np.testing.assert_allclose(streamed.spectrum, dense.spectrum, rtol=1e-9)
    np.testing.assert_allclose(streamed.features, dense.features, atol=1e-6 * np.abs(dense.features).max())
    assert streamed.embedding.residual < 1e-8
    streamed = Space(x, a, cost=cost, dim=10)
    np.testing.assert_allclose(streamed.spectrum, dense.spectrum, rtol=1e-6)


def test_as_many_axes_as_a_sample_needs_are_sought_at_once(monkeypatch):
    """`dim="auto"` knows from a few points that 50 dimensions take many axes, and asks once."""
    asked, found = [], embedding.eigenpairs
    monkeypatch.setattr(
        embedding, "eigenpairs", lambda kernel, dim, *rest: asked.append(dim) or found(kernel, dim, *rest)
    )
    x, a = cloud(700, 50, 3)
    with pytest.warns(UserWarning, match="128 axes"):
        assert Space(x, a).features.shape[1] == 128
    assert asked == [128]
    few = Space(x[:, :2], a)
    assert few.explained >= 0.8
    assert asked[1:] == [20]


@pytest.mark.parametrize("choice", ["random", "farthest"])
def test_nystrom_refines_towards_the_exact_spectrum(choice, monkeypatch):
    x, a = cloud(600, 3, 2)
    exact = Space(x, a, dim=10, embedding=KernelPCA()).spectrum
    errors = []
    for refine in (0, 1, 2, 3):
        space = Space(x, a, dim=10, embedding=Nystrom(100, refine, choice))
        errors.append(np.abs(space.spectrum - exact).sum() / exact.sum())
        np.testing.assert_allclose(space.project(x), space.features, atol=1e-9)
        np.testing.assert_allclose(space.weights @ space.features, 0, atol=1e-12)
    assert errors[0] < 0.05
    assert errors[1] < errors[0] / 2
    assert errors[3] < 1e-3


def test_landmarks_do_not_follow_the_draw_of_the_points():
    # the seed of the landmarks, too
    t = torch.rand(3000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.stack([torch.cos(5 * t), torch.sin(5 * t)], 1)
    exact, near = (Space(x, dim=5, embedding=e).spectrum for e in (KernelPCA(), Nystrom(100, refine=0)))
    torch.testing.assert_close(near, exact, rtol=0.2, atol=0.02 * float(exact[0]))


def test_sweeps_go_on_where_landmarks_were_a_bad_choice():
    x, a = cloud(600, 3, 2)
    space = Space(x, a, dim=10, embedding=Nystrom(11, refine=1))
    assert space.embedding.residual <= 1e-2
    exact = Space(x, a, dim=10, embedding=KernelPCA()).spectrum
    np.testing.assert_allclose(space.spectrum, exact, atol=1e-3 * exact[0])


def test_weights_enter_the_pca_and_splitting_a_point_changes_nothing():
    x, a = cloud(40, 3, 3)
    space = Space(x, a, dim=8)
    twice, half = np.concatenate([x, x[:5]]), np.concatenate([a, a[:5] / 2])
    half[:5] /= 2
    split = Space(twice, half, dim=8)
    np.testing.assert_allclose(split.spectrum, space.spectrum, rtol=1e-9)
    np.testing.assert_allclose(split.features[:40], space.features, atol=1e-8)
    root = np.sqrt(space.weights)
    k = kernel_matrix(Power(1)(*[torch.from_numpy(x)] * 2), torch.from_numpy(space.weights)).numpy()
    np.testing.assert_allclose(space.spectrum, np.linalg.eigvalsh(root[:, None] * k * root)[::-1][:8], rtol=1e-9)


def test_points_without_weight_are_embedded_like_new_points():
    x, a = cloud(60, 3, 4)
    a[50:] = 0
    space, support = Space(x, a, dim=6), Space(x[:50], a[:50], dim=6)
    np.testing.assert_allclose(space.features[:50], support.features, atol=1e-9)
    np.testing.assert_allclose(space.features[50:], support.project(x[50:]), atol=1e-9)


@pytest.mark.parametrize("cost", [*COSTS, Power(2.0)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_project_agrees_on_the_old_points(cost, dtype):
    x, a = cloud(80, 3, 5, dtype)
    space = Space(x, a, cost=cost, dim=5)
    assert space.features.dtype == np.dtype(dtype)
    np.testing.assert_allclose(space.project(x), space.features, atol=1e-5 if dtype == "float32" else 1e-10)
    assert space.project(x[:1]).shape == space.features[:1].shape


def test_squared_euclidean_uses_the_centered_points():
    x, a = cloud(30, 3, 6)
    space = Space(x, a, cost="sqeuclidean")
    np.testing.assert_allclose(space.features, x - (a / a.sum()) @ x, atol=1e-12)
    assert space.explained == pytest.approx(1.0)
    assert Space(x, a, cost="sqeuclidean", dim=2).features.shape == (30, 2)


@pytest.mark.parametrize("cost", ["euclidean", "sqeuclidean"])
def test_dim_as_explained_variance(cost):
    x, a = cloud(200, 4, 7)
    for share in (0.5, 0.9, 0.97):
        space = Space(x, a, cost=cost, dim=share)
        d = space.features.shape[1]
        assert space.explained >= share
        assert d == 1 or Space(x, a, cost=cost, dim=d - 1).explained < share


def test_matrix_input_equals_point_input():
    x, a = cloud(50, 3, 8)
    c = torch.cdist(*[torch.from_numpy(x)] * 2).numpy()
    np.testing.assert_allclose(Space.from_costs(c, a, dim=7).features, Space(x, a, dim=7).features, atol=1e-9)


def test_torch_in_torch_out():
    x, _ = cloud(50, 3, 9)
    assert isinstance(Space(torch.from_numpy(x)).features, torch.Tensor)
    assert isinstance(Space(x).features, np.ndarray)
    assert "50 points" in repr(Space(x))


@pytest.mark.parametrize("cost", [Power(2.0), Power(1.0), Power(0.5), Gaussian(1.3)])
def test_moments_are_sums_over_all_pairs(cost):
    x, a = cloud(30, 3, 4)
    space = Space(x, a, cost=cost, dim=30)
    c, w = cost(torch.from_numpy(x), torch.from_numpy(x)).numpy(), space.weights
    np.testing.assert_allclose(space.moments.squares.numpy(), c**2 @ w, rtol=1e-12)
    np.testing.assert_allclose(space.moments.norms.numpy(), (space.features**2).sum(1), rtol=1e-9)


@pytest.mark.parametrize(("width", "dim"), [(10.0, 40), (100.0, 5), (100.0, 30)])
def test_smooth_kernels_have_few_axes(width, dim):
    """Beyond these, A is rounding errors, which are no directions to search in."""
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(700, 3)))
    measure, cost = Measure(x, torch.full((700,), 1 / 700, dtype=torch.float64)), Gaussian(width)
    found = embed(cost, measure, dim, KernelPCA())
    costs = cost(x, x)
    expected = torch.linalg.eigvalsh(kernel_matrix(costs, measure.weights) / 700).flip(0)[:dim]
    torch.testing.assert_close(found.spectrum, expected, rtol=0, atol=1e-11 * float(expected[0]))
    apart = (found.features[:, None] - found.features).square().sum(-1)
    torch.testing.assert_close(apart, costs, rtol=0, atol=1e-3 * float(costs.max()))


@pytest.mark.parametrize(("power", "dim"), [(4.0, 5), (2.0, 20)])
def test_signed_factors_of_costs_of_low_rank(power, dim):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(700, 3)))
    costs = Power(power)(x, x)
    found = signed_factors(Power(power), Measure(x, torch.full((700,), 1 / 700, dtype=torch.float64)), dim)
    error = float((costs + 2 * (found.values * found.signs) @ found.values.mT).norm() / costs.norm())
    values = torch.linalg.eigvalsh(costs).square().sort(descending=True).values
    assert error == pytest.approx(float(values[dim:].sum() / values.sum()) ** 0.5, abs=1e-6)
    assert found.error == pytest.approx(error, abs=1e-6)


def rounded(n, seed=0):
    """Euclidean distances rounded to integers, which are not CNT, and weights."""
    x, a = cloud(n, 3, seed)
    return np.round(2 * np.linalg.norm(x[:, None] - x, axis=-1)), a


def eigenvalues(space):
    """Those of A, all of them, decreasing."""
    c, a = space.cost(space.measure.points, space.measure.points), space.measure.weights
    return torch.linalg.eigvalsh(a.sqrt()[:, None] * kernel_matrix(c, a) * a.sqrt()).flip(0)


def test_explained_is_a_share_of_the_positive_eigenvalues():
    """The trace is smaller than their sum where others are negative: 150 % of it were explained."""
    c, a = rounded(200)
    for dim in (1, 10, 60, 200):
        space = Space(c, a, cost="precomputed", dim=dim, embedding=KernelPCA())
        theta = eigenvalues(space).clamp(min=0)
        assert space.explained == pytest.approx(float(theta[:dim].sum() / theta.sum()), abs=1e-9)
        assert 0 < space.explained <= 1
    for share in (0.5, 0.9, 0.97):
        space = Space(c, a, cost="precomputed", dim=share)
        d = space.features.shape[1]
        assert space.explained >= share > Space(c, a, cost="precomputed", dim=d - 1).explained


@pytest.mark.parametrize("method", [KernelPCA(), Nystrom(300, refine=0), Nystrom(300, refine=1)])
def test_explained_is_estimated_where_few_eigenvalues_are_known(method, monkeypatch):
    monkeypatch.setattr(eigen, "DIRECT_POINTS", 100)
    space = Space(*rounded(700), cost="precomputed", dim=30, embedding=method)
    theta = eigenvalues(space).clamp(min=0)
    assert space.explained == pytest.approx(float(theta[:30].sum() / theta.sum()), rel=0.2)
    assert space.explained < 0.7


@pytest.mark.parametrize("share", [0.5, 0.95, 0.999])
def test_a_share_of_variance_ends_where_no_positive_eigenvalue_is_left(share, monkeypatch):
    """|x - x'|⁴ in three dimensions has three of them, whatever the sum was estimated as."""
    monkeypatch.setattr(eigen, "DIRECT_POINTS", 100)
    monkeypatch.setattr(eigen, "DENSE_POINTS", 100)
    x, a = cloud(400, 3, 3)
    space = Space(x, a, cost=Power(4), dim=share, embedding=KernelPCA())
    assert space.features.shape[1] <= 3
    assert share <= space.explained <= 1


def test_the_positive_sum_of_a_share_near_one_half_is_bounded(monkeypatch):
    monkeypatch.setattr(eigen, "DIRECT_POINTS", 100)
    x, a = cloud(300, 3, 4)
    measure = Measure(torch.from_numpy(x), torch.from_numpy(a / a.sum()))
    cost = Custom(lambda x, y: torch.cdist(x, y).round())
    known, unknown = (embed(cost, measure, 5, KernelPCA(), negative=lambda m=m: m) for m in (0.3, 0.5))
    assert 0 < unknown.explained < known.explained < 1


def test_costs_that_are_cnt_are_not_measured(monkeypatch):
    """That takes all eigenvalues of 512 points."""

    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr("gromap._space.negative_mass", refuse)
    x, a = cloud(700, 3, 5)
    assert 0 < Space(x, a, dim=5).explained < 1
    with pytest.raises(AssertionError):
        Space(x, a, cost=Power(3), dim=2).explained  # noqa: B018


def test_no_negative_mass_is_zero_and_has_no_sign():
    mass = Space(*cloud(50, 3, 6), cost="sqeuclidean").negative_mass
    assert mass == 0
    assert not np.signbit(mass)

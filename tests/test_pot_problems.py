"""The problems on which POT tests its Gromov-Wasserstein solvers, put to gromap.

From test/gromov/test_gw.py and test_bregman.py of POT: data, weights, temperatures, and what is
asked of the plan. Barycenters, fused costs and the KL loss have no counterpart here. For
square_loss and symmetric costs the two libraries relate so:

- The loss is the same, L(π) = Σ (C1_ik - C2_jl)² π_ij π_kl: "gw_dist" is `Solution.value_gw`.
- Epsilon is the same, without a factor. POT takes the whole gradient, 2 (const - 2 C1 π C2), as the
  cost of a Sinkhorn at epsilon; gromap minimizes L + ε KL(π | p⊗q), whose linearized cost is
  -4 C1 π C2, the same up to terms in i alone and in j alone. POT subtracts ε H(π) where gromap
  adds ε KL(π | p⊗q): on couplings these differ by the constant ε (H(p) + H(q)).
- POT takes matrices as they are (scale=None); its tests divide them by their maximum. Its Sinkhorn
  ends at 1e-9, gromap's where 1e-3 of the mass is misplaced: `FINE` asks for 1e-5.
- `gromov_wasserstein` has no entropy: it is method="conditional-gradient", or a small epsilon. A
  plan that is a permutation to 1e-4 takes ε = 1e-5 for 20 points: 1e-4 blurs entries by 1e-2.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from gromap import CntGW, GromovLoss, KernelGW, Loop, ProximalGW, Sinkhorn, solve

ot = pytest.importorskip("ot")
pytestmark = pytest.mark.filterwarnings("ignore:Sinkhorn did not converge")  # of POT

FINE = Loop(max_steps=5000, marginal_tol=1e-5)
STANDARD = Loop(Sinkhorn(1000, tol=1e-9, update="standard"), adaptive=False, max_steps=1000, tol=1e-12)
COPIES = [(20, 1), (20, 4), (10, 42)]  # points, seed
CLOUDS = [(10, (0, 1), 1e-2), (10, (0, 1), 1e-4), (20, (4, 5), 1e-3)]  # points, seeds, epsilon


def gauss(n: int, seed: int) -> np.ndarray:
    return ot.datasets.make_2D_samples_gauss(n, np.zeros(2), np.eye(2), random_state=seed)


def costs(x: np.ndarray) -> np.ndarray:
    return ot.dist(x, x) / ot.dist(x, x).max()


def reversed_copy(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Costs, those of the points in reverse order, and the plan between them."""
    c = costs(gauss(n, seed))
    return c, c[::-1, ::-1].copy(), np.fliplr(np.eye(n)) / n


def match(c1, c2, p=None, q=None, **options):
    return solve(c1, c2, p, q, cost="precomputed", scale=None, **options)


def assert_coupling(plan: np.ndarray) -> None:
    for side in (0, 1):
        np.testing.assert_allclose(plan.sum(side), 1 / len(plan), atol=1e-4)


@pytest.mark.parametrize("init", ["auto", "zero"])
@pytest.mark.parametrize(("n", "seed"), COPIES)
def test_a_reversed_copy_without_entropy(n, seed, init):
    """test_gromov: from the product plan as in POT, and from the search."""
    c1, c2, flip = reversed_copy(n, seed)
    sol = match(c1, c2, None, np.full(n, 1 / n), method="conditional-gradient", init=init)
    np.testing.assert_allclose(sol.plan.dense(), flip, atol=1e-12)
    assert sol.value_gw == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("n", "seed"), COPIES)
def test_a_reversed_copy_at_1e_4(n, seed):
    """test_gromov by default: each point finds its copy, and the value is zero to 1e-4."""
    c1, c2, flip = reversed_copy(n, seed)
    sol = match(c1, c2, epsilon=1e-4)
    assert_coupling(sol.plan.dense())
    assert (sol.map() == flip.argmax(1)).all()
    assert sol.value_gw == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("n", "seed", "points"),
    [(*copy, points) for copy in (COPIES[0], COPIES[2]) for points in (False, True)] + [(20, 4, False)],
)
def test_a_reversed_copy_is_exact_at_small_epsilon(n, seed, points):
    """test_gromov: the plan to 1e-4. Points are in gromap's own units, with L 10 times larger."""
    (c1, c2, flip), x = reversed_copy(n, seed), gauss(n, seed)
    if points:
        sol = solve(x, x[::-1].copy(), cost="sqeuclidean", epsilon=1e-4, method=CntGW(FINE))
    else:
        sol = match(c1, c2, epsilon=1e-5, method=CntGW(FINE))
    assert_coupling(sol.plan.dense())
    np.testing.assert_allclose(sol.plan.dense(), flip, atol=1e-4)
    assert sol.value_gw == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("method", ["auto", "kernel"])
@pytest.mark.parametrize(("n", "epsilon"), [(10, 1e-2), (10, 1e-1), (5, 1e-1)])
def test_a_reversed_copy_with_entropy(n, epsilon, method):
    """test_entropic_gromov(2), test_BAPG_gromov: POT's plan; from points too."""
    (c1, c2, _), p = reversed_copy(n, 42), np.full(n, 1 / n)
    theirs, log = ot.gromov.entropic_gromov_wasserstein(c1, c2, epsilon=epsilon, max_iter=20, log=True)
    left, right = (match(c1, c2, a, b, epsilon=epsilon, method=method, tol=1e-9) for a, b in ((None, p), (p, None)))
    np.testing.assert_allclose(left.plan.dense(), right.plan.dense(), atol=1e-6)
    assert_coupling(left.plan.dense())
    np.testing.assert_allclose(left.plan.dense(), theirs, atol=1e-4)
    assert left.value_gw == pytest.approx(log["gw_dist"], abs=5e-5)
    x = gauss(n, 42) / np.sqrt(ot.dist(gauss(n, 42)).max())
    points = solve(x, x[::-1].copy(), cost="sqeuclidean", scale=None, epsilon=epsilon, method=method, tol=1e-9)
    np.testing.assert_allclose(points.plan.dense(), left.plan.dense(), atol=1e-4)


def test_the_proximal_point_steps():
    """test_entropic_proximal_gromov: ten steps as in POT; and to the end, at the copy."""
    c1, c2, flip = reversed_copy(10, 42)
    theirs = ot.gromov.entropic_gromov_wasserstein(c1, c2, epsilon=0.1, max_iter=10, tol=0, solver="PPA")
    sol = match(c1, c2, epsilon=0.1, method=ProximalGW(STANDARD), init="zero", max_iter=10)
    np.testing.assert_allclose(sol.plan.dense(), theirs, atol=1e-6)
    assert_coupling(sol.plan.dense())
    np.testing.assert_allclose(match(c1, c2, epsilon=0.01, method="proximal").plan.dense(), flip, atol=1e-4)


@pytest.mark.parametrize("n", [10, 20])
def test_costs_that_are_not_symmetric_are_refused(n):
    """test_asymmetric_gromov, test_asymmetric_entropic_gromov: symmetrized, with a zero diagonal,
    they are solved. A fifth of their spectrum is negative: they are not CNT."""
    rng, hollow = np.random.RandomState(0), 1 - np.eye(n)
    c1, order = rng.uniform(0, 10, size=(n, n)), rng.permutation(n)
    c2, plan = c1[order][:, order], np.eye(n)[:, order] / n
    with pytest.raises(ValueError, match="non-zero diagonal"):
        match(c1, c2)
    with pytest.raises(ValueError, match="not symmetric"):
        match(hollow * c1, hollow * c2)
    c1, c2 = (hollow * (c + c.T) / 2 for c in (c1, c2))
    for method in ("auto", "conditional-gradient"):
        sol = match(c1, c2, epsilon=0.1, method=method)
        assert sol.stats.method == {"auto": "kernel"}.get(method, method)
        np.testing.assert_allclose(sol.plan.dense(), plan, atol=1e-4)
        assert sol.value_gw == pytest.approx(0, abs=1e-4)


def test_integers_count_as_numbers():
    """test_gromov_integer_warnings: POT warns, and returns a plan of zeros."""
    c1, c2 = reversed_copy(10, 1)[0].astype(np.int32), reversed_copy(10, 1)[1]
    whole, real = (match(c, c2, epsilon=1e-2, method=KernelGW(FINE)) for c in (c1, c1.astype(float)))
    np.testing.assert_array_equal(whole.plan.dense(), real.plan.dense())
    assert_coupling(whole.plan.dense())


@pytest.mark.parametrize("kind", [np.float32, np.float64, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("method", ["auto", "proximal", "conditional-gradient"])
def test_precision_and_kind_are_kept_without_a_warning(method, kind):
    """test_gromov_dtype_device, test_entropic_gromov_dtype_device."""
    for n, seed, epsilon in ((20, 4, 1e-2), (5, 42, 1e-1)):
        c1, c2, _ = reversed_copy(n, seed)
        c1, c2 = (torch.tensor(c, dtype=kind) if isinstance(kind, torch.dtype) else c.astype(kind) for c in (c1, c2))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plan = match(c1, c2, epsilon=epsilon, method=method, max_iter=2).plan.dense()
        assert (type(plan), plan.dtype) == (type(c1), kind)


def test_gradients():
    """test_gromov2_gradients: of points and weights; those of points are POT's at the plan."""
    x, y = (torch.tensor(gauss(20, seed) / 4, requires_grad=True) for seed in (4, 5))
    p, q = (torch.full((20,), 1 / 20, dtype=torch.float64, requires_grad=True) for _ in range(2))
    loss = GromovLoss(cost="sqeuclidean", epsilon=1e-2, debias=False)
    loss(x, y, p, q).backward()
    assert all(z.grad.shape == z.shape and bool(z.grad.isfinite().all()) for z in (x, y, p, q))
    u, v = (z.detach().clone().requires_grad_() for z in (x, y))
    parts = ot.gromov.init_matrix(ot.dist(u, u), ot.dist(v, v), p.detach(), q.detach(), "square_loss")
    ot.gromov.gwloss(*parts, loss.plan.dense().detach()).backward()
    for mine, theirs in ((x, u), (y, v)):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-3 * float(theirs.grad.abs().max()))


@pytest.mark.parametrize(("n", "seeds", "epsilon"), [*CLOUDS, (20, (4, 5), 1e-4)])
def test_two_clouds_end_no_higher_than_the_plan_of_pot(n, seeds, epsilon):
    """test_gromov2_gradients, test_gw_helper_backend: GW_ε is at most the energy of any plan."""
    c1, c2 = (costs(gauss(n, seed)) for seed in seeds)
    theirs, log = ot.gromov.gromov_wasserstein(c1, c2, log=True)
    bound = log["gw_dist"] + epsilon * (theirs[theirs > 0] * np.log(n * n * theirs[theirs > 0])).sum()
    sol = match(c1, c2, epsilon=epsilon, method=CntGW(FINE))
    assert_coupling(sol.plan.dense())
    assert sol.value <= 1.001 * bound


@pytest.mark.parametrize(("n", "seeds", "epsilon"), [*CLOUDS, (20, (4, 5), 1e-4)])
def test_a_local_optimum_stays_where_it_is(n, seeds, epsilon):
    """test_gw_helper_backend: conditional gradients do not move it, and cnt does not end higher."""
    c1, c2 = (costs(gauss(n, seed)) for seed in seeds)
    best = match(c1, c2, epsilon=1e-2, method="conditional-gradient").plan.dense()
    again = match(c1, c2, epsilon=epsilon, method="conditional-gradient", init=best)
    np.testing.assert_allclose(again.plan.dense(), best, atol=1e-6)
    assert match(c1, c2, epsilon=epsilon, method=CntGW(FINE), init=best).value <= 1.001 * again.value

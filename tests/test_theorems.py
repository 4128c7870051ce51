"""The paper's theorems, numerically. The oracle is a plain dense Entropic-GW written out below."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import xlogy

from gromap import CntGW, Gaussian, KernelGW, Loop, Power, Sinkhorn, Space, Status, solve
from gromap.geometry.embedding import kernel_matrix
from gromap.solvers.objective import constant, lifted_score, quartic
from tests.conftest import cloud

EXACT = Loop(sinkhorn=Sinkhorn(4000, tol=1e-12), max_steps=4000, adaptive=False, max_iter=8, tol=1e-15)
COSTS = [Power(1.0), Power(2.0), Power(0.5), Gaussian(1.5)]


def gw_loss(cx, cy, pi):
    """Σ (c_X - c_Y)² π π, all four indices."""
    return np.einsum("ijkl,ij,kl->", (cx[:, None, :, None] - cy[None, :, None, :]) ** 2, pi, pi, optimize=True)


def entropic_gw(cx, cy, a, b, eps, outer):
    """Entropic-GW (Peyré et al. 2016) with Sinkhorn run to convergence: plans and energies of
    each outer step."""
    pi, f, g, steps = a[:, None] * b, np.zeros(len(a)), np.zeros(len(b)), []
    for _ in range(outer):
        rows, cols = pi.sum(1), pi.sum(0)
        grad = 2 * ((cx**2 @ rows)[:, None] + cy**2 @ cols - 2 * cx @ pi @ cy)
        for _ in range(200000):
            f = -eps * logsumexp((g - grad) / eps + np.log(b), 1)
            new = -eps * logsumexp(((f[:, None] - grad) / eps + np.log(a)[:, None]).T, 1)
            done = np.abs(new - g).max() < 1e-13
            g = new
            if done:
                break
        pi = a[:, None] * b * np.exp((f[:, None] + g - grad) / eps)
        kl = (pi * np.log(pi / (a[:, None] * b))).sum()
        steps.append((pi, gw_loss(cx, cy, pi) + eps * kl))
    return steps


def logsumexp(z, axis):
    top = z.max(axis, keepdims=True)
    return top.squeeze(axis) + np.log(np.exp(z - top).sum(axis))


def costs(space, scale):
    p = space.measure.points
    return (space.cost(p, p) / scale).numpy()


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_cnt_kernel_and_dense_entropic_gw_agree(cost, seed):
    """Prop. equivalence_pgd, and Alg. dual_kernelpca with D = N equals Alg. kernel_gw."""
    (x, a), (y, b) = cloud(24, 3, seed), cloud(19, 2, seed + 10)
    sx, sy = Space(x, a, cost=cost, dim=24), Space(y, b, cost=cost, dim=19)
    eps = 0.05
    kernel = solve(sx, sy, method=KernelGW(EXACT), epsilon=eps, init="zero")
    cnt = solve(sx, sy, method=CntGW(EXACT), epsilon=eps, init="zero")
    oracle = entropic_gw(costs(sx, sx.scale), costs(sy, sy.scale), sx.weights, sy.weights, eps, 8)
    n = min(8, len(kernel.history["energy"]), len(cnt.history["energy"]))
    np.testing.assert_allclose(cnt.history["energy"][:n], kernel.history["energy"][:n], atol=1e-9)
    np.testing.assert_allclose(kernel.history["energy"][:n], [e for _, e in oracle[:n]], atol=1e-8)
    one_step = solve(sx, sy, method=KernelGW(EXACT), epsilon=eps, init="zero", max_iter=1)
    np.testing.assert_allclose(one_step.plan.dense(), oracle[0][0], atol=1e-10)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("method", [CntGW, KernelGW])
def test_energy_never_rises_and_bounds_the_movement_of_gamma(cost, method, pair):
    """Thm. altmin_convergence_reg: Σ |Γ_k - Γ_{k+1}|² <= D_ε(Γ_0) - D_ε(Γ_t)."""
    x, y, a, b = pair
    sol = solve(x, y, a, b, cost=cost, epsilon=0.02, method=method(EXACT), init="random", dim=(20, 15), seed=3)
    energy, change = sol.history["energy"], sol.history["gamma_change"]
    assert np.all(np.diff(energy) <= 1e-10)
    assert np.all(change >= -1e-12)
    dual = energy + change  # C + 8 D_ε(Γ_t)
    assert np.all(np.cumsum(change)[:-1] <= dual[0] - dual[1:] + 1e-9)


def test_the_sixth_power_oscillates_and_says_so():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(8, 2)), rng.normal(size=(8, 2))
    loop = Loop(sinkhorn=Sinkhorn(1000, tol=1e-8), max_steps=1000, max_iter=20, adaptive=False)
    bad = solve(x, y, cost=Power(6), epsilon=1e-2, method=KernelGW(loop), init="zero", dim=8)
    assert bad.status is Status.OSCILLATES
    assert not bad.converged
    good = solve(x, y, cost=Power(2), epsilon=1e-2, method=KernelGW(loop), init="zero")
    assert good.converged


def random_coupling(a, b, seed):
    pi = np.random.default_rng(seed).random((len(a), len(b))) ** 4
    for _ in range(2000):
        pi *= (a / pi.sum(1))[:, None]
        pi *= b / pi.sum(0)
    return pi


@pytest.mark.parametrize("seed", range(3))
def test_loss_decomposes(seed):
    """Lemma cnt_gw_developed, and the closed form of E|x - x'|⁴."""
    (x, a), (y, b) = cloud(12, 4, seed), cloud(9, 2, seed + 5)
    a, b = a / a.sum(), b / b.sum()
    x, y = x - a @ x, y - b @ y
    pi = random_coupling(a, b, seed)
    cx, cy = (np.sum((z[:, None] - z) ** 2, -1) for z in (x, y))
    tx, ty, ta, tb = map(torch.from_numpy, (x, y, a, b))
    gamma = x.T @ pi @ y
    cross = (x**2).sum(1) @ pi @ (y**2).sum(1)
    assert quartic(tx, ta) == pytest.approx(a @ cx**2 @ a, rel=1e-12)
    assert constant(tx, ta, ty, tb) - 8 * (gamma**2).sum() - 4 * cross == pytest.approx(gw_loss(cx, cy, pi), rel=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_linearisation(seed):
    """Thm. entropic_gw_cnt_linearized: C + 8 F(Γ, π) majorises the energy and touches it at
    Γ(π)."""
    (x, a), (y, b) = cloud(12, 4, seed), cloud(9, 2, seed + 5)
    a, b, eps = a / a.sum(), b / b.sum(), 0.3
    x, y = x - a @ x, y - b @ y
    pi = random_coupling(a, b, seed)
    cx, cy = (np.sum((z[:, None] - z) ** 2, -1) for z in (x, y))
    kl = (pi * np.log(pi / (a[:, None] * b))).sum()
    energy = gw_loss(cx, cy, pi) + eps * kl
    c = constant(*map(torch.from_numpy, (x, a, y, b)))

    def bound(gamma):
        score = lifted_score(torch.from_numpy(gamma), torch.from_numpy(x), torch.from_numpy(y), eps).dense().numpy()
        return c + 8 * (gamma**2).sum() - eps * (score * pi).sum() + eps * kl

    best = x.T @ pi @ y
    assert bound(best) == pytest.approx(energy, rel=1e-10)
    for k in range(5):
        other = best + np.random.default_rng(k).normal(size=best.shape)
        assert bound(other) == pytest.approx(energy + 8 * ((other - best) ** 2).sum(), rel=1e-10)


@pytest.mark.parametrize("method", ["cnt", "kernel"])
@pytest.mark.parametrize("cost", COSTS)
def test_values_are_those_of_the_returned_plan(method, cost, pair):
    """value_gw is the four-index sum over the plan as it is, feasible or not, and value adds ε
    KL."""
    x, y, a, b = pair
    sx, sy = Space(x, a, cost=cost, dim=len(x)), Space(y, b, cost=cost, dim=len(y))
    for max_iter in (1, 50):
        sol = solve(sx, sy, epsilon=0.03, method=method, max_iter=max_iter, init="zero")
        pi = sol.plan.dense()
        loss = gw_loss(costs(sx, sx.scale), costs(sy, sy.scale), pi)
        kl = xlogy(pi, pi / (sx.weights[:, None] * sy.weights)).sum()
        assert sol.value_gw == pytest.approx(loss, rel=1e-8)
        assert sol.value == pytest.approx(loss + 0.03 * kl, rel=1e-8)
        np.testing.assert_allclose(pi.sum(1), sx.weights, atol=1e-12)


def test_isometric_copies_have_no_debiased_distance(pair):
    """Thm. cnt_sgw_properties: GW_ε(α, β) - ½ GW_ε(α, α) - ½ GW_ε(β, β) >= 0, and = 0 for
    isometric copies."""
    x, y, a, b = (z[:30] for z in pair)
    from tests.conftest import rotation

    method = CntGW(Loop(sinkhorn=Sinkhorn(300, tol=1e-10), max_steps=300, adaptive=False, max_iter=12, tol=1e-11))

    def gw(p, q, u, v):
        sx, sy = Space(p, u, dim=len(p)), Space(q, v, dim=len(q))
        init = sx.features.T @ (sx.weights[:, None] * sx.features) if len(p) == len(q) else "zero"
        return solve(sx, sy, epsilon=0.05, scale=None, method=method, init=init).value

    same = gw(x, x, a, a)
    copy = x @ rotation(3) + 5.0
    assert gw(x, copy, a, a) == pytest.approx(same, abs=1e-8)
    assert gw(x, y, a, b) - 0.5 * (same + gw(y, y, b, b)) >= -1e-10


@pytest.mark.parametrize("cost", COSTS)
def test_exact_norms_change_nothing_at_full_rank(cost, pair):
    x, y, a, b = pair
    sx, sy = Space(x, a, cost=cost, dim=len(x)), Space(y, b, cost=cost, dim=len(y))
    plain, exact = (
        solve(sx, sy, epsilon=0.03, method=CntGW(exact_norms=norms), max_iter=4, init="zero") for norms in (False, True)
    )
    np.testing.assert_allclose(exact.history["energy"], plain.history["energy"], rtol=1e-9)
    assert exact.value_gw == pytest.approx(plain.value_gw, rel=1e-8)
    assert exact.value == pytest.approx(plain.value, rel=1e-8)


@pytest.mark.parametrize("cost", [Power(1.0), Gaussian(1.5)])
def test_exact_norms_bound_the_value_from_above(cost, pair):
    """With D axes, the value of a plan is L(π) + 8 (|Γ|² - |Γ_D|²): what the axes miss of Γ, and
    nothing else."""
    x, y, a, b = pair
    sx, sy = Space(x, a, cost=cost, dim=6), Space(y, b, cost=cost, dim=5)
    for max_iter in (1, 20):  # columns are off after one step
        sol = solve(sx, sy, epsilon=0.05, method=CntGW(exact_norms=True), max_iter=max_iter, init="zero")
        pi, cx, cy = sol.plan.dense(), costs(sx, sx.scale), costs(sy, sy.scale)
        kx, ky = (kernel_matrix(torch.from_numpy(c), s.measure.weights).numpy() for c, s in ((cx, sx), (cy, sy)))
        gamma = (sx.features.T @ pi @ sy.features) ** 2 / (sx.scale * sy.scale)
        missing = (pi * (kx @ pi @ ky)).sum() - gamma.sum()
        assert missing > 1e-6
        assert sol.value_gw == pytest.approx(gw_loss(cx, cy, pi) + 8 * missing, rel=1e-9)

"""Parts and features: the decomposition, both solvers against each other and against POT, damping,
and what comes back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import xlogy

from gromap import CntGW, GromovLoss, KernelGW, Loop, Multiscale, Search, Sinkhorn, landmarks, landscape, load, solve
from gromap._pair import Pair
from gromap.search.starts import Moved
from gromap.solvers.embedded import TRUNCATED_PAIRS
from gromap.solvers.relaxed import Moments, RelaxedProblem, embedded_problem
from gromap.solvers.run import solve_pair
from gromap.transport import Dense
from gromap.transport.marginals import SoftMarginals
from tests.conftest import cloud, rotation

FINE = Loop(Sinkhorn(500), max_steps=20_000, max_iter=400, tol=1e-11, marginal_tol=1e-9)
TIGHT = Loop(Sinkhorn(5000, tol=1e-12), adaptive=False, max_steps=5000, max_iter=300, tol=1e-15, marginal_tol=1e-9)
KINDS: list[dict[str, Any]] = [
    {"reach": 0.3},
    {"reach": (None, 0.2)},
    {"reach": (0, None)},
    {"reach": (0.2, 0)},
    {"mass": 0.6},
    {"mass": 0.9},
]


def features(seed=3, n=24, m=19):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng.normal(size=(m, 2))


def sides(dtype="float64"):
    (x, a), (y, b) = cloud(24, 3, 0, dtype), cloud(19, 2, 1, dtype)
    return x, y, a, b


def relaxed_problem(**kind) -> RelaxedProblem:
    x, y, a, b = sides()
    problem = embedded_problem(Pair.of(x, y, a, b, cost="sqeuclidean", epsilon=0.05, **(kind or {"reach": 0.3})))
    assert isinstance(problem, RelaxedProblem)
    return problem


def quadruple(problem, pi, other):
    """Σ (c_X - c_Y)² π γ, the naive way, as a matrix for π."""
    cx, cy = (torch.cdist(z, z).square() for z in (problem.x, problem.y))
    gap = (cx[:, None, :, None] - cy[None, :, None, :]).square()
    return torch.einsum("ijkl,kl->ij", gap, other), float(torch.einsum("ijkl,kl,ij->", gap, other, pi))


@pytest.mark.parametrize("mass", [0.1, 1.0, 10.0])
def test_moments_give_the_quadruple_sum(mass):
    """For signed plans of any mass: the energy by the dual, and the linearized cost."""
    problem = relaxed_problem()
    rng = torch.Generator().manual_seed(1)
    pi, old = (mass * torch.randn(24, 19, generator=rng, dtype=torch.float64) for _ in range(2))
    old = (old - old.mean()) + mass / old.numel()  # a linearization has mass
    new, here = problem.moments_of(pi), problem.moments_of(old)
    gap, _ = quadruple(problem, pi, old)
    to = problem.marginals(here)
    assert isinstance(to, SoftMarginals)
    ours = -problem.eps * (problem.score(here).dense() + to.anchor[:24, None] + to.anchor[24:])
    off = (ours - 2 * gap) / gap.abs().max()
    if mass == 1.0:  # the score is that of plans of mass one
        assert float((off - off.mean()).abs().max()) < 1e-10
    change = new._replace(G=new.G - here.G, p=new.p - here.p, q=new.q - here.q)
    _, curve = quadruple(problem, pi - old, pi - old)
    _, found = problem.energy(here, Moments(here.G + change.G, here.p + change.p, here.q + change.q), torch.zeros(()))
    assert -float(found) == pytest.approx(curve, rel=1e-10, abs=1e-10 * abs(curve))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("fused", [False, True])
def test_kernel_and_cnt_agree(kind, fused):
    x, y, a, b = sides()
    given: dict[str, Any] = {"cost": "sqeuclidean", "epsilon": 0.02, **kind}
    if fused:
        given |= {"features": features(), "alpha": 0.7}
    cnt = solve(x, y, a, b, method=CntGW(FINE), **given)
    kernel = solve(x, y, a, b, method=KernelGW(FINE), init=cnt, **given)
    assert cnt.converged
    assert kernel.value == pytest.approx(cnt.value, abs=1e-5 if "mass" in kind else 1e-7)
    assert kernel.value_gw == pytest.approx(cnt.value_gw, abs=1e-4)
    terms = cnt.alpha * cnt.value_gw + (1 - cnt.alpha) * cnt.value_features + cnt.value_marginals
    rows, cols = cnt.plan.marginals
    pi = cnt.plan.dense()
    assert cnt.value == pytest.approx(terms + 0.02 * xlogy(pi, pi / np.outer(a / a.sum(), b / b.sum())).sum())
    assert pi.sum() == pytest.approx(1.0)
    if "mass" in kind:
        caps = (w / w.sum() * h for w, h in zip((a, b), cnt.most, strict=True))
        assert all((s <= cap + 1e-6).all() for s, cap in zip((rows, cols), caps, strict=True))
    assert cnt.plan.marginal_error < 1e-6


def test_without_reach_nothing_changes():
    x, y, a, b = sides()
    plain, same = solve(x, y, a, b), solve(x, y, a, b, reach=None, mass=None, features=None)
    assert plain.value == same.value
    assert (plain.plan.dense() == same.plan.dense()).all()
    both = solve(x, y, a, b, reach=(None, None))
    assert (plain.plan.dense() == both.plan.dense()).all()


@pytest.mark.parametrize("method", ["cnt", "kernel"])
def test_a_far_reach_keeps_the_weights(method):
    x, y, a, b = sides()
    kept = solve(x, y, a, b, scale="joint", method=method)
    for reach in (200.0, 1e4, 1e200):
        far = solve(x, y, a, b, scale="joint", reach=reach, method=method, init=kept)
        assert far.value == pytest.approx(kept.value, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS[:4], ids=str)
def test_splitting_a_point_weights_and_places_change_nothing(kind):
    x, y, a, b = sides()
    kind = kind | {"init": "zero"}
    plain = solve(x, y, a, b, **kind)
    half = np.r_[a[:1] / 2, a[:1] / 2, a[1:]]
    others = [
        solve(np.r_[x[:1], x], y, half, b, **kind),
        solve(x @ rotation(3) + 5.0, y, 7 * a, 0.1 * b, **kind),
    ]
    for other in others:
        assert other.value == pytest.approx(plain.value, rel=1e-3)
    reach = kind["reach"][::-1] if isinstance(kind["reach"], tuple) else kind["reach"]
    assert solve(y, x, b, a, **kind | {"reach": reach}).value == pytest.approx(plain.value, rel=1e-3)


def test_precisions_agree():
    for kind in KINDS:
        double, single = (solve(*sides(t), method="cnt", epsilon=0.01, **kind) for t in ("float64", "float32"))
        assert single.converged
        assert single.value == pytest.approx(double.value, rel=2e-3)


RHOMBUS = np.array([[-1.0, 0], [1, 0], [0, 0.15], [0, -0.15]])


KEPT: list[dict[str, Any]] = [{"reach": 0.2}, {"reach": (0, 0.1)}, {"mass": 0.5}]


@pytest.mark.parametrize("kind", KEPT, ids=str)
def test_left_out_tiles_change_nothing(kind, monkeypatch):
    """Also for points that are hardly matched, whose whole row is far below their weight."""
    monkeypatch.setitem(TRUNCATED_PAIRS, "cpu", 1)
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(size=1100))
    x = np.stack([4 * t, t**2, 0.3 * np.sin(9 * t)], 1)
    y = x[:1000] @ rotation(3, 1)
    x[1000:, 2] += 2
    given: dict[str, Any] = {"epsilon": 2e-3, "init": np.arange(1100).clip(max=999), "scale": 1.5, **kind}
    some = solve(x, y, method=CntGW(truncation=1e-4), **given)
    every = solve(x, y, method=CntGW(truncation=None), **given)
    assert some.stats.tiles is not None
    assert some.stats.tiles < 0.8
    assert some.status == every.status
    assert some.value == pytest.approx(every.value, rel=1e-3)
    np.testing.assert_allclose(some.kept_X, every.kept_X, atol=2e-2)
    np.testing.assert_allclose(some.kept_Y, every.kept_Y, atol=2e-2)


def test_moments_of_a_plan_agree_with_its_marginals():
    """In float32 too, though sums over rows and columns are rounded on their own."""
    (x, a), (y, b) = cloud(300, 3, 0, "float32"), cloud(250, 3, 1, "float32")
    problem = embedded_problem(Pair.of(x, y, a, b, epsilon=1e-3, reach=0.3))
    assert isinstance(problem, RelaxedProblem)
    here = problem.product(problem.a, problem.b)
    score, v = problem.score(here), problem.log_b
    m, _ = problem.correlate(here, score, -score.lse(v) + problem.log_a, v)
    for axis, p, z, s in ((1, m.p, problem.x, problem.x_norms), (0, m.q, problem.y, problem.y_norms)):
        lifted = torch.cat([torch.ones(len(z), 1), z, s[:, None]], 1).double()
        torch.testing.assert_close(m.G.select(axis, 0), p @ lifted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("method", [CntGW(), KernelGW()])
def test_two_rhombi_do_not_cycle(method):
    """Long pair to short pair, and back, for ever: without damping (squared norms, ρ = .05)."""
    p = np.array([0.475, 0.475, 0.025, 0.025])
    pi = p[:, None] * np.eye(4)
    events = []
    sol = solve(
        RHOMBUS,
        RHOMBUS[:, ::-1].copy(),
        cost="sqeuclidean",
        scale=None,
        epsilon=0.01,
        reach=0.05**0.5,
        init=pi,
        method=method,
        callback=events.append,
    )
    assert sol.converged
    values = [event.value for event in events]
    assert max(np.diff(values), default=0.0) < 1e-4 * abs(values[0])


def test_random_problems_do_not_cycle():
    """Sixty problems of 3 to 6 points with free marginals, of which undamped steps end some in
    cycles."""
    rng, cycles = np.random.default_rng(0), 0
    for _ in range(60):
        n, m = rng.integers(3, 7, 2)
        x, y = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
        reach = (0.1, 0.1) if rng.random() < 0.5 else (None, 0)
        pair = Pair.of(x, y, cost="sqeuclidean", scale="joint", epsilon=0.01, reach=reach)
        problem, pi = embedded_problem(pair), torch.from_numpy(rng.dirichlet(np.ones(n * m)).reshape(n, m))
        plan = problem.plan(Dense(pi.log()), -problem.log_a, -problem.log_b)
        sol = solve_pair(pair, CntGW(Loop(max_iter=200)), Moved(plan))
        cycles += not sol.converged
    assert cycles == 0


@pytest.mark.parametrize("rho", [0.02, 0.1, 1.0])
def test_unbalanced_gw_of_pot(rho):
    """The quadratic KL of Séjourné et al. has the same plan at half of ρ and ε, and its mass and
    value are closed formulas."""
    ot = pytest.importorskip("ot")
    x, y, a, b = pot_sides()
    cx, cy = (((z[:, None] - z) ** 2).sum(-1) for z in (x, y))
    sol = solve(
        x, y, a, b, cost="sqeuclidean", scale=None, epsilon=0.02, reach=rho**0.5, method=CntGW(FINE), init="zero"
    )
    how = {"unbalanced_solver": "sinkhorn", "max_iter": 500, "tol": 1e-11, "max_iter_ot": 2000, "tol_ot": 1e-10}
    theirs = ot.gromov.fused_unbalanced_gromov_wasserstein(cx, cy, a, b, rho / 2, 0.01, alpha=0, **how)[0]
    assert sol.mass == pytest.approx(theirs.sum(), rel=1e-6)
    assert np.abs(theirs / theirs.sum() - sol.plan.dense()).sum() < 1e-4
    total = rho + 0.01
    assert total * (1 - sol.mass**2) == pytest.approx(ugw(theirs, cx, cy, a, b, rho / 2, 0.01), rel=1e-6)


def test_unbalanced_gw_of_fugw():
    mappings = pytest.importorskip("fugw.mappings")
    x, y, a, b = pot_sides()
    cx, cy = (((z[:, None] - z) ** 2).sum(-1) for z in (x, y))
    theirs = mappings.FUGW(alpha=1.0, rho=0.05, eps=0.01, reg_mode="joint")
    steps = {"nits_bcd": 500, "tol_bcd": 1e-9, "nits_uot": 2000, "tol_uot": 1e-9, "eval_bcd": 50}
    weights = {"source_weights": a, "target_weights": b}
    nothing = np.zeros((1, 20)), np.zeros((1, 15))
    theirs.fit(*nothing, cx, cy, **weights, solver="sinkhorn", solver_params=steps, device="cpu")
    pi, given = np.asarray(theirs.pi), {"epsilon": 0.02, "reach": 0.1**0.5, "init": "zero"}
    sol = solve(x, y, a, b, cost="sqeuclidean", scale=None, method=CntGW(FINE), **given)
    assert sol.mass == pytest.approx(pi.sum(), rel=1e-3)
    assert np.abs(pi / pi.sum() - sol.plan.dense()).sum() < 1e-3


def pot_sides():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 2)) * [1.0, 0.5], rng.normal(size=(15, 3)) * [1.0, 0.6, 0.2]
    x, y = ((z - z.mean(0)) / np.linalg.norm(z - z.mean(0), axis=1).max() for z in (x, y))
    a, b = (w / w.sum() for w in (rng.random(20) + 0.5, rng.random(15) + 0.5))
    return x, y, a, b


def ugw(pi, cx, cy, a, b, rho, eps):
    """L + ρ KL⊗ of both marginals + ε KL⊗, of a plan of any mass."""

    def kl2(p, w):
        return 2 * p.sum() * xlogy(p, p / w).sum() - p.sum() ** 2 + w.sum() ** 2

    gap = (cx[:, None, :, None] - cy[None, :, None, :]) ** 2
    loss = np.einsum("ijkl,ij,kl->", gap, pi, pi)
    return loss + rho * (kl2(pi.sum(1), a) + kl2(pi.sum(0), b)) + eps * kl2(pi, np.outer(a, b))


def test_fused_plans_of_pot():
    ot = pytest.importorskip("ot")
    x, y, a, b = pot_sides()
    f, g = (0.2 * z for z in features(4, 20, 15))
    cx, cy = (((z[:, None] - z) ** 2).sum(-1) for z in (x, y))
    cf = ((f[:, None] - g) ** 2).sum(-1)
    theirs = ot.gromov.entropic_fused_gromov_wasserstein(cf, cx, cy, a, b, epsilon=0.02, alpha=0.5, tol=1e-10)
    given: dict[str, Any] = {"cost": "sqeuclidean", "scale": None, "epsilon": 0.02, "init": "zero", "features": (f, g)}
    for method in (CntGW(FINE), KernelGW(FINE)):
        sol = solve(x, y, a, b, method=method, **given)
        assert np.abs(theirs - sol.plan.dense()).max() < 1e-5


@pytest.mark.parametrize("seed", range(10))
def test_partial_and_semirelaxed_energies_beside_pot(seed):
    """At ε = 2e-4 against POT's exact solvers: at most two per cent above."""
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(15, 2)), rng.normal(size=(18, 2))
    cx, cy = (np.linalg.norm(z[:, None] - z, axis=-1) for z in (x, y))
    unit = max(cx.max(), cy.max())
    p, q = np.full(15, 1 / 15), np.full(18, 1 / 18)
    given: dict[str, Any] = {"cost": "precomputed", "scale": float(unit), "epsilon": 2e-4, "method": "kernel"}
    with np.errstate(all="ignore"):
        theirs = ot.gromov.semirelaxed_gromov_wasserstein2(cx / unit, cy / unit, p)
        part = ot.gromov.partial_gromov_wasserstein(cx / unit, cy / unit, p, q, m=0.7)
    free = solve(cx, cy, reach=(None, 0), **given)
    assert free.value_gw <= 1.02 * float(theirs) + 1e-4
    gap = (cx[:, None, :, None] / unit - cy[None, :, None, :] / unit) ** 2
    exact = float(np.einsum("ijkl,ij,kl->", gap, part / part.sum(), part / part.sum()))
    assert solve(cx, cy, mass=0.7, **given).value_gw <= 1.02 * exact + 1e-4


def test_a_part_is_found_in_the_whole():
    t = np.linspace(0, 5, 400)
    y = np.c_[np.cos(2 * t) * t, np.sin(2 * t) * t, 0.5 * t**2]
    x, truth = y[:220] @ rotation(3), np.arange(220)
    for reach in (0.1, (None, 0.1)):
        sol = solve(x, y, epsilon=3e-4, reach=reach)
        assert np.abs(sol.map() - truth).mean() < 4
        kept = sol.kept_Y
        assert kept[:200].mean() > 5 * kept[240:].mean()
    assert np.abs(solve(x, y, epsilon=3e-4).map() - truth).mean() > 20


def test_outliers_are_left():
    rng = np.random.default_rng(1)
    t = rng.uniform(0, 2 * np.pi, 200)
    x = np.c_[1.5 * np.cos(t) * (1 + 0.4 * np.cos(3 * t)), np.sin(t) * (1 + 0.3 * np.sin(2 * t))]
    order = rng.permutation(200)
    y = np.r_[(x @ rotation(2))[order], rng.uniform(-2, 2, size=(20, 2))]
    sol = solve(x, y, reach=0.1)
    gaps = np.linalg.norm(y[sol.map()] - y[np.argsort(order)], axis=1)
    assert np.quantile(gaps, 0.95) < 0.1
    assert sol.kept_Y[200:].mean() < 0.5 * sol.kept_Y[:200].mean()


@pytest.mark.parametrize("kind", [{"reach": 0.1}, {"mass": 0.5}, {"reach": (None, 0), "alpha": 0.8}], ids=str)
def test_pyramids_end_where_one_level_does(kind):
    (x, a), (y, b) = cloud(400, 3, 0), cloud(350, 3, 0)
    given: dict[str, Any] = {"epsilon": 5e-3, **kind}
    if "alpha" in kind:
        given["features"] = x[:, :1], y[:, :1]
    one = solve(x, y, a, b, method="cnt", **given)
    two = solve(x, y, a, b, method=Multiscale(levels=2, ratio=0.4), **given)
    assert two.converged
    assert two.stats.levels == (160, 400)
    assert two.value == pytest.approx(one.value, rel=2e-2)


@pytest.mark.parametrize("kind", [*KINDS, {"features": "both"}], ids=str)
def test_a_match_is_saved_continued_and_printed(kind, tmp_path):
    x, y, a, b = sides()
    kind = {"features": features()} if "features" in kind else kind
    sol = solve(x, y, a, b, **kind)
    again = load(sol.save(tmp_path / "match.safetensors"))
    assert repr(again) == repr(sol)
    assert (again.kept_X == sol.kept_X).all()
    assert again.plan.marginal_error == sol.plan.marginal_error
    on = solve(x, y, a, b, init=again, **kind)
    assert on.value == pytest.approx(sol.value, abs=2e-5)
    assert ("matched" in repr(sol)) == ("features" not in kind)
    colder = solve(x, y, a, b, init=sol, epsilon=3e-4, **kind)
    assert colder.value < sol.value
    assert solve(x, y, a, b, init=sol).converged  # between fixed marginals


@pytest.mark.parametrize("init", ["zero", "random", Search(starts=0), landmarks([[0, 1], [3, 2], [9, 7]])], ids=str)
def test_any_start_will_do(init):
    x, y, a, b = sides()
    sol = solve(x, y, a, b, reach=0.2, init=init)
    assert sol.converged
    linear = solve(x, y, a, b, reach=0.2, init=sol.gamma)
    assert linear.converged


def test_hardly_anything_matched_is_told():
    """Costs that agree nowhere, and marginals that cost nothing: one pair of points is best."""
    x, y = np.random.default_rng(0).normal(size=(30, 2)), 10 * np.random.default_rng(1).normal(size=(30, 3))
    with pytest.warns(UserWarning, match="of a side are matched"):
        solve(x, y, scale=None, cost="sqeuclidean", epsilon=1e-2, reach=0.0, init="zero")


def test_costs_of_unbalanced_losses_are_those_of_solve():
    x, y, a, b = (torch.from_numpy(z) for z in sides())
    for reach in (0.5, (None, 0.3)):
        given: dict[str, Any] = {"epsilon": 0.1, "method": KernelGW(TIGHT), "reach": reach}
        sol = solve(x, y, a, b, scale=None, **given)
        assert float(GromovLoss(debias=False, **given)(x, y, a, b)) == pytest.approx(sol.value, rel=1e-9)
        half = GromovLoss(debias=False, **given | {"epsilon": 0.1 / 4, "reach": half_of(reach)}, scale=2.0)
        assert float(half(x, y, a, b)) == pytest.approx(sol.value / 4, rel=1e-9)


def half_of(reach):
    return tuple(r and r / 2 for r in reach) if isinstance(reach, tuple) else reach / 2


def test_mass_of_unbalanced_gw_is_the_best_multiple():
    x, y, a, b = pot_sides()
    cx, cy = (((z[:, None] - z) ** 2).sum(-1) for z in (x, y))
    sol = solve(x, y, a, b, cost="sqeuclidean", scale=None, epsilon=0.02, reach=0.3, method=CntGW(FINE))
    assert sol.mass == pytest.approx(math.exp(-sol.value / (2 * 0.09 + 0.02)))
    pi = sol.plan.dense()
    values = [ugw(m * pi, cx, cy, a, b, 0.045, 0.01) for m in (0.99 * sol.mass, sol.mass, 1.01 * sol.mass)]
    assert values[1] == min(values)


def test_a_landscape_shows_all_places_of_a_part(tmp_path):
    """A dumbbell has two ends alike, and one end of another fits either."""

    def end(at, seed):
        v = np.random.default_rng(seed).normal(size=(40, 3))
        return v / np.linalg.norm(v, axis=1, keepdims=True) * [1, 0.8, 0.6] + [at, 0, 0]

    bar = np.stack([np.linspace(1.2, 2.8, 10), np.zeros(10), np.zeros(10)], 1)
    whole = np.concatenate([end(0, 0), end(4, 1), bar])
    part = end(0, 2) @ rotation(3, 3)
    land = landscape(part, whole, reach=0.15, epsilon=5e-3, starts=60)
    assert land.basins.sum() == pytest.approx(1)
    assert (np.diff(land.energies) >= 0).all()
    left = [land.plan(k).sums[1][:40].sum() for k in range(len(land))]
    assert max(left) > 0.9
    assert min(left) < 0.1
    best = land.refine(1)[0]
    assert best.converged
    assert best.value == pytest.approx(solve(part, whole, reach=0.15, epsilon=5e-3).value, rel=0.05)
    assert best.plan.dense().sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="refine"):
        land.plane()
    with pytest.raises(ValueError, match="refine"):
        land.save(tmp_path / "land.safetensors")


def test_a_landscape_of_features_is_that_of_the_solve():
    x, y, a, b = sides()
    left, right = features()
    given: dict[str, Any] = {"features": (left, right), "alpha": 0.3, "epsilon": 0.01}
    land, sol = landscape(x, y, a, b, starts=30, **given), solve(x, y, a, b, **given)
    assert land.energies[0] == pytest.approx(sol.value, rel=1e-3)
    if len(land) > 1:
        assert land.plane(8).values.min() >= land.energies[0] * (1 - 1e-3)

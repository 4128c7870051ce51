from __future__ import annotations

import numpy as np
import pytest
import torch

from gromap import Annealing, Sinkhorn
from gromap.transport import LowRank
from gromap.transport.marginals import Marginals, half_step
from gromap.transport.sinkhorn import Potentials, sinkhorn

UPDATES = ["accelerated", "symmetric", "standard"]


def problem(n=60, m=45, reach=30.0, batch=(), dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(*batch, n, 3, dtype=torch.float64, generator=generator)
    k = torch.randn(m, 3, dtype=torch.float64, generator=generator)
    q = q * (reach / (q @ k.mT).abs().max())
    a, b = (0.2 + torch.rand(size, dtype=torch.float64, generator=generator) for size in (n, m))
    score = LowRank(q.to(dtype), k.to(dtype))
    return score, (a / a.sum()).log().to(dtype), (b / b.sum()).log().to(dtype)


def zeros(score):
    *batch, n, m = score.shape
    return Potentials(score.q.new_zeros(*batch, n), score.q.new_zeros(*batch, m))


def plan(score, log_a, log_b, end):
    return (score.dense() + (end.f + log_a)[..., None] + (end.g + log_b)[..., None, :]).exp()


def l1_error(pi, log_a, log_b):
    return (pi.sum(-1) - log_a.exp()).abs().sum(-1) + (pi.sum(-2) - log_b.exp()).abs().sum(-1)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("reach", [1.0, 30.0])
def test_converges_to_the_coupling(update, reach):
    score, log_a, log_b = problem(reach=reach)
    end = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(20000, tol=1e-11, update=update))
    assert float(l1_error(plan(score, log_a, log_b, end), log_a, log_b)) < 1e-10
    same = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(20000, tol=1e-11))
    torch.testing.assert_close(plan(score, log_a, log_b, end), plan(score, log_a, log_b, same), atol=1e-10, rtol=1e-7)


def test_symmetric_and_standard_are_the_printed_algorithms():
    score, log_a, log_b = problem()
    s, f, g = score.dense(), torch.zeros(60, dtype=torch.float64), torch.zeros(45, dtype=torch.float64)
    for _ in range(3):  # Alg. sinkhorn_symm
        f, g = 0.5 * (f - (s + g + log_b).logsumexp(1)), 0.5 * (g - (s + (f + log_a)[:, None]).logsumexp(0))
    end = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(3, update="symmetric"))
    torch.testing.assert_close((end.f, end.g), (f, g))
    f, g = torch.zeros_like(f), torch.zeros_like(g)
    for _ in range(3):  # Alg. sinkhorn
        f = -(s + g + log_b).logsumexp(1)
        g = -(s + (f + log_a)[:, None]).logsumexp(0)
    end = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(3, update="standard"))
    torch.testing.assert_close((end.f, end.g), (f, g))


def test_swapping_both_sides_swaps_the_potentials():
    score, log_a, log_b = problem()
    for update in ("accelerated", "symmetric"):
        end = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(17, update=update))
        swapped = sinkhorn(score.mT, Marginals(log_b, log_a), zeros(score.mT), Sinkhorn(17, update=update))
        torch.testing.assert_close((end.f, end.g), (swapped.g, swapped.f))


def test_momentum_needs_far_fewer_steps():
    score, log_a, log_b = problem(200, 150, reach=300.0)
    fast = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(3000, tol=1e-4))
    slow = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(3000, tol=1e-4, update="symmetric"))
    assert 3 * fast.steps < slow.steps


@pytest.mark.parametrize("update", UPDATES)
def test_reported_error_is_l1_mass_and_does_not_depend_on_the_sampling(update):
    errors = []
    for copies in (1, 4):
        score, log_a, log_b = problem()
        score = LowRank(score.q.repeat(copies, 1), score.k.repeat(copies, 1))
        log_a, log_b = (w.repeat(copies) - np.log(copies) for w in (log_a, log_b))
        before = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(6, update=update))
        after = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(7, update=update))
        errors.append(float(after.error))
        if update != "accelerated":  # there the error is that of the extrapolated potentials
            assert float(after.error) == pytest.approx(float(l1_error(plan(score, log_a, log_b, before), log_a, log_b)))
    assert errors[0] == pytest.approx(errors[1])


def test_counts_thresholds_and_warm_starts():
    score, log_a, log_b = problem()
    assert sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(13)).steps == 13
    end = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(5000, tol=1e-6))
    assert end.steps < 5000
    assert float(end.error) <= 1e-6
    assert sinkhorn(score, Marginals(log_a, log_b), end, Sinkhorn(5000, tol=1e-6)).steps <= 5
    assert sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(20, tol=1e-30)).steps == 20


@pytest.mark.parametrize("schedule", ["geometric", "sqrt"])
def test_annealing_ends_at_the_asked_temperature(schedule):
    score, log_a, log_b = problem(reach=200.0)
    heat = Annealing(start=30.0, steps=40, schedule=schedule)
    end = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(20000, tol=1e-9, annealing=heat))
    assert float(l1_error(plan(score, log_a, log_b, end), log_a, log_b)) < 1e-8
    temperatures = heat.temperatures()
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[0] == 30.0
    assert min(temperatures) >= 1.0


def test_batch_equals_one_by_one():
    score, log_a, log_b = problem(batch=(3,))
    together = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(40))
    for k in range(3):
        one = LowRank(score.q[k], score.k)
        alone = sinkhorn(one, Marginals(log_a, log_b), zeros(one), Sinkhorn(40))
        torch.testing.assert_close((together.f[k], together.g[k]), (alone.f, alone.g))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("update", UPDATES)
def test_violent_jumps_stay_finite(dtype, update):
    start = None
    for reach in (1.0, 5000.0, 3.0, 50000.0, 10.0):
        score, log_a, log_b = problem(reach=reach, dtype=dtype, seed=int(reach))
        start = sinkhorn(score, Marginals(log_a, log_b), start or zeros(score), Sinkhorn(20, update=update))
        assert bool(torch.isfinite(start.f).all() & torch.isfinite(start.g).all() & torch.isfinite(start.error))
        f = half_step(score, log_b, start.g)
        rows = (score.dense() + (f + log_a)[:, None] + start.g + log_b).exp().sum(1)
        assert float((rows - log_a.exp()).abs().sum()) < (1e-2 if dtype == torch.float32 else 1e-9)


def test_points_without_mass():
    score, log_a, log_b = problem()
    log_a[7] = log_b[3] = -torch.inf
    log_a, log_b = log_a.log_softmax(0), log_b.log_softmax(0)
    end = sinkhorn(score, Marginals(log_a, log_b), zeros(score), Sinkhorn(5000, tol=1e-9))
    assert bool(torch.isfinite(end.f).all() & torch.isfinite(end.g).all())
    pi = plan(score, log_a, log_b, end)
    assert not pi[7].any()
    assert float((pi.sum(1) - log_a.exp()).abs().sum()) < 1e-8


@pytest.mark.parametrize("bad", [{"steps": 0}, {"tol": 0.0}, {"update": "fast"}])
def test_bad_options(bad):
    with pytest.raises(ValueError, match="Sinkhorn"):
        Sinkhorn(**bad)
    with pytest.raises(TypeError):
        Sinkhorn(stepss=3)  # type: ignore[call-arg]

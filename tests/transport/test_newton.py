"""Newton's method on the semi-dual: the last digits of small transport problems."""

from __future__ import annotations

import pytest
import torch

from gromap.transport import Dense
from gromap.transport.marginals import Marginals, half_step
from gromap.transport.newton import newton
from gromap.transport.sinkhorn import Potentials, Sinkhorn, sinkhorn


def problem(n, m, cold, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.rand(k, 2, generator=generator, dtype=torch.float64) for k in (n, m))
    a, b = (torch.rand(k, generator=generator, dtype=torch.float64) + 0.5 for k in (n, m))
    return Dense(-torch.cdist(x, y).square() / cold), (a / a.sum()).log(), (b / b.sum()).log()


def error(score, log_a, log_b, g):
    f = half_step(score, log_b, g)
    plan = (score.dense() + (f + log_a)[:, None] + g + log_b).exp()
    return float((plan.sum(0) - log_b.exp()).abs().sum())


@pytest.mark.parametrize(("n", "m"), [(30, 41), (41, 30), (1, 5), (5, 1)])
@pytest.mark.parametrize("cold", [1e-1, 1e-2, 2e-3])
def test_marginals_to_the_last_digits(n, m, cold):
    score, log_a, log_b = problem(n, m, cold)
    zero = Potentials(torch.zeros_like(log_a), torch.zeros_like(log_b))
    begin = sinkhorn(score, Marginals(log_a, log_b), zero, Sinkhorn(300, tol=1e-3)).g
    assert error(score, log_a, log_b, newton(score, log_a, log_b, begin, 1e-10)) <= 1e-10


def test_far_from_the_solution_it_is_no_worse_than_before():
    score, log_a, log_b = problem(40, 40, 1e-4)
    zero = torch.zeros_like(log_b)
    assert error(score, log_a, log_b, newton(score, log_a, log_b, zero, 1e-10)) <= error(score, log_a, log_b, zero)


def test_points_without_mass_do_not_matter():
    score, log_a, log_b = problem(20, 20, 1e-2)
    log_b = torch.where(torch.arange(20) < 3, -torch.inf, log_b)
    log_b = log_b - log_b.logsumexp(0)
    log_a = torch.where(torch.arange(20) == 7, -torch.inf, log_a)
    log_a = log_a - log_a.logsumexp(0)
    g = newton(score, log_a, log_b, torch.zeros(20, dtype=torch.float64), 1e-9)
    assert bool(torch.isfinite(g).all())
    assert error(score, log_a, log_b, g) <= 1e-9


def test_single_precision_in_and_out():
    score, log_a, log_b = problem(20, 25, 1e-2)
    g = newton(Dense(score.matrix.float()), log_a.float(), log_b.float(), torch.zeros(25), 1e-5)
    assert g.dtype == torch.float32
    assert error(score, log_a, log_b, g.double()) <= 1e-4

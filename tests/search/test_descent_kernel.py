"""Whole descents in one kernel: in Triton's interpreter on small ragged sizes, and on a GPU as
the search runs them."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed")

from gromap.search.descent_kernel import descents, serves
from gromap.search.proposals import random_starts
from gromap.solvers.embedded import CntProblem
from gromap.solvers.loop import alternate
from gromap.solvers.objective import lifted_score
from gromap.solvers.protocol import Begin, Loop
from gromap.transport.sinkhorn import Potentials, Sinkhorn

pytestmark = pytest.mark.gpu  # `make test-gpu` runs these too
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def problem(n, m, d, e, seed=0, eps=1e-2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.rand(k, generator=generator, dtype=torch.float64) + 0.1 for k in (n, m))
    a, b = a / a.sum(), b / b.sum()
    x, y = (
        0.5 * torch.randn(len(w), k, generator=generator, dtype=torch.float64) / (1 + torch.arange(k))
        for w, k in ((a, d), (b, e))
    )
    x, y = x - a @ x, y - b @ y
    return CntProblem(*(z.to(DEVICE, dtype) for z in (x, y, a, b)), eps)


def run(p, gamma, outer, inner, tol, still=0.0):
    return descents(p.x, p.y, (p.x_norms, p.y_norms), (p.log_a, p.log_b), gamma, p.eps, outer, inner, tol, still)


@pytest.mark.parametrize(("n", "m", "d", "e"), [(5, 7, 1, 1), (33, 20, 3, 2), (70, 90, 5, 21), (40, 64, 33, 40)])
def test_a_descent_is_what_its_potentials_say(n, m, d, e):
    p = problem(n, m, d, e)
    gamma = random_starts(*p.spread, 2, seed=1)
    end = run(p, gamma, 1, 60, 5e-3)
    torch.testing.assert_close(end.gamma, gamma, rtol=1e-6, atol=1e-7)
    s = lifted_score(gamma, p.x.double(), p.y.double(), p.eps, norms=(p.x_norms.double(), p.y_norms.double())).dense()
    pi = (s + (end.f + p.log_a).double()[..., None] + (end.g + p.log_b).double()[..., None, :]).exp()
    torch.testing.assert_close(end.rows.double(), pi.sum(-1), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(end.new, p.x.double().mT @ pi @ p.y.double(), rtol=1e-3, atol=1e-6)
    rows, cols = (pi.sum(-1) - p.a).abs().sum(-1), (pi.sum(-2) - p.b).abs().sum(-1)
    lost = end.error > 0.5  # these took a last step that makes columns exact
    at_the_last_step = (rows + cols)[~lost]  # the error was measured before the last step, which makes it no larger
    assert bool((at_the_last_step <= 1.01 * end.error[~lost] + 1e-5).all())
    assert bool((cols[lost] < 1e-3).all())


def test_a_descent_goes_where_the_loop_goes():
    p, q = (problem(24, 18, 3, 4, eps=0.2, dtype=dtype) for dtype in (torch.float32, torch.float64))
    gamma = random_starts(*p.spread, 2, seed=2)
    end = run(p, gamma, 5, 200, 1e-5)
    zero = Potentials(q.a.new_zeros(2, 24), q.b.new_zeros(2, 18))
    loop = Loop(Sinkhorn(1000, tol=1e-7), adaptive=False, max_steps=1000, max_iter=5, tol=1e-15)
    exact = alternate(q, Begin(gamma.double(), zero), loop)
    torch.testing.assert_close(end.gamma, exact.gamma, rtol=1e-3, atol=1e-4)
    alone = run(p, gamma[1:2], 5, 200, 1e-5)
    torch.testing.assert_close(end.gamma[1:2], alone.gamma)


def test_a_descent_stops_where_gamma_has_settled():
    p = problem(24, 18, 3, 4, eps=0.2)
    gamma = random_starts(*p.spread, 2, seed=2)
    three, four, many = (run(p, gamma, outer, 200, 1e-5) for outer in (3, 4, 40))
    assert not torch.equal(three.gamma, four.gamma)
    assert torch.equal(run(p, gamma, 40, 200, 1e-5, still=1.0).gamma, three.gamma)  # the fewest
    settled = run(p, gamma, 40, 200, 1e-5, still=1e-8)
    assert not torch.equal(settled.gamma, four.gamma)
    assert float(8 * (settled.gamma - settled.new).square().sum((-2, -1)).max()) <= 1.01e-8
    torch.testing.assert_close(settled.gamma, many.gamma, rtol=1e-2, atol=1e-3)


def test_hot_and_cold_starts_stay_finite():
    p = problem(50, 60, 6, 6, eps=1e-4)
    gamma = torch.cat([100 * random_starts(*p.spread, 2, seed=3), p.x.new_zeros(1, 6, 6).double()])
    end = run(p, gamma, 3, 31, 5e-3)
    assert all(bool(torch.isfinite(z).all()) for z in end)
    assert float((end.rows.sum(-1) - 1).abs().max()) < 0.3


def test_large_clouds_are_not_served():
    assert serves(torch.zeros(250, 30), torch.zeros(5, 3))
    assert serves(torch.zeros(120, 30), torch.zeros(5, 50))
    assert not serves(torch.zeros(513, 3), torch.zeros(5, 3))
    assert not serves(torch.zeros(200, 3), torch.zeros(5, 33))

"""The step of the potentials in a few kernels, against the same in torch: in Triton's interpreter,
or on a GPU."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed")

from gromap.transport import potential_step, sinkhorn
from gromap.transport.marginals import FREE, LEAST_KAPPA, Marginals, PartialMarginals, SoftMarginals

pytestmark = pytest.mark.gpu  # `make test-gpu` runs these too
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = {
    "fixed": lambda log_a, log_b, anchor: Marginals(log_a, log_b),
    "soft": lambda *given: SoftMarginals(*given, (0.1, 0.4)),
    "one side": lambda *given: SoftMarginals(*given, (0.0, 0.3)),
    "free": lambda *given: SoftMarginals(*given, (0.2, FREE)),
    "far reach": lambda *given: SoftMarginals(*given, (1e-9, LEAST_KAPPA)),
    "capped": lambda *given: PartialMarginals(*given, (1.2, 1.5)),
    "one cap": lambda *given: PartialMarginals(*given, (1.0, 1.5)),
}


def given(kind, n, m, batch=(), spread=1.0):
    generator = torch.Generator().manual_seed(n + m)
    a, b = (torch.rand(k, generator=generator) for k in (n, m))
    a[0] = 0.0  # a point without mass
    noise = [torch.randn(*batch, n + m, generator=generator).to(DEVICE) for _ in range(4)]
    to = KINDS[kind]((a / a.sum()).log().to(DEVICE), (b / b.sum()).log().to(DEVICE), spread * noise[3])
    ahead = to.begin(spread * noise[1] + 0.1 * noise[2])
    total = 1.1 * to.mass * (0.1 * noise[0]).exp()
    return to, to.split(total), to.begin(spread * noise[1]), ahead, torch.full((*batch, 1), 2.0, device=DEVICE)


def check(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("n", "m", "batch"), [(2, 1, ()), (5, 1030, ()), (1500, 700, (3,)), (40, 30, (2, 2))])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("momentum", [False, True])
def test_moves_are_those_of_torch(kind, n, m, batch, momentum):
    to, totals, *state = given(kind, n, m, batch)
    expected = sinkhorn.move(totals, to, *state, momentum)
    found = potential_step.move(totals, to, *state, momentum)  # in place
    assert found[0] is state[0]
    assert found[1] is state[1]
    check(found, expected)


@pytest.mark.parametrize("kind", ["soft", "far reach", "capped"])
def test_points_that_are_hardly_matched_do_not_overflow(kind):
    to, totals, *state = given(kind, 300, 200, spread=300.0)
    expected = sinkhorn.move(totals, to, *state, True)
    found = potential_step.move(totals, to, *state, True)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_that_is_lost_stays_where_it_is(kind):
    to, (r, c), *state = given(kind, 20, 30, (3,))
    c = c.clone()
    c[0, 3], c[2, 5] = 0.0, torch.inf
    expected, where = sinkhorn.move((r, c), to, *state, True), state[1].clone()
    check(potential_step.move((r, c), to, *state, True), expected)
    assert expected[3].isinf().tolist()[1:] == [False, True]
    if kind == "fixed":
        assert torch.equal(expected[0][0], where[0])


@pytest.mark.parametrize("kind", ["soft", "free", "capped"])
def test_a_plan_without_mass_is_lost(kind):
    to, (r, c), *state = given(kind, 20, 30)
    expected = sinkhorn.move((0 * r, 0 * c), to, *state, True)
    check(potential_step.move((0 * r, 0 * c), to, *state, True), expected)

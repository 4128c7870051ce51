"""The step of the potentials in two kernels, against the same in torch: in Triton's interpreter,
or on a GPU."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed")

from gromap.transport import potential_step, sinkhorn

pytestmark = pytest.mark.gpu  # `make test-gpu` runs these too
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def given(n, m, batch=()):
    generator = torch.Generator().manual_seed(n + m)
    a, b = (torch.rand(k, generator=generator) for k in (n, m))
    a[0] = 0.0  # a point without mass
    logs = ((a / a.sum()).log().to(DEVICE), (b / b.sum()).log().to(DEVICE))
    noise = [torch.randn(*batch, n + m, generator=generator).to(DEVICE) for _ in range(3)]
    to = sinkhorn.Marginals(*logs)
    total = to.mass * (0.1 * noise[0]).exp()
    return to, to.split(total), noise[1], noise[1] + 0.1 * noise[2], torch.full((*batch, 1), 2.0, device=DEVICE)


@pytest.mark.parametrize(("n", "m", "batch"), [(2, 1, ()), (5, 1030, ()), (1500, 700, (3,)), (40, 30, (2, 2))])
@pytest.mark.parametrize("momentum", [False, True])
def test_moves_are_those_of_torch(n, m, batch, momentum):
    to, totals, *state = given(n, m, batch)
    expected = sinkhorn.move(totals, to, *state, momentum)
    found = potential_step.move(totals, to.log, *state, momentum)  # in place
    assert found[0] is state[0]
    assert found[1] is state[1]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_plan_that_is_lost_stays_where_it_is():
    to, (r, c), *state = given(20, 30, (3,))
    c = c.clone()
    c[0, 3], c[2, 5] = 0.0, torch.inf
    expected, where = sinkhorn.move((r, c), to, *state, True), state[1].clone()
    found = potential_step.move((r, c), to.log, *state, True)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert found[3].isinf().tolist() == [True, False, True]
    assert torch.equal(found[0][0], where[0])

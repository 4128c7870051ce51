"""Sinkhorn steps between few points in one launch, against the same in torch: in Triton's
interpreter, or on a GPU."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed")

from gromap.transport import Dense, LowRank, sinkhorn, small_steps
from gromap.transport.marginals import FREE, Marginals, PartialMarginals, SoftMarginals
from gromap.transport.sinkhorn import Potentials, Sinkhorn

pytestmark = pytest.mark.gpu  # `make test-gpu` runs these too
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = {
    "fixed": lambda log_a, log_b, anchor: Marginals(log_a, log_b),
    "soft": lambda *given: SoftMarginals(*given, (0.1, 0.4)),
    "one side": lambda *given: SoftMarginals(*given, (0.0, 0.3)),
    "free": lambda *given: SoftMarginals(*given, (0.2, FREE)),
    "capped": lambda *given: PartialMarginals(*given, (1.2, 1.5)),
}


def given(kind, n, m, batch=()):
    generator = torch.Generator().manual_seed(n + m)

    def noise(*shape):
        return torch.randn(*shape, generator=generator).to(DEVICE)

    a, b = (torch.rand(k, generator=generator).to(DEVICE) for k in (n, m))
    a[0] = 0.0  # a point without mass
    to = KINDS[kind]((a / a.sum()).log(), (b / b.sum()).log(), 0.3 * noise(*batch, n + m))
    z = to.begin(0.1 * noise(*batch, n + m))
    age, error = torch.full((*batch, 1), -1.0, device=DEVICE), torch.full(batch, torch.inf, device=DEVICE)
    return LowRank(noise(*batch, n, 3), noise(*batch, m, 3)), to, (z, z.clone(), age, error)


@pytest.mark.parametrize(("n", "m", "batch"), [(5, 3, ()), (20, 130, (3,)), (150, 40, (2, 2))])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("momentum", [False, True])
def test_steps_are_those_of_torch(kind, n, m, batch, momentum):
    score, to, state = given(kind, n, m, batch)
    found, expected = small_steps.steps(score, to, momentum)(state, 7), state
    dense = Dense(score.dense())
    for _ in range(7):
        z, ahead, age, _ = expected
        f, g = to.split(ahead)
        expected = sinkhorn.move(dense.sums(f + to.log_a, g + to.log_b), to, z, ahead, age, momentum)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_problems_that_are_lost_stay_where_they_are(kind):
    score, to, state = given(kind, 20, 30, (3,))
    score.q[1] *= 1e4  # exponentials overflow
    old, _, age, error = small_steps.steps(score, to, True)(state, 5)
    assert error.isinf().tolist() == [False, True, False]
    assert torch.equal(old[1], state[0][1])
    assert age[:, 0].tolist()[1] == 0.0  # it took no second step


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_sinkhorn_goes_on_where_a_problem_was_lost(monkeypatch):
    score, to, (z, *_) = given("soft", 20, 30, (3,))
    score.q[1] *= 30
    start, options = Potentials(*to.split(z)), Sinkhorn(steps=300, tol=1e-4)
    expected = sinkhorn.sinkhorn(Dense(score.dense()), to, start, options)
    monkeypatch.setattr(sinkhorn, "fused_for", lambda z: True)
    monkeypatch.setattr(sinkhorn, "CHECK_TOGETHER", 25)
    found = sinkhorn.sinkhorn(Dense(score.dense()), to, start, options)
    assert float(found.error.max()) <= 1e-4
    torch.testing.assert_close(found.f, expected.f, rtol=1e-2, atol=1e-2)

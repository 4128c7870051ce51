"""Marginals that a CUDA graph reads: what varies is written anew, and another kind is told."""

from __future__ import annotations

import math

import pytest
import torch

from gromap.transport.marginals import FREE, Marginals, PartialMarginals, SoftMarginals

KAPPAS = (0.0, 0.3), (0.2, FREE), (0.1, 0.4)


def sides(seed=0):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.rand(n, generator=generator, dtype=torch.float64) for n in (7, 5))
    anchor = torch.randn(12, generator=generator, dtype=torch.float64)
    return (a / a.sum()).log(), (b / b.sum()).log(), anchor


@pytest.mark.parametrize("kappa", KAPPAS, ids=str)
def test_what_varies_is_written_anew(kappa):
    log_a, log_b, anchor = sides()
    first = SoftMarginals(log_a, log_b, anchor, kappa)
    other = SoftMarginals(log_a, log_b, 2 * anchor, tuple(2 * k for k in kappa))
    own, z = first.graph_copy(), torch.linspace(-1, 1, 12, dtype=torch.float64)
    assert own.rewrite(other)
    total = z.exp()
    for mine, theirs in zip(own.residual(total, z), other.residual(total, z), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert float((first.anchor - anchor).abs().max()) == 0


def test_another_kind_is_told():
    log_a, log_b, anchor = sides()
    kinds = [
        Marginals(log_a, log_b),
        *(SoftMarginals(log_a, log_b, anchor, kappa) for kappa in KAPPAS),
        PartialMarginals(log_a, log_b, anchor, (1.0, 1.5)),
        PartialMarginals(log_a, log_b, anchor, (1.2, 1.5)),
    ]
    for i, own in enumerate(kinds):
        assert [own.graph_copy().rewrite(to) for to in kinds] == [i == k for k in range(len(kinds))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_marginal_that_is_hardly_free_is_a_fixed_one(dtype):
    log_a, log_b, anchor = (t.to(dtype) for t in sides())
    z = torch.linspace(-1, 1, 12, dtype=dtype)
    ratio, want = SoftMarginals(log_a, log_b, anchor, (1e-200, 1e-200)).residual(z.exp(), z)
    fixed, mass = Marginals(log_a, log_b).residual(z.exp(), z)
    torch.testing.assert_close(want, mass)
    torch.testing.assert_close(ratio, fixed)
    assert math.isfinite(float(ratio.sum()))

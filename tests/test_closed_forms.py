"""The solvers of the paper on problems whose answer is known; sharp ones start at the known map,
to test the solver alone."""

from __future__ import annotations

import numpy as np
import pytest

from gromap import CntGW, KernelGW, Loop, Sinkhorn, solve
from tests.closed_forms import gaussians, isometric_copies, scaled_copies, two_points

EXACT = Loop(Sinkhorn(3000, tol=1e-10), max_steps=3000, max_iter=500, tol=1e-11, marginal_tol=1e-8)
SOLVERS = [CntGW(EXACT), KernelGW(EXACT)]


def named(problems):
    return [pytest.param(known, id=known.name) for known in problems]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.name)
@pytest.mark.parametrize("known", named(two_points()))
def test_two_points(known, solver):
    sol = solve(known.X, known.Y, known.a, known.b, method=solver, **known.options)
    assert sol.value == pytest.approx(known.value, abs=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("known", named(isometric_copies()))
def test_isometric_copies(known, dtype):
    x, y, a, b = (z.astype(dtype) for z in (known.X, known.Y, known.a, known.b))
    sol = solve(x, y, a, b, init=known.match, **known.options)
    np.testing.assert_array_equal(sol.map(), known.match)
    np.testing.assert_array_equal(sol.inverse_map(), np.argsort(known.match))
    assert sol.value_gw < 2e-3


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.name)
@pytest.mark.parametrize("known", named(scaled_copies()))
def test_scaled_copies(known, solver):
    sol = solve(known.X, known.Y, known.a, known.b, method=solver, dim=25, init=known.match, **known.options)
    np.testing.assert_array_equal(sol.map(), known.match)
    assert known.value_gw * (1 - 1e-6) <= sol.value_gw <= known.value_gw + 5 * known.options["epsilon"]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.name)
@pytest.mark.parametrize("known", named(gaussians()))
def test_gaussians(known, solver):
    sol = solve(known.X, known.Y, known.a, known.b, method=solver, init=known.match, **known.options)
    assert known.value_gw * (1 - 1e-6) <= sol.value_gw <= known.value_gw + 5 * known.options["epsilon"]

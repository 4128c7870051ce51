"""Random arrays and options: a result that holds its promises, or one sentence."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gromap
from gromap.solvers import METHODS
from tests.fuzz.effort import ending, tally, tries
from tests.fuzz.problems import COSTS, NOT_CNT, problems

EXACT = ("kernel", "entropic", "proximal", "proximal-kernel", "conditional-gradient")  # values of the costs themselves
KINDS = ["float32", "float64", "float16", "int8", "int64", "uint8", ">f4", ">f8", "bool"]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-30, 1e30, 1e38, 1e300, np.inf, -np.inf, np.nan, 5.0, 0.1]


def energy(sol: gromap.Solution, costs: list[np.ndarray]) -> float:
    """Σ (c_X - c_Y)² π π of the dense plan, in float64."""
    pi = np.asarray(sol.plan.dense(), np.float64)
    c, d = (np.asarray(z, np.float64) / unit for z, unit in zip(costs, sol.scale, strict=True))
    rows, cols = pi.sum(1), pi.sum(0)
    return float(rows @ c**2 @ rows + cols @ d**2 @ cols - 2 * ((c @ pi @ d) * pi).sum())


def check(sol: gromap.Solution) -> None:
    """What holds for any solution that is not NOT_FINITE."""
    if sol.status is gromap.Status.NOT_FINITE:
        tally["not finite"] += 1
        return
    pi = np.asarray(sol.plan.dense(), np.float64)
    a, b = (np.asarray(z, np.float64) for z in (sol.plan.a, sol.plan.b))
    assert np.isfinite([sol.value, sol.value_gw]).all()
    assert np.isfinite(pi).all()
    assert (pi >= 0).all()
    error = np.abs(pi.sum(1) - a).sum() + np.abs(pi.sum(0) - b).sum()
    assert sol.plan.marginal_error == pytest.approx(error, rel=0.05, abs=1e-5)
    assert sol.value >= -1e-2 * max(1.0, error) * max(1.0, abs(sol.value_gw))
    if sol.converged:
        tally["converged"] += 1
        assert error <= 3e-3
    assert np.isfinite(np.asarray(sol.pull(np.ones(len(b))))).all()
    np.testing.assert_allclose(sol.push(np.ones(len(a))), 1.0, rtol=1e-3)


@given(problems(), st.sampled_from(["float32", "float64"]))
@tries(30)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_values_are_those_of_the_plan(problem, dtype):
    tally["solves"] += 1
    problem = problem.with_(x=problem.x.astype(dtype), y=problem.y.astype(dtype))
    sol = problem.solve()
    check(sol)
    if problem.method in EXACT or (problem.method == "cnt" and problem.cost not in NOT_CNT):
        spaces = [gromap.Space(z.astype(float), cost=COSTS[problem.cost]) for z in (problem.x, problem.y)]
        costs = [s.cost(s.measure.points, s.measure.points).numpy() for s in spaces]
        close = 1e-3 if dtype == "float32" else 1e-6
        assert sol.value_gw == pytest.approx(energy(sol, costs), rel=close, abs=close)


@given(problems())
@tries(8)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_solution_is_where_it_says(problem):
    """Started from itself, a solve that converged stays."""
    tally["solves"] += 2
    sol = problem.solve()
    if not sol.converged or problem.method in ("lowrank", "sampled"):  # which start from parts of a plan, or draw
        return
    again = problem.solve(init=sol)
    assert again.value == pytest.approx(sol.value, rel=1e-2, abs=1e-3)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Of most kinds and shapes that are wrong in some way, or right."""
    shape = draw(st.sampled_from([(5, 3), (7, 2), (2, 1), (1, 3), (0, 3), (4,), (3, 0), (2, 3, 2), (6, 6), ()]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    z = rng.normal(size=shape) * draw(st.sampled_from([1.0, 1e-30, 1e-5, 1e5, 1e30, 0.0]))
    for _ in range(draw(st.integers(0, 2)) if z.size else 0):
        z.reshape(-1)[draw(st.integers(0, z.size - 1))] = draw(st.sampled_from(NUMBERS))
    if z.shape == (6, 6) and draw(st.booleans()):
        z = np.abs(z + z.T)
        np.fill_diagonal(z, 0)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        z = z.astype(draw(st.sampled_from(KINDS)))
    return np.ma.masked_array(z, z > 0) if draw(st.integers(0, 20)) == 0 else z


OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "cost": st.sampled_from([*COSTS.values(), "euclidian", None, gromap.Power(1.0), lambda x, y: x @ y.mT]),
    "epsilon": st.sampled_from([1e-3, 0.1, 10.0, 1e-300, 1e300, 0, -1, np.nan, "a", None, True]),
    "scale": st.sampled_from(["auto", "each", "joint", "radius", None, 1.0, 1e-30, 1e30, 0, "x"]),
    "method": st.sampled_from([*METHODS, "auto", "nope", 3]),
    "dim": st.sampled_from(["auto", 1, 2, 3, 50, 0, -1, 0.5, 1.5, (1, 2), (1, 2, 3), None]),
    "init": st.sampled_from(["auto", "zero", "random", "nope", None, np.arange(5), np.ones((5, 7)), np.nan]),
    "tol": st.sampled_from([None, 1e-3, 0, -1, np.inf]),
    "seed": st.sampled_from([0, 7, -1, "a", 2.5, None]),
    "device": st.sampled_from([None, "cpu", "gpu", "meta", 3.5]),
    "sharpen": st.sampled_from([None, False, "yes"]),
}


@given(arrays(), arrays(), st.none() | arrays(), st.fixed_dictionaries({}, optional=OPTIONS))
@tries(150)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_anything(x, y, a, options):
    tally["solves of anything"] += 1
    try:
        with ending():
            sol = gromap.solve(x, y, a, max_iter=3, **options)
    except (ValueError, TypeError) as error:
        message = str(error)
        assert message.endswith((".", "?"))
        assert "\n" not in message
        return
    check(sol)

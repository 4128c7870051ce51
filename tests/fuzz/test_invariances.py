"""What changes no match: order, motions, units, sides, split points, and units of weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gromap
from gromap.solvers import METHODS
from tests.conftest import rotation
from tests.fuzz.effort import tally, tries
from tests.fuzz.problems import COSTS, HOMOGENEOUS, Problem, problems

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
DETERMINED = ("cnt", "kernel", "entropic", "proximal", "proximal-kernel", "dual", "lowrank-cost")
TOL = 2e-3  # of the energy, or of a unit of it: what two runs that converged may differ by


def alike(
    problem: Problem, other: Problem, times: float = 1.0, missed: float = np.inf
) -> tuple[gromap.Solution, gromap.Solution] | None:
    """Both solutions, whose values agree; None where one is unfinished, or a step on the way
    misplaced more mass."""
    tally["invariances"] += 1
    one, two = problem.solve(), other.solve()
    assert np.isfinite([one.value, two.value]).all()
    if not (one.converged and two.converged):
        return None
    if max(sol.history["marginal_error"].max() for sol in (one, two)) > missed:
        return None
    assert two.value == pytest.approx(times * one.value, rel=TOL, abs=TOL * problem.epsilon)
    return one, two


def taken(x: np.ndarray, order: np.ndarray, cost: str) -> np.ndarray:
    return x[np.ix_(order, order)] if cost == "precomputed" else x[order]


@given(problems(methods=DETERMINED), st.randoms(use_true_random=False))
@tries(8)
def test_the_order_of_the_points(problem, random):
    order = np.array(random.sample(range(len(problem.x)), len(problem.x)))
    found = alike(problem, problem.with_(x=taken(problem.x, order, problem.cost), a=problem.a[order]))
    if found:
        np.testing.assert_allclose(found[1].plan.dense(), found[0].plan.dense()[order], atol=0.02 * problem.a.max())


@given(problems(costs=tuple(c for c in COSTS if c != "precomputed"), methods=DETERMINED), st.integers(0, 99))
@tries(8)
def test_motions(problem, seed):
    """Rotations and reflections, and shifts of what does not lie on a sphere or in a ball."""
    d = problem.x.shape[1]
    shift = 0.0 if problem.cost in ("spherical", "hyperbolic") else np.linspace(-3, 5, d)
    alike(problem, problem.with_(x=problem.x @ rotation(d, seed) + shift))


@given(problems(costs=HOMOGENEOUS, methods=DETERMINED), st.integers(-30, 30), st.integers(-30, 30))
@tries(8)
def test_units(problem, left, right):
    """Powers of ten from 1e-30 to 1e30, of each side its own."""
    alike(problem, problem.with_(x=problem.x * 10.0**left, y=problem.y * 10.0**right))


@given(problems(methods=DETERMINED), st.integers(-300, 300))
@tries(8)
def test_units_of_weights(problem, power):
    alike(problem, problem.with_(a=problem.a * 10.0**power))


@given(problems(methods=DETERMINED))
@tries(8)
def test_sides(problem):
    """A standard Sinkhorn updates one side after the other: where its hundred steps are not enough,
    swapped sides may go to another minimum."""
    loop = METHODS[problem.method].loop
    missed = loop.marginal_tol if loop.sinkhorn.update == "standard" else np.inf
    found = alike(problem, problem.with_(x=problem.y, y=problem.x, a=problem.b, b=problem.a), missed=missed)
    if found:
        np.testing.assert_allclose(found[1].plan.dense().T, found[0].plan.dense(), atol=0.02 * problem.a.max())


@given(problems(methods=("cnt", "kernel", "entropic", "proximal")), st.integers(0, 10**6))
@tries(8)
def test_a_point_split_in_two(problem, k):
    """Of half the weight each: the entropy of a plan relative to the weights stays as it is."""
    n = len(problem.x)
    order = np.append(np.arange(n), k % n)
    a = problem.a[order]
    a[k % n] /= 2
    a[-1] /= 2
    alike(problem, problem.with_(x=taken(problem.x, order, problem.cost), a=a))

"""Dual-GW is CNT-GW with shorter steps (Prop. equivalence_dualgrad)."""

from __future__ import annotations

import numpy as np
import pytest

from gromap import CntGW, DualGW, Loop, Sinkhorn, solve

EXACT = Loop(Sinkhorn(2000, tol=1e-9), adaptive=False, max_steps=2000, max_iter=400)


def test_a_full_step_is_cnt_gw(pair):
    one, two = (
        solve(*pair, epsilon=0.1, method=m, init="zero", max_iter=5) for m in (CntGW(EXACT), DualGW(EXACT, step=1.0))
    )
    np.testing.assert_allclose(one.history["energy"], two.history["energy"], rtol=1e-10)


def test_short_steps_fall_to_the_same_minimum_in_many_more(pair):
    """At the step that smoothness allows, at least 3 times as many (sec. Comparison with other
    solvers)."""
    fast, slow = (solve(*pair, epsilon=0.1, method=m(EXACT), init="zero") for m in (CntGW, DualGW))
    assert slow.converged
    assert (np.diff(slow.history["energy"]) < 1e-7).all()
    assert slow.value == pytest.approx(fast.value, abs=1e-4)
    assert len(slow.history["energy"]) >= 3 * len(fast.history["energy"])


def test_the_colder_the_shorter(pair):
    steps = [
        len(solve(*pair, epsilon=e, scale="radius", method=DualGW(EXACT), init="zero").history["energy"])
        for e in (0.4, 0.1)
    ]
    assert steps[1] > 2 * steps[0]
    with pytest.raises(ValueError, match="share in"):
        DualGW(step=2.0)

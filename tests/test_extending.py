"""A new cost and a new solver, written outside of the package, run through `solve` and
`GromovLoss`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import gromap
from gromap.solvers.cnt import CntGW
from gromap.solvers.embedded import CntProblem
from gromap.solvers.loop import AlternatingSolver
from gromap.solvers.protocol import Loop


@dataclass(frozen=True)
class LogDistance(gromap.Radial):
    """log(1 + |x - x'|²), conditionally of negative type."""

    def profile(self, d):
        return torch.log1p(d.square())

    def slope(self, d, c):
        return 2 * d / (1 + d.square())


@dataclass(frozen=True)
class DampedGW(AlternatingSolver):
    """CNT-GW that goes a share of the way to the next Γ."""

    loop: Loop = Loop(max_iter=300)
    share: float = 0.5
    name = "damped"

    def memory(self, pair):
        return CntGW().memory(pair)

    def problem(self, pair):
        problem = DampedProblem(*pair.features, *pair.weights, pair.eps, unit=pair.energy_unit, pair=pair)
        problem.share = self.share
        return problem

    def for_gradients(self):
        return self


class DampedProblem(CntProblem):
    share = 1.0

    def correlate(self, gamma, score, u, v):
        new, rows = super().correlate(gamma, score, u, v)
        return gamma + self.share * (new - gamma), rows


@pytest.mark.parametrize("init", ["auto", "zero"])
def test_through_solve(pair, init):
    options = {"cost": LogDistance(), "epsilon": 0.05, "init": init}
    damped, plain = (gromap.solve(*pair, method=m, **options) for m in (DampedGW(), "cnt"))
    assert damped.stats.method == "damped"
    assert damped.converged
    assert damped.value == pytest.approx(plain.value, rel=1e-2)
    again = gromap.solve(*pair, method=DampedGW(), max_iter=2, cost=LogDistance(), epsilon=0.05, init=damped)
    assert len(again.history["energy"]) <= 2


def test_through_the_losses(pair):
    x, y, a, b = (torch.from_numpy(z) for z in pair)
    found = []
    for method in (
        DampedGW(Loop(max_iter=500, tol=1e-9, marginal_tol=1e-7)),
        gromap.CntGW(Loop(tol=1e-9, marginal_tol=1e-7)),
    ):
        points = x.clone().requires_grad_()
        loss = gromap.GromovLoss(cost=LogDistance(), epsilon=0.3, method=method, init="zero", dim=(40, 31))
        value = loss(points, y, a, b)
        value.backward()
        assert points.grad is not None
        found.append((float(value.detach()), points.grad))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-3)
    assert float((found[0][1] - found[1][1]).norm() / found[1][1].norm()) < 0.05


def test_neither_takes_forty_lines():
    source = Path(__file__).read_text(encoding="utf-8")
    body = source[source.index("@dataclass") : source.index("@pytest.mark")]
    assert len([line for line in body.splitlines() if line.strip()]) < 40


def test_a_solver_without_gradients_says_so():
    with pytest.raises(TypeError, match="EntropicGW has no gradients: use 'cnt', 'kernel' or 'multiscale'"):
        gromap.GromovLoss(method=gromap.EntropicGW())


def test_what_is_no_solver_is_refused():
    x = np.eye(4)
    with pytest.raises(TypeError, match="got the class CntGW"):
        gromap.solve(x, x, method=gromap.CntGW)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"or a solver such as gromap\.CntGW"):
        gromap.solve(x, x, method=3)  # type: ignore[arg-type]

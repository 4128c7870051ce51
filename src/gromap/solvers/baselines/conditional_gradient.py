"""ConditionalGradientGW (Frank-Wolfe; Titouan et al. 2019): unregularized couplings, by exact
optimal transport.

    π'      = argmin_π <α ∇L(π_t) + (1 - α) C_F, π>
    π_{t+1} = (1 - τ) π_t + τ π'          τ minimizes a parabola over [0, 1]

L is concave for CNT costs (Maron & Lipman 2018): then τ = 1, and plans are vertices of the polytope
of couplings. Without features α = 1. The linear program is solved on the CPU by the network simplex
of POT.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap._pair import Pair
from gromap._plan import Plan, round_to
from gromap._progress import Event
from gromap._torch import from_numpy
from gromap.solvers.baselines.wrapped import WrappedProblem
from gromap.solvers.kernel import KernelProblem, Operator, total
from gromap.solvers.loop import run_steps
from gromap.solvers.memory import dense_memory
from gromap.solvers.protocol import Callback, Loop, Outcome, SolverDefaults, Start, Stepping
from gromap.transport import Dense

ZERO = -800.0  # log of π_ij / a_i b_j where there is no mass: exp is exactly zero, and 0 ZERO is not NaN


class Coupling(NamedTuple):
    operator: Operator
    g: Tensor  # (M,) the potential of Y in the last linear program


def _between(old: Operator, new: Operator, share: float) -> Operator:
    assert old.pi is not None
    assert new.pi is not None
    image, pi = old.image.lerp(new.image, share), old.pi.lerp(new.pi, share)
    return Operator(image, total(pi * image), pi)


def line_search(slope: float, bend: float) -> float:
    """The τ in [0, 1] that minimizes slope τ + bend τ²."""
    if bend > 0:
        return min(1.0, max(0.0, -slope / (2 * bend)))
    return 1.0 if slope + bend < 0 else 0.0


@dataclass(frozen=True)
class ConditionalGradientGW(SolverDefaults):
    """Conditional gradient: sharp couplings for any pair of costs, by exact optimal transport
    (pip install 'gromap[pot]').

    What is minimized is L(π) = `Solution.value_gw`, with features α L(π) + (1 - α) <C_F, π>,
    without entropy: `epsilon` only serves the search for a start, and `value`, which adds
    ε KL(π | a⊗b) as for every method. Time O(N³) per step, on the CPU, memory O((N + M)²): up to a
    few thousand points, and as the last step after another method, with `init=solution`.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(40, 2)) * [2, 1]
    >>> sol = gromap.solve(X, X[::-1], method="conditional-gradient")
    >>> sol.value_gw < 1e-9, int((sol.plan.dense() > 0).sum())
    (True, 40)
    """

    loop: Loop = Loop()

    name = "conditional-gradient"
    memory_advice = "use method='cnt' with a small epsilon, which is linear in memory."

    def check(self, pair: Pair) -> None:
        """Any cost and features will do, between fixed marginals."""
        if pair.relaxed:
            raise ValueError(
                f"method {self.name!r} keeps both marginals, and knows neither reach= nor mass=: use 'cnt', "
                "'multiscale' or 'kernel'."
            )

    def memory(self, pair: Pair) -> int:
        """Bytes that a solve takes at most, about: quadratic in the points, in float64 for the
        linear program."""
        return dense_memory(pair, plans=13 if pair.fused is None else 15, itemsize=8)

    def problem(self, pair: Pair) -> ConditionalGradientProblem:
        return ConditionalGradientProblem(KernelProblem(pair, centered=False))

    def run(self, problem: ConditionalGradientProblem, start: Start, callback: Callback | None = None) -> Outcome:
        return run_steps(problem, start.begin(problem, problem, self.loop), self.loop, callback)


class ConditionalGradientProblem(WrappedProblem[KernelProblem], Stepping):
    def __init__(self, base: KernelProblem):
        super().__init__(base)
        self.emd = _check.extra("ot", "pot", "POT").emd
        fused = base.pair.fused
        self.alpha = 1.0 if fused is None else fused.alpha
        self.linear = base.a.new_zeros(()) if fused is None else (1 - fused.alpha) * fused.cost()

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Coupling:
        operator = self.base.start(gamma)
        if plan is not None:
            operator = self.base.operator(round_to(plan.matrix().to(self.a), self.a, self.b))
        return Coupling(operator, torch.zeros_like(self.b))

    def steps(self, gamma: Coupling, options: Loop) -> Iterator[tuple[Event, Coupling]]:
        """Frank-Wolfe steps with an exact line search."""
        begin, base, at = time.perf_counter(), self.base, gamma.operator
        for step in itertools.count(1):
            assert at.pi is not None
            cost = self.cost(at)
            pi, g = self.transport(cost)
            far = base.operator(pi)
            bend = -8 * self.alpha * float(base.distance2(at, far))
            share = line_search(float(total(cost * (pi - at.pi))), bend)
            at = _between(at, far, share)
            assert at.pi is not None
            energy = self.alpha * (base.constant - 8 * float(at.norm2)) + float(total(self.linear * at.pi))
            seconds = time.perf_counter() - begin
            yield Event("solve", step, options.max_iter, seconds, energy, -(share**2) * bend, 0.0, 1), Coupling(at, g)

    def cost(self, at: Operator) -> Tensor:
        """The gradient of the energy, but for terms of one side alone.  (N, M)"""
        return self.linear - 16 * self.alpha * at.image

    def transport(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """An optimal coupling, and the potential of Y."""
        a, b = (w.cpu().numpy().astype(np.float64) for w in (self.a, self.b))
        least = (cost - cost.min()).cpu().numpy().astype(np.float64)  # POT calls negative costs infeasible
        pi, log = self.emd(a / a.sum(), b / b.sum(), least, numItermax=10_000_000, log=True)
        if log["warning"]:
            raise RuntimeError(f"the linear program of conditional-gradient failed in POT: {log['warning']}")
        return from_numpy(pi).to(cost), from_numpy(np.asarray(log["v"])).to(cost)

    def score(self, gamma: Coupling) -> Dense:
        """log π_ij / a_i b_j. Points without mass go where the linear program would send them."""
        at, g = gamma
        assert at.pi is not None
        alive = at.pi > 0
        ratio = torch.where(alive, at.pi.log() - self.log_a[:, None] - self.log_b, ZERO)
        cost = self.cost(at)
        f = (cost - g).masked_fill(self.b == 0, torch.inf).amin(1)
        _send(ratio, cost - g, self.a == 0, self.b == 0)
        _send(ratio.mT, cost.mT - f, self.b == 0, self.a == 0)
        return Dense(ratio)

    def matrix(self, gamma: Coupling, plan: Plan) -> Tensor:
        return self.base.matrix(gamma.operator, plan)

    def evaluate(self, gamma: Coupling, plan: Plan) -> tuple[float, float]:
        """L(π) and KL(π | α⊗β) for any plan, from the cost matrices themselves."""
        return self.base.evaluate(gamma.operator, plan)

    def feature_value(self, plan: Plan) -> float:
        fused = self.base.pair.fused
        return 0.0 if fused is None else fused.mean(plan)


def _send(ratio: Tensor, cost: Tensor, empty: Tensor, closed: Tensor) -> None:
    """Let each empty row end at its cheapest open column, in place."""
    rows = empty.nonzero()[:, 0]
    ratio[rows, cost[rows].masked_fill(closed, torch.inf).argmin(1)] = 0.0

"""ProximalGW (Xu et al. 2019): the entropy is taken against the last plan, and vanishes on the way.

    π' = argmin_π <∇L(π_t), π> + ε KL(π | π_t)

Its fixed points are those of the problem without entropy, whatever ε: this only sets how far a step
goes. As a score,

    s = -∇L(π_t) / ε + log(π_t / a⊗b),    π' = a⊗b exp(s + f + g),

with the uncentered cost of Entropic-GW, or with the centered one of Kernel-GW (ProximalKernel-GW of
sec. Comparison with other solvers). The last plan is kept as its logarithm: entries that underflow
may come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._pair import Pair
from gromap._plan import Plan
from gromap.solvers.baselines.wrapped import WrappedProblem
from gromap.solvers.kernel import KernelProblem, Operator, total
from gromap.solvers.loop import AlternatingSolver
from gromap.solvers.memory import dense_memory
from gromap.solvers.protocol import PUBLISHED, Alternating, Loop
from gromap.transport import Dense, Score

EMPTY = -60.0  # nats below a⊗b: where a start has no mass, so that it may still get some


@dataclass(frozen=True)
class ProximalGW(AlternatingSolver):
    """Proximal-GW: towards unregularized couplings, through Sinkhorn.

    kernel: take the centered cost of Kernel-GW ("proximal-kernel").  The energies, and what is
    minimized, are L(π) = `Solution.value_gw`; `value` adds ε KL(π | α⊗β), as for every method. Time
    O(N M (N + M)) per outer step, memory O((N + M)²). For sharp couplings between a few thousand
    points; ε is the inverse of a step size.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(40, 2)) * [2, 1]
    >>> methods = "proximal", "entropic"
    >>> sharp, soft = (gromap.solve(X, X[::-1] + 0.1, epsilon=0.1, method=m) for m in methods)
    >>> sharp.value_gw < 0.2 * soft.value_gw
    True
    """

    loop: Loop = PUBLISHED
    kernel: bool = False

    memory_advice = "use method='cnt' with a small epsilon, which is linear in memory."

    @property
    def name(self) -> str:
        return "proximal-kernel" if self.kernel else "proximal"

    def memory(self, pair: Pair) -> int:
        """Bytes that a solve takes at most, about: quadratic in the points."""
        return dense_memory(pair, plans=10)

    def problem(self, pair: Pair) -> ProximalProblem:
        return ProximalProblem(KernelProblem(pair, centered=self.kernel))


class Last(NamedTuple):
    """The last plan, in both of the ways it is needed."""

    operator: Operator
    log_ratio: Tensor  # log(π_ij / a_i b_j); zero in rows and columns without mass


class ProximalProblem(WrappedProblem[KernelProblem], Alternating):
    def __init__(self, base: KernelProblem):
        super().__init__(base)
        self.alive = (self.a > 0)[:, None] & (self.b > 0)

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Last:
        base = self.base
        if plan is None:
            pi = self.a[:, None] * self.b
            return Last(base.operator(pi), torch.zeros_like(pi))
        ratio = self._ratio(plan.score.dense().to(self.a), plan.u.to(self.a), plan.v.to(self.a)).clamp(min=EMPTY)
        return Last(base.operator(plan.matrix().to(self.a)), ratio)

    def _ratio(self, score: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return torch.where(self.alive, score + (u - self.log_a)[:, None] + (v - self.log_b), 0.0)

    def score(self, gamma: Last) -> Dense:
        return Dense(self.base.score(gamma.operator).matrix.add_(gamma.log_ratio))

    def correlate(self, gamma: Last, score: Score, u: Tensor, v: Tensor) -> tuple[Last, Tensor]:
        operator, rows = self.base.correlate(gamma.operator, score, u, v)
        return Last(operator, self._ratio(score.dense(), u, v)), rows

    def energy(self, old: Last, new: Last, transport: Tensor) -> tuple[Tensor, Tensor]:
        """L(π'), and 8 |Γ - Γ'|² + ε KL(π' | π), with transport = OT_ε(-ε s)."""
        assert new.operator.pi is not None
        kl = total((new.log_ratio - old.log_ratio).mul_(new.operator.pi))
        loss, change = self.base.energy(old.operator, new.operator, transport)
        return loss - self.eps * kl, change + self.eps * kl

    def matrix(self, gamma: Last, plan: Plan) -> Tensor:
        return self.base.matrix(gamma.operator, plan)

    def evaluate(self, gamma: Last, plan: Plan) -> tuple[float, float]:
        """L(π) and KL(π | α⊗β) for any plan, from the cost matrices themselves."""
        return self.base.evaluate(gamma.operator, plan)

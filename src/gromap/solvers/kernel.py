"""KernelGW (Alg. kernel_gw): the same alternation, exact, through the kernel trick.

Γ lives in a possibly infinite-dimensional space and is kept as the pair π, K_X π K_Y of N x M
arrays. Time O(N M (N + M)) per outer step, memory O((N + M)²): a reference for a few thousand
points, and for costs that are not CNT.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._pair import Pair
from gromap._plan import Plan
from gromap._threads import all_threads
from gromap.geometry.embedding import kernel_matrix
from gromap.solvers.embedded import CntProblem, map_of_plan
from gromap.solvers.loop import AlternatingSolver
from gromap.solvers.memory import dense_memory
from gromap.solvers.protocol import Alternating, Bilinear, Loop
from gromap.solvers.relaxed import embedded_problem
from gromap.solvers.relaxed_kernel import RelaxedKernelProblem
from gromap.transport import Dense, Score


class Operator(NamedTuple):
    """Γ = Σ π_ij φ(x_i) ψ(y_j)ᵀ through what the loop needs of it."""

    image: Tensor  # <φ(x_i), Γ ψ(y_j)> = (K_X π K_Y)_ij
    norm2: Tensor
    pi: Tensor | None  # unknown for a start given as a matrix


@dataclass(frozen=True)
class KernelGW(AlternatingSolver):
    """Kernel-GW on the exact costs, with the options of its loop."""

    loop: Loop = Loop()

    name = "kernel"
    memory_advice = "use method='cnt', which is linear in memory."

    def memory(self, pair: Pair) -> int:
        """Bytes that a solve takes at most, about: quadratic in the points."""
        return dense_memory(pair, plans=8)

    def check(self, pair: Pair) -> None:
        """Any cost, features and marginals will do."""

    def problem(self, pair: Pair) -> Alternating:
        return RelaxedKernelProblem(pair) if pair.relaxed or pair.fused is not None else KernelProblem(pair)

    def for_gradients(self) -> KernelGW:
        return self


class KernelProblem(Bilinear):
    """centered: K = -½ H C Hᵀ, for Kernel-GW; else K = -½ C, which makes this Entropic-GW
    (entropic.py)."""

    dense = True
    pair: Pair

    def __init__(self, pair: Pair, centered: bool = True):
        super().__init__(*pair.weights, pair.eps, pair.energy_unit, pair)
        self.primal = not centered
        sides = zip((pair.x, pair.y), pair.units, strict=True)
        self.cx, self.cy = ((s.cost(s.measure.points, s.measure.points) / unit).to(s.dtype) for s, unit in sides)
        pairs = (self.cx, self.a), (self.cy, self.b)
        self.kx, self.ky = (kernel_matrix(c, w) if centered else -0.5 * c for c, w in pairs)
        self.dx, self.dy = self.kx.diagonal(), self.ky.diagonal()
        spread = [float(w.double() @ d.double()) for w, d in ((self.a, self.dx), (self.b, self.dy))]
        self.constant = _squares(self.cx, self.a) + _squares(self.cy, self.b) - 4 * spread[0] * spread[1]

    @cached_property
    def embedded(self) -> CntProblem:  # pyright: ignore[reportIncompatibleMethodOverride] - a property, kept
        return embedded_problem(self.pair)

    def start(self, gamma: Tensor, plan: Plan | None = None) -> Operator:
        if plan is not None and plan.shape == (len(self.a), len(self.b)):
            return self.operator(plan.matrix().to(self.a))
        if self.primal:
            return self.operator(self.a[:, None] * self.b)
        if not bool(gamma.any()):
            return Operator(self.a.new_zeros(len(self.a), len(self.b)), self.a.new_zeros(()).double(), None)
        left, right = self.pair.features
        return Operator(left @ gamma.to(left.dtype) @ right.mT, gamma.double().square().sum(), None)

    def operator(self, pi: Tensor) -> Operator:
        with all_threads():
            image = self.kx @ pi @ self.ky
        return Operator(image, total(pi * image), pi)

    def score(self, gamma: Operator) -> Dense:
        return Dense((16 / self.eps) * gamma.image + (4 / self.eps) * self.dx[:, None] * self.dy)

    def correlate(self, gamma: Operator, score: Score, u: Tensor, v: Tensor) -> tuple[Operator, Tensor]:
        pi = (score.dense() + u[:, None]).add_(v).exp_()
        return self.operator(pi), pi.sum(1)

    def norm2(self, gamma: Operator) -> Tensor:
        return gamma.norm2

    def distance2(self, old: Operator, new: Operator) -> Tensor:
        assert new.pi is not None
        if old.pi is None:
            return old.norm2 + new.norm2 - 2 * total(new.pi * old.image)
        return total((new.pi - old.pi).mul_(new.image - old.image))

    def matrix(self, gamma: Operator, plan: Plan) -> Tensor:
        return map_of_plan(plan, self.pair)

    def gradient_terms(self, plan: Plan, side: int) -> tuple[Dense, Tensor]:
        """-W = -π C_Y πᵀ, dense, and p = π |Y|²."""
        cost, norms = (self.cy, self.dy) if side == 0 else (self.cx, self.dx)
        pi = (plan if side == 0 else plan.T).matrix()
        return Dense(-(pi @ cost @ pi.mT)), pi @ norms

    def evaluate(self, gamma: Operator, plan: Plan) -> tuple[float, float]:
        """L(π) and KL(π | α⊗β) for any plan, from the cost matrices themselves."""
        pi, (f, g) = plan.matrix(), plan.potentials
        rows, cols = (pi.sum(k, dtype=torch.float64) for k in (1, 0))
        cross = float(total((self.cx @ pi @ self.cy).mul_(pi)))
        # entry by entry: scores and potentials may be so large that of their sums little is left
        kl = float(total((plan.score.dense() + f[:, None]).add_(g).mul_(pi)))
        return _squares(self.cx, rows) + _squares(self.cy, cols) - 2 * cross, kl


def total(z: Tensor) -> Tensor:
    """The sum of all entries, by rows: a float64 copy of them all would be two more arrays."""
    return z.sum(1).double().sum()


def _squares(c: Tensor, a: Tensor) -> float:
    """Σ_ik c_ik² a_i a_k"""
    a = a.double()
    return float(a @ (c.square() @ a.to(c.dtype)).double())

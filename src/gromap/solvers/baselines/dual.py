"""DualGW (Rioux et al. 2024): gradient descent on the dual objective D_ε, with a step that its
smoothness allows.

    Γ' = Γ - τ ∇D_ε(Γ) = Γ + 2 τ (Γ(π) - Γ),    8 D_ε(Γ) = 8 |Γ|² + OT_ε(C_Γ)

CNT-GW is the same scheme at τ = ½, at any temperature (Prop. equivalence_dualgrad). Without its
majorisation argument, the step has to follow the curvature: |∂²(8 D_ε)| <= max(16, (256/ε) (E|X|⁴
E|Y|⁴)^½ - 16), so that τ = O(ε).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from gromap._pair import Pair
from gromap.solvers.cnt import CntGW
from gromap.solvers.embedded import CntProblem
from gromap.solvers.loop import AlternatingSolver
from gromap.solvers.memory import linear_memory
from gromap.solvers.protocol import PUBLISHED, Loop
from gromap.solvers.relaxed import embedded_problem
from gromap.transport import Score


@dataclass(frozen=True)
class DualGW(AlternatingSolver):
    """Dual-GW, from squared norms to every CNT cost through its embedding; for comparison with
    CntGW.

    step: 2τ, the share of the way to Γ(π) in (0, 1]; None = that of the smoothness bound, O(ε).
    Time O(N M (D + 1)) per Sinkhorn step, memory O(N D + M E), as CntGW, in many more outer steps:
    raise `max_iter`.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(40, 2)) * [2, 1]
    >>> options = {"epsilon": 0.1, "init": "zero", "max_iter": 999}
    >>> slow, fast = (gromap.solve(X, X, method=m, **options) for m in ("dual", "cnt"))
    >>> len(slow.history["energy"]) > 3 * len(fast.history["energy"])
    True
    """

    loop: Loop = PUBLISHED
    step: float | None = None

    name = "dual"
    memory_advice = CntGW.memory_advice

    def __post_init__(self) -> None:
        if self.step is not None and not 0 < self.step <= 1:
            raise ValueError(
                f"DualGW's step is a share in (0, 1], or None for that of the smoothness bound, got {self.step}."
            )

    def check(self, pair: Pair) -> None:
        super().check(pair)
        pair.warn_if_not_cnt()

    def memory(self, pair: Pair) -> int:
        return linear_memory(pair)

    def problem(self, pair: Pair) -> DualProblem:
        return DualProblem(pair, self.step)


class DualProblem(CntProblem):
    """CNT-GW, a share of each step at a time."""

    def __init__(self, pair: Pair, step: float | None):
        super().__init__(*pair.features, *pair.weights, pair.eps, unit=pair.energy_unit, pair=pair)
        self.step = step or smooth_step(*pair.features, *pair.weights, pair.eps)

    @cached_property
    def embedded(self) -> CntProblem:  # pyright: ignore[reportIncompatibleMethodOverride] - a property, kept
        assert self.pair is not None
        return embedded_problem(self.pair)

    def correlate(self, gamma: Tensor, score: Score, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        new, rows = super().correlate(gamma, score, u, v)
        return gamma + self.step * (new - gamma), rows

    def distance2(self, old: Tensor, new: Tensor) -> Tensor:
        """|Γ - Γ(π)|², what the loop stops on: it does not depend on the step."""
        return super().distance2(old, new) / self.step**2


def smooth_step(x: Tensor, y: Tensor, a: Tensor, b: Tensor, eps: float) -> float:
    """16 / L for the Lipschitz constant L of the gradient of 8 D_ε."""
    fourth = [float(w.double() @ z.double().square().sum(-1).square()) for z, w in ((x, a), (y, b))]
    return 16 / max(16.0, 256 / eps * (fourth[0] * fourth[1]) ** 0.5 - 16)

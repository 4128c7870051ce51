"""EntropicGW (Peyré et al. 2016): projected gradient descent in the KL geometry, on the cost
matrices as they are.

    π'    = argmin_π <∇L(π_t), π> + ε KL(π | α⊗β)
    ∇L(π) = -4 C_X π C_Y                 up to terms in i alone and in j alone

With the uncentered kernels K = -½ C this is the cost -16 K_X π K_Y of Kernel-GW, whose diagonal
terms vanish: the two solvers differ by the centring alone. On couplings they agree; while the
marginals are off, centring is what keeps Γ where it belongs (Prop. equivalence_pgd, sec.
Convergence Speed Evaluation).
"""

from __future__ import annotations

from dataclasses import dataclass

from gromap._pair import Pair
from gromap.solvers.kernel import KernelGW, KernelProblem
from gromap.solvers.loop import AlternatingSolver
from gromap.solvers.memory import dense_memory
from gromap.solvers.protocol import PUBLISHED, Loop


@dataclass(frozen=True)
class EntropicGW(AlternatingSolver):
    """Entropic-GW, the reference solver for any pair of cost matrices, CNT or not.

    Time O(N M (N + M)) per outer step, memory O((N + M)²): up to a few thousand points. By default
    as published, with a hundred standard Sinkhorn steps; for CNT costs KernelGW finds the same
    couplings in fewer. It may oscillate for costs that are not CNT.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(40, 2)) * [2, 1]
    >>> gromap.solve(X, X[::-1], epsilon=0.05, method="entropic").converged
    True
    """

    loop: Loop = PUBLISHED

    name = "entropic"
    memory_advice = KernelGW.memory_advice

    def memory(self, pair: Pair) -> int:
        """Bytes that a solve takes at most, about: quadratic in the points."""
        return dense_memory(pair, plans=8)

    def problem(self, pair: Pair) -> KernelProblem:
        return KernelProblem(pair, centered=False)

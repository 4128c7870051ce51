"""One file per algorithm, of the paper and of those before it (App. A); one outer loop for most (loop.py)."""

from gromap.solvers.cnt import CntGW
from gromap.solvers.conditional_gradient import ConditionalGradientGW
from gromap.solvers.dual import DualGW
from gromap.solvers.entropic import EntropicGW
from gromap.solvers.kernel import KernelGW
from gromap.solvers.loop import Loop, Step
from gromap.solvers.lowrank import LowRankGW
from gromap.solvers.lowrank_cost import LowRankCostGW
from gromap.solvers.multiscale import Multiscale
from gromap.solvers.proximal import ProximalGW
from gromap.solvers.sampled import SampledGW

__all__ = [
    "METHODS",
    "CntGW",
    "ConditionalGradientGW",
    "DualGW",
    "EntropicGW",
    "KernelGW",
    "Loop",
    "LowRankCostGW",
    "LowRankGW",
    "Multiscale",
    "ProximalGW",
    "SampledGW",
    "Solver",
    "Step",
]

Solver = (
    CntGW
    | KernelGW
    | Multiscale
    | EntropicGW
    | LowRankCostGW
    | LowRankGW
    | SampledGW
    | DualGW
    | ProximalGW
    | ConditionalGradientGW
)
METHODS: dict[str, Solver] = {
    solver.name: solver
    for solver in (
        CntGW(),
        KernelGW(),
        Multiscale(),
        EntropicGW(),
        LowRankCostGW(),
        LowRankGW(),
        SampledGW(),
        DualGW(),
        ProximalGW(),
        ProximalGW(kernel=True),
        ConditionalGradientGW(),
    )
}

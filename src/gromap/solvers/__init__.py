"""One file per algorithm, of the paper and of those before it (baselines/, App. A); one outer
loop for most (loop.py)."""

from gromap.solvers.baselines.conditional_gradient import ConditionalGradientGW
from gromap.solvers.baselines.dual import DualGW
from gromap.solvers.baselines.entropic import EntropicGW
from gromap.solvers.baselines.lowrank import LowRankGW
from gromap.solvers.baselines.lowrank_cost import LowRankCostGW
from gromap.solvers.baselines.proximal import ProximalGW
from gromap.solvers.baselines.sampled import SampledGW
from gromap.solvers.cnt import CntGW
from gromap.solvers.kernel import KernelGW
from gromap.solvers.multiscale import Multiscale
from gromap.solvers.protocol import Loop, Problem, Solver

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
    "Problem",
    "ProximalGW",
    "SampledGW",
    "Solver",
]

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

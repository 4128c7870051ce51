"""One file per algorithm of the paper, one outer loop (loop.py)."""

from gromap.solvers.cnt import CntGW
from gromap.solvers.kernel import KernelGW
from gromap.solvers.loop import Loop, Step
from gromap.solvers.multiscale import Multiscale

__all__ = ["METHODS", "CntGW", "KernelGW", "Loop", "Multiscale", "Solver", "Step"]

Solver = CntGW | KernelGW | Multiscale
METHODS: dict[str, type[Solver]] = {"cnt": CntGW, "kernel": KernelGW, "multiscale": Multiscale}

"""One file per algorithm of the paper, one outer loop (loop.py)."""

from gromap.solvers.cnt import CntGW
from gromap.solvers.kernel import KernelGW
from gromap.solvers.loop import Loop, Step

__all__ = ["CntGW", "KernelGW", "Loop", "Step"]

METHODS = {"auto": CntGW, "cnt": CntGW, "kernel": KernelGW}

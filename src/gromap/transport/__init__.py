"""Transport: every N x M object of the paper as a score that is reduced (score.py), and Sinkhorn
on it (sinkhorn.py).

Nothing in this room knows about Gromov-Wasserstein; nothing above it knows about tiles, kernels or
graphs.
"""

from gromap.transport.lowrank import LowRank, Truncated
from gromap.transport.mixture import Mixture
from gromap.transport.score import Dense, Score
from gromap.transport.truncation import Cells, Grid, split_cells

__all__ = ["Cells", "Dense", "Grid", "LowRank", "Mixture", "Score", "Truncated", "split_cells"]

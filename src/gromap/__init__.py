"""gromap: match point clouds, meshes and metric data by Gromov-Wasserstein, in linear memory."""

from gromap import mesh
from gromap._plan import Plan
from gromap._progress import Event
from gromap._solution import Interrupted, Solution, State, Status, load
from gromap._solve import solve
from gromap._space import Space
from gromap._stats import Stats
from gromap.geometry.costs import Cost, Custom, Exponential, Gaussian, Hyperbolic, Power, Radial, Spherical
from gromap.geometry.embedding import KernelPCA, Nystrom
from gromap.geometry.graphs import neighbor_graph
from gromap.geometry.indexed_costs import Precomputed, Tree
from gromap.learn.barycenter import barycenter
from gromap.learn.flows import Flow, FlowInterrupted, FlowStatus, gradient_flow
from gromap.learn.losses import GromovLoss, gw_loss
from gromap.learn.many import Match, solve_many
from gromap.learn.nearest import Neighbors, nearest
from gromap.learn.pairwise import pairwise
from gromap.search.budget import SearchBudget
from gromap.search.landscape import Landscape, landscape
from gromap.search.search import Search
from gromap.search.starts import Landmarks, landmarks
from gromap.solvers import (
    CntGW,
    ConditionalGradientGW,
    DualGW,
    EntropicGW,
    KernelGW,
    Loop,
    LowRankCostGW,
    LowRankGW,
    Multiscale,
    ProximalGW,
    SampledGW,
    Solver,
)
from gromap.transport.sinkhorn import Annealing, Sinkhorn

__version__ = "0.1.0"

__all__ = [
    "Annealing",
    "CntGW",
    "ConditionalGradientGW",
    "Cost",
    "Custom",
    "DualGW",
    "EntropicGW",
    "Event",
    "Exponential",
    "Flow",
    "FlowInterrupted",
    "FlowStatus",
    "Gaussian",
    "GromovLoss",
    "Hyperbolic",
    "Interrupted",
    "KernelGW",
    "KernelPCA",
    "Landmarks",
    "Landscape",
    "Loop",
    "LowRankCostGW",
    "LowRankGW",
    "Match",
    "Multiscale",
    "Neighbors",
    "Nystrom",
    "Plan",
    "Power",
    "Precomputed",
    "ProximalGW",
    "Radial",
    "SampledGW",
    "Search",
    "SearchBudget",
    "Sinkhorn",
    "Solution",
    "Solver",
    "Space",
    "Spherical",
    "State",
    "Stats",
    "Status",
    "Tree",
    "barycenter",
    "gradient_flow",
    "gw_loss",
    "landmarks",
    "landscape",
    "load",
    "mesh",
    "nearest",
    "neighbor_graph",
    "pairwise",
    "solve",
    "solve_many",
]

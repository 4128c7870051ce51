"""gromap: match point clouds, meshes and metric data by Gromov-Wasserstein, in linear memory."""

from gromap.costs import Custom, Exponential, Gaussian, Hyperbolic, Power, Precomputed, Spherical, Tree
from gromap.embedding import KernelPCA, Nystrom
from gromap.flows import Flow, FlowInterrupted, FlowStatus, barycenter, gradient_flow
from gromap.landscape import Landscape, landscape
from gromap.losses import GromovLoss, gw_loss, sgw_loss
from gromap.pairwise import pairwise
from gromap.plan import Plan
from gromap.search import Landmarks, Search, landmarks
from gromap.sinkhorn import Annealing, Sinkhorn
from gromap.solution import Interrupted, Solution, State, Status, load
from gromap.solve import solve
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
    Step,
)
from gromap.space import Space

__version__ = "0.1.0"

__all__ = [
    "Annealing",
    "CntGW",
    "ConditionalGradientGW",
    "Custom",
    "DualGW",
    "EntropicGW",
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
    "Multiscale",
    "Nystrom",
    "Plan",
    "Power",
    "Precomputed",
    "ProximalGW",
    "SampledGW",
    "Search",
    "Sinkhorn",
    "Solution",
    "Space",
    "Spherical",
    "State",
    "Status",
    "Step",
    "Tree",
    "barycenter",
    "gradient_flow",
    "gw_loss",
    "landmarks",
    "landscape",
    "load",
    "pairwise",
    "sgw_loss",
    "solve",
]

"""What the paper's experiments run: sizes, costs and solvers.

Solvers run with the paper's settings: ε = 1e-3, D = 20, radius 1, from Γ = 0; a hundred Sinkhorn
steps unless stated otherwise, standard for Entropic-GW and Quadratic-LowRank-GW, symmetrized for
the others; they stop when the energy changes by less than 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gromap
from gromap import Loop, Sinkhorn

EPSILON, DIM = 1e-3, 20
CLOUDS = (
    "human",
    "tetrahedra",
    "spheres",
    "3-D Gaussians",
    "2-D Gaussians",
    "tetrahedron-cuboid",
    "tetrahedron-sphere",
)
COSTS: dict[str, Any] = {
    "|x - x'|²": "sqeuclidean",
    "|x - x'|": "euclidean",
    "|x - x'|^½": gromap.Power(0.5),
    "exponential, a third of the radius": gromap.Exponential(1 / 3),
    "Gaussian, a third of the radius": gromap.Gaussian(1 / 3),
}
FLOW_COSTS = {
    "|x - y|²": gromap.Power(2.0),
    "|x - y|": gromap.Power(1.0),
    "|x - y|^½": gromap.Power(0.5),
    "exp, σ = 1": gromap.Exponential(1.0),
    "exp, σ = 0.3": gromap.Exponential(0.3),
    "exp, σ = 0.1": gromap.Exponential(0.1),
}


class Row(NamedTuple):
    """One row of the table of matches."""

    pair: str  # of gromap.bench.shapes.PAIRS
    points: int  # on each surface
    geodesic: bool = False  # else straight distances
    run: bool = True  # else only the memory is predicted


class Shape(NamedTuple):
    """A pair of the paper's table, or what stands for it here."""

    pair: str
    points: int  # as many as in the paper; the last has as many as the man after a second subdivision
    geodesic: bool


SHAPES = (
    Shape("hand", 10_000, False),
    Shape("femurs", 25_000, False),
    Shape("dog", 36_000, False),
    Shape("man53k", 60_000, True),
    Shape("hips", 60_000, True),
    Shape("vessels", 100_000, True),
    Shape("man53k", 214_050, True),
)


@dataclass(frozen=True)
class Sizes:
    """How large the experiments are."""

    clouds: tuple[str, ...]  # of the convergence curves
    points: int  # of each
    seeds: int
    inner_steps: tuple[int, ...]  # Sinkhorn steps on the human pair
    fewer_inner_steps: tuple[int, ...]  # the same on the other clouds
    thresholds: tuple[float, ...]  # of the marginal error, in place of a number of steps
    max_inner_steps: int  # Sinkhorn steps at most where their number is not fixed
    curve_steps: int  # outer steps of the curves, at most
    match_steps: int  # outer steps of whole matches, at most
    rows: tuple[Row, ...]
    dims: tuple[int, ...]
    dim_points: int
    costs: tuple[str, ...]
    cost_points: int
    vertices: int  # of the meshes that a texture is carried between
    flows: tuple[str, ...]
    flow_points: int
    flow_steps: int


QUICK = Sizes(
    clouds=CLOUDS,
    points=150,
    seeds=1,
    inner_steps=(10, 30, 100),
    fewer_inner_steps=(10, 50),
    thresholds=(1e-1, 1e-2),
    max_inner_steps=200,
    curve_steps=30,
    match_steps=100,
    rows=(
        *(Row("human", n) for n in (150, 300, 600)),
        *(Row(pair, 300) for pair in dict.fromkeys(shape.pair for shape in SHAPES)),
        *(Row(*shape, run=False) for shape in SHAPES),
    ),
    dims=(2, 5, 10, 20, 50),
    dim_points=150,
    costs=tuple(COSTS),
    cost_points=300,
    vertices=600,
    flows=("|x - y|²", "|x - y|", "exp, σ = 0.3"),
    flow_points=40,
    flow_steps=8,
)
FULL = Sizes(
    clouds=CLOUDS,
    points=2000,
    seeds=5,
    inner_steps=(10, 20, 30, 50, 100, 150),
    fewer_inner_steps=(10, 20, 30, 50, 100, 150),
    thresholds=(1e-1, 1e-2, 1e-3, 1e-4),
    max_inner_steps=1000,
    curve_steps=100,
    match_steps=100,
    rows=(
        *(Row("human", n) for n in (1000, 2000, 4000, 10_000, 25_000, 60_000, 100_000)),
        *(Row(*shape) for shape in SHAPES),
    ),
    dims=(2, 5, 10, 20, 50, 100),
    dim_points=2000,
    costs=tuple(COSTS),
    cost_points=4000,
    vertices=4000,
    flows=tuple(FLOW_COSTS),
    flow_points=250,
    flow_steps=80,
)

Factory = Callable[[Loop], Any]
SOLVERS: dict[str, Factory] = {
    "Entropic-GW": gromap.EntropicGW,
    "Kernel-GW": gromap.KernelGW,
    "Quadratic-LowRank-GW": gromap.LowRankCostGW,
    "CNT-GW": lambda loop: gromap.CntGW(loop, truncation=None),
}
OTHERS: dict[str, Factory] = {
    "Sampled-GW": gromap.SampledGW,
    "Dual-GW": gromap.DualGW,
    "Proximal-GW": gromap.ProximalGW,
    "ProximalKernel-GW": lambda loop: gromap.ProximalGW(loop, kernel=True),
}
TABLE: dict[str, Factory] = {**SOLVERS, "Multiscale-GW": lambda loop: gromap.Multiscale(gromap.CntGW(loop), levels=2)}
DEFAULT = "gromap's default"  # method="auto", init="auto"
RANKS = (10, 50)  # of the couplings of LowRank-GW
# in tables and figures
ORDER = (
    *TABLE,
    *OTHERS,
    "LowRank-GW",
    *(f"LowRank-GW, rank {rank}" for rank in RANKS),
    DEFAULT,
)


def paper_loop(label: str, max_iter: int) -> Loop:
    """The loop of the paper's benchmarks."""
    standard = label in ("Entropic-GW", "Quadratic-LowRank-GW")
    return Loop(Sinkhorn(100, update="standard" if standard else "symmetric"), adaptive=False, max_iter=max_iter)

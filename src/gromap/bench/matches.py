"""Experiments on whole matches: time and objective of each solver on pairs of shapes, and how
the dimension changes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

import gromap
from gromap import Event, Loop, Sinkhorn, Solution, Space
from gromap._check import free_memory
from gromap._pair import Pair
from gromap.bench.jobs import Job
from gromap.bench.scores import exact_objective
from gromap.bench.settings import DEFAULT, DIM, EPSILON, SOLVERS, TABLE, Row, Sizes, paper_loop
from gromap.bench.shapes import surface_pair
from gromap.geometry.costs import Cost, Power
from gromap.geometry.embedding import Nystrom

LIMIT = 10.0  # seconds after which a match takes no further step
SHORT, REPEATS = 1.0, 7  # seconds up to which a match is run again, and how often in all: the median counts


def matches(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Table benchmark, and Fig. benchmark: time and objective of whole matches, and of
    `gromap.solve` with its defaults."""
    for row in sizes.rows:
        for label, factory in TABLE.items():
            yield _match(row, label, factory(paper_loop(label, sizes.match_steps)), "zero", device)
        yield _match(row, DEFAULT, "auto", "auto", device)


def _match(row: Row, label: str, method: Any, init: str, device: torch.device) -> Job:
    return Job("matches", f"{row.pair}/{row.points}/{label}", lambda: match(row, method, init, device))


@dataclass(frozen=True)
class Extent:
    """What a prediction of memory reads of a `Space`."""

    points: int
    dtype: torch.dtype
    device: torch.device
    dim: int = DIM
    scale: float = 1.0
    extent: float = 1.0
    cost: Cost = Power(1.0)
    method: Nystrom = Nystrom()
    is_embedded = False

    @property
    def likely_axes(self) -> int:
        return self.dim

    def __len__(self) -> int:
        return self.points


def match(row: Row, method: Any, init: str, device: torch.device) -> dict[str, Any]:
    """Time, objective and memory of one match; the memory alone where it would not fit, or is
    not to be run."""
    record: dict[str, Any] = {"geodesic": row.geodesic, "run": row.run}
    extent: Any = Extent(row.points, torch.float32, device)
    needed = (gromap.CntGW() if method == "auto" else method).memory(Pair(extent, extent, EPSILON))
    record |= {"memory": needed, "fits": needed <= free_memory(device)}
    if not (row.run and record["fits"]):
        return record
    points = surface_pair(row.pair, row.points, 0, device, row.geodesic)

    def solve(stop: Callable[[Event], bool]) -> tuple[Space, Space, Solution]:
        x, y = (Space(z, dim=DIM) for z in points)
        return x, y, gromap.solve(x, y, epsilon=EPSILON, scale="radius", method=method, init=init, callback=stop)

    try:
        if device.type == "cuda":
            solve(lambda _: True)  # one step, which compiles
        runs = []
        while not runs or (len(runs) < REPEATS and sum(map(_seconds, runs)) < SHORT):
            runs.append(solve(lambda event: event.seconds > LIMIT))
    except MemoryError:  # the prediction is approximate
        return record | {"fits": False}
    x, y, sol = sorted(runs, key=_seconds)[len(runs) // 2]
    stages = sol.stats.seconds
    record |= {"seconds": sum(stages.values()), "stages": stages, "runs": len(runs)}
    record |= {"value": sol.value, "status": sol.status.name}
    return record | {"marginal_error": sol.plan.marginal_error, "energy": feasible_energy(sol, x, y)}


def _seconds(run: tuple[Space, Space, Solution]) -> float:
    return sum(run[2].stats.seconds.values())


def feasible_energy(sol: Solution, x: Space, y: Space) -> float:
    """GW_ε after one more outer step with a converged Sinkhorn: a plan that misses its marginals
    looks better than it is."""
    one = gromap.CntGW(Loop(Sinkhorn(3000, tol=5e-4), adaptive=False, max_steps=3000, max_iter=1))
    return float(gromap.solve(x, y, epsilon=EPSILON, scale="radius", method=one, init=sol).history["energy"][-1])


def dims(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. experiments_approxdim: the exact loss of approximate plans, over that of Kernel-GW
    from the same start."""
    loop = Loop(Sinkhorn(300, tol=1e-4), adaptive=False, tol=1e-6, max_iter=sizes.match_steps)
    points = surface_pair("human", sizes.dim_points, 0, device)

    @cache
    def best() -> Solution:
        x, y = (Space(z, dim=DIM) for z in points)
        return gromap.solve(x, y, epsilon=EPSILON, scale="radius", method=gromap.KernelGW(loop), init="zero")

    def run(label: str, dim: int) -> dict[str, Any]:
        x, y = (Space(z, dim=dim) for z in points)
        sol = gromap.solve(x, y, epsilon=EPSILON, scale="radius", method=SOLVERS[label](loop), init=best().plan)
        return {"dim": dim, "exact": exact_objective(sol, x, y), "best": exact_objective(best(), x, y)}

    for label in ("Quadratic-LowRank-GW", "CNT-GW"):
        for dim in sizes.dims:
            yield Job("dims", f"{label}/{dim}", lambda s=label, d=dim: run(s, d))

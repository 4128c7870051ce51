"""The experiments of the paper on solvers, again: its table, its convergence curves, run times and errors, as one report.

    python benchmarks/paper.py             # a quarter of an hour on two cores
    python benchmarks/paper.py --full      # as large as in the paper: for a GPU, hours

Each run is kept as one JSON file, raw/<mode>/<experiment>/<key>.json under --out: an interrupted call continues where it
stopped, and a file that is removed is computed again. The report is written at the end, from these files alone.

Solvers run with the paper's settings: ε = 1e-3, D = 20, radius 1, from Γ = 0; a hundred Sinkhorn steps where nothing else is
said, standard for Entropic-GW and Quadratic-LowRank-GW, symmetrised for the others; they stop when the energy changes by less
than 1e-5.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import numpy as np
import torch
from shapes import gw_loss, pairwise_distances, round_to_marginals, surface_pair, surface_points
from torch import Tensor

import gromap
from gromap import Loop, Sinkhorn, Space
from gromap._check import free_memory
from gromap.datasets import humans
from gromap.mesh import Mesh

EPSILON, DIM = 1e-3, 20
EXACT = 4000  # points up to which losses are computed with the costs themselves, in float64
TETRAHEDRON = np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
CUBOID = np.stack(np.meshgrid([-1.0, 1.0], [-0.6, 0.6], [-0.3, 0.3], indexing="ij"), -1).reshape(8, 3)
SIDES = np.array([[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]])


@dataclass(frozen=True)
class Sizes:
    """How large an experiment is."""

    points: int  # of the convergence curves
    seeds: int
    inner: tuple[int, ...]  # Sinkhorn steps
    thresholds: tuple[float, ...]  # of the marginal error, in place of a number of steps
    outer: int  # steps at most
    matches: tuple[int, ...]  # points of the table that are run
    predicted: tuple[int, ...]  # points of which only the memory is told
    dims: tuple[int, ...]


QUICK = Sizes(150, 1, (10, 30, 100), (1e-1, 1e-2), 30, (250, 500, 1000), (10_000, 36_000, 100_000), (2, 5, 10, 20, 50))
FULL = Sizes(
    points=2000,
    seeds=20,
    inner=(10, 20, 30, 50, 100, 150),
    thresholds=(1e-1, 1e-2, 1e-3, 1e-4),
    outer=100,
    matches=(1000, 2000, 4000, 10_000, 25_000, 60_000, 100_000),
    predicted=(177_000,),
    dims=(2, 5, 10, 20, 50, 100),
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
STANDARD = ("Entropic-GW", "Quadratic-LowRank-GW")
CLOUDS = ("human", "tetrahedra", "spheres", "3-D Gaussians", "2-D Gaussians", "tetrahedron-cuboid", "tetrahedron-sphere")
COSTS: dict[str, Any] = {
    "|x - x'|²": "sqeuclidean",
    "|x - x'|": "euclidean",
    "|x - x'|^½": gromap.Power(0.5),
    "exponential, a third of the radius": gromap.Exponential(1 / 3),
    "Gaussian, a third of the radius": gromap.Gaussian(1 / 3),
}


@dataclass(frozen=True)
class Job:
    experiment: str
    key: str
    run: Callable[[], dict[str, Any]]


def clouds(name: str, n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """n points on, or of, each of two shapes; float32, on the device."""
    if name == "human":
        return surface_pair("human", n, seed, device)
    cuboid = Mesh(CUBOID, np.concatenate([SIDES[:, [0, 1, 2]], SIDES[:, [0, 2, 3]]]))
    meshes = {"tetra": Mesh(TETRAHEDRON, np.array([[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]])), "cuboid": cuboid}
    generator = torch.Generator().manual_seed(seed)

    def draw(kind: str, side: int) -> Tensor:
        if kind in meshes:
            return surface_points(meshes[kind], n, 2 * seed + side, device)
        normal = torch.randn(n, 2 if kind == "2-D" else 3, generator=generator)
        return (normal / normal.norm(dim=1, keepdim=True) if kind == "sphere" else normal).to(device)

    kinds = {
        "tetrahedra": ("tetra", "tetra"),
        "spheres": ("sphere", "sphere"),
        "3-D Gaussians": ("3-D", "3-D"),
        "2-D Gaussians": ("2-D", "2-D"),
        "tetrahedron-cuboid": ("tetra", "cuboid"),
        "tetrahedron-sphere": ("tetra", "sphere"),
    }[name]
    return draw(kinds[0], 0), draw(kinds[1], 1)


def curve(solver: Any, name: str, n: int, seed: int, device: torch.device) -> dict[str, Any]:
    """Energy against time, from Γ = 0."""
    x, y = (Space(z, dim=DIM) for z in clouds(name, n, seed, device))
    sol = gromap.solve(x, y, epsilon=EPSILON, method=solver, init="zero")
    columns = ("seconds", "energy", "marginal_error", "inner_steps")
    return {c: sol.history[c].tolist() for c in columns} | {"value": sol.value, "status": sol.status.name}


def curves(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. ablation, smaller_sinkiters, convergence_surfaces, convergence_gaussians, convergence_asymmetric."""
    for name in CLOUDS:
        for label, factory in SOLVERS.items():
            yield from _budgets("curves", name, label, factory, sizes, device)


def others(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. other_solvers: curves of the solvers that are left out of the benchmarks."""
    for label, factory in OTHERS.items():
        yield from _budgets("others", "human", label, factory, sizes, device)


def _budgets(experiment: str, name: str, label: str, factory: Factory, sizes: Sizes, device: torch.device) -> Iterator[Job]:
    for update in ("standard", "symmetric"):
        loops = {str(n): Loop(Sinkhorn(n, update=update), adaptive=False, max_iter=sizes.outer) for n in sizes.inner}
        loops["adaptive"] = Loop(Sinkhorn(5, update=update), max_iter=sizes.outer)
        for budget, loop in loops.items():
            solver = factory(loop)
            for seed in range(sizes.seeds):
                key = f"{name}/{label}/{update}/{budget}/{seed}"
                yield Job(experiment, key, lambda s=solver, k=seed: curve(s, name, sizes.points, k, device))


def thresholds(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. cvg_stopThr: Sinkhorn until a marginal error, here in misplaced mass."""
    for label, factory in SOLVERS.items():
        for update in ("standard", "symmetric"):
            for tol in sizes.thresholds:
                most = Sinkhorn(1000, tol=tol, update=update)  # type: ignore[arg-type]
                solver = factory(Loop(most, adaptive=False, max_steps=1000, max_iter=sizes.outer))
                for seed in range(sizes.seeds):
                    key = f"human/{label}/{update}/{tol:g}/{seed}"
                    yield Job("thresholds", key, lambda s=solver, k=seed: curve(s, "human", sizes.points, k, device))


def paper_loop(label: str) -> Loop:
    return Loop(Sinkhorn(100, update="standard" if label in STANDARD else "symmetric"), adaptive=False)


def matches(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Table benchmark, and Fig. benchmark: time and objective of whole matches, for more and more points."""
    for label, factory in TABLE.items():
        solver = factory(paper_loop(label))
        for n in sizes.matches + sizes.predicted:
            wanted = n in sizes.matches
            yield Job("matches", f"human/{n}/{label}", lambda s=solver, n=n, w=wanted: match(s, n, w, device))


def match(solver: Any, n: int, wanted: bool, device: torch.device) -> dict[str, Any]:
    x, y = (Space(z, dim=DIM) for z in clouds("human", n, 0, device))
    needed = solver.memory(x, y)
    record: dict[str, Any] = {"memory": needed, "fits": needed <= free_memory(device), "run": wanted}
    if not (wanted and record["fits"]):
        return record
    sol = gromap.solve(x, y, epsilon=EPSILON, method=solver, init="zero")
    seconds = sol.info["seconds"]
    record |= {"seconds": seconds["embed"] + seconds["search"] + seconds["solve"], "solve": seconds["solve"]}
    record |= {"value": sol.value, "status": sol.status.name, "marginal_error": sol.plan.marginal_error}
    return record | {"exact": exact_objective(sol, x, y) if n <= EXACT else None}


def exact_objective(sol: gromap.Solution, x: Space, y: Space) -> float:
    """L + ε KL of the coupling next to the plan, with the costs themselves."""
    a, b = (np.asarray(s.weights.cpu(), dtype=np.float64) for s in (x, y))
    points = (s.measure.points.double().cpu().numpy() for s in (x, y))
    cx, cy = (pairwise_distances(p, p) / t for p, t in zip(points, sol.scale, strict=True))
    pi = round_to_marginals(sol.plan.dense(force=True).double().cpu().numpy(), a / a.sum(), b / b.sum())
    alive = pi > 0
    return gw_loss(cx, cy, pi) + EPSILON * float((pi[alive] * np.log(pi[alive] / np.outer(a, b)[alive])).sum())


def dims(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. experiments_approxdim: the exact loss of approximate plans, over that of Kernel-GW from the same start."""
    n = 2 * sizes.points if sizes is QUICK else sizes.points

    def run(label: str, dim: int) -> dict[str, Any]:
        x, y = clouds("human", n, 0, device)
        loop = Loop(Sinkhorn(300, tol=1e-4), adaptive=False, tol=1e-6)
        spaces = Space(x, dim=dim), Space(y, dim=dim)
        best = gromap.solve(*spaces, epsilon=EPSILON, method=gromap.KernelGW(loop))
        sol = gromap.solve(*spaces, epsilon=EPSILON, method=SOLVERS[label](loop), init=best.plan)
        return {"dim": dim, "exact": exact_objective(sol, *spaces), "best": exact_objective(best, *spaces)}

    for label in ("Quadratic-LowRank-GW", "CNT-GW"):
        for dim in sizes.dims:
            yield Job("dims", f"{label}/{dim}", lambda s=label, d=dim: run(s, d))


def oscillation(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """Fig. gradientbias: Entropic-GW for |x - x'|⁶, and for |x - x'|²."""

    def run(power: int) -> dict[str, Any]:
        rng = np.random.default_rng(5)
        x, y = rng.normal(size=(8, 2)), rng.normal(size=(8, 2))
        loop = Loop(Sinkhorn(1000, tol=1e-8), max_steps=1000, max_iter=20, adaptive=False)
        seen = []
        for step in range(1, 9):
            options = {"cost": gromap.Power(power), "epsilon": 1e-2, "init": "zero", "dim": 8 if power > 2 else None}
            seen.append(gromap.solve(x, y, method=gromap.EntropicGW(loop), max_iter=step, **options))
        moves = [float(np.abs(p.plan.dense() - q.plan.dense()).sum()) for p, q in itertools.pairwise(seen)]
        return {
            "energy": seen[-1].history["energy"].tolist(),
            "moved": moves,
            "plans": [s.plan.dense().tolist() for s in seen[-2:]],
        }

    for power in (6, 2):
        yield Job("oscillation", f"{power}", lambda p=power: run(p))


def costs(sizes: Sizes, device: torch.device) -> Iterator[Job]:
    """What the base cost changes: the error of the match of two poses, for costs from global to local."""

    def run(cost: Any) -> dict[str, Any]:
        pair, rng = humans(), np.random.default_rng(0)
        i, j = (rng.permutation(len(m.vertices))[: 4 * sizes.points] for m in (pair.source, pair.target))
        x, y = (z / np.linalg.norm(z - z.mean(0), axis=1).max() for z in (pair.source.vertices[i], pair.target.vertices[j]))
        sol = gromap.solve(x, y, cost=cost, epsilon=EPSILON)
        size = np.linalg.norm(np.ptp(pair.target.vertices, axis=0))
        found = pair.target.vertices[j][sol.p2p_12]
        error = min(float(np.linalg.norm(found - t[i], axis=1).mean()) for t in (pair.direct, pair.mirrored)) / float(size)
        return {"error": error, "value": sol.value, "explained": sol.info["explained"], "status": sol.status.name}

    for label, cost in COSTS.items():
        yield Job("costs", label, lambda c=cost: run(c))


EXPERIMENTS = (oscillation, dims, matches, costs, others, thresholds, curves)


def keep(job: Job, folder: Path) -> bool:
    """Run a job and write its record, unless it is there."""
    name = job.key.replace("/", " ~ ").replace("|", "").replace("'", "")
    path = folder / job.experiment / f"{name}.json"
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    record = job.run()
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"key": job.key, "took": time.perf_counter() - begin, **record}), encoding="utf-8")
    part.replace(path)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the sizes of the paper")
    parser.add_argument("--out", type=Path, default=Path("build/paper"), help="folder of records and report (%(default)s)")
    parser.add_argument("--only", nargs="*", choices=[e.__name__ for e in EXPERIMENTS], help="these experiments alone")
    machine.add_options(parser)
    args = parser.parse_args()
    device = machine.use(args)
    folder = args.out / "raw" / ("full" if args.full else "quick")
    folder.mkdir(parents=True, exist_ok=True)
    facts = machine.describe(device)
    (folder / "machine.json").write_text(json.dumps(facts), encoding="utf-8")
    for experiment in EXPERIMENTS:
        if args.only and experiment.__name__ not in args.only:
            continue
        jobs = list(experiment(FULL if args.full else QUICK, device))
        for number, job in enumerate(jobs, 1):
            if keep(job, folder):
                print(f"{experiment.__name__} {number}/{len(jobs)}  {job.key}", flush=True)
    from paper_report import write

    print(f"report: {write(folder, args.out)}")


if __name__ == "__main__":
    main()

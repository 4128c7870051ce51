"""Does the default search find the best minimum? `init="auto"` beside the best of many random
starts, on real pairs.

    python benchmarks/landscape.py --starts 200 --seeds 3
    PYTHONPATH=src GROMAP_DATA=... python benchmarks/landscape.py --device cuda --draws 2

Points are drawn uniformly on both surfaces. The random starts descend to their minima on clouds of
400 points, as one batch. Small clouds may rank minima wrongly, so all minima within 15 % of the
lowest are refined on all points, and the best counts. "zero" is a single start from Γ = 0. The gap
compares the worst seed with the lowest energy that any run found. "search s" is the slowest search
among the seeds, all levels; "coarse s" that of the coarse level alone. For the man and the dog,
whose vertices correspond, matches between vertices drawn by area are scored too: the mean geodesic
distance to the true vertex, along the edges of the target, over the square root of its area, for
the better of the direct and the mirrored truth.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.csgraph import dijkstra

import gromap
from gromap._pair import Pair
from gromap.bench.machine import Meter, add_options, describe, table, use
from gromap.bench.scores import Array, Index
from gromap.bench.shapes import data_folder, mesh_pair, surface_pair
from gromap.mesh import Mesh
from gromap.search import search
from gromap.search.anneal import SmallPair

STRAIGHT = ("dog", "dog 0-2", "man", "man 0-2", "man-child", "woman", "hand", "femurs", "vertebrae", "human")
GEODESIC = ("hips", "vessels", "man53k")  # with distances along the surfaces
SCORED = {"man": "poses/mh_man.sym.npy", "dog": "poses/dog.sym.npy"}
WITHIN = 0.15  # relative gap on the small clouds up to which minima are refined on all points
SAMPLE = 500  # points of a match whose geodesic error is measured


def energy(solution: gromap.Solution) -> float:
    return float(solution.history["energy"][-1])


def compare(name: str, draw: int, n: int, starts: int, seeds: int, device: torch.device) -> dict[str, Any]:
    """The record of one draw of a pair."""
    print(f"{name}, draw {draw} ...", file=sys.stderr, flush=True)
    x, y = surface_pair(name, n, draw, device, name in GEODESIC)
    begin = time.perf_counter()
    land = gromap.landscape(x, y, starts=starts, points=400, seed=1000)
    close = int((land.energies <= (1 + WITHIN) * land.energies[0]).sum())
    best = min(energy(solution) for solution in land.refine(close, method="cnt"))
    record: dict[str, Any] = {
        "pair": name,
        "draw": draw,
        "n": n,
        "minima": len(land),
        "refined": close,
        "best_of_starts": best,
    }
    record |= {"seconds_starts": time.perf_counter() - begin, "zero": energy(gromap.solve(x, y, init="zero"))}
    if device.type == "cuda":
        gromap.solve(x, y)  # compiles
    runs = [gromap.solve(x, y, seed=seed) for seed in range(seeds)]
    record["auto"] = [energy(run) for run in runs]
    record["seconds"] = [sum(run.stats.seconds.values()) for run in runs]
    record["seconds_search"] = [run.stats.seconds["search"] for run in runs]
    record["seconds_coarse"] = [coarse_seconds(x, y, seed) for seed in range(seeds)]
    lowest = min(best, record["zero"], *record["auto"])
    record["gaps"] = [end / lowest - 1 for end in record["auto"]]
    if name in SCORED and draw == 0:
        record["geodesic_error"] = {init: geodesic_error(name, n, init) for init in ("zero", "auto")}
    return record


def coarse_seconds(x: torch.Tensor, y: torch.Tensor, seed: int) -> float:
    """Seconds of the coarse level of the search, embeddings not included."""
    pair = SmallPair(search.coarsened(gromap.CntGW().problem(Pair.of(x, y, seed=seed)), 100), torch.float32)
    meter = Meter.start(x.device)
    search.lowest(pair, 1e-3 * pair.heat, seed, gromap.Search())
    return meter.read()[0]


def geodesic_error(name: str, n: int, init: str) -> float:
    """The error of a match between n vertices of each mesh, drawn by area."""
    meshes, mirror = mesh_pair(name), np.load(data_folder() / SCORED[name])
    areas = [mesh.vertex_areas() for mesh in meshes]
    i, j = (np.random.default_rng([0, k]).choice(len(w), n, replace=False, p=w / w.sum()) for k, w in enumerate(areas))
    x, y = meshes[0].vertices[i], meshes[1].vertices[j]
    found, true = j[gromap.solve(x, y, init=init).map("argmax")][:SAMPLE], i[:SAMPLE]
    gaps = (edge_distances(meshes[1], truth)[np.arange(len(found)), found].mean() for truth in (true, mirror[true]))
    return float(min(gaps) / np.sqrt(areas[1].sum()))


def edge_distances(mesh: Mesh, sources: Index) -> Array:
    """Lengths of shortest paths along edges, from some vertices to all.  (S, V)"""
    edges = np.unique(np.sort(mesh.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1), axis=0)
    length = np.linalg.norm(mesh.vertices[edges[:, 0]] - mesh.vertices[edges[:, 1]], axis=1).astype(np.float64)
    graph = scipy.sparse.coo_array((length, edges.T), shape=(len(mesh.vertices),) * 2).tocsr()
    return dijkstra(graph, directed=False, indices=sources)


def row(record: dict[str, Any]) -> dict[str, str]:
    cells = {
        "pair": record["pair"],
        "draw": str(record["draw"]),
        "minima (refined)": f"{record['minima']} ({record['refined']})",
        "best of starts": f"{record['best_of_starts']:.6f}",
        "zero": f"{record['zero']:.6f}",
        "auto": " ".join(f"{e:.6f}" for e in record["auto"]),
        "worst gap": f"{max(record['gaps']):+.2%}",
        "search s": f"{max(record['seconds_search']):.2f}",
        "coarse s": f"{max(record['seconds_coarse']):.2f}",
    }
    if "geodesic_error" in record:
        cells["geodesic error, zero / auto"] = " / ".join(f"{e:.3f}" for e in record["geodesic_error"].values())
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs = [*STRAIGHT, *GEODESIC]
    parser.add_argument("--pairs", nargs="+", choices=pairs, default=pairs)
    parser.add_argument("--draws", type=int, default=1, help="of the points")
    parser.add_argument("--n", type=int, default=2000, help="points of each cloud")
    parser.add_argument("--starts", type=int, default=200, help="random starts")
    parser.add_argument("--seeds", type=int, default=3, help="of the search")
    add_options(parser)
    args = parser.parse_args()
    device = use(args)
    print(json.dumps(describe(device) | {"starts": args.starts}), flush=True)
    records = []
    for name, draw in itertools.product(args.pairs, range(args.draws)):
        records.append(compare(name, draw, args.n, args.starts, args.seeds, device))
        print(json.dumps(records[-1]), flush=True)
    print("\n" + table([row(record) for record in records]))
    gaps, seconds = ([z for record in records for z in record[name]] for name in ("gaps", "seconds"))
    above = sum(gap > 1e-3 for gap in gaps)
    print(f"{len(gaps)} default solves, {np.mean(seconds):.3f} s each: worst gap {max(gaps):+.2%}, {above} above 0.1 %")


if __name__ == "__main__":
    main()

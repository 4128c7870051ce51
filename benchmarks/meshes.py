"""From mesh files to maps, as `gromap match` does it: time of each stage, error of the map before
and after it is refined, left and right, and pyFM beside it.

    python benchmarks/meshes.py                          # all pairs
    python benchmarks/meshes.py --pairs "dog 0-1" hand
    python benchmarks/meshes.py --pyfm                   # functional maps too: pip install pyfmaps
    python benchmarks/meshes.py --embed mh_man53k_0      # embed single meshes alone

Errors are geodesic, by shortest paths over divided edges, over the root of the target's area,
in per cent, at 150 vertices, for the better of the direct and of the mirrored truth, whole maps
each; "mirrored" says whether this was the mirrored one. The target's vertices are shuffled first.
"cpu" are seconds of processors, which other work changes less than "seconds".
The distortion of --embed is the mean of | |x - y| - d | / d over 2000 random pairs
of vertices, against exact geodesics of the whole mesh. Embeddings are not read from the cache. pyFM
fits a functional map of 30 x 30 to wave kernel signatures, with orientation, and refines it by 16
steps of ZoomOut. Femurs and hips are right and left ones: they are matched with allow_mirror, and
have no truth but the nearest points of both, laid on each other.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.spatial import KDTree

import gromap
from gromap.bench.machine import add_options, describe, table, use
from gromap.bench.shapes import data_folder
from gromap.mesh import Mesh, read_mesh
from gromap.mesh.embedding import embed_mesh
from gromap.mesh.geodesic import distances
from gromap.mesh.match import match
from gromap.mesh.paths import shortest_paths
from gromap.mesh.quality import Quality, quality

PAIRS = {  # source, target, left/right map
    "man 0-1": ("poses/mh_man_0", "poses/mh_man_1", "mh_man"),
    "man 0-2": ("poses/mh_man_0", "poses/mh_man_2", "mh_man"),
    "woman": ("poses/mh_woman_0", "poses/mh_woman_1", "mh_woman"),
    "man-child": ("poses/mh_man_0", "poses/mh_child_1", "mh_man"),
    "man-woman": ("poses/mh_man_0", "poses/mh_woman_1", "mh_man"),
    "dog 0-1": ("poses/dog_0", "poses/dog_1", "dog"),
    "dog 0-2": ("poses/dog_0", "poses/dog_2", "dog"),
    "hand": ("poses/mh_hand_0", "poses/mh_hand_1", None),
    "femurs": ("anatomy/femur_R", "anatomy/femur_L", None),
    "hips": ("anatomy/hip_R", "anatomy/hip_L", None),
    "man53k": ("poses/mh_man53k_0", "poses/mh_man53k_1", "mh_man53k"),
}
LAID = {"femurs": (-1.25, 0, 0), "hips": (0.68, 0.03, 0.39)}  # what lays the mirror image of one bone on the other
SAMPLES = 150


def shuffled(mesh: Mesh, seed: int) -> tuple[Mesh, np.ndarray]:
    """The mesh with its vertices in random order, and where each one went."""
    order = np.random.default_rng(seed).permutation(len(mesh.vertices))
    place = np.argsort(order)
    return replace(mesh, vertices=mesh.vertices[order], faces=place[mesh.faces]), place


def distortion(mesh: Mesh, points: np.ndarray, seed: int, sources: int = 20, each: int = 100) -> float:
    rng = np.random.default_rng(seed)
    start = rng.choice(len(mesh.vertices), sources, replace=False)
    true = distances(mesh, start)
    errors = []
    for row, i in zip(true, start, strict=True):
        ends = rng.choice(np.flatnonzero(row > 0), each, replace=False)
        got = np.linalg.norm(points[ends] - points[i], axis=1)
        errors.append(np.abs(got - row[ends]) / row[ends])
    return float(np.mean(errors))


def load(name: str, seed: int) -> tuple[Mesh, Mesh, list[np.ndarray]]:
    """Source, shuffled target, and the true maps."""
    first, second, swap = PAIRS[name]
    source, target = (read_mesh(data_folder() / f"{file}.ply") for file in (first, second))
    if name in LAID:
        truth = KDTree(target.vertices).query(source.vertices * [-1, 1, 1] + LAID[name])[1]
    else:
        truth = np.arange(len(source.vertices))
    target, place = shuffled(target, seed)
    truths = [place[truth]]
    if swap:
        truths.append(place[np.load(data_folder() / "poses" / f"{swap}.sym.npy")])
    return source, target, truths


def embedding(file: str, seed: int) -> dict[str, Any]:
    """Time and distortion of one mesh."""
    mesh = read_mesh(data_folder() / "poses" / f"{file}.ply")
    mesh = replace(mesh, vertices=mesh.vertices.astype(np.float32))
    begin = time.perf_counter()
    made = embed_mesh(mesh, seed=seed)
    seconds = time.perf_counter() - begin
    off = distortion(mesh, made.points, seed)
    return {"pair": file, "vertices": len(mesh.vertices), "embed": seconds, "distortion": off}


def functional_map(name: str, seed: int) -> dict[str, Any]:
    """pyFM, as its documentation starts with; its map goes from its second mesh to its first."""
    from pyFM.functional import FunctionalMapping  # type: ignore[import-not-found]
    from pyFM.mesh import TriMesh  # type: ignore[import-not-found]

    source, target, truths = load(name, seed)
    begin, cpu = time.perf_counter(), time.process_time()
    meshes = (
        TriMesh(m.vertices.astype(np.float64), m.faces, area_normalize=True, center=True) for m in (target, source)
    )
    model = FunctionalMapping(*meshes)
    model.preprocess(descr_type="WKS", subsample_step=2)
    model.fit(K=30, w_descr=1, w_lap=0.1, w_dcomm=1, w_orient=1)  # type: ignore[arg-type]
    found = model.get_p2p(model.zoomout_refine(nit=16, step=5))
    end, cpu = time.perf_counter(), time.process_time() - cpu
    mark = error(found, source, target, truths, seed)
    return {"pair": f"{name}, pyFM", "seconds": end - begin, "cpu": cpu, "error": 100 * float(mark.error or 0)} | hand(
        name, mark.truth
    )


def error(found: np.ndarray, source: Mesh, target: Mesh, truths: list[np.ndarray], seed: int) -> Quality:
    way = lambda starts: shortest_paths(target, starts, 1)  # noqa: E731
    return quality(found, source, target, truths, way, SAMPLES, seed)


def hand(name: str, truth: int | None) -> dict[str, str]:
    return {} if len(PAIRS[name]) < 3 or PAIRS[name][2] is None else {"mirrored": "yes" if truth else "no"}


def measure(name: str, seed: int, device: Any) -> dict[str, Any]:
    source, target, truths = load(name, seed)
    begin, cpu = time.perf_counter(), time.process_time()
    x, y = (gromap.Space.from_mesh(mesh, seed=seed, device=device) for mesh in (source, target))
    embedded = time.perf_counter()
    sol = match(x, y, seed=seed, allow_mirror=name in LAID)
    there = sol.map()
    end, cpu = time.perf_counter(), time.process_time() - cpu
    marks = [error(found, source, target, truths, seed) for found in (sol.map("mean"), there)]
    before, after = (100 * float(mark.error or 0) for mark in marks)
    seconds = {"embed": embedded - begin + sol.stats.seconds["embed"]}
    seconds |= {stage: sol.stats.seconds.get(stage, 0.0) for stage in ("search", "solve", "refine")}
    near = sol.stats.near_distortion or {}
    modes = sol.stats.refined_modes or 0
    return {
        "pair": name,
        "vertices": len(source.vertices),
        "seconds": end - begin,
        "cpu": cpu,
        **seconds,
        "before": before,
        "error": after,
        **hand(name, marks[1].truth),
        "hand": float("nan") if sol.stats.hand is None else sol.stats.hand,
        "modes": modes,
        "near before": near.get("0", float("nan")),
        "near": near.get(str(modes), float("nan")),
        "coverage": marks[1].coverage,
        "smoothness": marks[1].smoothness,
        "mirrored energy": "" if sol.stats.mirrored is None else f"{100 * sol.stats.mirrored:+.1f} %",
    }


def row(record: dict[str, Any]) -> dict[str, str]:
    cells = {
        key: record[key] if isinstance(record[key], str) else f"{record[key]:.3g}"
        for key in record
        if key != "distortion"
    }
    if "distortion" in record:
        cells["distortion %"] = f"{100 * record['distortion']:.1f}"
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--embed", nargs="+", metavar="NAME", help="embed these meshes of poses/, and match nothing")
    parser.add_argument("--pyfm", action="store_true", help="run pyFM as well")
    add_options(parser)
    args = parser.parse_args()
    device = use(args)
    os.environ["GROMAP_CACHE"] = "off"
    print(json.dumps(describe(device) | {"seed": args.seed}), flush=True)
    records = []
    for file in args.embed or ():
        records.append(embedding(file, args.seed))
        print(json.dumps(records[-1]), flush=True)
    for name in [] if args.embed else args.pairs:
        runs = [measure(name, args.seed, device)]
        print(json.dumps(runs[-1]), flush=True)
        if args.pyfm:
            runs.append(functional_map(name, args.seed))
            print(json.dumps(runs[-1]), flush=True)
        records += runs
    print("\n" + table([row(record) for record in records]))


if __name__ == "__main__":
    main()

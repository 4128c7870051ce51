"""From mesh files to a map, as `gromap match` does it: time of each stage, distortion of the
embedding, error of the map.

    python benchmarks/meshes.py                          # all pairs
    python benchmarks/meshes.py --pairs dog man-child
    python benchmarks/meshes.py --pyfm                   # functional maps too: pip install pyfmaps
    python benchmarks/meshes.py --embed mh_man53k_0      # embed single meshes alone

Errors are geodesic, exact, over the square root of the target's area, in per cent, at 500 vertices,
for the better of the direct and of the mirrored truth. The target's vertices are shuffled first.
The distortion is the mean of | |x - y| - d | / d over 2000 random pairs of vertices, against exact
geodesics of the whole mesh. Embeddings are not read from the cache. pyFM fits a functional map of
30 x 30 to wave kernel signatures, with orientation, and refines it by 16 steps of ZoomOut.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from typing import Any

import numpy as np

import gromap
from gromap.bench.machine import add_options, describe, table, use
from gromap.bench.shapes import data_folder
from gromap.mesh import Mesh, read_mesh
from gromap.mesh.embedding import embed_mesh
from gromap.mesh.geodesic import distances
from gromap.mesh.match import match
from gromap.mesh.quality import quality

PAIRS = {  # source, target, left/right map
    "man": ("mh_man_0", "mh_man_1", "mh_man"),
    "dog": ("dog_0", "dog_1", "dog"),
    "man-child": ("mh_man_0", "mh_child_1", "mh_man"),
    "hand": ("mh_hand_0", "mh_hand_1", None),
}


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
    files = PAIRS[name]
    source, target = (read_mesh(data_folder() / "poses" / f"{file}.ply") for file in files[:2])
    target, place = shuffled(target, seed)
    return (
        source,
        target,
        [place] + ([place[np.load(data_folder() / "poses" / f"{files[2]}.sym.npy")]] if files[2] else []),
    )


def embedding(file: str, seed: int) -> dict[str, Any]:
    """Time and distortion of one mesh."""
    mesh = read_mesh(data_folder() / "poses" / f"{file}.ply")
    begin = time.perf_counter()
    made = embed_mesh(mesh, seed=seed)
    seconds = time.perf_counter() - begin
    off = [distortion(mesh, made.points, seed)]
    return {
        "pair": file,
        "vertices": len(mesh.vertices),
        "embed": seconds,
        "distortion": off,
        "distances": made.distances,
    }


def functional_map(name: str, seed: int) -> dict[str, Any]:
    """pyFM, as its documentation starts with; its map goes from its second mesh to its first."""
    from pyFM.functional import FunctionalMapping  # type: ignore[import-not-found]
    from pyFM.mesh import TriMesh  # type: ignore[import-not-found]

    source, target, truths = load(name, seed)
    begin = time.perf_counter()
    meshes = (
        TriMesh(m.vertices.astype(np.float64), m.faces, area_normalize=True, center=True) for m in (target, source)
    )
    model = FunctionalMapping(*meshes)
    model.preprocess(descr_type="WKS", subsample_step=2)
    model.fit(K=30, w_descr=1, w_lap=0.1, w_dcomm=1, w_orient=1)  # type: ignore[arg-type]
    found = model.get_p2p(model.zoomout_refine(nit=16, step=5))
    end = time.perf_counter()
    mark = quality(found, source, target, truths, seed=seed)
    facts = {
        "pair": f"{name}, pyFM",
        "vertices": len(source.vertices),
        "match": end - begin,
        "error": 100 * float(mark.error or 0),
    }
    return facts | {"coverage": mark.coverage, "smoothness": mark.smoothness}


def measure(name: str, seed: int, device: Any) -> dict[str, Any]:
    source, target, truths = load(name, seed)
    begin = time.perf_counter()
    x, y = (gromap.Space.from_mesh(mesh, seed=seed, device=device) for mesh in (source, target))
    _ = x.embedding, y.embedding
    embedded = time.perf_counter()
    sol = match(x, y, seed=seed)
    found = {"mean": sol.map()}
    end = time.perf_counter()
    found["argmax"] = sol.map("argmax")
    marks = {how: quality(vertices, source, target, truths, seed=seed) for how, vertices in found.items()}
    off = [distortion(mesh, space.measure.points.cpu().numpy(), seed) for mesh, space in ((source, x), (target, y))]
    return {
        "pair": name,
        "vertices": len(source.vertices),
        "embed": embedded - begin,
        "match": end - embedded,
        "distortion": off,
        "error": 100 * float(marks["mean"].error or 0),
        "error of argmax": 100 * float(marks["argmax"].error or 0),
        "coverage": marks["mean"].coverage,
        "smoothness": marks["mean"].smoothness,
        "value": sol.value,
        "status": sol.status.name,
    }


def row(record: dict[str, Any]) -> dict[str, str]:
    cells = {
        key: record[key] if isinstance(record[key], str) else f"{record[key]:.4g}"
        for key in record
        if key != "distortion"
    }
    return cells | {"distortion %": " ".join(f"{100 * d:.1f}" for d in record.get("distortion", ()))}


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

"""Where distances alone prefer a wrong match, or noise hides the right one: what features and reach
repair.

    python benchmarks/features.py --cases outliers arms slices --seeds 10

outliers: a man and another pose of him, a tenth of the points of one side drawn uniformly in its
box in place of the surface; fixed weights, and reach = 0.1.
arms: a man against another pose of him whose arms are stretched 2.2 times; distances alone, and
with wave kernel signatures beside them at the default alpha.
slices: two layers of one solid shape, as of a tissue, turned, with the layer's own cells; labels of
their region beside the distances, at the default alpha.

Errors are mean straight distances to the truth, % of the diameter, for the better of the direct and
of the mirrored truth; of the slices, the share of points whose match is of another region.
"""

from __future__ import annotations

import argparse
from functools import cache
from typing import Any

import numpy as np
from kinds import turned
from parts import Case, Cloud, cloud, mesh, solved

import gromap
from gromap.bench.machine import add_options, describe, table, use
from gromap.bench.shapes import data_folder
from gromap.mesh import Mesh
from gromap.mesh.cache import cached_embedding
from gromap.mesh.descriptors import pair_of_descriptors

SOURCE, TARGET, STRETCH = "mh_man_2", "mh_man_0", 2.2
SHOULDER, HAND = np.array([2.0, 6.0, 0.5]), np.array([5.4, 1.6, 3.2])  # of the target, on its left
NOISE = 0.1  # share of the points


@cache
def long_armed() -> Mesh:
    """The target with both arms stretched away from the shoulders."""
    v = np.array(mesh(TARGET).vertices, float)
    for sign in (1.0, -1.0):
        turn = np.array([sign, 1, 1])
        along = (HAND - SHOULDER) / np.linalg.norm(HAND - SHOULDER)
        far = ((v * turn - SHOULDER) @ along).clip(0) * ((v * turn)[:, 0] > SHOULDER[0]) * (v[:, 1] > 1)
        v += (STRETCH - 1) * far[:, None] * along * turn
    return Mesh(v, mesh(TARGET).faces)


@cache
def descriptions() -> tuple[np.ndarray, np.ndarray]:
    return pair_of_descriptors(mesh(SOURCE), long_armed(), "wks")


def pair(target: Mesh, n: int, seed: int) -> Case:
    rng, sym = np.random.default_rng(seed), np.load(data_folder() / "poses" / "mh_man.sym.npy")
    every = np.arange(len(target.vertices))
    other = Cloud(cached_embedding(target).points, every, target.vertex_areas(), every)
    return Case(cloud(SOURCE).draw(n, rng), other.draw(n, rng), target.vertices, sym, 1.0)


def arms(n: int, seed: int, device: Any) -> dict[str, str]:
    case = pair(long_armed(), n, seed)
    left, right = descriptions()
    features = left[case.source.rows], right[case.target.rows]
    row = {"floor": f"{100 * case.floor():.2f}"}
    kinds: dict[str, dict[str, Any]] = {
        "distances": {},
        "from truth": {"init": case.truth_map()},
        "wks": {"features": features},
    }
    for name, given in kinds.items():
        sol, _ = solved(case, 1e-3, seed, device, **given)
        row[name] = f"{100 * case.error(sol.map()):.2f} ({sol.value_gw:.5f})"
    return row


def outliers(n: int, seed: int, device: Any) -> dict[str, str]:
    case = pair(mesh(TARGET), n, seed)
    rng = np.random.default_rng(seed + 1000)
    y, some = np.array(case.target.points), rng.permutation(n)[: round(NOISE * n)]
    low, high = y.min(0), y.max(0)
    y[some] = low + (high - low) * rng.uniform(size=(len(some), y.shape[1]))
    good = np.delete(np.arange(n), some)
    kept = Case(
        case.source,
        Cloud(*(z[good] for z in (case.target.points, case.target.vertices, case.target.areas, case.target.rows))),
        case.places,
        case.mirror,
        1.0,
    )
    row = {"floor": f"{100 * kept.floor():.2f}"}
    clean, _ = solved(kept, 1e-3, seed, device)
    row["clean"] = f"{100 * kept.error(clean.map()):.2f}"
    for name, given in {"fixed": {}, "reach 0.1": {"reach": 0.1}}.items():
        sol = gromap.solve(
            case.source.points.astype(np.float32), y.astype(np.float32), seed=seed, device=device, **given
        )
        row[name] = f"{100 * case.error(sol.map()):.2f}"
        row[f"kept noise, {name}"] = f"{np.asarray(sol.kept_Y)[some].mean():.3f}"
    return row


def slices(n: int, seed: int, device: Any) -> dict[str, str]:
    rng = np.random.default_rng(seed)
    points = np.load(data_folder() / "shapes2d" / "cross.npy").astype(float)
    points = points - points.mean(0)

    def layer() -> tuple[np.ndarray, np.ndarray]:
        """Cells of a layer, and their region: an arm of the cross, or its middle."""
        z = points[rng.permutation(len(points))[:n]]
        angle = np.floor((np.arctan2(z[:, 1], z[:, 0]) + np.pi / 4) / (np.pi / 2)).astype(int) % 4
        return z + 0.01 * rng.normal(size=z.shape), np.where(np.abs(z).max(1) < 0.12, 4, angle)

    (x, left), (y, right) = layer(), layer()
    row = dict[str, str]()
    for name, given in {"distances": {}, "labels": {"features": (left, right)}}.items():
        sol = gromap.solve(x, turned(y, rng), seed=seed, device=device, **given)
        row[name] = f"{100 * (right[sol.map()] != left).mean():.1f}"
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = {"outliers": outliers, "arms": arms, "slices": slices}
    parser.add_argument("--cases", nargs="+", choices=list(kinds), default=list(kinds))
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=10)
    add_options(parser)
    options = parser.parse_args()
    device = use(options)
    print(describe(device))
    for name in options.cases:
        rows = [{"seed": str(k)} | kinds[name](options.points, k, device) for k in range(options.seeds)]
        print(f"\n{name}\n{table(rows)}", flush=True)


if __name__ == "__main__":
    main()

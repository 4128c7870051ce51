"""Parts of shapes against other poses of the whole: the error of the match, with marginals that are
fixed, relaxed, and partial.

    python benchmarks/parts.py                        # all parts, points and seeds
    python benchmarks/parts.py --parts leg --seeds 3 --reach 0.1 --mass 0.95 --features wks

A part is cut from the mesh by planes, and embedded by itself (distances along the surface, R^8);
points are drawn by their area from the vertices of both shapes, independently. Errors are straight
distances to the truth over the diameter of the target, for the better of the direct and of the
mirrored truth. "floor" is the error of the best map into the drawn points; "whole" that of the
whole source, matched with fixed marginals.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.spatial import KDTree
from scipy.spatial.distance import pdist

import gromap
from gromap.bench.machine import add_options, describe, table, use
from gromap.bench.shapes import data_folder
from gromap.mesh import Mesh, read_mesh
from gromap.mesh.cache import cached_embedding
from gromap.mesh.descriptors import pair_of_descriptors

Keep = Callable[[np.ndarray], np.ndarray]
PARTS: dict[str, tuple[str, str, str, Keep]] = {  # source, target, left/right map, vertices that are kept
    "leg": ("mh_man_0", "mh_man_2", "mh_man", lambda v: (v[:, 0] < 0) | (v[:, 1] > -0.5)),
    "upper": ("mh_man_0", "mh_man_2", "mh_man", lambda v: v[:, 1] > 0),
    "front": ("dog_0", "dog_1", "dog", lambda v: v[:, 0] > -0.12),
    "hind": ("dog_0", "dog_1", "dog", lambda v: v[:, 0] < -0.12),
}


@dataclass(frozen=True)
class Cloud:
    """Points of R^8 that follow a surface, and the vertices of the whole mesh that they are."""

    points: np.ndarray
    vertices: np.ndarray
    areas: np.ndarray
    rows: np.ndarray  # of the embedded mesh

    def draw(self, n: int, rng: np.random.Generator) -> Cloud:
        k = rng.choice(len(self.points), min(n, len(self.points)), replace=False, p=self.areas / self.areas.sum())
        return Cloud(self.points[k], self.vertices[k], self.areas[k], self.rows[k])


@cache
def mesh(name: str) -> Mesh:
    return read_mesh(data_folder() / "poses" / f"{name}.ply")


@cache
def signatures(name: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Descriptors of all vertices of one of PARTS, and of its target."""
    source, target, _, keep = PARTS[name]
    return pair_of_descriptors(cut(source, keep)[0], mesh(target), kind, one_unit=True)


def cut(name: str, keep: Keep | None) -> tuple[Mesh, np.ndarray]:
    """A part of a mesh, and its vertices in the whole one."""
    whole = mesh(name)
    kept = np.ones(len(whole.vertices), bool) if keep is None else keep(whole.vertices)
    faces = whole.faces[kept[whole.faces].all(1)]
    used = np.unique(faces)
    return Mesh(whole.vertices[used], np.searchsorted(used, faces)), used


def cloud(name: str, keep: Keep | None = None) -> Cloud:
    """All vertices of a mesh, or of its part."""
    part, used = cut(name, keep)
    return Cloud(cached_embedding(part).points, used, part.vertex_areas(), np.arange(len(used)))


@dataclass(frozen=True)
class Case:
    source: Cloud
    target: Cloud
    places: np.ndarray
    mirror: np.ndarray
    share: float

    @classmethod
    def of(cls, name: str, n: int, seed: int, whole: bool = False) -> Case:
        """n points of the target, and as many for its area of the part."""
        source, target, mirror, keep = PARTS[name]
        part, full, other = cloud(source, None if whole else keep), cloud(source), cloud(target)
        share, rng = part.areas.sum() / full.areas.sum(), np.random.default_rng(seed)
        sides = part.draw(round(share * n), rng), other.draw(n, rng)
        places, sym = mesh(target).vertices, np.load(data_folder() / "poses" / f"{mirror}.sym.npy")
        return cls(*sides, places, sym, float(share))

    def error(self, match: np.ndarray) -> float:
        return min(self._off(self.target.vertices[match], z) for z in self._truths())

    def floor(self) -> float:
        tree = KDTree(self.places[self.target.vertices])
        nearest = [self.target.vertices[tree.query(self.places[z])[1]] for z in self._truths()]
        return min(self._off(k, z) for k, z in zip(nearest, self._truths(), strict=True))

    def truth_map(self) -> np.ndarray:
        """The nearest drawn point of the direct truth."""
        found: Any = KDTree(self.places[self.target.vertices]).query(self.places[self.source.vertices])
        return found[1]

    def weights(self) -> dict[str, np.ndarray]:
        """Areas in one unit, which a share of mass needs."""
        n, m = len(self.source.points), len(self.target.points)
        return {"a": np.full(n, self.share / n), "b": np.full(m, 1 / m)}

    def _truths(self) -> tuple[np.ndarray, np.ndarray]:
        return self.source.vertices, self.mirror[self.source.vertices]

    def _off(self, match: np.ndarray, truth: np.ndarray) -> float:
        gaps = np.linalg.norm(self.places[match] - self.places[truth], axis=1)
        return float(gaps.mean() / pdist(self.places[::20]).max())


def solved(case: Case, epsilon: float, seed: int, device: Any, **kind: Any) -> tuple[gromap.Solution, float]:
    """The match and its seconds."""
    begin = time.perf_counter()
    x, y = (z.points.astype(np.float32) for z in (case.source, case.target))
    sol = gromap.solve(x, y, epsilon=epsilon, seed=seed, device=device, **kind)
    return sol, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--points", type=int, default=3000)
    parser.add_argument("--epsilon", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--reach", type=float, nargs="*", default=[0.1])
    parser.add_argument("--mass", type=float, nargs="*", default=[0.95])
    parser.add_argument("--features", choices=["wks", "hks"], help="also with these, alpha = 0.8")
    parser.add_argument("--truth", action="store_true", help="also go on from the true match")
    add_options(parser)
    options = parser.parse_args()
    device = use(options)
    print(describe(device))
    kinds: dict[str, dict[str, Any]] = {"balanced": {}}
    kinds |= {f"reach {r:g}": {"reach": r} for r in options.reach} | {f"mass {m:g}": {"mass": m} for m in options.mass}
    if options.features:
        kinds |= {f"reach {r:g}, {options.features}": {"reach": r, "alpha": 0.8} for r in options.reach}
    rows = list[dict[str, str]]()
    for name in options.parts:
        for seed in range(options.seeds):
            case, whole = Case.of(name, options.points, seed), Case.of(name, options.points, seed, whole=True)
            sol, _ = solved(whole, options.epsilon, seed, device)
            floor, best = case.floor(), whole.error(sol.map())
            row = {"part": name, "seed": str(seed), "floor": f"{100 * floor:.2f}", "whole": f"{100 * best:.2f}"}
            for text, given in kinds.items():
                kind = given | (case.weights() if "mass" in given else {})
                if "alpha" in given:
                    left, right = signatures(name, options.features)
                    kind |= {"features": (left[case.source.rows], right[case.target.rows])}
                sol, seconds = solved(case, options.epsilon, seed, device, **kind)
                row[text], row[f"value, {text}"] = f"{100 * case.error(sol.map()):.2f}", f"{sol.value:.5f}"
                row[f"s, {text}"] = f"{seconds:.1f}"
                if options.truth and text != "balanced":
                    sol, _ = solved(case, options.epsilon, seed, device, init=case.truth_map(), **kind)
                    row[f"from truth, {text}"] = f"{100 * case.error(sol.map()):.2f} ({sol.value:.5f})"
            rows.append(row)
            print(row, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()

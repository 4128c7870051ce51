"""Geodesic distances on a mesh: by shortest paths, exact in one process per core, or by the heat
method."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from gromap import _check
from gromap.mesh.clean import components
from gromap.mesh.mesh import Mesh
from gromap.mesh.paths import shortest_paths

METHODS = ("paths", "exact", "heat")
OnRows = Callable[[int, int], Any]  # called with the number of rows done, and of all rows


def distances(mesh: Mesh, sources: Any, method: str = "exact", progress: OnRows | None = None) -> np.ndarray:
    """Distances along the surface from each source vertex to all vertices.  (S, N), float64

    method: "exact" (Mitchell, Mount & Papadimitriou 1987) on meshes whose edges have at most two
    faces; "paths" (over divided edges, 1 to 2 % longer) and "heat" (Crane et al. 2013, 2 to 5 %
    off) on any. Connected components are joined by straight bridges
    between their nearest vertices.

    >>> corners = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    >>> square = Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]]))
    >>> distances(square, [1]).round(3).tolist()
    [[1.0, 0.0, 1.0, 1.414]]
    """
    _check.choice(method, METHODS, "method of geodesic distances")
    sources = np.asarray(sources, np.int64)
    if not len(mesh.faces):
        raise ValueError(
            "geodesic distances run along the faces of a mesh, and this one has none: use cost='euclidean'."
        )
    _, label = components(mesh)
    if label.max() == 0:
        return _connected(mesh, sources, method, progress)
    return _bridged(mesh, label, sources, method, progress)


def is_manifold(mesh: Mesh) -> bool:
    """Whether each edge has one face or two."""
    edges = np.sort(mesh.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    return bool(np.unique(edges, axis=0, return_counts=True)[1].max() <= 2)


def _connected(mesh: Mesh, sources: np.ndarray, method: str, progress: OnRows | None) -> np.ndarray:
    if not len(sources):
        return np.zeros((0, len(mesh.vertices)))
    if method == "exact" and not is_manifold(mesh):
        raise ValueError(
            "some edges of this mesh have more than two faces, where exact geodesics do not exist: use 'paths'."
        )
    return {"paths": _paths, "exact": _exact, "heat": _heat}[method](mesh, sources, progress)


def _paths(mesh: Mesh, sources: np.ndarray, progress: OnRows | None) -> np.ndarray:
    rows = shortest_paths(mesh, sources)
    if progress:
        progress(len(sources), len(sources))
    return rows


def _heat(mesh: Mesh, sources: np.ndarray, progress: OnRows | None) -> np.ndarray:
    solver = _check.extra("potpourri3d", "mesh").MeshHeatMethodDistanceSolver(
        mesh.vertices.astype(np.float64), mesh.faces, use_robust=True
    )
    rows = np.empty((len(sources), len(mesh.vertices)))
    for done, source in enumerate(sources):
        rows[done] = solver.compute_distance(int(source))
        if progress and done % 50 == 49:
            progress(done + 1, len(sources))
    return rows


def _exact(mesh: Mesh, sources: np.ndarray, progress: OnRows | None) -> np.ndarray:
    """One process for every k-th source each; they send their rows through pipes."""
    _check.extra("pygeodesic", "mesh")
    n, rows = len(mesh.vertices), np.empty((len(sources), len(mesh.vertices)))
    count = min(os.cpu_count() or 1, -(-len(sources) // 8))
    done = 0

    def collect(part: int) -> None:
        nonlocal done
        mine, given = rows[part::count], io.BytesIO()
        np.savez(given, vertices=mesh.vertices.astype(np.float64), faces=mesh.faces, sources=sources[part::count])
        command = [sys.executable, str(Path(__file__).with_name("exact.py"))]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
            assert worker.stdin
            assert worker.stdout
            assert worker.stderr
            try:
                worker.stdin.write(given.getvalue())
                worker.stdin.close()
                for row in mine:
                    sent = worker.stdout.read(8 * n)
                    if len(sent) < 8 * n:
                        reason = worker.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
                        raise RuntimeError(
                            f"exact geodesics failed on this mesh ({''.join(reason) or 'no reason given'})."
                        )
                    row[:] = np.frombuffer(sent)
                    done += 1
                    if progress and done % 50 == 0:
                        progress(done, len(sources))
            finally:
                worker.kill()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(collect, range(count)))
    return rows


def _bridged(mesh: Mesh, label: np.ndarray, sources: np.ndarray, method: str, progress: OnRows | None) -> np.ndarray:
    """Distances within the components, and between them over a minimum spanning tree of bridges."""
    parts = [np.flatnonzero(label == k) for k in range(label.max() + 1)]
    trees = [KDTree(mesh.vertices[part]) for part in parts]
    bridges, joined, apart = [], [0], set(range(1, len(parts)))
    gaps = {k: _gap(mesh, parts, trees, 0, k) for k in apart}
    while apart:  # Prim's algorithm
        k = min(apart, key=lambda k: gaps[k][0])
        bridges.append(gaps[k])
        joined.append(k)
        apart.discard(k)
        for other in apart:
            gaps[other] = min(gaps[other], _gap(mesh, parts, trees, k, other))
    ends = np.array([[i, j] for _, i, j in bridges])
    from_ = np.unique(np.concatenate([sources, ends.ravel()]))
    rows = np.full((len(from_), len(mesh.vertices)), np.inf)
    for part in parts:
        mine = np.flatnonzero(np.isin(from_, part))
        if len(part) == 1:
            rows[np.ix_(mine, part)] = 0.0
            continue
        place = np.empty(len(mesh.vertices), np.int64)
        place[part] = np.arange(len(part))
        faces = place[mesh.faces[np.isin(mesh.faces[:, 0], part)]]
        piece = Mesh(mesh.vertices[part], faces)
        rows[np.ix_(mine, part)] = _connected(piece, place[from_[mine]], method, progress)
    at = {int(v): k for k, v in enumerate(from_)}
    here = {0}
    # i is on the side joined so far, j on the new component
    for (gap, i, j), k in zip(bridges, joined[1:], strict=True):
        old = np.isin(label, list(here))
        new = label == k
        far, near = rows[at[j]][new], rows[at[i]][old]
        mine, theirs = old[from_], new[from_]
        rows[np.ix_(mine, new)] = rows[mine][:, i][:, None] + gap + far
        rows[np.ix_(theirs, old)] = rows[theirs][:, j][:, None] + gap + near
        here.add(k)
    return rows[[at[int(v)] for v in sources]]


def _gap(mesh: Mesh, parts: list, trees: list, k: int, other: int) -> tuple[float, int, int]:
    """The shortest bridge from one component to another: its length and its ends."""
    length, nearest = trees[k].query(mesh.vertices[parts[other]])
    end = int(length.argmin())
    return float(length[end]), int(parts[k][nearest[end]]), int(parts[other][end])

"""Shortest paths on a mesh whose edges are divided (Lanthier, Maheshwari & Sack 1997): geodesic
distances within a percent or two, in milliseconds a source, on any triangles.

Each edge gets some points, and each face straight lines between all points on two of its edges. A
shortest path over these is never shorter than the geodesic; with two points on each edge it is 1 to
2 % longer, by much the same share everywhere.
"""

from __future__ import annotations

import itertools

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import dijkstra

from gromap.mesh.mesh import Mesh, distinct_pairs

DIVISIONS = 2  # points on each edge: 1 is 1.3 to 2.1 % off but for a factor, 2 are 1.1 to 1.5, 3 are 0.9 to 1.3
NEAR = 0.15  # of the root of the area: farther pairs tell less, and take longer
FROM, TO = 60, 1500  # vertices whose distances to others are compared


def shortest_paths(mesh: Mesh, sources: np.ndarray, divisions: int = DIVISIONS) -> np.ndarray:
    """Lengths of the shortest paths from each source to all vertices; infinite between pieces.
    (S, N)

    >>> corners = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    >>> square = Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]]))
    >>> shortest_paths(square, np.array([1])).round(3).tolist()
    [[1.0, 0.0, 1.0, 1.491]]
    """
    return dijkstra(_graph(mesh, divisions), directed=False, indices=sources)[:, : len(mesh.vertices)]


def farthest_vertices(mesh: Mesh, count: int) -> np.ndarray:
    """Vertices of which each is the farthest from those before, along edges; every piece has some.
    (count,)"""
    graph, n = _graph(mesh, 0), len(mesh.vertices)
    far = dijkstra(graph, directed=False, indices=0)
    chosen, nearest = [int(np.where(np.isfinite(far), far, 0).argmax())], np.full(n, np.inf)
    while len(chosen) < min(count, n):
        nearest = np.minimum(nearest, dijkstra(graph, directed=False, indices=chosen[-1]))
        chosen.append(int(nearest.argmax()))
    return np.array(chosen)


class Near:
    """How far a map is from keeping the distances between near vertices, in per cent of the root
    of the area: pairs of a few random vertices with some others.

    Paths with one point on each edge are as good as exact distances here: a map that is better by
    its error is better by these.
    """

    def __init__(self, source: Mesh, target: Mesh, seed: int = 0):
        """Both of area one, and without vertices that have no faces."""
        some = np.random.default_rng(seed).permutation(len(source.vertices))[: FROM + TO]
        self.looked = some  #: vertices of the source of which the images count
        self.count = min(FROM, len(some))
        self.target = _graph(target, 1)
        given = dijkstra(_graph(source, 1), directed=False, indices=some[: self.count], limit=NEAR)[:, some]
        self.pairs = np.isfinite(given) & (given > 0)
        self.given = given[self.pairs]

    def distortion(self, ends: np.ndarray) -> float:
        """ends: the images of `looked`."""
        if not len(self.given):
            return 0.0
        starts, row = np.unique(ends[: self.count], return_inverse=True)
        found = dijkstra(self.target, directed=False, indices=starts, limit=2 * NEAR)[row.reshape(-1)][:, ends]
        return 100 * float(np.abs(np.minimum(found[self.pairs], 2 * NEAR) - self.given).mean())


def _graph(mesh: Mesh, divisions: int) -> scipy.sparse.csr_array:
    """Vertices, then the points of each edge; the lengths of all lines between them."""
    corners, n = mesh.faces, len(mesh.vertices)
    sides = np.sort(corners[:, [1, 2, 2, 0, 0, 1]].reshape(-1, 2), axis=1)  # opposite each corner
    edges, own = distinct_pairs(sides)
    share = (np.arange(1, divisions + 1) / (divisions + 1))[:, None]
    start, end = (mesh.vertices[edges[:, k], None].astype(np.float64) for k in range(2))  # (E, 1, 3)
    points = np.concatenate([mesh.vertices, (start + share * (end - start)).reshape(-1, 3)])
    numbers = n + np.arange(divisions * len(edges)).reshape(len(edges), divisions)
    chains = np.concatenate([edges[:, :1], numbers, edges[:, 1:]], 1)
    lines = [np.stack([chains[:, :-1], chains[:, 1:]], -1).reshape(-1, 2)]
    on = numbers[own.reshape(-1, 3)]  # (F, 3, divisions) points on the side opposite each corner
    for k in range(3):
        lines += [np.stack([corners[:, k], on[:, k, i]], 1) for i in range(divisions)]
        across = on[:, (k + 1) % 3]
        lines += [np.stack([on[:, k, i], across[:, j]], 1) for i, j in itertools.product(range(divisions), repeat=2)]
    ends = np.sort(np.concatenate(lines), axis=1)
    _, first = np.unique(ends[:, 0] * len(points) + ends[:, 1], return_index=True)
    ends = ends[first]
    length = np.linalg.norm(points[ends[:, 0]] - points[ends[:, 1]], axis=1)
    # a graph of scipy has no lines of length zero
    length = np.maximum(length, np.finfo(np.float64).eps * length.max(initial=0.0))
    return scipy.sparse.csr_array((length, (ends[:, 0], ends[:, 1])), shape=(len(points), len(points)))

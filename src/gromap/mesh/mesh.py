"""Mesh: a triangle mesh or a point cloud, with the colors of its vertices and the texture of its
faces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Mesh:
    """Vertices and triangles, counter-clockwise seen from outside; a cloud has no faces, and any
    dimension.

    >>> corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    >>> square = Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]]))
    >>> square, square.area
    (Mesh(4 vertices, 2 faces), 1.0)
    """

    vertices: np.ndarray  #: (N, 3), or (N, d) for a cloud
    faces: np.ndarray  #: (F, 3) indices of the corners
    colors: np.ndarray | None = None  #: (N, 3) rgb in [0, 1]
    uv: np.ndarray | None = None  #: (F, 3, 2) texture coordinates of each corner, (0, 0) at the lower left
    texture: np.ndarray | None = None  #: (H, W, 3) uint8, the top row first
    name: str = ""

    def __repr__(self) -> str:
        extras = [name for name in ("colors", "uv", "texture") if getattr(self, name) is not None]
        return f"Mesh({', '.join([f'{len(self.vertices)} vertices', f'{len(self.faces)} faces', *extras])})"

    def face_normals(self) -> np.ndarray:
        """Outward normals, as long as twice the area of their face.  (F, 3), float64"""
        if not len(self.faces):
            return np.zeros((0, 3))
        p, q, r = np.moveaxis(self.vertices[self.faces].astype(np.float64), 1, 0)
        return np.cross(q - p, r - p)

    def face_areas(self) -> np.ndarray:
        """(F,), float64"""
        return np.linalg.norm(self.face_normals(), axis=1) / 2

    def vertex_normals(self) -> np.ndarray:
        """Outward unit normals, the mean over the adjacent faces by their area; zero where there
        is none.  (N, 3), float64

        >>> Mesh(np.eye(3), np.array([[0, 1, 2]])).vertex_normals().round(3).tolist()[0]
        [0.577, 0.577, 0.577]
        """
        sums = np.zeros((len(self.vertices), 3))
        np.add.at(sums, self.faces.ravel(), np.repeat(self.face_normals(), 3, axis=0))
        return sums / np.linalg.norm(sums, axis=1, keepdims=True).clip(np.finfo(np.float64).tiny)

    @property
    def area(self) -> float:
        """Of the whole surface."""
        return float(self.face_areas().sum())

    def vertex_areas(self) -> np.ndarray:
        """A third of the area of every adjacent face; the sum is the whole area.  (N,), float64

        >>> corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
        >>> square = Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]]))
        >>> (6 * square.vertex_areas()).round(12).tolist()
        [2.0, 1.0, 2.0, 1.0]
        """
        return np.bincount(self.faces.ravel(), np.repeat(self.face_areas() / 3, 3), len(self.vertices))

    def ring(self, most: int) -> np.ndarray:
        """The vertices that share an edge with each one, so many at most; itself where there are
        fewer.  (N, W)

        >>> corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
        >>> Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]])).ring(12).tolist()
        [[1, 2, 3], [0, 2, 1], [0, 1, 3], [0, 2, 3]]
        """
        n = len(self.vertices)
        ends = self.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
        ends = distinct_pairs(np.concatenate([ends, ends[:, ::-1]]))[0]
        count = np.bincount(ends[:, 0], minlength=n)
        rank = np.arange(len(ends)) - np.repeat(count.cumsum() - count, count)
        table = np.repeat(np.arange(n)[:, None], min(int(count.max(initial=1)), most), axis=1)
        some = rank < table.shape[1]
        table[ends[some, 0], rank[some]] = ends[some, 1]
        return table


def distinct_pairs(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of pairs of numbers >= 0, in order, and for each row its place among them:
    `np.unique` of the rows, ten times as fast.  (P, 2), (n,)

    >>> pairs, place = distinct_pairs(np.array([[1, 0], [0, 2], [1, 0]]))
    >>> pairs.tolist(), place.tolist()
    ([[0, 2], [1, 0]], [1, 0, 1])
    """
    base = int(pairs.max(initial=0)) + 1
    code, place = np.unique(pairs[:, 0].astype(np.int64) * base + pairs[:, 1], return_inverse=True)
    return np.stack([code // base, code % base], 1), place


def in_space(vertices: np.ndarray) -> np.ndarray:
    """Points of any dimension as points in 3-D: zeros are appended, or the three widest
    principal axes kept.  (N, 3), float32

    >>> in_space(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]
    """
    points = np.asarray(vertices, dtype=np.float64)
    if points.shape[1] > 3:
        centered = points - points.mean(0)
        points = centered @ np.linalg.eigh(centered.T @ centered)[1][:, :-4:-1]
    return np.pad(points, ((0, 0), (0, 3 - points.shape[1]))).astype(np.float32)

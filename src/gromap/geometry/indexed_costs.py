"""Base costs between points that are integers: rows of a matrix, nodes of a tree."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap._torch import from_numpy
from gromap.geometry.costs import Cost


@dataclass(frozen=True, eq=False)
class Indexed(Cost):
    """A cost whose points are integers 0 .. size-1: nodes of a tree, rows of a matrix."""

    @property
    def size(self) -> int:
        raise TypeError(f"{type(self).__name__} defines no size.")

    @property
    def dtype(self) -> torch.dtype:
        raise TypeError(f"{type(self).__name__} defines no dtype.")

    def check(self, points: Tensor) -> None:
        low, high = int(points.min()), int(points.max())
        if low < 0 or high >= self.size:
            bad = low if low < 0 else high
            raise ValueError(f"{type(self).__name__} knows the points 0 .. {self.size - 1}, got index {bad}.")


@dataclass(frozen=True, eq=False)
class Precomputed(Indexed):
    """c(i, j) = C[i, j] from a symmetric matrix with a zero diagonal; `Space.from_costs(C)` is
    the short way.

    The matrix may be any array, and is kept as a checked tensor.  name: what errors call it.
    """

    matrix: Tensor = field(repr=False)
    name: str = field(default="C", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", _check.cost_matrix(self.matrix, self.name))

    @property
    def cnt(self) -> bool:
        return False

    @property
    def size(self) -> int:
        return len(self.matrix)

    @property
    def dtype(self) -> torch.dtype:
        return self.matrix.dtype

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.matrix[x[:, 0, None], y[:, 0]]

    def to(self, device: torch.device) -> Cost:
        return self if self.matrix.device == device else Precomputed(self.matrix.to(device), self.name)


@dataclass(frozen=True, eq=False)
class Tree(Indexed):
    """The path length between nodes of a weighted tree: depth(x) + depth(x') - 2 depth(common
    ancestor).

    `parent[i]` is the parent of node i (-1 for the root), `length[i]` the length of the edge
    between them.
    Constant time per pair: the ancestor is the shallowest node between both on an Euler tour (a
    range minimum).

    >>> tree = Tree.from_parents([-1, 0, 0, 1])          # 3 - 1 - 0 - 2
    >>> tree(torch.tensor([[3]]), torch.tensor([[2], [1]]))
    tensor([[3., 1.]], dtype=torch.float64)
    """

    depth: Tensor = field(repr=False)  # (nodes,)
    first: Tensor = field(repr=False)  # (nodes,) first visit of the tour
    table: Tensor = field(repr=False)  # (levels, tour) minimum depth over [t, t + 2^level)

    @classmethod
    def from_parents(cls, parent: object, length: object = None) -> Tree:
        parents = np.asarray(parent, dtype=np.int64)
        n = len(parents)
        lengths = np.ones(n) if length is None else np.asarray(length, dtype=np.float64)
        roots = np.flatnonzero(parents < 0)
        if parents.ndim != 1 or len(roots) != 1 or parents.max(initial=-1) >= n or lengths.shape != (n,):
            raise ValueError(
                "a tree needs one parent index per node, -1 for its single root, and one length per node; got "
                f"parents of shape {parents.shape} with {len(roots)} roots and lengths of shape {lengths.shape}."
            )
        if not (np.isfinite(lengths).all() and (np.delete(lengths, roots) >= 0).all()):
            raise ValueError("the edge lengths of a tree must be finite and >= 0.")
        return cls(*_euler_tour(parents, lengths, int(roots[0])))

    @property
    def size(self) -> int:
        return len(self.depth)

    @property
    def dtype(self) -> torch.dtype:
        return self.depth.dtype

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = x[:, 0, None], y[None, :, 0]
        lo, hi = torch.minimum(self.first[x], self.first[y]), torch.maximum(self.first[x], self.first[y])
        level = (hi - lo + 1).double().log2().floor().long()
        shallowest = torch.minimum(self.table[level, lo], self.table[level, hi + 1 - (1 << level)])
        return self.depth[x] + self.depth[y] - 2 * shallowest

    def to(self, device: torch.device) -> Cost:
        return Tree(self.depth.to(device), self.first.to(device), self.table.to(device))


def _euler_tour(parents: np.ndarray, lengths: np.ndarray, root: int) -> tuple[Tensor, Tensor, Tensor]:
    """Depths, first visits and the sparse table of range minima over the depths met on an Euler
    tour."""
    n = len(parents)
    children: list[list[int]] = [[] for _ in range(n)]
    for node in np.flatnonzero(parents >= 0):
        children[int(parents[node])].append(int(node))
    depth, first, tour = np.zeros(n), np.full(n, -1), [root]
    first[root] = 0
    stack = [(root, iter(children[root]))]
    while stack:
        node, rest = stack[-1]
        child = next(rest, None)
        if child is None:
            stack.pop()
            if stack:
                tour.append(stack[-1][0])
            continue
        depth[child], first[child] = depth[node] + lengths[child], len(tour)
        tour.append(child)
        stack.append((child, iter(children[child])))
    if (first < 0).any():
        raise ValueError(
            f"the parents contain a cycle: node {int(np.argmin(first))} cannot be reached from the root {root}."
        )
    table = [depth[tour]]
    while 2 ** len(table) <= len(tour):
        last, half = table[-1], 2 ** (len(table) - 1)
        table.append(np.minimum(last, np.append(last[half:], np.full(half, np.inf))))
    return from_numpy(depth), from_numpy(first), from_numpy(np.stack(table))

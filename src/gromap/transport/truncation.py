"""Truncation: at small ε most tiles of a plan are zero, and need no visit.

Points are ordered so that every run of some of them, a cell, is tight. For i in cell I around c_I
and j in cell J around d_J,

    q_i·k_j = q_i·d_J + c_I·k_j - c_I·d_J + (q_i - c_I)·(k_j - d_J)

    s_ij + f_i + g_j  <=  bound_IJ
        := max_i (f_i + q_i·d_J) + max_j (g_j + c_I·k_j) - c_I·d_J + r_I r_J

which is tight up to the product of the two radii, however far apart the clouds are, and takes a
64th of a full sweep or less. A tile with bound < log τ has π_ij < τ a_i b_j: without all of these,
every row and column sum loses less than a share τ. Where marginals are not fixed, and row i holds
exp(u_i) a_i, the same bound of s_ij + (f_i - u_i) + g_j tells what the row loses of that; a tile is
left out where neither its rows nor its columns miss it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gromap._torch import from_numpy, norm, split
from gromap.transport.backend import fused_for

CUT_AXES = 8  # leading axes that the median cuts choose from
CELL_POINTS = 128  # points of the smallest cells
MAX_CELLS = 4096  # cells of a cloud
POTENTIAL_RISE = 2.0  # nats by which f_i + g_j may rise until the lists are made anew
MAX_SHARE = 0.6  # lists of more than this share of all tiles are slower than a full sweep
TEMPORARY_ENTRIES = 1 << 26  # entries of the temporaries


class Cells(NamedTuple):
    """A cloud in an order where every run of `size` points, a cell, is tight."""

    order: Tensor  # (N,) which point comes n-th
    place: Tensor  # (N,) where point i went
    size: int


class Grid(NamedTuple):
    """The cells of rows and columns, and the share τ of its mass that a row may lose to tiles
    left out."""

    rows: Cells
    cols: Cells
    loss: float

    @property
    def mT(self) -> Grid:
        return Grid(self.cols, self.rows, self.loss)


class Lists(NamedTuple):
    """For each cell of one side, the cells of the other to visit: items[starts[c] : starts[c +
    1]]."""

    starts: Tensor  # (cells + 1,) int32
    items: Tensor  # int32


class Tiles(NamedTuple):
    """The tiles that matter at some potentials."""

    by_row: Lists
    by_col: Lists
    sizes: tuple[int, int]  # points of a cell of rows and of a cell of columns
    share: float  # of all tiles
    neglected: Tensor  # () bound on the mass of the tiles left out

    @property
    def mT(self) -> Tiles:
        return Tiles(self.by_col, self.by_row, (self.sizes[1], self.sizes[0]), self.share, self.neglected)


def split_cells(x: Tensor, size: int | None = None) -> Cells:
    """Order a cloud by recursive median cuts across the widest of its leading axes, down to runs
    of `size` points.

    None: CELL_POINTS of them, doubled until there are no more than MAX_CELLS cells, so that lists
    stay small.

    >>> split_cells(torch.tensor([[3.0], [0.0], [2.0], [1.0]]), size=2).order.tolist()
    [1, 3, 2, 0]
    """
    n, x = len(x), x[:, :CUT_AXES].mT.contiguous()
    if size is None:
        size = CELL_POINTS << max(0, math.ceil(math.log2(n / (CELL_POINTS * MAX_CELLS))))
    order = torch.arange(n, device=x.device)
    edges = np.array([0, -(-n // size)])  # of the pieces, in cells; known beforehand: nothing is read from the device
    while np.diff(edges).max() > 1:
        ends = from_numpy((edges[1:] * size).clip(max=n)).to(x.device)
        count = ends.diff(prepend=ends.new_zeros(1))
        piece = torch.repeat_interleave(count, output_size=n)
        here = x[:, order]
        total = torch.cat([here, here.square()]).cumsum(1, dtype=torch.float64)[:, ends - 1]
        mean, square = (total.diff(prepend=torch.zeros_like(total[:, :1])) / count).chunk(2)
        axis = (square - mean.square()).argmax(0)
        value = here.gather(0, axis[piece][None])[0].double()
        low, high = value.min(), value.max()
        key = piece + 0.999 * (value - low) / (high - low).clamp(min=1e-300)  # sorts each piece in its place
        order = order[key.argsort()]
        edges = np.unique(np.concatenate([edges, (edges[:-1] + edges[1:] + 1) // 2]))
    place = torch.empty_like(order)
    place[order] = torch.arange(n, device=x.device)
    return Cells(order, place, size)


def active_tiles(
    q: Tensor,
    k: Tensor,
    grid: Grid,
    f: Tensor,
    g: Tensor,
    log_a: Tensor,
    log_b: Tensor,
    held: tuple[Tensor, Tensor] | None = None,
) -> Tiles | None:
    """The tiles that hold more than a share τ of some row or column at the potentials f and g,
    in nats.

    q, k: (N, R) and (M, R), in the order of their cells; f, g, log_a, log_b: in the order of the
    points. held: log of the share of its weight that each row and column holds, None = all of it.
    None where so many tiles are active that a full sweep is faster. Waits for the device once.
    """
    rows, cols, loss = grid
    q, k = _by_cell(q, rows.size), _by_cell(k, cols.size)  # (cells, size, R)
    c, d = q.mean(1), k.mean(1)  # (cells, R)

    def most(f: Tensor, side: int) -> Tensor:
        """max_i (f_i + q_i·d_J), or max_j (g_j + c_I·k_j).  (I, J)"""
        z, cells, centers = ((q, rows, d), (k, cols, c))[side]
        found = _cell_max(z, _by_cell(f[cells.order], cells.size), centers)
        return found if side == 0 else found.mT

    apart = norm(q - c[:, None], dim=-1).amax(1)[:, None] * norm(k - d[:, None], dim=-1).amax(1)
    apart -= c @ d.mT
    left, right = most(f, 0), most(g, 1)
    bound, least = left + right + apart, math.log(loss) - POTENTIAL_RISE
    active = bound > least
    if held is not None:
        active |= most(f - held[0], 0) + right + apart > least
        active |= left + most(g - held[1], 1) + apart > least
    share = float(active.sum(dtype=torch.int64)) / active.numel()
    if share > MAX_SHARE:
        return None
    a, b = (_by_cell(w[z.order].exp(), z.size, 0.0).sum(1) for w, z in ((log_a, rows), (log_b, cols)))
    neglected = a @ bound.masked_fill_(active, -math.inf).exp_() @ b
    return Tiles(lists(active), lists(active.mT), (rows.size, cols.size), share, neglected)


def _by_cell(x: Tensor, size: int, fill: float | None = None) -> Tensor:
    """(N, ...) as (cells, size, ...); the last cell is filled up with its last point."""
    missing = -len(x) % size
    if missing:
        last = x[-1:] if fill is None else torch.full_like(x[-1:], fill)
        x = torch.cat([x, last.expand(missing, *x.shape[1:])])
    return x.view(-1, size, *x.shape[1:])


def _cell_max(q: Tensor, f: Tensor, d: Tensor) -> Tensor:
    """max over i in cell I of f_i + q_i·d_J.  (I, J)"""
    if fused_for(q):
        from gromap.transport import triton

        return triton.cell_max(q, f, d)
    rows = max(1, TEMPORARY_ENTRIES // (q.shape[1] * len(d)))
    parts = [
        (torch.baddbmm(fs[..., None], qs, d.mT.expand(len(qs), -1, -1))).amax(1)
        for qs, fs in zip(split(q, rows), split(f, rows), strict=True)
    ]
    return torch.cat(parts)


def lists(active: Tensor) -> Lists:
    """For each row of a mask of tiles, the columns that are set."""
    counts = active.sum(1, dtype=torch.int32)
    starts = torch.zeros(len(counts) + 1, dtype=torch.int32, device=active.device)
    torch.cumsum(counts, 0, dtype=torch.int32, out=starts[1:])
    rows = max(1, TEMPORARY_ENTRIES // active.shape[1])
    items = torch.cat([part.nonzero()[:, 1].int() for part in split(active, rows)])
    return Lists(starts, items)

"""Discrete measures α = Σ_i a_i δ_{x_i}, and their coarsening by weighted k-means (Alg.
multiscale_dual_kernelpca)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gromap._threads import all_threads
from gromap._torch import norm
from gromap.transport import LowRank, split_cells
from gromap.transport.backend import fused_for

KMEANS_PAIRS = 5e9  # pairs of points and cells up to which k-means improves the cells
DENSE_PAIRS = 1 << 24  # pairs of points and cells whose distances are all written down
FARTHEST_CELLS = 500  # cells that start from farthest points, which takes a pass over the cloud each
ONE_PROGRAM = 10_000  # points that one program on a GPU walks over faster than many can be launched
MEDIAN_POINTS = 10_000  # of which a median is taken
# mass that the unit of a cloud is measured by: a tenth may be outliers, and bodies keep their
# radius to a tenth
CORE = 0.9
COINCIDENT = 4  # rounding errors of the coordinates up to which points are one point
SEED_OFFSET = 0x6D6170  # added to seeds


def own_generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Random numbers for a seed that points are not drawn from: else what we choose among them
    would depend on where they are.

    >>> points = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.equal(points, torch.rand(1000, generator=own_generator(0))))
    False
    """
    return torch.Generator(device).manual_seed(SEED_OFFSET + seed)


@dataclass(frozen=True)
class Measure:
    """Points and weights that sum to one. Weights may be zero: such points are carried along and
    receive mass zero."""

    points: Tensor  # (N, d), or (N, 1) integers for an indexed cost
    weights: Tensor  # (N,)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def support(self) -> Tensor:
        """The indices of the points that carry mass."""
        return self.weights.nonzero()[:, 0]

    def radius(self) -> float:
        """The largest distance between the weighted mean and a point that carries mass."""
        return float(self._distances()[self.support].max())

    def farthest(self) -> int:
        """The point at this distance."""
        return int(self.support[self._distances()[self.support].argmax()])

    def core_radius(self) -> float:
        """The radius that holds nine tenths of the mass, around the mean of these: a few points far
        out do not change it."""
        x = self._shifted()
        return core(lambda w: norm(x - w @ x, dim=-1), self.weights.double())

    def _distances(self) -> Tensor:
        """Of all points from the weighted mean.  (N,)"""
        x = self._shifted()
        return norm(x - self.weights.double() @ x, dim=-1)

    def _shifted(self) -> Tensor:
        """The points around one of them, so that those that are equal are exactly at their mean;
        zero if all are, up to the rounding errors of their coordinates.  (N, d) float64"""
        x = self.points.double()
        shifted = x - x[self.support[0]]
        rounding = COINCIDENT * torch.finfo(self.points.dtype).eps * x[self.support].abs().max()
        return shifted if bool(shifted[self.support].abs().max() > rounding) else torch.zeros_like(x)


def core(distances: Callable[[Tensor], Tensor], a: Tensor) -> float:
    """The distance that holds CORE of the mass, from the mean of the CORE that is nearest to the
    mean of all; `distances(w)` are those of all points from their mean with weights w.

    >>> x = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1e6]).double()
    >>> core(lambda w: (x - w @ x).abs(), torch.full((11,), 1 / 11).double())
    4.5
    """
    first = distances(a)
    near = torch.where(first <= _quantile(first, a), a, 0.0)
    return float(_quantile(distances(near / near.sum()), a))


def _quantile(r: Tensor, a: Tensor) -> Tensor:
    """The least of some numbers up to which CORE of the mass lies.  ()"""
    order = r.argsort()
    mass = a[order].cumsum(0)
    return r[order[(mass < (CORE - 1e-9) * mass[-1]).sum()]]


def _sample(x: Tensor) -> Tensor:
    """Points enough for a median, evenly from the whole."""
    return x[:: -(-len(x) // MEDIAN_POINTS)]


def farthest_points(gap_to: Callable[[Tensor], Tensor], first: Tensor, k: int) -> Tensor:
    """Indices of k points, each the farthest from those before; `gap_to(i)` is the distance of
    all points to point i."""
    chosen, nearest = [first], gap_to(first)
    for _ in range(k - 1):
        chosen.append(nearest.argmax())
        nearest = torch.minimum(nearest, gap_to(chosen[-1]))
    return torch.stack(chosen)


def spread_points(x: Tensor, k: int) -> Tensor:
    """Indices of k points, each the farthest from those before, the first from the origin.  (k,)

    >>> spread_points(torch.tensor([[0.0], [2.0], [-1.5], [1.0]]), 3)
    tensor([1, 2, 0])
    """
    if fused_for(x) and len(x) <= ONE_PROGRAM:
        from gromap.geometry import kernels

        return kernels.farthest(x, k)
    return farthest_points(lambda i: (x - x[i]).square().sum(-1), x.square().sum(-1).argmax(), k)


def drawn_points(a: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Indices of k different points, drawn by their weights (Efraimidis & Spirakis 2006).  (k,)"""
    luck = torch.rand(len(a), generator=generator, dtype=torch.float64, device=generator.device)
    return (luck.to(a.device).log() / a.double()).topk(k).indices


def nearest(x: Tensor, centers: Tensor) -> Tensor:
    """The index of the center next to each point, in Euclidean distance.  (N,)"""
    origin = _sample(centers).median(0).values  # a mean may lie far from all but one
    unit = (centers - origin).abs().max().clamp(min=1e-30)
    return _nearest((x - origin) / unit, (centers - origin) / unit)


def _nearest(x: Tensor, centers: Tensor) -> Tensor:
    """The same for points around the origin, of size one."""
    bias = -0.5 * centers.square().sum(-1)
    if len(x) * len(centers) <= DENSE_PAIRS:
        with all_threads():
            return torch.addmm(bias, x, centers.mT).argmax(1)
    return LowRank(x, centers).argmax(bias)


def coarsen(x: Tensor, a: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """At most k cell means and cell masses of a weighted cloud, by k-means. Mass and mean are
    kept exactly.

    A few cells start from farthest points, and do not depend on the order of the points; many start
    from points drawn by their weights; where k-means would take longer than the rest of a match,
    cells come from recursive median cuts. Points without mass are left out.

    >>> coarsen(torch.tensor([[0.0], [2.0], [10.0]]), torch.tensor([0.25, 0.25, 0.5]), 2)
    (tensor([[10.],
            [ 1.]]), tensor([0.5000, 0.5000]))
    """
    alive = a > 0
    if not bool(alive.all()):
        x, a = x[alive], a[alive]
    if k >= len(x):
        return x, a
    if len(x) * k > KMEANS_PAIRS:
        size = -(-len(x) // k)
        cell = split_cells(x, size).place // size
    else:
        centered = x - x.mean(0)
        z = centered / centered.abs().max().clamp(min=1e-30)
        few = k <= FARTHEST_CELLS
        first = spread_points(x, k) if few else drawn_points(a, k, own_generator(0, a.device))
        cell = _nearest(z, z[first])
        weighted = _weighted(z, a)
        for _ in range(3 if few else 2):
            cell = _nearest(z, _cell_means(weighted, cell, k)[0])
    centers, mass = _cell_means(_weighted(x, a), cell, k)
    full = mass.nonzero()[:, 0]
    return centers[full], mass[full]


def _weighted(x: Tensor, a: Tensor) -> Tensor:
    return torch.cat([a[:, None] * x, a[:, None]], 1)


def _cell_means(weighted: Tensor, cell: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Means and masses of the cells; those without mass lie at the origin."""
    total = weighted.new_zeros(k, weighted.shape[1]).index_add_(0, cell, weighted)
    return total[:, :-1] / total[:, -1:].clamp(min=torch.finfo(total.dtype).tiny), total[:, -1]

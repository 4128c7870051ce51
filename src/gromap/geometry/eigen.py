"""Leading eigenpairs of kernels (Alg. Kernel-PCA): in block Krylov spaces, or of the whole
matrix if it is small.

A kernel is K = -½ H C Hᵀ with H = I - 1 aᵀ, or K = -½ C, for the costs C of a measure with weights
a, and it is only ever applied to blocks of vectors (cost_sums.py). The eigenpairs (θ_d, V_d) are
those of A = diag(√a) K diag(√a).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._threads import side_by_side
from gromap._torch import eigh, norm, qr, svd
from gromap.geometry.cost_sums import check_sums, cost_apply
from gromap.geometry.costs import Cost
from gromap.transport.tiles import shared, tiling

DENSE_POINTS = 4096  # up to this size the cost matrix is kept (128 MiB in float64)
DIRECT_POINTS = 512  # up to this size the eigenvectors are computed directly
OVERSAMPLING = 8
FIRST_LOOK = 3  # sweeps from a random start until a first look at the residual
PACE = 16.0  # by which a sweep shrinks the residual, about: a look takes longer than a sweep over few points
# shares of the norm of A: of columns to look at closely, and of those that are rounding errors
DOUBT, NOISE = 1e-8, 1e-12


@dataclass(frozen=True)
class KernelPCA:
    """Exact kernel PCA: block Krylov sweeps over all pairs until the residuals fall below `tol`
    times the top eigenvalue: costs are then right to about as much."""

    tol: float = 1e-6
    max_sweeps: int = 40


class Kernel:
    """-½ H C Hᵀ, or -½ C, applied to blocks of vectors in float64; one sweep over all pairs per
    call."""

    def __init__(self, cost: Cost, points: Tensor, a: Tensor, centered: bool = True):
        self.cost, self.points, self.a, self.root, self.centered = cost, points, a, a.sqrt(), centered
        self.costs = cost(points, points).double() if len(points) <= DENSE_POINTS else None
        self.mean: Tensor | None = None  # Σ_j a_j c_ij, a by-product of the first sweep

    def cost_apply(self, w: Tensor) -> Tensor:
        if self.mean is None:
            w = torch.cat([w, self.a[:, None]], 1)
        z = cost_apply(self.cost, self.points, self.points, w) if self.costs is None else _product(self.costs, w)
        if self.mean is None:
            z, self.mean = z[:, :-1], z[:, -1]
            check_sums(self.mean, self.cost, self.points, self.points)
        return z

    def __call__(self, v: Tensor) -> Tensor:
        """K diag(√a) v.  (N, w)"""
        w = self.root[:, None] * v
        if not self.centered:
            return -0.5 * self.cost_apply(w)
        z = -0.5 * self.cost_apply(w - self.a[:, None] * w.sum(0))
        return z - self.a @ z

    def leading(self, matrix: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """The largest eigenvalues, and their vectors: those that an embedding keeps, or the
        largest in magnitude."""
        theta, v = eigh(matrix)
        order = self.order(theta)[:dim]
        return theta[order], v[:, order]

    def order(self, theta: Tensor) -> Tensor:
        """The indices of eigenvalues, the leading ones first."""
        return (theta if self.centered else theta.abs()).argsort(descending=True)

    def matrix(self) -> Tensor:
        """A = diag(√a) K diag(√a), dense.  (N, N)"""
        return self.root[:, None] * self(torch.eye(len(self.a), dtype=self.a.dtype, device=self.a.device))

    def diagonal(self) -> Tensor:
        """K_ii = Σ_j a_j c_ij - ½ Σ_jk a_j a_k c_jk, since c_ii = 0.  (N,)"""
        if self.mean is None:
            self.cost_apply(self.a[:, None])
        assert self.mean is not None
        return self.mean - 0.5 * (self.a @ self.mean)


def _product(costs: Tensor, w: Tensor) -> Tensor:
    """Their product, with rows shared among threads."""
    rows = shared(tiling(1, len(costs), len(costs), costs)[1], costs)
    return torch.cat(side_by_side(lambda some: costs[some[0].start : some[-1].stop] @ w, rows))


def is_small(n: int, dim: int) -> bool:
    """Whether to compute all eigenvectors."""
    return n <= DIRECT_POINTS or (3 * dim >= n and n <= DENSE_POINTS)


def working_memory(n: int, dim: int, sweeps: int) -> int:
    """Bytes that so many sweeps take at most, about: two bases of all blocks, their copies as they
    grow, and the matrix itself between few points."""
    if is_small(n, dim):
        return 8 * 7 * n * n
    dense = n if n <= DENSE_POINTS else 0
    return 8 * n * (6 * min(n, sweeps * (dim + OVERSAMPLING)) + dense)


class Eigenpairs(NamedTuple):
    """The leading eigenpairs of A."""

    theta: Tensor  # (D,)
    vectors: Tensor  # (N, D)
    image: Tensor  # (N, D) K diag(√a) V
    residual: float  # the largest |A V_d - θ_d V_d| / |θ_1|
    positive: float | None = None  # the sum of all positive eigenvalues, where all are known


def eigenpairs(kernel: Kernel, dim: int, method: KernelPCA, generator: torch.Generator) -> Eigenpairs:
    n = len(kernel.a)
    if is_small(n, dim):
        theta, v = eigh(kernel.matrix())
        order = kernel.order(theta)[:dim]
        return Eigenpairs(theta[order], v[:, order], kernel(v[:, order]), 0.0, float(theta.clamp(min=0).sum()))
    guess = torch.randn(n, min(n, dim + OVERSAMPLING), generator=generator).to(kernel.a)
    return krylov(kernel, guess, dim, method.tol, method.max_sweeps, FIRST_LOOK)


def krylov(kernel: Kernel, guess: Tensor, dim: int, tol: float, max_sweeps: int, least: int) -> Eigenpairs:
    """Rayleigh-Ritz in the block Krylov space span{Q, AQ, A²Q, ...}; one sweep over all pairs
    per block.

    least: sweeps before the first look at the residual.
    """
    root = kernel.root[:, None]
    block = _orthonormal(guess - root * (kernel.root @ guess) if kernel.centered else guess)
    basis, image, sweeps, last = block, kernel(block), 1, max_sweeps == 1  # Q and K diag(√a) Q
    top = norm(root * image)
    while True:
        if sweeps >= least or last:
            theta, ritz = kernel.leading(_symmetric(basis.mT @ (root * image)), dim)
            v, moved = basis @ ritz, image @ ritz
            residual = float(norm(root * moved - v * theta, dim=0).max() / theta.abs().max().clamp(min=1e-300))
            if residual <= tol or last:
                return Eigenpairs(theta, v, moved, residual)
            least = sweeps + _further(residual, tol)
        block = _beyond(basis, root * image[:, -block.shape[1] :], top)
        if block.shape[1] == 0 or basis.shape[1] + block.shape[1] > len(basis):
            last = True
            continue
        basis, image, sweeps = torch.cat([basis, block], 1), torch.cat([image, kernel(block)], 1), sweeps + 1
        last = sweeps == max_sweeps


def _further(residual: float, tol: float) -> int:
    """How many sweeps to wait for, before another look."""
    ratio = residual / tol if tol > 0 else math.inf
    return max(1, round(math.log(ratio, PACE))) if math.isfinite(ratio) else 1


def _beyond(basis: Tensor, block: Tensor, top: Tensor) -> Tensor:
    """An orthonormal basis of what a block adds to a space, but for columns that are rounding
    errors of A, of norm `top`.

    A smooth kernel has few eigenvalues above them, and noise, scaled up, would not be orthogonal to
    the basis.
    """
    for _ in range(2):  # twice is enough
        block = block - basis @ (basis.mT @ block)
    q, r = qr(block)
    if float(r.diagonal().abs().min()) > DOUBT * top:
        return q
    u, size, _ = svd(r)
    q = q @ u[:, size > NOISE * top]
    for _ in range(2):
        q = _orthonormal(q - basis @ (basis.mT @ q))
    return q


def _orthonormal(x: Tensor) -> Tensor:
    return qr(x)[0]


def _symmetric(x: Tensor) -> Tensor:
    return (x + x.mT) / 2

"""Embeddings X_i with |X_i - X_j|² = c(x_i, x_j): weighted kernel PCA (Alg. Kernel, Kernel-PCA, Kernel-Proj).

The centred kernel is K = -½ H C Hᵀ with H = I - 1 aᵀ: no base point is needed. With the eigenpairs (θ_d, V_d) of
A = diag(√a) K diag(√a),

    X = K diag(√a) V / √θ        features, centred, with covariance diag(θ); also defined where a_i = 0
    X(x) = -½ c(x, ·) B + shift  Kernel-Proj, with B = diag(√a) V / √θ: the same map for old and for new points

Without the centring, K = -½ C has eigenvalues of both signs: `signed_factors` keeps the largest in magnitude, for any cost.

A is only ever applied to blocks of vectors (engine.cost_apply): block Krylov iterations from a random start, or from a
Nyström embedding of a few landmarks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gromap.costs import Cost, Power
from gromap.engine import cost_apply
from gromap.measure import Measure, drawn_points, farthest_points, nearest, own_generator

DENSE = 4096  # up to this size the cost matrix is kept (128 MiB in float64)
SMALL = 512  # up to this size the eigenvectors are computed directly
OVERSAMPLING = 8
LEAST = 3  # sweeps from a random start until a first look at the residual
DOUBT, NOISE = 1e-8, 1e-12  # shares of the norm of A: of columns to look at closely, and of those that are rounding errors
ROUGH = 1e-2  # residual of eigenvectors that a sweep should have mended: landmarks gave no start for it
CUTOFF = 1e-13  # eigenvalues below this share of the largest are rounding errors: their features are zero


@dataclass(frozen=True)
class KernelPCA:
    """Exact kernel PCA: block Krylov sweeps over all pairs until the residuals fall below `tol` times the top eigenvalue."""

    tol: float = 1e-9
    max_sweeps: int = 40


@dataclass(frozen=True)
class Nystrom:
    """Kernel PCA of some landmarks, extended to all points, then refined by `refine` exact sweeps over all pairs, or more.

    `choice`: "random" draws landmarks by weight, "farthest" spreads them. With `refine=0` the cost is linear in N; else sweeps
    go on where landmarks were so bad a choice that residuals are above 1 % of the top eigenvalue.
    """

    landmarks: int = 2000
    refine: int = 1
    choice: str = "random"

    def __post_init__(self) -> None:
        if self.landmarks < 2 or self.refine < 0:
            raise ValueError(f"Nystrom needs landmarks >= 2 and refine >= 0, got {self.landmarks} and {self.refine}.")
        if self.choice not in ("random", "farthest"):
            raise ValueError(f"Nystrom's choice is 'random' or 'farthest', got {self.choice!r}.")


Method = KernelPCA | Nystrom


@dataclass(frozen=True)
class Embedding:
    """Centred features of a measure, their variances, and the map that embeds new points."""

    features: Tensor  # (N, D) float64
    spectrum: Tensor  # (D,) variance along each axis, decreasing
    variance: float  # trace of A: the variance of the full embedding
    residual: float  # largest |A V_d - θ_d V_d| / θ_1
    project: Callable[[Tensor], Tensor]

    @property
    def explained(self) -> float:
        """The share of the variance that the D axes keep."""
        return float(self.spectrum.clamp(min=0).sum()) / self.variance if self.variance > 0 else 1.0


def embed(cost: Cost, measure: Measure, dim: int | float, method: Method, seed: int = 0) -> Embedding:
    """Embed a measure in `dim` axes, or in as many as explain the share `dim` of the variance (a float below 1)."""
    if isinstance(cost, Power) and cost.p == 2:
        return _linear(measure, dim)
    if isinstance(dim, int):
        return _kernel_pca(cost, measure, dim, method, seed)
    axes = 16
    while True:
        axes = min(axes, len(measure))
        found = _kernel_pca(cost, measure, axes, method, seed)
        share = found.spectrum.cumsum(0) / found.variance
        if axes == len(measure) or float(share[-1]) >= dim:
            return _truncate(found, 1 + int((share < dim - 1e-12).sum().clamp(max=axes - 1)))
        axes *= 2


def negative_mass(cost: Cost, measure: Measure, sample: int = 512, seed: int = 0) -> float:
    """The share of negative eigenvalues in Σ|θ|, zero for a CNT cost; on at most `sample` points."""
    support = measure.support
    if len(support) > sample:
        generator = own_generator(seed)
        support = support[torch.randperm(len(support), generator=generator)[:sample].to(support.device)]
    a = measure.weights[support].double()
    theta = torch.linalg.eigvalsh(_Kernel(cost, measure.points[support], a / a.sum()).matrix())
    rounding = CUTOFF * len(theta) * theta.abs().max()
    return float(-theta[theta < -rounding].sum() / theta.abs().sum().clamp(min=1e-300))


class Factors(NamedTuple):
    """-½ c(x_i, x_j) ≈ Σ_d signs_d values_id values_jd."""

    values: Tensor  # (N, D) float64
    signs: Tensor  # (D,) 1 or -1
    error: float  # (Σ a_i a_j (c_ij - ĉ_ij)² / Σ a_i a_j c_ij²)^½


def signed_factors(cost: Cost, measure: Measure, dim: int, seed: int = 0) -> Factors:
    """The best symmetric approximation of rank `dim` to the cost, in the metric of the weights; no need for it to be CNT."""
    a = measure.weights.double()
    kernel = _Kernel(cost, measure.points, a, centred=False)
    theta, _, image, _ = _eigenpairs(kernel, dim, KernelPCA(tol=1e-6), own_generator(seed))
    kept = theta.abs() > CUTOFF * len(a) * theta.abs().max()
    values = image * torch.where(kept, theta.abs().clamp(min=1e-300).rsqrt(), 0.0)
    total = 0.25 * float(a @ cost_apply(lambda x, y: cost(x, y).square(), measure.points, measure.points, a[:, None])[:, 0])
    missed = 1 - float(theta.square().sum()) / total if total > 0 else 0.0
    return Factors(values, torch.where(theta < 0, -1.0, 1.0).to(values), max(0.0, missed) ** 0.5)


class _Kernel:
    """-½ H C Hᵀ, or -½ C, applied to blocks of vectors in float64; one sweep over all pairs per call."""

    def __init__(self, cost: Cost, points: Tensor, a: Tensor, centred: bool = True):
        self.cost, self.points, self.a, self.root, self.centred = cost, points, a, a.sqrt(), centred
        self.costs = cost(points, points).double() if len(points) <= DENSE else None
        self.mean: Tensor | None = None  # Σ_j a_j c_ij, a by-product of the first sweep

    def cost_apply(self, w: Tensor) -> Tensor:
        if self.mean is None:
            w = torch.cat([w, self.a[:, None]], 1)
        z = self.costs @ w if self.costs is not None else cost_apply(self.cost, self.points, self.points, w)
        if self.mean is None:
            z, self.mean = z[:, :-1], z[:, -1]
        return z

    def __call__(self, v: Tensor) -> Tensor:
        """K diag(√a) v.  (N, w)"""
        w = self.root[:, None] * v
        if not self.centred:
            return -0.5 * self.cost_apply(w)
        z = -0.5 * self.cost_apply(w - self.a[:, None] * w.sum(0))
        return z - self.a @ z

    def leading(self, matrix: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """The largest eigenvalues, and their vectors: those that an embedding keeps, or the largest in magnitude."""
        theta, v = torch.linalg.eigh(matrix)
        order = (theta if self.centred else theta.abs()).argsort(descending=True)[:dim]
        return theta[order], v[:, order]

    def matrix(self) -> Tensor:
        """A = diag(√a) K diag(√a), dense.  (N, N)"""
        return self.root[:, None] * self(torch.eye(len(self.a), dtype=self.a.dtype, device=self.a.device))

    def diagonal(self) -> Tensor:
        """K_ii = Σ_j a_j c_ij - ½ Σ_jk a_j a_k c_jk, since c_ii = 0.  (N,)"""
        if self.mean is None:
            self.cost_apply(self.a[:, None])
        assert self.mean is not None
        return self.mean - 0.5 * (self.a @ self.mean)


def kernel_diagonal(cost: Cost, measure: Measure) -> Tensor:
    """The squared norms |X_i|² of the exact embedding.  (N,)"""
    return _Kernel(cost, measure.points, measure.weights.double()).diagonal()


class Moments(NamedTuple):
    """Sums over all pairs of a measure, in linear memory."""

    norms: Tensor  # (N,) |X_i|² of the exact, centred embedding
    squares: Tensor  # (N,) Σ_k a_k c(x_i, x_k)²


def moments(cost: Cost, measure: Measure) -> Moments:
    """Two sweeps over all pairs; none for squared Euclidean costs, which are polynomials."""
    x, a = measure.points, measure.weights.double()
    if isinstance(cost, Power) and cost.p == 2:
        x = x.double() - a @ x.double()
        s = x.square().sum(-1)
        covariance = x.mT @ (a[:, None] * x)
        skew = x.mT @ (a * s)
        return Moments(s, s**2 + 2 * s * (a @ s) + a @ s**2 + 4 * (x @ covariance * x).sum(-1) - 4 * x @ skew)
    mean, squares = (cost_apply(c, x, x, a[:, None])[:, 0] for c in (cost, cost.squared))
    return Moments(mean - 0.5 * (a @ mean), squares)


def kernel_matrix(costs: Tensor, a: Tensor) -> Tensor:
    """Alg. Kernel: -½ H C Hᵀ, centred with the weights.  (N, N)"""
    mean = costs @ a
    return -0.5 * (costs - mean[:, None] - mean + a @ mean)


def _kernel_pca(cost: Cost, measure: Measure, dim: int, method: Method, seed: int) -> Embedding:
    kernel = _Kernel(cost, measure.points, measure.weights.double())
    generator = own_generator(seed)
    if isinstance(method, KernelPCA) or _is_small(len(measure), dim):
        exact = method if isinstance(method, KernelPCA) else KernelPCA()
        return _finish(kernel, *_eigenpairs(kernel, dim, exact, generator))
    start = _landmark_embedding(cost, measure, min(len(measure), dim + OVERSAMPLING), method, generator)
    if method.refine == 0:
        return _truncate(_recentre(start, measure), dim)
    guess = kernel.root[:, None] * start.project(measure.points)
    return _finish(kernel, *_krylov(kernel, guess, dim, ROUGH, KernelPCA.max_sweeps, method.refine))


def _is_small(n: int, dim: int) -> bool:
    """Whether to compute all eigenvectors."""
    return n <= SMALL or (3 * dim >= n and n <= DENSE)


Eigenpairs = tuple[Tensor, Tensor, Tensor, float]  # θ, V, K diag(√a) V, and the largest residual over |θ_1|


def _eigenpairs(kernel: _Kernel, dim: int, method: KernelPCA, generator: torch.Generator) -> Eigenpairs:
    n = len(kernel.a)
    if _is_small(n, dim):
        theta, v = kernel.leading(kernel.matrix(), dim)
        return theta, v, kernel(v), 0.0
    guess = torch.randn(n, min(n, dim + OVERSAMPLING), generator=generator, dtype=torch.float64).to(kernel.a.device)
    return _krylov(kernel, guess, dim, method.tol, method.max_sweeps, min(LEAST, method.max_sweeps))


def _krylov(kernel: _Kernel, guess: Tensor, dim: int, tol: float, max_sweeps: int, least: int) -> Eigenpairs:
    """Rayleigh-Ritz in the block Krylov space span{Q, AQ, A²Q, ...}; one sweep over all pairs per block, `least` of them."""
    root = kernel.root[:, None]
    block = _orthonormal(guess - root * (kernel.root @ guess) if kernel.centred else guess)
    basis, image, sweeps, last = block, kernel(block), 1, max_sweeps == 1  # Q and K diag(√a) Q
    top = (root * image).norm()
    while True:
        if sweeps >= least or last:
            theta, ritz = kernel.leading(_symmetric(basis.mT @ (root * image)), dim)
            v, moved = basis @ ritz, image @ ritz
            residual = float((root * moved - v * theta).norm(dim=0).max() / theta.abs().max().clamp(min=1e-300))
            if residual <= tol or last:
                return theta, v, moved, residual
        block = _beyond(basis, root * image[:, -block.shape[1] :], top)
        if block.shape[1] == 0 or basis.shape[1] + block.shape[1] > len(basis):
            last = True
            continue
        basis, image, sweeps = torch.cat([basis, block], 1), torch.cat([image, kernel(block)], 1), sweeps + 1
        last = sweeps == max_sweeps


def _beyond(basis: Tensor, block: Tensor, top: Tensor) -> Tensor:
    """An orthonormal basis of what a block adds to a space, but for columns that are rounding errors of A, of norm `top`.

    A smooth kernel has few eigenvalues above them, and noise, scaled up, would not be orthogonal to the basis.
    """
    for _ in range(2):  # twice is enough
        block = block - basis @ (basis.mT @ block)
    q, r = torch.linalg.qr(block)
    if float(r.diagonal().abs().min()) > DOUBT * top:
        return q
    u, size, _ = torch.linalg.svd(r)
    q = q @ u[:, size > NOISE * top]
    for _ in range(2):
        q = _orthonormal(q - basis @ (basis.mT @ q))
    return q


def _finish(kernel: _Kernel, theta: Tensor, v: Tensor, image: Tensor, residual: float) -> Embedding:
    """Features K diag(√a) V / √θ, with signs fixed by the third moments: they do not depend on the order of the points."""
    kept = theta > CUTOFF * len(v) * theta.abs().max()
    inverse = torch.where(kept, theta.clamp(min=1e-300).rsqrt(), 0.0)
    features = image * inverse
    skew = kernel.a @ features**3
    inverse = torch.where(skew < 0, -inverse, inverse)
    features = image * inverse
    b = kernel.root[:, None] * v * inverse
    b = b - kernel.a[:, None] * b.sum(0)
    mean = kernel.a @ features
    cost, points = kernel.cost, kernel.points
    shift = features[:1] - mean + 0.5 * cost_apply(cost, points[:1], points, b)

    def project(new: Tensor) -> Tensor:
        return -0.5 * cost_apply(cost, new, points, b) + shift

    variance = float(kernel.a @ kernel.diagonal())
    return Embedding(features - mean, torch.where(kept, theta, 0.0), variance, residual, project)


def _landmark_embedding(cost: Cost, measure: Measure, dim: int, method: Nystrom, generator: torch.Generator) -> Embedding:
    """Exact kernel PCA of the landmarks, each carrying the mass of the points nearest to it."""
    points, a = measure.points, measure.weights.double()
    count = min(method.landmarks, len(measure.support))
    if method.choice == "random":
        chosen = drawn_points(a, count, generator)
    else:
        alive = points[measure.support]
        gap = farthest_points(lambda i: cost(alive, alive[i][None])[:, 0], torch.zeros_like(measure.support[0]), count)
        chosen = measure.support[gap]
    landmarks = points[chosen]
    if cost.radial is not None:
        owner = nearest(points, landmarks)
    else:
        rows = max(1, (1 << 22) // count)
        owner = torch.cat([cost(piece, landmarks).argmin(1) for piece in points.split(rows)])
    mass = torch.zeros(count, dtype=a.dtype, device=a.device).index_add_(0, owner, a)
    full = mass > 0
    exact = KernelPCA(tol=1e-9 if method.refine == 0 else 1e-5)  # beyond this a sweep over all pairs sees no difference
    return _kernel_pca(cost, Measure(landmarks[full], mass[full]), min(dim, int(full.sum())), exact, seed=0)


def _recentre(coarse: Embedding, measure: Measure) -> Embedding:
    """The landmark embedding on all points: centred and turned to the principal axes of the whole measure.

    Its variance is that of the landmarks: the exact one would take a sweep over all pairs.
    """
    a = measure.weights.double()
    x = coarse.project(measure.points)
    mean = a @ x
    theta, turn = (z.flip(-1) for z in torch.linalg.eigh((x - mean).mT @ (a[:, None] * (x - mean))))
    project = coarse.project
    return Embedding((x - mean) @ turn, theta, coarse.variance, float("nan"), lambda new: (project(new) - mean) @ turn)


def _linear(measure: Measure, dim: int | float) -> Embedding:
    """Squared Euclidean costs: the centred points themselves, or their leading principal axes if `dim` asks for fewer."""
    x, a = measure.points.double(), measure.weights.double()
    mean = a @ x
    covariance = (x - mean).mT @ (a[:, None] * (x - mean))
    theta, turn = (z.flip(-1) for z in torch.linalg.eigh(covariance))
    variance = float(theta.sum())
    keep = dim if isinstance(dim, int) else 1 + int((theta.cumsum(0) < (dim - 1e-12) * variance).sum())
    if keep >= x.shape[1]:
        spectrum = covariance.diagonal()
        return Embedding(x - mean, spectrum, variance, 0.0, lambda new: new.double() - mean)
    turn = turn[:, :keep]
    return Embedding((x - mean) @ turn, theta[:keep], variance, 0.0, lambda new: (new.double() - mean) @ turn)


def _truncate(e: Embedding, dim: int) -> Embedding:
    project = e.project
    return Embedding(e.features[:, :dim], e.spectrum[:dim], e.variance, e.residual, lambda new: project(new)[:, :dim])


def _orthonormal(x: Tensor) -> Tensor:
    return torch.linalg.qr(x).Q


def _symmetric(x: Tensor) -> Tensor:
    return (x + x.mT) / 2

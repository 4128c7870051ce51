"""Embeddings X_i with |X_i - X_j|² = c(x_i, x_j): weighted kernel PCA (Alg. Kernel, Kernel-PCA,
Kernel-Proj).

The centered kernel is K = -½ H C Hᵀ with H = I - 1 aᵀ: no base point is needed. With the eigenpairs
(θ_d, V_d) of A = diag(√a) K diag(√a),

    X = K diag(√a) V / √θ        centered features, covariance diag(θ); also defined where a_i = 0
    X(x) = -½ c(x, ·) B + shift  Kernel-Proj, B = diag(√a) V / √θ: one map for old and new points

Without the centering, K = -½ C has eigenvalues of both signs: `signed_factors` keeps the largest in
magnitude, for any cost.

The eigenpairs are found by block Krylov iterations (eigen.py), from a random start, or from a
Nyström embedding of a few landmarks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from gromap._torch import eigh, split, untyped
from gromap.geometry.cost_sums import check_sums, cost_apply
from gromap.geometry.costs import Cost, Power
from gromap.geometry.eigen import OVERSAMPLING, Eigenpairs, Kernel, KernelPCA, eigenpairs, is_small, krylov
from gromap.geometry.measure import Measure, drawn_points, farthest_points, nearest, own_generator

ROUGH = 1e-2  # residual of eigenvectors that a sweep should have mended: landmarks gave no start for it
AUTO_AXES = 20  # of dim="auto", at least
AUTO_SHARE = 0.8  # of the variance, up to which more are added
MAX_AUTO_AXES = 128  # which a step of Sinkhorn can still afford between many points
SAMPLE = 512  # points of which all eigenvalues are computed to learn what those of all are like
WHOLE_POINTS = 512  # up to which all axes are kept that count
WHOLE_SHARE = 0.999
REPEATED = 1e-6  # relative gap of eigenvalues that count as one
CUTOFF = 1e-13  # eigenvalues below this share of the largest are rounding errors: their features are zero
NEGATIVE = 1e-6  # and those below minus this share are negative, also for costs in float32
# the largest share of negative eigenvalues from which the sum of the positive ones is estimated: it
# grows as 1 / (1 - 2 share), beyond any use as the share comes near one half
MOST_NEGATIVE = 0.49


@dataclass(frozen=True)
class Nystrom:
    """Kernel PCA of some landmarks, extended to all points, then refined by `refine` exact
    sweeps over all pairs, or more.

    `choice`: "random" draws landmarks by weight, "farthest" spreads them. With `refine=0` the cost
    is linear in N; else sweeps go on where landmarks were so bad a choice that residuals are above
    1 % of the top eigenvalue.
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
    """Centered features of a measure, their variances, and the map that embeds new points."""

    features: Tensor  # (N, D) float64
    spectrum: Tensor  # (D,) variance along each axis, decreasing
    variance: float  # of the full embedding: the sum of the positive eigenvalues of A, known or estimated
    residual: float  # largest |A V_d - θ_d V_d| / θ_1
    project: Callable[[Tensor], Tensor]
    missing: int = 0  # axes at the end that are zero since their eigenvalues are negative, where this is known

    @property
    def shares(self) -> Tensor:
        """The share of the variance that the first axis keeps, the first two, and so on, in [0,
        1].  (D,)"""
        kept = self.spectrum.clamp(min=0).cumsum(0)
        variance = max(self.variance, float(kept[-1]))  # an estimate may fall short of what is known
        return kept / variance if variance > 0 else torch.ones_like(kept)

    @property
    def explained(self) -> float:
        """The share of the variance that the D axes keep, in [0, 1]."""
        return float(self.shares[-1])


def embed(
    cost: Cost,
    measure: Measure,
    dim: int | float | str,
    method: Method,
    seed: int = 0,
    negative: Callable[[], float] | None = None,
) -> Embedding:
    """Embed a measure in `dim` axes, or in as many as explain the share `dim` of the variance (a
    float below 1); "auto": as `auto_axes`.

    negative: finds `negative_mass`, where it is needed and was perhaps found before.
    """
    negative = negative or (lambda: negative_mass(cost, measure))
    if isinstance(cost, Power) and cost.p == 2:
        return _linear(measure, dim)
    if isinstance(dim, str):
        axes = len(measure) if len(measure) <= WHOLE_POINTS else _axes_of_sample(cost, measure, seed)
        found = _kernel_pca(cost, measure, axes, method, seed, negative)
        while found.explained < AUTO_SHARE and axes < min(MAX_AUTO_AXES, len(measure)):
            axes = min(2 * axes, MAX_AUTO_AXES, len(measure))
            found = _kernel_pca(cost, measure, axes, method, seed, negative)
        return _truncate(found, auto_axes(found.shares, found.spectrum, len(measure)))
    if isinstance(dim, int):
        return _kernel_pca(cost, measure, dim, method, seed, negative)
    axes = 16
    while True:
        axes = min(axes, len(measure))
        found = _kernel_pca(cost, measure, axes, method, seed, negative)
        if not cost.cnt and _is_exhausted(found, dim):
            found = replace(found, variance=float(found.spectrum.sum()))
        shares = found.shares
        if axes == len(measure) or float(shares[-1]) >= dim:
            return _truncate(found, 1 + int((shares < dim - 1e-12).sum().clamp(max=axes - 1)))
        axes *= 2


def _axes_of_sample(cost: Cost, measure: Measure, seed: int) -> int:
    """How many axes some of the points need to explain AUTO_SHARE, which all will too, or more:
    AUTO_AXES times a power of two, up to MAX_AUTO_AXES."""
    theta = _sampled_spectrum(cost, measure, SAMPLE // 2, seed).flip(0).clamp(min=0)
    needed = 1 + int((theta.cumsum(0) < AUTO_SHARE * theta.sum()).sum())
    return min(AUTO_AXES << max(0, math.ceil(math.log2(needed / AUTO_AXES))), MAX_AUTO_AXES)


def auto_axes(shares: Tensor, spectrum: Tensor, points: int) -> int:
    """How many axes `dim="auto"` keeps, given what the first ones explain: all that count between
    few points; else at least AUTO_AXES, and more until they explain AUTO_SHARE, up to
    MAX_AUTO_AXES. Never a part of a repeated eigenvalue, whose axes are those of no one."""
    few = points <= WHOLE_POINTS
    share, most = (WHOLE_SHARE, len(shares)) if few else (AUTO_SHARE, min(MAX_AUTO_AXES, len(shares)))
    keep = min(max(AUTO_AXES, 1 + int((shares < share).sum())), most)
    while keep < len(spectrum) and float(spectrum[keep]) > (1 - REPEATED) * float(spectrum[keep - 1]) > 0:
        keep += 1
    return keep


def _is_exhausted(found: Embedding, dim: float) -> bool:
    """Whether later axes hold next to nothing, since the second half of these adds less than a
    tenth of what may be left out.

    A variance that is estimated too high would ask for more and more of them.
    """
    shares = found.shares
    return float(shares[-1] - shares[len(shares) // 2 - 1]) < 0.1 * (1 - dim)


def negative_mass(cost: Cost, measure: Measure, sample: int = SAMPLE, seed: int = 0) -> float:
    """The share of negative eigenvalues in Σ|θ|, zero for a CNT cost; on at most `sample`
    points."""
    theta = _sampled_spectrum(cost, measure, sample, seed)
    rounding = CUTOFF * len(theta) * theta.abs().max()
    return float(theta[theta < -rounding].abs().sum() / theta.abs().sum().clamp(min=1e-300))


def _sampled_spectrum(cost: Cost, measure: Measure, sample: int, seed: int) -> Tensor:
    """All eigenvalues of A for at most so many of the points, the lowest first.  (sample,)"""
    support = measure.support
    if len(support) > sample:
        generator = own_generator(seed)
        support = support[torch.randperm(len(support), generator=generator)[:sample].to(support.device)]
    a = measure.weights[support].double()
    theta: Tensor = untyped.linalg.eigvalsh(Kernel(cost, measure.points[support], a / a.sum()).matrix())
    return theta


class Factors(NamedTuple):
    """-½ c(x_i, x_j) ≈ Σ_d signs_d values_id values_jd."""

    values: Tensor  # (N, D) float64
    signs: Tensor  # (D,) 1 or -1
    error: float  # (Σ a_i a_j (c_ij - ĉ_ij)² / Σ a_i a_j c_ij²)^½


def signed_factors(cost: Cost, measure: Measure, dim: int, seed: int = 0) -> Factors:
    """The best symmetric approximation of rank `dim` to the cost, in the metric of the weights;
    no need for it to be CNT."""
    a = measure.weights.double()
    kernel = Kernel(cost, measure.points, a, centered=False)
    found = eigenpairs(kernel, dim, KernelPCA(tol=1e-6), own_generator(seed))
    theta, image = found.theta, found.image
    kept = theta.abs() > CUTOFF * len(a) * theta.abs().max()
    values = image * torch.where(kept, theta.abs().clamp(min=1e-300).rsqrt(), 0.0)
    total = 0.25 * float(
        a @ cost_apply(lambda x, y: cost(x, y).square(), measure.points, measure.points, a[:, None])[:, 0]
    )
    missed = 1 - float(theta.square().sum()) / total if total > 0 else 0.0
    return Factors(values, torch.where(theta < 0, -1.0, 1.0).to(values), max(0.0, missed) ** 0.5)


def kernel_diagonal(cost: Cost, measure: Measure, weights: Tensor | None = None) -> Tensor:
    """The squared norms |X_i|² of the exact embedding, centered with its weights or with others.
    (N,)"""
    return Kernel(cost, measure.points, measure.weights.double() if weights is None else weights).diagonal()


class Moments(NamedTuple):
    """Sums over all pairs of a measure, in linear memory."""

    norms: Tensor  # (N,) |X_i|² of the exact, centered embedding
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
    check_sums(mean, cost, x, x)
    return Moments(mean - 0.5 * (a @ mean), squares)


def kernel_matrix(costs: Tensor, a: Tensor) -> Tensor:
    """Alg. Kernel: -½ H C Hᵀ, centered with the weights.  (N, N)"""
    mean = costs @ a
    return -0.5 * (costs - mean[:, None] - mean + a @ mean)


def _kernel_pca(
    cost: Cost, measure: Measure, dim: int, method: Method, seed: int, negative: Callable[[], float]
) -> Embedding:
    kernel = Kernel(cost, measure.points, measure.weights.double())
    generator = own_generator(seed)
    if isinstance(method, KernelPCA) or is_small(len(measure), dim):
        exact = method if isinstance(method, KernelPCA) else KernelPCA()
        return _from_eigenpairs(kernel, eigenpairs(kernel, dim, exact, generator), negative)
    start = _landmark_embedding(cost, measure, min(len(measure), dim + OVERSAMPLING), method, generator, negative)
    if method.refine == 0:
        return _truncate(_recenter(start, measure), dim)
    guess = kernel.root[:, None] * start.project(measure.points)
    found = krylov(kernel, guess, dim, ROUGH, KernelPCA.max_sweeps, method.refine)
    return _from_eigenpairs(kernel, found, negative)


def _from_eigenpairs(kernel: Kernel, found: Eigenpairs, negative: Callable[[], float]) -> Embedding:
    """Features K diag(√a) V / √θ, with signs fixed by the third moments: they do not depend on
    the order of the points."""
    theta, v, image = found.theta, found.vectors, found.image
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

    def project(new: Tensor) -> Tensor:  # Alg. kernel_proj
        return -0.5 * cost_apply(cost, new, points, b) + shift

    variance = _positive_sum(kernel, found, negative)
    missing = int((theta < -NEGATIVE * theta.abs().max()).sum())
    return Embedding(features - mean, torch.where(kept, theta, 0.0), variance, found.residual, project, missing)


def _positive_sum(kernel: Kernel, found: Eigenpairs, negative: Callable[[], float]) -> float:
    """The sum P of the positive eigenvalues of A, which is its trace if the cost is CNT.

    Otherwise the trace is P - N, and the share of negative eigenvalues is N / (P + N).
    """
    if found.positive is not None:
        return found.positive
    if float(found.theta[-1]) <= 0:  # they decrease: no positive one is left
        return float(found.theta.clamp(min=0).sum())
    trace = float(kernel.a @ kernel.diagonal())
    if kernel.cost.cnt:
        return trace
    share = min(negative(), MOST_NEGATIVE)
    return trace * (1 - share) / (1 - 2 * share)


def _landmark_embedding(
    cost: Cost, measure: Measure, dim: int, method: Nystrom, generator: torch.Generator, negative: Callable[[], float]
) -> Embedding:
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
    owner = nearest(points, landmarks) if cost.radial is not None else _cheapest(cost, points, landmarks)
    mass = torch.zeros(count, dtype=a.dtype, device=a.device).index_add_(0, owner, a)
    full = mass > 0
    exact = KernelPCA(tol=1e-9 if method.refine == 0 else 1e-5)  # beyond this a sweep over all pairs sees no difference
    coarse = Measure(landmarks[full], mass[full])
    return _kernel_pca(cost, coarse, min(dim, len(coarse)), exact, 0, negative)


def _cheapest(cost: Cost, points: Tensor, landmarks: Tensor) -> Tensor:
    """The index of the landmark of the smallest cost for each point.  (N,)"""
    pieces = split(points, max(1, (1 << 22) // len(landmarks)))
    found = [(costs.argmin(1), costs.sum(1)) for costs in (cost(piece, landmarks) for piece in pieces)]
    check_sums(torch.cat([sums for _, sums in found]), cost, points, landmarks)
    return torch.cat([owner for owner, _ in found])


def _recenter(coarse: Embedding, measure: Measure) -> Embedding:
    """The landmark embedding on all points: centered and turned to the principal axes of the
    whole measure.

    Its variance is that of the landmarks: the exact one would take a sweep over all pairs.
    """
    a = measure.weights.double()
    x = coarse.project(measure.points)
    mean = a @ x
    theta, turn = (z.flip(-1) for z in eigh((x - mean).mT @ (a[:, None] * (x - mean))))
    project = coarse.project
    return Embedding((x - mean) @ turn, theta, coarse.variance, float("nan"), lambda new: (project(new) - mean) @ turn)


def _linear(measure: Measure, dim: int | float | str) -> Embedding:
    """Squared Euclidean costs: the centered points themselves, or their leading principal axes
    if `dim` asks for fewer."""
    x, a = measure.points.double(), measure.weights.double()
    mean = a @ x
    covariance = (x - mean).mT @ (a[:, None] * (x - mean))
    theta, turn = (z.flip(-1) for z in eigh(covariance))
    variance = float(theta.clamp(min=0).sum())
    if isinstance(dim, str):
        keep = auto_axes(theta.cumsum(0) / max(variance, 1e-300), theta, len(a))
    else:
        keep = dim if isinstance(dim, int) else 1 + int((theta.cumsum(0) < (dim - 1e-12) * variance).sum())
    if keep >= x.shape[1]:
        spectrum = covariance.diagonal()
        return Embedding(x - mean, spectrum, variance, 0.0, lambda new: new.double() - mean)
    turn = turn[:, :keep]
    return Embedding((x - mean) @ turn, theta[:keep], variance, 0.0, lambda new: (new.double() - mean) @ turn)


def _truncate(e: Embedding, dim: int) -> Embedding:
    project = e.project
    return Embedding(e.features[:, :dim], e.spectrum[:dim], e.variance, e.residual, lambda new: project(new)[:, :dim])

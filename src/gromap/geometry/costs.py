"""Base costs c(x, x'): one frozen dataclass each, one line of maths.

A cost maps (n, d) and (m, d) points to an (n, m) block, is symmetric, and is exactly zero on the
diagonal. Costs that are *conditionally of negative type* (CNT) are squared distances in a feature
space (Thm. Schoenberg): all of these are, except `Power(p)` for p > 2 and whatever the user brings
in `Precomputed` and `Custom`; `Space.negative_mass` measures those. A new cost is one class with
`__call__`; it inherits the rest. One of the distance alone is a `Radial` with φ and φ'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gromap import _check
from gromap._torch import norm

__all__ = ["Cost", "Custom", "Exponential", "Gaussian", "Hyperbolic", "Power", "Radial", "Spherical"]

EDGE = 1 - 1e-5  # norm up to which a flow goes in the Poincaré ball, whose border is at infinity
FLAT_AXES = 16  # coordinates up to which distances on a GPU are faster one coordinate at a time


def distances(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j| from differences, not from a product: exactly zero when x_i = y_j.  (n, m)"""
    # cdist takes a thread block per pair
    if x.is_cuda and x.shape[1] <= FLAT_AXES and not (x.requires_grad or y.requires_grad):
        squares = x.new_zeros(len(x), len(y))
        for s, t in zip(x.mT, y.mT, strict=True):
            gaps = s[:, None] - t
            squares.addcmul_(gaps, gaps)
        return squares.sqrt_()
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


@dataclass(frozen=True)
class Cost:
    """Base class of the costs. Points are rows of coordinates unless a cost says otherwise."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} defines no cost: write its __call__(x, y).")

    def check(self, points: Tensor) -> None:
        """Raise ValueError if some points lie outside the domain of the cost."""

    def retract(self, points: Tensor) -> Tensor:
        """Points of the domain next to these, to which a step of a flow has led."""
        return points

    def to(self, device: torch.device) -> Cost:
        return self

    @property
    def degree(self) -> float | None:
        """The p of c(t x, t x') = t^p c(x, x'), for powers of the Euclidean norm."""
        return None

    @property
    def cnt(self) -> bool:
        """Whether the cost is known to be conditionally of negative type."""
        return True

    @property
    def squared(self) -> Cost:
        """c², as a cost."""
        return Custom(lambda x, y: self(x, y).square())

    @property
    def radial(self) -> tuple[str, float] | None:
        """The name and the parameter of the formula, for the costs of |x - x'| that a fused
        kernel serves."""
        return None


@dataclass(frozen=True)
class Radial(Cost):
    """c(x, x') = φ(|x - x'|): a cost of the distance alone, whose derivative is known."""

    def profile(self, d: Tensor) -> Tensor:
        """φ(d)"""
        raise TypeError(f"{type(self).__name__} defines no cost: write its profile(d).")

    def slope(self, d: Tensor, c: Tensor) -> Tensor:
        """φ'(d) for d > 0, given c = φ(d) as well."""
        raise TypeError(f"{type(self).__name__} defines no derivative: write its slope(d, c).")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.profile(distances(x, y))


@dataclass(frozen=True)
class Power(Radial):
    """|x - x'|^p. CNT for 0 < p <= 2; p = 1 is "euclidean", p = 2 is "sqeuclidean".

    >>> Power(2.0)(torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0]])).flatten()
    tensor([9., 4.])
    """

    p: float = 1.0

    def __post_init__(self) -> None:
        if not self.p > 0:
            raise ValueError(f"Power(p) expects p > 0, got p = {self.p}.")

    @property
    def degree(self) -> float | None:
        return float(self.p)

    @property
    def cnt(self) -> bool:
        return self.p <= 2

    @property
    def squared(self) -> Cost:
        return Power(2 * self.p)

    @property
    def radial(self) -> tuple[str, float] | None:
        return "power", float(self.p)

    def profile(self, d: Tensor) -> Tensor:
        if self.p == 1:
            return d
        if self.p == 2:
            return d.square()
        apart = d > 0  # the derivative of d^p at d = 0 is taken as zero
        return torch.where(apart, torch.where(apart, d, 1.0) ** self.p, 0.0)

    def slope(self, d: Tensor, c: Tensor) -> Tensor:
        return self.p * c / d


@dataclass(frozen=True)
class Gaussian(Radial):
    """2 - 2 exp(-|x - x'|² / 2σ²), the squared distance in the Gaussian RKHS; σ in the units of
    the data."""

    sigma: float

    def __post_init__(self) -> None:
        _positive(self, "sigma")

    @property
    def radial(self) -> tuple[str, float] | None:
        return "gaussian", float(self.sigma)

    def profile(self, d: Tensor) -> Tensor:
        return -2 * torch.expm1(-d.square() / (2 * self.sigma**2))

    def slope(self, d: Tensor, c: Tensor) -> Tensor:
        return (2 - c) * d / self.sigma**2


@dataclass(frozen=True)
class Exponential(Radial):
    """2 - 2 exp(-|x - x'| / σ), the squared distance in the RKHS of the exponential (Laplacian)
    kernel."""

    sigma: float

    def __post_init__(self) -> None:
        _positive(self, "sigma")

    @property
    def radial(self) -> tuple[str, float] | None:
        return "exponential", float(self.sigma)

    def profile(self, d: Tensor) -> Tensor:
        return -2 * torch.expm1(-d / self.sigma)

    def slope(self, d: Tensor, c: Tensor) -> Tensor:
        return (2 - c) / self.sigma


@dataclass(frozen=True)
class Spherical(Cost):
    """The angle between unit vectors, 2 atan2(|x - x'|, |x + x'|)."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * torch.atan2(distances(x, y), distances(x, -y))

    def check(self, points: Tensor) -> None:
        norms = norm(points, dim=-1)
        off = (norms - 1).abs().argmax()
        if abs(float(norms[off]) - 1) > 1e-3:
            raise ValueError(
                f"the spherical cost expects unit vectors, but row {int(off)} has norm {float(norms[off]):.4g}: "
                "divide each point by its norm first."
            )

    def retract(self, points: Tensor) -> Tensor:
        return points / norm(points, dim=-1)[:, None]


@dataclass(frozen=True)
class Hyperbolic(Cost):
    """The geodesic distance of the Poincaré ball, 2 asinh(|x - x'| / sqrt((1 - |x|²)(1 -
    |x'|²)))."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        room = (1 - x.square().sum(-1))[:, None] * (1 - y.square().sum(-1))
        return 2 * torch.asinh(distances(x, y) / room.sqrt())

    def check(self, points: Tensor) -> None:
        norms = norm(points, dim=-1)
        far = norms.argmax()
        if not float(norms[far]) < 1:
            raise ValueError(
                f"the hyperbolic cost expects points of the open unit ball, but row {int(far)} has norm "
                f"{float(norms[far]):.4g}: rescale the points into the Poincaré ball first."
            )

    def retract(self, points: Tensor) -> Tensor:
        return points * (EDGE / norm(points, dim=-1)[:, None].clamp(min=EDGE))


@dataclass(frozen=True)
class Custom(Cost):
    """Any function of two batches of points, torch tensors (n, d) and (m, d) to (n, m)."""

    function: Callable[[Tensor, Tensor], Tensor]

    @property
    def cnt(self) -> bool:
        return False

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        costs: Any = self.function(x, y)
        if isinstance(costs, Tensor) and not costs.is_floating_point():  # counts, for example
            return costs.to(x.dtype)  # sums of integers would take integer weights, all of them zero
        return costs


NAMES: dict[str, Cost] = {
    "euclidean": Power(1.0),
    "sqeuclidean": Power(2.0),
    "spherical": Spherical(),
    "hyperbolic": Hyperbolic(),
}


def as_cost(cost: str | Cost | Callable[[Tensor, Tensor], Tensor]) -> Cost:
    """A cost from its name, from itself or from a function.

    >>> as_cost("sqeuclidean")
    Power(p=2.0)
    """
    if isinstance(cost, Cost):
        return cost
    if isinstance(cost, str):
        if cost in NAMES:
            return NAMES[cost]
        if cost == "precomputed":
            raise ValueError(
                "cost='precomputed' is known to solve and Space alone, which take X and Y as matrices of costs: here "
                "pass Space.from_costs(C) for a side that is known by its costs."
            )
        raise ValueError(
            f"unknown cost {cost!r}:{_check.suggestion(cost, NAMES)} known names: {', '.join(NAMES)}; "
            "costs with parameters are objects: Power(p), Gaussian(sigma), Exponential(sigma), "
            "Tree.from_parents(parent)."
        )
    if callable(cost):
        return Custom(cost)
    raise TypeError(
        f"cost must be a name, a gromap cost or a function of two point tensors, got {type(cost).__name__}."
    )


def _positive(cost: Cost, name: str) -> None:
    value = getattr(cost, name)
    if not value > 0:
        raise ValueError(f"{type(cost).__name__}({name}) expects {name} > 0, got {value}.")

"""Pair: two spaces in one frame, with one temperature, on one device, in one precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check, _options
from gromap._features import FeatureCost, feature_cost_of
from gromap._space import Space
from gromap.geometry.indexed_costs import Indexed

EPSILON = 1e-3  # unless given
LARGE = 3000  # points from which numpy arrays go to a GPU, and "auto" builds a pyramid
# the least temperature, in rounding errors of the largest energy: scores are up to 20 energies, so
# that theirs are up to one nat there, beyond which the rows of a plan are anywhere
COLDEST = 10.0
# the highest temperature, in energies: its rounding errors are a hundredth of one there
HOTTEST = 0.01
RAISED = {torch.float32: ", pass float64 data", torch.float64: ""}  # what else helps


ALPHA = 0.5  # what distances count beside features
FIRM = 1e5  # units of energy, of which a marginal that costs more is as good as fixed
KEPT = (math.inf, math.inf)


@dataclass(frozen=True, eq=False)
class Pair:
    """What is matched: c_X / units[0] and c_Y / units[1] at the temperature eps, in units of
    these costs, squared."""

    x: Space
    y: Space
    eps: float
    units: tuple[float, float] = (1.0, 1.0)
    seed: int = 0
    fused: FeatureCost | None = None
    rho: tuple[float, float] = KEPT  # what KL of the marginals costs; infinite where they are fixed
    most: tuple[float, float] | None = None  # times the weights, of a plan of mass one that matches parts

    def __post_init__(self) -> None:
        left, right = (math.inf if one > FIRM * self.energy_unit else one for one in self.rho)
        object.__setattr__(self, "rho", (left, right))
        rounding = torch.finfo(self.dtype).eps
        largest = (self.x.extent / self.units[0]) * (self.y.extent / self.units[1])
        least, most = COLDEST * rounding * largest, HOTTEST / rounding * self.energy_unit
        if not self.eps >= least:
            raise ValueError(
                f"epsilon = {self.eps:.3g} is too small for {self.dtype}: between these costs its rounding errors are "
                f"larger. Choose epsilon >= {1.1 * least:.2g}{RAISED[self.dtype]}, or a larger scale."
            )
        if not self.eps <= most:
            raise ValueError(
                f"epsilon = {self.eps:.3g} is too large for {self.dtype}: its rounding errors hide these costs, and "
                f"every plan is the product of the weights. Choose epsilon <= {0.9 * most:.2g}{RAISED[self.dtype]}, or "
                "a smaller scale."
            )

    @classmethod
    def of(
        cls,
        X: Any,
        Y: Any,
        a: Any = None,
        b: Any = None,
        *,
        cost: Any = "euclidean",
        epsilon: float = EPSILON,
        scale: str | float | None = "auto",
        dim: Any = "auto",
        device: torch.device | str | None = None,
        seed: int = 0,
        features: Any = None,
        alpha: float = ALPHA,
        feature_cost: Any = None,
        reach: Any = None,
        mass: float | None = None,
    ) -> Pair:
        """From what the user gives."""
        rho = _options.reach(reach)
        if mass is not None and reach is not None:
            raise ValueError("reach and mass both say how much is matched: pass one of them.")
        eps, seed, device = _check.positive(epsilon, "epsilon"), _options.seed(seed), _options.device(device)
        x, y = spaces_of(X, Y, a, b, cost, dim, device, seed)
        most = _options.part(mass, (x.total, y.total) if x.total and y.total else (1.0, 1.0))
        partly = rho != KEPT or most is not None
        if partly and scale == "each":
            _check.warn(
                "scale='each' blows a part up to the size of the whole: with reach= or mass= pass scale='joint'."
            )
        units = units_of(x, y, "joint" if partly and scale == "auto" else scale)
        if isinstance(scale, str):
            x.warn_if_far("X", eps)
            y.warn_if_far("Y", eps)
        weights = x.measure.weights, y.measure.weights
        if features is None:
            if alpha != ALPHA or feature_cost is not None:
                raise ValueError("alpha and feature_cost are those of features: pass features=(F, G) too.")
            fused = None
        else:
            fused = feature_cost_of(features, alpha, feature_cost, weights, scale is not None, seed)
        return cls(x, y, eps, units, seed, fused, rho, most)

    @property
    def relaxed(self) -> bool:
        """Whether a marginal is not fixed."""
        return self.rho != KEPT or self.most is not None

    def mass(self, value: float) -> float:
        """How much is matched: the share that was asked for; or the mass of the plan of unbalanced
        GW (Séjourné, Vialard, Peyré 2021) at half of ρ and ε, whose best multiple of the plan of
        mass one this is."""
        if self.most is not None:
            return 1 / min(self.most)
        return math.exp(-value / (sum(self.rho) + self.eps))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.x), len(self.y)

    @property
    def device(self) -> torch.device:
        return self.x.device

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return self.dtype.itemsize

    @property
    def numpy(self) -> bool:
        return self.x.numpy or self.y.numpy

    @property
    def energy_unit(self) -> float:
        """One unit of energy, in which tolerances are given: both costs at their own scale,
        whatever `units` are."""
        distances = (self.x.scale / self.units[0]) * (self.y.scale / self.units[1])
        alpha = 1.0 if self.fused is None else self.fused.alpha
        return alpha * distances + (1 - alpha)

    @property
    def weights(self) -> tuple[Tensor, Tensor]:
        return self.x.measure.weights, self.y.measure.weights

    @cached_property
    def features(self) -> tuple[Tensor, Tensor]:
        """Embeddings of both scaled costs.  (N, D) and (M, E)"""
        sides = zip((self.x, self.y), self.units, strict=True)
        left, right = ((s.embedding.features / unit**0.5).to(s.dtype) for s, unit in sides)
        return left, right

    @property
    def is_embedded(self) -> bool:
        """Whether the features are known already."""
        return self.x.is_embedded and self.y.is_embedded

    def warn_if_not_cnt(self) -> None:
        """Tell of each cost of which an embedding drops more than a hundredth, and refuse axes
        that it does not have."""
        self.x.warn_if_not_cnt("X")
        self.y.warn_if_not_cnt("Y")


def spaces_of(X: Any, Y: Any, a: Any, b: Any, cost: Any, dim: Any, device: Any, seed: int) -> tuple[Space, Space]:
    """Both sides as spaces on one device, in one precision."""
    costs, dims = _check.pair(cost), _check.pair(dim)
    raw = [not isinstance(Z, Space) for Z in (X, Y)]
    if all(raw) and all(isinstance(Z, Tensor) for Z in (X, Y)) and device is None and X.device != Y.device:
        raise ValueError(f"X is on {X.device} and Y on {Y.device}: move one, or pass device=.")
    left, right = _same_dtype(X, Y, costs) if all(raw) else (X, Y)
    if (
        device is None
        and all(isinstance(z, np.ndarray) and z.ndim == 2 for z in (left, right))
        and left.dtype == right.dtype == np.float32
    ):
        device = default_device(min(len(left), len(right)))
    sides: list[Space] = []
    given = (left, a, costs[0], dims[0], raw[0], "X"), (right, b, costs[1], dims[1], raw[1], "Y")
    for z, w, c, d, is_raw, name in given:
        if is_raw:
            sides.append(Space(z, w, cost=c, dim=d, seed=seed, device=device, name=name))
        elif w is not None or not _check.is_auto(d):
            raise ValueError(f"{name} is a Space, which has its own weights and dim: set them when you build it.")
        else:
            sides.append(z)
    x, y = sides
    if x.device != y.device or x.dtype != y.dtype:
        raise ValueError(
            f"X is {x.dtype} on {x.device} and Y is {y.dtype} on {y.device}: build both in one precision, on one "
            "device."
        )
    return x, y


def _same_dtype(X: Any, Y: Any, costs: tuple[Any, Any]) -> tuple[Any, Any]:
    """Two arrays of numbers in the wider precision of both, integers as float64; anything else
    is left to the checks."""
    x, y = (_check.as_tensor(Z, name) for Z, name in ((X, "X"), (Y, "Y")))
    left, right = _precision(x, costs[0]), _precision(y, costs[1])
    if left is None or right is None or left == right:
        return X, Y
    wide = torch.promote_types(left, right)
    return _in_precision(X, x, wide), _in_precision(Y, y, wide)


def _precision(z: Tensor, cost: Any) -> torch.dtype | None:
    """Of coordinates or costs; None for what is neither, such as the indices of a tree."""
    if z.is_floating_point():
        return z.dtype
    return None if z.is_complex() or isinstance(cost, Indexed) else torch.float64


def _in_precision(given: Any, z: Tensor, dtype: torch.dtype) -> Any:
    """Numbers as they were given, but for their precision: what is sparse stays sparse."""
    if isinstance(given, Tensor):
        return given.to(dtype)
    if hasattr(given, "toarray"):
        return given.astype(str(dtype).removeprefix("torch."))
    return z.to(dtype).numpy()


def default_device(points: int) -> str:
    """Where float32 numpy data of this size is matched: on a GPU, if there is one and it pays."""
    return "cuda" if points >= LARGE and torch.cuda.is_available() else "cpu"


def units_of(x: Space, y: Space, scale: str | float | None) -> tuple[float, float]:
    """What each cost is divided by."""
    if scale is None:
        return 1.0, 1.0
    if not isinstance(scale, str):
        unit = _check.positive(scale, "scale")
        return unit, unit
    name = _check.choice(scale, ["auto", "each", "joint", "radius"], "scale (or None, or a number)")
    if name == "radius":
        return x.extent or 1.0, y.extent or 1.0
    unit = max(x.scale, y.scale)
    return (unit, unit) if name == "joint" else (x.scale, y.scale)

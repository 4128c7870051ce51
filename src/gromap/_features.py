"""Features beside distances, as in fused GW: a cost c_F(f_i, g_j) between both sides, in factors.

α Σ (c_X - c_Y)² π π + (1 - α) Σ c_F(f_i, g_j) π_ij,      c_F(f_i, g_j) = r_i + c_j + <A_i, B_j>

"sqeuclidean", any CNT cost   squared distances in one embedding of both feature clouds
"labels"                      0 where they agree, 1 where they do not
"factors"                     <A_i, B_j> as given
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from gromap import _check, _options
from gromap._plan import Plan
from gromap._space import Space
from gromap._torch import from_numpy
from gromap.geometry.costs import as_cost
from gromap.transport import LowRank


@dataclass(frozen=True, eq=False)
class FeatureCost:
    """c_F / unit between two sides of N and M points, which counts 1 - alpha."""

    alpha: float  # what the distances count
    rows: Tensor  # (N,) what belongs to one side, r_i
    cols: Tensor  # (M,)
    left: Tensor  # (N, K)
    right: Tensor  # (M, K)

    def score(self, eps: float, other: FeatureCost | None = None) -> LowRank:
        """-(1 - α) <A_i, B_j> / ε, for the columns of this cost or of another one: the rest belongs
        to one side."""
        root = ((1 - self.alpha) / eps) ** 0.5
        return LowRank(-root * self.left, root * (other or self).right)

    def cost(self) -> Tensor:
        """The whole matrix.  (N, M)"""
        return self.rows[:, None] + self.cols + self.left @ self.right.mT

    def inner(self, plan: Plan) -> float:
        """Σ <A_i, B_j> π_ij"""
        return float((self.left * plan.score.apply(plan.u, plan.v, self.right)).double().sum())

    def mean(self, plan: Plan) -> float:
        """Σ c_F π"""
        sides = zip(plan.sums, (self.rows, self.cols), strict=True)
        return self.inner(plan) + sum(float(p.double() @ r.double()) for p, r in sides)

    def times(self, unit: float) -> FeatureCost:
        """The same cost in another unit."""
        return replace(self, rows=unit * self.rows, cols=unit * self.cols, left=unit * self.left)

    def sides(self) -> tuple[Tensor, Tensor]:
        """What cells average, exactly, since the cost is linear in it.  (N, K + 1), (M, K + 1)"""
        return torch.cat([self.left, self.rows[:, None]], 1), torch.cat([self.right, self.cols[:, None]], 1)

    def of(self, left: Tensor, right: Tensor) -> FeatureCost:
        """The cost between cells, from means of `sides`."""
        return replace(self, rows=left[:, -1], cols=right[:, -1], left=left[:, :-1], right=right[:, :-1])


def feature_cost_of(
    features: Any, alpha: Any, kind: Any, weights: tuple[Tensor, Tensor], own_unit: bool, seed: int
) -> FeatureCost:
    """From a pair of features as the user gives them, in their own unit: the squared radius that
    holds nine tenths of both clouds together. own_unit: False takes them as they are."""
    number = _options.balance(alpha)
    given = both_sides(features)
    for z, w, name in zip(given, weights, "XY", strict=True):
        if np.ndim(z) not in (1, 2) or len(z) != len(w):
            raise ValueError(
                f"the features of {name} must be one row per point, {len(w)} of them, got shape {np.shape(z)}."
            )
    like = weights[0]
    if (kind is None and all(_is_labels(z) for z in given)) or (isinstance(kind, str) and kind == "labels"):
        return _labels(given, number, like)
    tensors = [_check.tensor(z, f"features[{k}]", like.device) for k, z in enumerate(given)]
    f, g = (z.reshape(len(z), -1).to(like) for z in tensors)
    if f.shape[1] != g.shape[1]:
        raise ValueError(
            f"features of X have {f.shape[1]} columns, and those of Y {g.shape[1]}: they are compared with each other."
        )
    if isinstance(kind, str) and kind == "factors":
        return FeatureCost(number, f.new_zeros(len(f)), g.new_zeros(len(g)), f, g)
    both = torch.cat([f, g])
    if not bool((both != both[0]).any()):
        raise ValueError("all features are equal, and say nothing: leave them out, or pass others.")
    cost = as_cost("sqeuclidean" if kind is None else kind)
    mass = torch.cat([0.5 * w for w in weights])
    space = Space(both, mass, cost=cost, seed=seed, name="the features")
    space.warn_if_not_cnt("the features")
    embedded = space.embedding.features / (space.scale if own_unit else 1.0) ** 0.5
    left, right = (z.to(like) for z in (embedded[: len(f)], embedded[len(f) :]))
    return FeatureCost(number, left.square().sum(1), right.square().sum(1), -2 * left, right)


def both_sides(features: Any) -> tuple[Any, Any]:
    """The features of X and those of Y."""
    if not isinstance(features, tuple | list) or len(cast("Any", features)) != 2:
        raise ValueError("features are a pair (F, G): those of the points of X, and those of the points of Y.")
    left, right = cast("tuple[Any, Any]", features)
    if left is None or right is None:
        raise ValueError("features are missing on one side: both X and Y need them.")
    return left, right


def _is_labels(z: Any) -> bool:
    """Whether features are one name or integer per point."""
    if isinstance(z, Tensor):
        return z.ndim == 1 and not z.is_floating_point()
    array = np.asarray(z)
    return array.ndim == 1 and array.dtype.kind not in "fc"


def _labels(given: tuple[Any, Any], alpha: float, like: Tensor) -> FeatureCost:
    f, g = (np.asarray(z.cpu() if isinstance(z, Tensor) else z) for z in given)
    if "O" in (f.dtype.kind, g.dtype.kind):
        f, g = f.astype(str), g.astype(str)
    if f.ndim != 1 or g.ndim != 1:
        raise ValueError(f"labels are one per point, got shapes {f.shape} and {g.shape}.")
    names, index = np.unique(np.concatenate([f, g]), return_inverse=True)
    hot = torch.eye(len(names), dtype=like.dtype)[from_numpy(index.reshape(-1))].to(like.device)
    return FeatureCost(alpha, like.new_ones(len(f)), like.new_zeros(len(g)), -hot[: len(f)], hot[len(f) :])

"""What a base cost is, looked at on the points of a space: finite, symmetric, >= 0, and zero on the
diagonal."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from gromap.geometry.cost_sums import BadCostError, check_sums
from gromap.geometry.costs import Cost, Radial
from gromap.geometry.indexed_costs import Indexed
from gromap.geometry.measure import own_generator
from gromap.transport.tiles import tiling

FEW, MANY = 64, 2048  # points of which all pairs are looked at: of any cost, of one that may be anything


def check_cost(cost: Cost, points: Tensor, name: str) -> None:
    """Refuse what is no cost. Sums over all pairs tell later whether one of them is no number, as
    `bad_cost` then says."""
    few = points[:FEW]
    block: Any = cost(few, few)  # a function may return anything
    if not isinstance(block, Tensor) or block.shape != (len(few), len(few)):
        got = tuple(block.shape) if isinstance(block, Tensor) else type(block).__name__
        raise ValueError(
            f"the cost of {name} must map (n, d) and (m, d) tensors to an (n, m) tensor, got {got} for n = m = "
            f"{len(few)}."
        )
    try:
        check_sums(block.sum(1), cost, few, few)
    except BadCostError as error:
        raise ValueError(bad_cost(error, points, name)) from None
    _check_pairs(cost, few, name)
    if len(points) > FEW and not isinstance(cost, Radial | Indexed):
        drawn = torch.randperm(len(points), generator=own_generator(0))[:MANY]
        _check_pairs(cost, points[drawn.to(points.device)], name)


def _check_pairs(cost: Cost, points: Tensor, name: str) -> None:
    top = diagonal = skew = least = 0.0
    for i, j in itertools.combinations_with_replacement(tiling(1, len(points), len(points), points)[1], 2):
        block = cost(points[i], points[j])
        back = block if i == j else cost(points[j], points[i])
        skew = max(skew, float((block - back.mT).abs().max()))
        top, least = max(top, float(block.abs().max())), min(least, float(block.min()))
        if i == j:
            diagonal = max(diagonal, float(block.diagonal().abs().max()))
    if diagonal > 1e-6 * top:
        raise ValueError(f"the cost of {name} is not zero on the diagonal: c(x, x) = {diagonal:.3g}.")
    if skew > 1e-5 * top:
        raise ValueError(f"the cost of {name} is not symmetric: c(x, y) and c(y, x) differ by up to {skew:.3g}.")
    if least < -1e-6 * top:
        raise ValueError(f"the cost of {name} is negative (down to {least:.3g}): a base cost is >= 0.")


def bad_cost(error: BadCostError, points: Tensor, name: str) -> str:
    """The same error in terms of the points of a space."""
    first, other = (int((points == z).all(1).nonzero()[0, 0]) for z in (error.point, error.other))
    return (
        f"the cost of {name} is NaN or infinite for {error.pairs} pair(s) of point {first}, such as that with point "
        f"{other}: define it for all pairs, or remove the point."
    )

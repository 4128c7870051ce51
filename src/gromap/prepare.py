"""Two sides as spaces on one device, in one precision, and the units of their costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap.space import Space

LARGE = 3000  # points from which numpy arrays go to a GPU, and "auto" builds a pyramid


def spaces_of(X: Any, Y: Any, a: Any, b: Any, cost: Any, dim: Any, device: Any, seed: int) -> tuple[Space, Space]:
    """Both sides as spaces on one device, in one precision."""
    costs, dims = _check.pair(cost), _check.pair(dim)
    raw = [not isinstance(Z, Space) for Z in (X, Y)]
    if all(raw) and all(isinstance(Z, Tensor) for Z in (X, Y)) and device is None and X.device != Y.device:
        raise ValueError(f"X is on {X.device} and Y on {Y.device}: move one, or pass device=.")
    if all(raw):
        X, Y = _same_dtype(X, Y)
    if device is None and all(_goes_to_gpu(Z) for Z in (X, Y)):
        device = "cuda"
    sides = []
    for Z, w, c, d, is_raw, name in ((X, a, costs[0], dims[0], raw[0], "X"), (Y, b, costs[1], dims[1], raw[1], "Y")):
        if is_raw:
            sides.append(Space(Z, w, c, d, seed=seed, device=device, name=name))
        elif w is not None or d is not None:
            raise ValueError(f"{name} is a Space, which has its own weights and dim: set them when you build it.")
        else:
            sides.append(Z)
    x, y = sides
    if x.device != y.device or x.dtype != y.dtype:
        raise ValueError(
            f"X is {x.dtype} on {x.device} and Y is {y.dtype} on {y.device}: build both in one precision, on one device."
        )
    return x, y


def _same_dtype(X: Any, Y: Any) -> tuple[Any, Any]:
    """Two float arrays in the wider precision of both; anything else is left to the checks."""
    x, y = (_check.as_tensor(Z, name) for Z, name in ((X, "X"), (Y, "Y")))
    if not (x.is_floating_point() and y.is_floating_point()) or x.dtype == y.dtype:
        return X, Y
    wide = torch.promote_types(x.dtype, y.dtype)
    return tuple(t.to(wide).numpy() if _check.is_numpy(Z) else t.to(wide) for t, Z in ((x, X), (y, Y)))  # type: ignore[return-value]


def _goes_to_gpu(Z: Any) -> bool:
    large = isinstance(Z, np.ndarray) and Z.dtype == np.float32 and len(Z) >= LARGE
    return large and torch.cuda.is_available()


def units_of(x: Space, y: Space, scale: str | None) -> tuple[float, float]:
    """What each cost is divided by."""
    if scale is None:
        return 1.0, 1.0
    if _check.choice(scale, ["each", "joint"], "scale (or None)") == "each":
        return x.scale, y.scale
    unit = max(x.scale, y.scale)
    return unit, unit

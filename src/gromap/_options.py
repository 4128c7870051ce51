"""Checks of options that are no arrays: devices, seeds and counts, with errors as in `_check`."""

from __future__ import annotations

import math
import sys
from typing import Any, cast

import numpy as np
import torch

LEAST_PART = 1e-3  # of the lighter side, that can be asked for
SEEDS = 2**62  # from which a seed leaves no room for what is added to it


def device(value: object) -> torch.device | None:
    """A device on which gromap works and which is there; None stays None."""
    if value is None:
        return None
    given = value if isinstance(value, torch.device) else repr(value)
    try:
        found = torch.device(cast("Any", value))
    except (RuntimeError, TypeError):
        raise ValueError(f"unknown device {given}: use 'cpu', 'cuda' or 'cuda:1'.") from None
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"gromap works on CPUs and on CUDA devices, and not on device {given}: use 'cpu' or 'cuda'.")
    if found.type == "cuda" and not (found.index or 0) < torch.cuda.device_count():
        count = torch.cuda.device_count()
        there = f"the CUDA devices here are 0 to {count - 1}" if count else "torch finds no CUDA device here"
        raise ValueError(f"device {given} is not there, {there}: use device='cpu'.")
    return found


def seed(value: object) -> int:
    """An integer from which random numbers follow, Python's or numpy's."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"seed must be an integer >= 0, got {value!r}.")
    number = int(cast("int", value))
    if not 0 <= number < SEEDS:
        raise ValueError(f"seed must be an integer from 0 to 2**62 - 1, got {number}.")
    return number


def whole(value: object, name: str, least: int = 1) -> int:
    """An integer, Python's or numpy's."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer >= {least}, got {value!r}.")
    number = int(cast("int", value))
    if number < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {number}.")
    return number


def reach(value: object) -> tuple[float, float]:
    """ρ of both sides: the square of a distance, from which points need not be matched any more;
    infinite where None keeps the weights of a side."""
    both = cast("tuple[object, ...]", tuple(cast("Any", value))) if isinstance(value, tuple | list) else (value, value)
    if len(both) != 2:
        raise ValueError(f"reach must be one distance, or a pair for X and for Y, got {len(both)} values.")
    found = list[float]()
    for one in both:
        if one is None:
            found.append(math.inf)
            continue
        if isinstance(one, bool) or not isinstance(one, int | float | np.number):
            raise TypeError(f"reach must be a number >= 0, None to keep the weights, or a pair of these, got {one!r}.")
        number = float(cast("float", one))
        if not 0 <= number < math.inf:
            raise ValueError(f"reach must be a number >= 0, or None to keep the weights, got {one!r}.")
        found.append(min(number * number, sys.float_info.max))
    return found[0], found[1]


def part(value: object, totals: tuple[float, float]) -> tuple[float, float] | None:
    """How much of either side a plan of mass one may hold, over its weights, where this share of
    the lighter side is matched; None where nothing is asked for, or all of both."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"mass must be a number from {LEAST_PART} to 1, or None, got {value!r}.")
    number = float(cast("float", value))
    if not LEAST_PART <= number <= 1:
        raise ValueError(f"mass is the share of the lighter side to match, from {LEAST_PART} to 1, got {value!r}.")
    most = tuple(total / min(totals) / number for total in totals)
    return (most[0], most[1]) if max(most) > 1 else None


def share(value: object, name: str) -> float:
    """A number from 0 to 1, but not 1."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= cast("float", value) < 1:
        raise ValueError(f"{name} must be a number >= 0 and < 1, got {value!r}.")
    return float(cast("float", value))


def balance(alpha: object) -> float:
    """What distances count beside features."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.number) or not 0 <= cast("float", alpha) <= 1:
        raise ValueError(f"alpha is what the distances count beside the features, from 0 to 1, got {alpha!r}.")
    return float(cast("float", alpha))

"""Checks of options that are no arrays: devices, seeds and counts, with errors as in `_check`."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch

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


def share(value: object, name: str) -> float:
    """A number from 0 to 1, but not 1."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= cast("float", value) < 1:
        raise ValueError(f"{name} must be a number >= 0 and < 1, got {value!r}.")
    return float(cast("float", value))

"""What a result file holds, checked as it is taken out: whoever edits a file gets a ValueError that
names the entry, and nothing that fails later."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

ANY = -1  # an extent that may be anything


@dataclass(frozen=True)
class Stored:
    """The tensors and the facts of a file."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def number(self, name: str, finite: bool = True) -> float:
        value = self.facts[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or (finite and not math.isfinite(value)):
            raise ValueError(f"its {name} is {shown(value)}, expected a{' finite' * finite} number")
        return float(value)

    def positive(self, name: str) -> float:
        value = self.number(name)
        if not value > 0:
            raise ValueError(f"its {name} is {value}, expected a number > 0")
        return value

    def count(self, name: str, least: int = 1) -> int:
        value = self.facts[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"its {name} is {shown(value)}, expected a whole number >= {least}")
        return value

    def flag(self, name: str) -> bool:
        if not isinstance(self.facts[name], bool):
            raise ValueError(f"its {name} is {shown(self.facts[name])}, expected true or false")
        return self.facts[name]

    def text(self, name: str) -> str:
        if not isinstance(self.facts[name], str):
            raise ValueError(f"its {name} is {shown(self.facts[name])}, expected a word")
        return self.facts[name]

    def table(self, name: str) -> dict[str, Any]:
        if not isinstance(self.facts[name], dict):
            raise ValueError(f"its {name} is {shown(self.facts[name])}, expected a table")
        return cast("dict[str, Any]", self.facts[name])

    def floats(self, name: str, shape: tuple[int, ...], finite: bool = True, least: float = -math.inf) -> Tensor:
        """A tensor of float32 or float64 of this shape, where ANY is any extent.  finite: no NaN,
        no infinities; else there may be -inf, the logarithm of 0, alone."""
        t = self.tensors[name]
        if t.dtype not in (torch.float32, torch.float64) or not _fits(tuple(t.shape), shape):
            raise ValueError(f"its {name} is {t.dtype} of shape {tuple(t.shape)}, expected floats of shape {shape}")
        if bool(t.isnan().any()) or bool(t.isposinf().any()) or (finite and bool(t.isneginf().any())):
            raise ValueError(f"its {name} has NaN or infinite values")
        if bool((t < least).any()):
            raise ValueError(f"its {name} has values below {least:g}")
        return t

    def points(self, name: str, count: int) -> Tensor:
        """The finite coordinates of so many points, of any type of real number."""
        t = self.tensors[name]
        if t.is_complex() or not _fits(tuple(t.shape), (count, ANY)):
            raise ValueError(f"its {name} is {t.dtype} of shape {tuple(t.shape)}, expected {count} points")
        if not bool(torch.isfinite(t).all()):
            raise ValueError(f"its {name} has NaN or infinite values")
        return t

    def indices(self, name: str, below: int) -> Tensor:
        """A row of integers in 0 .. below - 1."""
        t = self.tensors[name]
        if t.dtype not in (torch.int32, torch.int64) or t.ndim != 1:
            raise ValueError(f"its {name} is {t.dtype} of shape {tuple(t.shape)}, expected a row of integers")
        if t.numel() and not 0 <= int(t.min()) <= int(t.max()) < below:
            raise ValueError(f"its {name} has values out of 0 to {below - 1}")
        return t


def plain(value: Any, like: Any) -> bool:
    """Whether a fact is made as this example: a number for a number, a list of such for a list."""
    if isinstance(like, bool | str):
        return isinstance(value, type(like))
    if isinstance(like, int | float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(like, list):
        items, example = cast("list[Any]", value), cast("list[Any]", like)
        return isinstance(value, list | tuple) and all(plain(item, example[0]) for item in items)
    items, example = cast("dict[str, Any]", value), cast("dict[str, Any]", like)
    return isinstance(value, dict) and all(plain(item, example[""]) for item in items.values())


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(w in (ANY, n) for n, w in zip(shape, wanted, strict=True))


def shown(value: Any) -> str:
    """What a message shows of a value, in one line."""
    return repr(value)[:60]


def columns(stored: Stored, prefix: str) -> dict[str, np.ndarray]:
    """The tensors whose names begin so, without that, as arrays of numbers with one axis."""
    found: dict[str, np.ndarray] = {}
    for name, t in stored.tensors.items():
        if name.startswith(prefix):
            if t.ndim != 1 or t.is_complex() or t.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
                raise ValueError(f"its {name} is {t.dtype} of shape {tuple(t.shape)}, expected a row of numbers")
            found[name.removeprefix(prefix)] = t.cpu().numpy()
    return found

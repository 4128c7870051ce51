"""Functions of torch that come without types: those used often with theirs, the others as
`untyped`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

untyped: Any = torch
SMALL_MATRIX = 1 << 14  # entries


def from_numpy(x: np.ndarray) -> Tensor:
    return untyped.from_numpy(x)


def tolist(x: Tensor) -> list[Any]:
    return untyped.Tensor.tolist(x)


def split(x: Tensor, size: int | list[int]) -> tuple[Tensor, ...]:
    """Runs of so many rows, each or one after the other."""
    return untyped.split(x, size)


def norm(x: Tensor, dim: int | None = None) -> Tensor:
    """|x|, along an axis or of all numbers."""
    return untyped.norm(x, dim=dim)


def qr(x: Tensor) -> tuple[Tensor, Tensor]:
    return untyped.linalg.qr(x)


def eigh(x: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, increasing, and eigenvectors."""
    return untyped.linalg.eigh(x)


def svd(x: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """U, the singular values, and Vᵀ; of one matrix on the CPU, where a small one takes 0.1 ms and
    not 5."""
    here = x.cpu() if x.ndim == 2 and x.numel() <= SMALL_MATRIX else x
    u, s, vt = (t.to(x.device) for t in untyped.linalg.svd(here, full_matrices=full_matrices))
    return u, s, vt

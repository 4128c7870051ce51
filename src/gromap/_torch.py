"""Functions of torch that come without types: those used often with theirs, the others as
`untyped`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

untyped: Any = torch


def from_numpy(x: np.ndarray) -> Tensor:
    return untyped.from_numpy(x)


def tolist(x: Tensor) -> list[Any]:
    return untyped.Tensor.tolist(x)


def split(x: Tensor, size: int) -> tuple[Tensor, ...]:
    """Runs of so many rows."""
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
    """U, the singular values, and Vᵀ."""
    return untyped.linalg.svd(x, full_matrices=full_matrices)

"""Shared inputs. Every measure is weighted, N != M and D != E unless a test says why not."""

from __future__ import annotations

import numpy as np
import pytest
import torch


def cloud(n: int, d: int, seed: int, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    """A curved, anisotropic cloud without symmetries, and random weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.linspace(2.0, 0.7, d)
    x[:, 0] += 0.3 * x[:, -1] ** 2
    return x.astype(dtype), (0.2 + rng.random(n)).astype(dtype)


@pytest.fixture
def pair():
    """Two clouds of different size and dimension: X, Y, a, b."""
    (x, a), (y, b) = cloud(40, 3, 0), cloud(31, 2, 1)
    return x, y, a, b


torch.set_num_threads(1)  # the tests are small: threads would only wait for each other


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def rotation(d: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]

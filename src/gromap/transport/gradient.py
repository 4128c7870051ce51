"""Gradients that are known without autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def once(source: Tensor, gradient: Tensor) -> Tensor:
    """Attach a precomputed gradient to the graph of its input; differentiating it again raises."""
    return _Once.apply(source, gradient)  # type: ignore[return-value]


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("gromap is differentiable once: second derivatives (double backward) are not available.")

"""Where the fused kernels serve: float32 on a CUDA device, with Triton."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None


def fused_for(x: Tensor) -> bool:
    """Whether the fused kernels serve such data."""
    return HAS_TRITON and x.device.type == "cuda" and x.dtype == torch.float32

"""Which file reduces a score: triton.py where Triton is there, for low-rank float32 scores on a CUDA device; mixture.py for
mixtures; tiles.py for all else."""

from __future__ import annotations

from importlib.util import find_spec
from types import ModuleType

import torch

from gromap.engine import mixture, tiles
from gromap.engine.score import LowRank, Mixture, Score

HAS_TRITON = find_spec("triton") is not None


def fused_for(x: Score) -> bool:
    """Whether the fused kernels serve such data."""
    return HAS_TRITON and x.device.type == "cuda" and x.dtype == torch.float32


def backend(score: Score) -> ModuleType:
    if isinstance(score, LowRank) and fused_for(score):
        from gromap.engine import triton as fused

        return fused
    return mixture if isinstance(score, Mixture) else tiles

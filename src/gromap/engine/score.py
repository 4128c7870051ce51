"""Scores: the N x M matrices the engine reduces, in nats.

    s_ij = <q_i, k_j>          LowRank(q, k): never formed, O(N + M) memory       (CNT-GW)
    s_ij                       a dense (..., N, M) tensor                         (Kernel-GW)

Both answer to `.shape`, `.dtype`, `.device`, `.mT` and `* number`, and that is all the rest of the library asks of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LowRank:
    """The matrix `q @ k.mT`, kept as its two factors.

    >>> score = LowRank(torch.ones(3, 2), torch.ones(4, 2))
    >>> score.shape, score.mT.shape, score.dense()[0, 0].item()
    (torch.Size([3, 4]), torch.Size([4, 3]), 2.0)
    """

    q: Tensor  # (..., N, R)
    k: Tensor  # (..., M, R)

    @property
    def shape(self) -> torch.Size:
        batch = torch.broadcast_shapes(self.q.shape[:-2], self.k.shape[:-2])
        return torch.Size((*batch, self.q.shape[-2], self.k.shape[-2]))

    @property
    def dtype(self) -> torch.dtype:
        return self.q.dtype

    @property
    def device(self) -> torch.device:
        return self.q.device

    @cached_property
    def mT(self) -> LowRank:
        return LowRank(self.k, self.q)

    def __mul__(self, factor: float) -> LowRank:
        return LowRank(self.q * factor, self.k)

    def dense(self) -> Tensor:
        return self.q @ self.k.mT


Score = LowRank | Tensor

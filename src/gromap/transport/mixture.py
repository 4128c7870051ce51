"""Mixtures: exp(s) is a product of two thin matrices, so that the sums of a plan of low rank are
not quadratic.

    Σ_j exp(s_ij + v_j) w_j = Σ_r exp(q_ir) Σ_j exp(k_jr + v_j) w_j            O((N + M) R)

`topk` and `argmax` alone look at all pairs, tile by tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gromap.transport.score import Score


@dataclass(frozen=True, eq=False)
class Mixture(Score):
    """The matrix log(exp(q) @ exp(k).mT), kept as its two factors: a plan that is a mixture of R
    product measures.

    >>> Mixture(torch.zeros(3, 2), torch.zeros(4, 2)).dense().exp()[0]
    tensor([2., 2., 2., 2.])
    """

    q: Tensor  # (N, R)
    k: Tensor  # (M, R)

    engine = "mixture"

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.q), len(self.k)))

    @property
    def like(self) -> Tensor:
        return self.q

    @property
    def mT(self) -> Mixture:
        return Mixture(self.k, self.q)

    def entries(self, b: Any, i: Any, j: Any) -> Tensor:
        q, k = self.q[i], self.k[j]
        top, side = q.amax(-1, keepdim=True), k.amax(-1, keepdim=True)
        return (((q - top).exp() @ (k - side).exp().mT).log() + top + side.mT)[None]

    def lse(self, v: Tensor) -> Tensor:
        return (self.q + (self.k + v[:, None]).logsumexp(0)).logsumexp(-1)

    def sums(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return (u + self.lse(v)).exp(), (v + self.mT.lse(u)).exp()

    def apply(self, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        right = self.k + v[:, None]
        top = right.amax(0).clamp(min=torch.finfo(right.dtype).min)  # a part without mass has none anywhere
        return (self.q + u[:, None] + top).exp() @ ((right - top).exp().mT @ w)

    def __mul__(self, factor: float) -> Score:
        raise ValueError("a coupling of low rank has no lower temperature: match by another method to sharpen.")

    def tensors(self) -> dict[str, Tensor]:
        return {"log_q": self.q, "log_k": self.k}

"""Plan: the coupling π_ij = exp(s_ij + u_i + v_j), kept as potentials and never as a matrix."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse  # pyright: ignore[reportMissingTypeStubs] - scipy has none
import torch
from torch import Tensor

from gromap import _check
from gromap._threads import side_by_side
from gromap._torch import split, untyped
from gromap.transport import Score, tiles

DENSE_LIMIT = 1 << 26  # entries that `dense()` makes without being forced: 512 MiB in float64
LABELS = 64  # that are counted at a time
PIECE = 1 << 22  # entries that are written down at a time
LOST = 0.5  # error of a row's mass from where its scores are so large that rounding errors hide its entries


@dataclass(frozen=True)
class Plan:
    """A lazy (N, M) coupling: `plan @ W`, `plan.T @ V`, row = source. O(N + M) memory.

    >>> import numpy as np, gromap
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> plan = gromap.solve(X, X[:40]).plan
    >>> plan.shape, (plan @ np.ones((40, 2))).shape, (plan.T @ np.ones(60)).shape
    ((60, 40), (60, 2), (40,))
    """

    score: Score
    u: Tensor  # f / ε + log a, -inf where a = 0
    v: Tensor
    a: Tensor
    b: Tensor
    numpy: bool = True
    wanted: tuple[Tensor, Tensor] | None = None  # row and column sums that it should have, where these are not a and b
    _potentials: tuple[Tensor, Tensor] | None = field(default=None, repr=False)  # f and g, also where weights are zero

    @classmethod
    def from_potentials(cls, score: Score, f: Tensor, g: Tensor, a: Tensor, b: Tensor, numpy: bool = True) -> Plan:
        """π_ij = a_i b_j exp(s_ij + f_i + g_j), with potentials in nats."""
        return cls(score, f + a.log(), g + b.log(), a, b, numpy, _potentials=(f, g))

    @property
    def potentials(self) -> tuple[Tensor, Tensor]:
        """f and g in nats; zero at points without mass, where they are not known."""
        if self._potentials is not None:
            return self._potentials
        f, g = (torch.where(w > 0, z - w.log(), 0.0) for z, w in ((self.u, self.a), (self.v, self.b)))
        return f, g

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.u), len(self.v)

    @property
    def T(self) -> Plan:
        known = self._potentials
        swapped = None if known is None else (known[1], known[0])
        wanted = None if self.wanted is None else (self.wanted[1], self.wanted[0])
        return Plan(self.score.mT, self.v, self.u, self.b, self.a, self.numpy, wanted, swapped)

    def __repr__(self) -> str:
        return f"Plan({self.shape[0]} x {self.shape[1]}, marginal error {self.marginal_error:.1e})"

    def __matmul__(self, w: Any) -> Any:
        """Σ_j π_ij w_j for values w of shape (M,) or (M, ...)."""
        flat, tail = self._values(w)
        return self._out(self.score.apply(self.u, self.v, flat), tail)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the entries, as numpy calls it."""
        return np.dtype(str(self.u.dtype).removeprefix("torch."))

    def matvec(self, x: Any) -> np.ndarray:
        """π x for arrays of numpy, (M,) or (M, w): what scipy's `aslinearoperator(plan)` asks for,
        with `rmatvec`.

        >>> import numpy as np, gromap
        >>> from scipy.sparse.linalg import aslinearoperator, svds
        >>> X = np.random.default_rng(0).normal(size=(60, 3))
        >>> plan = gromap.solve(X, X[:40], epsilon=0.01).plan
        >>> svds(aslinearoperator(plan), k=3)[0].shape
        (60, 3)
        """
        return replace(self, numpy=True) @ np.asarray(x)

    def rmatvec(self, x: Any) -> np.ndarray:
        """πᵀ x, as `matvec`."""
        return self.T.matvec(x)

    matmat, rmatmat = matvec, rmatvec

    @cached_property
    def sums(self) -> tuple[Tensor, Tensor]:
        """Row and column sums, as tensors."""
        return self.score.sums(self.u, self.v)

    def matrix(self) -> Tensor:
        """The (N, M) matrix as a tensor, whatever its size; entry by entry what `sums` adds up."""
        return tiles.plan(self.score.full, self.u, self.v)[0]

    def kl(self, inner: float) -> float:
        """KL(π | a⊗b) = <s, π> + <f, π 1> + <g, πᵀ 1>, given inner = <s, π>."""
        sides = zip(self.sums, self.potentials, self.score.axes, strict=True)
        left, right = (axis.sum(s.double() @ z.double())[0] for s, z, axis in sides)
        return inner + float(left + right)

    @property
    def marginals(self) -> tuple[Any, Any]:
        """The row and the column sums."""
        r, c = self.sums
        return _check.to_array(r, self.numpy), _check.to_array(c, self.numpy)

    @cached_property
    def marginal_error(self) -> float:
        """Σ_i |π 1 - a|_i + Σ_j |πᵀ 1 - b|_j: misplaced mass, between 0 and 2 for a plan of mass
        1, whatever N. Where marginals are not fixed, beside those of a plan that is best for its
        potentials."""
        sides = zip(self.sums, self.wanted or (self.a, self.b), self.score.axes, strict=True)
        return sum(float(axis.sum((s.double() - w.double()).abs().sum())[0]) for s, w, axis in sides)

    def some_means(self, rows: Tensor, w: Tensor) -> Tensor:
        """The averages of a few rows, each of which is written down: as `conditional_mean`."""
        full = self.score.full
        parts = list(split(rows, max(1, PIECE // len(self.v))))
        return torch.cat(side_by_side(lambda i: (full.rows(i) + self.v).softmax(-1) @ w, parts))

    def conditional_mean(self, w: Any) -> Any:
        """Σ_j π_ij w_j / Σ_j π_ij: each row's average, also where its weight is zero."""
        flat, tail = self._values(w)
        full, values = self.score.full, torch.cat([flat, torch.ones_like(flat[:, :1])], 1)
        out = full.apply(-full.lse(self.v), self.v, values)
        lost = ((out[:, -1] - 1).abs() < LOST).logical_not_().nonzero()[:, 0]  # the mass is one, or NaN
        if len(lost):
            out[lost] = self.some_means(lost, values)
        return self._out(out[:, :-1] / out[:, -1:], tail)

    def majority(self, labels: Any) -> tuple[Any, Any]:
        """For each row the label of the columns that hold most of its mass, and their share of
        it.  (N,), (N,)

        labels: (M,), of any type that can be sorted.
        """
        as_tensor = isinstance(labels, Tensor)
        given = labels.cpu().numpy() if as_tensor else np.asarray(labels)
        if given.shape != (self.shape[1],):
            raise ValueError(f"expected {self.shape[1]} labels, one for each point, got shape {given.shape}.")
        names = self.score.axes[1].union(np.unique(given))
        index = np.searchsorted(names, given)
        place, plan = torch.as_tensor(index, device=self.v.device), replace(self, numpy=False)
        share, found = self.v.new_full((self.shape[0],), -1.0), torch.zeros(self.shape[0], dtype=torch.long)
        for k in range(0, len(names), LABELS):
            some = torch.arange(k, min(k + LABELS, len(names)), device=place.device)
            top, which = plan.conditional_mean((place[:, None] == some).to(self.v)).max(1)
            found = torch.where(top > share, which + k, found.to(which.device))
            share = torch.maximum(top, share)
        winners = names[found.cpu().numpy()]
        if as_tensor:
            return torch.as_tensor(winners, device=self.v.device), share
        return winners, _check.to_array(share, self.numpy)

    def _values(self, w: Any) -> tuple[Tensor, torch.Size]:
        """Values on the columns as an (M, w) tensor, and the shape of one of them."""
        values = _check.tensor(w, "the values to transport", self.v.device).to(self.v.dtype)
        if values.ndim == 0 or len(values) != self.shape[1]:
            raise ValueError(
                f"expected {self.shape[1]} values, one per column of the plan, got shape {tuple(values.shape)}."
            )
        return values.reshape(len(values), -1), values.shape[1:]

    def _out(self, x: Tensor, tail: torch.Size) -> Any:
        return _check.to_array(x.reshape(-1, *tail), self.numpy)

    def argmax(self) -> Any:
        """For each row, the column that receives most of its mass.  (N,) integers"""
        return _check.to_array(self.score.argmax(self.v), self.numpy)

    def sparse(self, k: int = 8) -> Any:
        """The k largest entries of each row, as a scipy CSR array (numpy) or a coalesced sparse
        tensor (torch)."""
        n, m = self.shape
        if not 1 <= k <= m:
            raise ValueError(f"sparse(k) keeps 1 <= k <= {m} entries per row, got k = {k}.")
        values, columns = self.score.topk(self.v, k)
        columns, order = columns.sort(-1)
        values = (values.gather(-1, order) + self.u[:, None]).exp().reshape(-1)
        if self.numpy:
            parts = values.cpu().numpy(), columns.reshape(-1).cpu().numpy(), np.arange(0, n * k + 1, k)
            return scipy.sparse.csr_array(parts, shape=(n, m))
        index = torch.stack([torch.arange(n, device=columns.device).repeat_interleave(k), columns.reshape(-1)])
        return untyped.sparse_coo_tensor(index, values, (n, m), is_coalesced=True, check_invariants=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """np.asarray(plan): the (N, M) matrix, or a refusal where it is large."""
        return np.asarray(_check.to_array(self._small_matrix(), numpy=True), dtype)

    def dense(self, force: bool = False) -> Any:
        """The (N, M) matrix. Refuses large ones unless forced."""
        return _check.to_array(self.matrix() if force else self._small_matrix(), self.numpy)

    def _small_matrix(self) -> Tensor:
        n, m = self.shape
        if n * m > DENSE_LIMIT:
            size = n * m * self.u.element_size() / 2**30
            raise MemoryError(
                f"the dense plan is {n} x {m}, {size:.1f} GiB: use plan @ W, plan.sparse(k) or plan.argmax(), "
                "or dense(force=True) if you mean it."
            )
        return self.matrix()


def round_to(pi: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """A coupling next to a plan of about the right marginals (Altschuler et al. 2017)."""
    pi = pi * (a / pi.sum(1).clamp(min=1e-30)).clamp(max=1.0)[:, None]
    pi = pi * (b / pi.sum(0).clamp(min=1e-30)).clamp(max=1.0)
    rows, cols = (a - pi.sum(1)).clamp(min=0.0), (b - pi.sum(0)).clamp(min=0.0)  # rounding leaves either sign
    return pi + torch.outer(rows, cols) / rows.sum().clamp(min=1e-30)

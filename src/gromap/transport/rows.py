"""Who sums over the rows of a score: one process that has them all, or several that have some each
(shared.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from gromap.transport.score import Score


class Rows:
    """All rows are here: nothing is to be done.

    Whoever sums over rows hands the sums over its own to these methods, and goes on with what they
    return, which is the same in all processes.
    """

    shared = False

    def sum(self, *parts: Any) -> tuple[Any, ...]:
        """Sums over all rows, given those over own rows, in one message."""
        return parts

    def lse(self, part: Tensor) -> Tensor:
        """The same of log-sum-exp."""
        return part

    def once(self, value: Any) -> Any:
        """A part of a sum that is not over rows: it counts in one process alone."""
        return value

    def count(self, n: int) -> int:
        """How many rows there are, given how many are here."""
        return n

    def joined(self, own: Tensor) -> Tensor:
        """All rows, given own ones."""
        return own

    def from_first(self, x: Tensor) -> Tensor:
        """What was computed by all, to the last bit the same."""
        return x

    def union(self, names: np.ndarray) -> np.ndarray:
        """Names that any process knows, sorted, given own ones."""
        return names

    def score(self, own: Score) -> Score:
        """The score whose reductions over its rows are those over all."""
        return own


HERE = Rows()

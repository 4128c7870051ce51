"""Scores of which each process of a group has some rows, and all columns.

A vector over rows holds own rows, a vector over columns is the same in all processes; sums over
rows are sent around. Only Sinkhorn does that often: once per step, column sums with two numbers
behind (`shared_step`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap._group import Group
from gromap.transport.marginals import Marginals
from gromap.transport.plan_cache import PlanCache
from gromap.transport.rows import HERE, Rows
from gromap.transport.score import Dense, Held, Score

ALONE = "takes all rows of the plan, and each process of the group has some of them: "


@dataclass(frozen=True)
class SharedRows(Rows):
    """Rows in several processes, so many in each."""

    group: Group
    counts: list[int]

    shared = True

    def sum(self, *parts: Tensor) -> tuple[Tensor, ...]:
        total, done, sums = self.group.sum(torch.cat([part.reshape(-1) for part in parts])), 0, list[Tensor]()
        for part in parts:
            sums.append(total[done : done + part.numel()].view(part.shape))
            done += part.numel()
        return tuple(sums)

    def lse(self, part: Tensor) -> Tensor:
        top = self.group.max(part.clone())
        shift = top.masked_fill(top == -math.inf, 0.0)  # a column without any mass
        return self.group.sum((part - shift).exp()).log() + shift

    def once(self, value: Any) -> Any:
        return value if self.group.is_first else 0 * value

    def count(self, n: int) -> int:
        return sum(self.counts)

    def joined(self, own: Tensor) -> Tensor:
        return self.group.joined(own, self.counts)

    def from_first(self, x: Tensor) -> Tensor:
        return self.group.tensor_from_first(x.clone())

    def union(self, names: np.ndarray) -> np.ndarray:
        return np.unique(np.concatenate(self.group.told(names)))

    def score(self, own: Score) -> Score:
        return RowShard(own, self)


class Shard(Score):
    """Own rows of a score, or own columns of its transpose."""

    own: Score
    group: SharedRows

    @property
    def shape(self) -> torch.Size:
        return self.own.shape

    @property
    def like(self) -> Tensor:
        return self.own.like

    @property
    def engine(self) -> str:  # type: ignore[override]
        return self.own.engine

    def entries(self, b: Any, i: Any, j: Any) -> Tensor:
        return self.own.entries(b, i, j)

    @property
    def tile_share(self) -> float | None:
        return self.own.tile_share

    def tensors(self) -> dict[str, Tensor]:
        raise ValueError(
            f"save() {ALONE}keep what you need of own rows, such as sol.map(), sol.potentials and sol.gamma, or match "
            "in one process from init=sol.gamma."
        )


@dataclass(frozen=True, eq=False)
class RowShard(Shard):
    """Own rows: sums over columns are those of one process."""

    own: Score
    group: SharedRows

    @property
    def axes(self) -> tuple[Rows, Rows]:
        return self.group, HERE

    @property
    def mT(self) -> ColumnShard:
        return ColumnShard(self.own.mT, self.group)

    @property
    def full(self) -> RowShard:
        return RowShard(self.own.full, self.group)

    def lse(self, v: Tensor) -> Tensor:
        return self.own.lse(v)

    def sums(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        rows, cols = self.own.sums(u, v)
        return rows, self.group.sum(cols)[0]

    def apply(self, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return self.own.apply(u, v, w)

    def topk(self, v: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return self.own.topk(v, k)

    def truncate(self, f: Tensor, g: Tensor, log_a: Tensor, log_b: Tensor, held: Held = None) -> RowShard:
        return RowShard(self.own.truncate(f, g, log_a, log_b, held), self.group)


@dataclass(frozen=True, eq=False)
class ColumnShard(Shard):
    """The transpose: own columns, and all rows."""

    own: Score
    group: SharedRows

    @property
    def axes(self) -> tuple[Rows, Rows]:
        return HERE, self.group

    @property
    def mT(self) -> RowShard:
        return RowShard(self.own.mT, self.group)

    @property
    def full(self) -> ColumnShard:
        return ColumnShard(self.own.full, self.group)

    def lse(self, v: Tensor) -> Tensor:
        return self.group.lse(self.own.lse(v))

    def sums(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        rows, cols = self.own.sums(u, v)
        return self.group.sum(rows)[0], cols

    def apply(self, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return self.group.sum(self.own.apply(u, v, w))[0]

    def topk(self, v: Tensor, k: int) -> tuple[Tensor, Tensor]:
        raise ValueError(f"the largest entries of a column {ALONE}sol.push(values) carries values from X to Y.")

    def rows(self, index: Tensor) -> Tensor:
        if len(index):
            raise ValueError(f"a column whose scores overflow {ALONE}raise epsilon, or pass float64 data.")
        return super().rows(index)


def whole(rows: Rows, score: Score) -> Score:
    """All rows of a score between few points."""
    return Dense(rows.joined(score.dense())) if rows.shared else score


def shared_step(
    score: Score | PlanCache, to: Marginals, old: Tensor, ahead: Tensor, age: Tensor, momentum: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The step of `sinkhorn.move`, with one message of M + 2 numbers.

    Own rows step first, so that what they add to the error and to the movement along the step goes
    behind the column sums. What follows is computed by all processes from equal numbers in equal
    places, so that they decide alike, to the last bit.
    """
    f, g = to.split(ahead)
    r, c = score.sums(f + to.log_a, g + to.log_b)
    (old_f, old_g), (log_a, log_b), (a, b) = map(to.split, (old, to.log, to.mass))
    move_f, facts = _side(r, a, log_a, old_f, f)
    c, facts = to.rows.sum(c, facts)
    move_g, others = _side(c, b, log_b, old_g, g)
    error, along = facts + others
    lost = ~torch.isfinite(error)
    error, move = error.masked_fill(lost, torch.inf), torch.cat([move_f, move_g]).masked_fill(lost, 0.0)
    new = ahead + move
    if not momentum:
        return new, new, age, error
    age = torch.where(along.masked_fill(lost, 0.0) < 0, 0.0, age + 1)
    return new, torch.addcmul(new, age / (age + 3), new - old), age, error


def _side(total: Tensor, mass: Tensor, log_mass: Tensor, old: Tensor, ahead: Tensor) -> tuple[Tensor, Tensor]:
    """The step of one side, and over its entries the misplaced mass, infinite where it overflows or
    underflows, and the movement along the step."""
    ratio = (total.log() - log_mass).masked_fill(log_mass == -torch.inf, 0.0)
    move = -0.5 * ratio
    error = (total - mass).abs().sum().masked_fill(~torch.isfinite(ratio.sum()), torch.inf)
    return move, torch.stack([error, (mass * (ahead + move - old) * move).sum()])

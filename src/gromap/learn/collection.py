"""A collection of spaces in one precision, with one unit and one temperature, and what is known of
the values of its pairs: solved as they are asked for, kept on disk, with failures by name."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check, _options
from gromap._files import read, write
from gromap._progress import Event
from gromap._space import UNNAMED, Space
from gromap._stored import Stored
from gromap._torch import from_numpy
from gromap.geometry.indexed_costs import Indexed
from gromap.learn.tasks import Options, Runner, Shared, embed_space, reason_of
from gromap.search.search import Search
from gromap.solvers.protocol import Callback

SAVE_EVERY = 2.0  # seconds between two savings of what is finished, at least
SAVE_SHARE = 0.05  # of the time, that savings may take
NAMED = 5  # failures that a warning names
LARGE_RATIO = 3.0  # of the largest unit to the median one, and
BLURRED = 0.1  # the temperature in units of most spaces, from which both together are told
STARTS = ("auto", "zero", "random")  # that fit any pair


@dataclass(eq=False)
class Collection:
    """Spaces, None where one failed, and the (K, K) values of their pairs, NaN where not known."""

    spaces: list[Space | None]
    options: Options
    failures: dict[tuple[int, ...], str]  # of a space, or of a pair, and why
    debias: bool = True
    n_jobs: int | None = None
    errors: str = "warn"
    path: str | Path | None = None
    callback: Callback | None = None

    def __post_init__(self) -> None:
        _check.choice(self.errors, ["warn", "raise"], "errors")
        if self.errors == "raise" and self.failures:
            raise ValueError(self.failure(*next(iter(self.failures))))
        on_gpu = any(s.device.type != "cpu" for s in self.spaces if s is not None)
        if on_gpu and self.n_jobs not in (None, 1):
            raise ValueError("spaces on a GPU are matched one after another, which keeps it busy: use n_jobs=1.")
        self.runner = Runner(self.n_jobs, here=on_gpu)
        self.key = self._key()
        self.values, self.settled = _resume(self.path, self.key, len(self.spaces))
        self.begin = self.saved = time.monotonic()
        self.save_seconds, self.stopped, self.unsaved = 0.0, False, False

    @classmethod
    def of(
        cls,
        spaces: Iterable[Any],
        *,
        cost: Any,
        dim: int | float | str,
        epsilon: float,
        scale: str | float | None,
        method: Any,
        init: Any,
        tol: float | None,
        seed: int,
        **given: Any,
    ) -> Collection:
        """From what the user gives: `Space`s, arrays, or errors that were raised in their place."""
        eps, seed = _check.positive(epsilon, "epsilon"), _options.seed(seed)
        if not isinstance(init, Search) and not (isinstance(init, str) and init in STARTS):
            raise ValueError(f"init of a collection serves all of its pairs: {', '.join(STARTS)} or Search(...).")
        made, failures = _build(list(spaces), cost, dim, seed)
        _warn_of_costs(made)
        options = Options(eps * _common_unit(made, scale, eps) ** 2, method, init, tol, seed)
        return cls(made, options, {(k,): reason_of(error) for k, error in failures.items()}, **given)

    def __len__(self) -> int:
        return len(self.spaces)

    @property
    def known(self) -> int:
        """How many pairs have a value, self terms included."""
        return int((~np.isnan(self.values[np.triu_indices(len(self))])).sum())

    def name(self, k: int) -> str:
        """What a space is called in messages."""
        space, plain = self.spaces[k], f"space {k}"
        return plain if space is None or space.name in (*UNNAMED, plain) else f"{plain} ({space.name})"

    def pairs(self) -> np.ndarray:
        """All pairs of spaces that did not fail, i < j.  (P, 2)"""
        alive = np.array([s is not None for s in self.spaces])
        i, j = np.triu_indices(len(self), 1)
        return np.stack([i, j], 1)[alive[i] & alive[j]]

    def own(self) -> np.ndarray:
        """The pairs of spaces with themselves, of which debiased values are made.  (P, 2)"""
        alive = [k for k, s in enumerate(self.spaces) if s is not None and self.debias]
        return np.repeat(np.array(alive, dtype=int)[:, None], 2, 1)

    def solve(self, pairs: np.ndarray, total: int) -> None:
        """Find the values of these pairs, but for those that are known; `stopped` says whether
        the callback has ended the work.  total: pairs that there may be in all."""
        i, j = pairs.T
        todo = pairs[np.isnan(self.values[i, j])]
        self.embed(np.unique(todo))
        alive = [all(self.spaces[k] is not None for k in pair) for pair in todo]
        left: list[tuple[int, int]] = [(int(i), int(j)) for i, j in todo[np.array(alive, bool)]]
        results = self.runner.match(Shared(self.spaces), left, self.options)
        try:
            for done, result in enumerate(results, self.known + 1):
                i, j = result.i, result.j
                if result.reason:
                    self._fail((i, j), result.reason)
                self.values[i, j] = self.values[j, i] = result.value
                self.settled[i, j] = self.settled[j, i] = result.converged
                self.unsaved = True
                if self.callback and self.callback(Event("pairwise", done, total, time.monotonic() - self.begin)):
                    self.stopped = True
                    break
                due = max(SAVE_EVERY, self.save_seconds / SAVE_SHARE)
                if self.path is not None and time.monotonic() - self.saved > due:
                    self.save()
        finally:
            results.close()  # ends what still runs
            self.save()

    def debiased(self) -> np.ndarray:
        """S_ij, or the plain values; 0 on the diagonal but of spaces that failed.  (K, K)"""
        values = self.values
        if self.debias:
            own = values.diagonal().copy()
            values = values - (own[:, None] + own) / 2
        else:
            values = values.copy()
        np.fill_diagonal(values, [0.0 if s is not None else np.nan for s in self.spaces])
        return values

    def failure(self, *which: int) -> str:
        """One line about a space, or a pair, that failed."""
        names = " and ".join(self.name(k) for k in dict.fromkeys(which))
        reason = self.failures[which]
        return reason if reason.startswith(names) else f"{names}: {reason}"

    def warn(self) -> None:
        """Tell what failed, and what did not converge; where no pair has a value, that is an
        error."""
        if self.failures and not self.known:
            raise ValueError(self.failure(*next(iter(self.failures))))
        if self.failures:
            lines = [self.failure(*which) for which in list(self.failures)[:NAMED]]
            more = f" And {len(self.failures) - NAMED} more." if len(self.failures) > NAMED else ""
            spaces = sum(len(set(which)) == 1 for which in self.failures)
            counts = f"{spaces} of {len(self)} spaces and {len(self.failures) - spaces} pairs of others"
            _check.warn(f"{counts} failed, and their values are NaN. {' '.join(lines)}{more}")
        loose = np.argwhere(np.triu(~self.settled & ~np.isnan(self.values)))
        if len(loose):
            first = tuple(loose[0].tolist())
            _check.warn(f"{len(loose)} of {self.known} matches did not converge, the first is {first}: raise epsilon.")

    def save(self) -> None:
        """Keep what is finished, with what another process has saved meanwhile."""
        if self.path is None or not self.unsaved:
            return
        begin = time.monotonic()
        try:
            values, settled = _resume(self.path, self.key, len(self))
        except ValueError:  # of other spaces, or broken: the last to write wins
            values, settled = self.values, self.settled
        missing = np.isnan(self.values)
        tensors = {"values": np.where(missing, values, self.values)}
        tensors["settled"] = np.where(missing, settled, self.settled)
        write(self.path, "pairwise", {k: from_numpy(array) for k, array in tensors.items()}, {"key": self.key})
        self.saved, self.unsaved = time.monotonic(), False
        self.save_seconds = self.saved - begin

    def embed(self, which: np.ndarray) -> None:
        """Embed these spaces, once; those that cannot be have failed."""
        todo, indices = dict[int, Space](), map(int, which)
        for k in indices:
            space = self.spaces[k]
            if space is not None and not space.is_embedded:
                todo[k] = space
        for k, found, reason in self.runner.run(embed_space, todo.items()):
            vars(todo[k]).update(found)
            if reason:
                self.spaces[k] = None
                self._fail((k,), reason)

    def _fail(self, which: tuple[int, ...], reason: str) -> None:
        self.failures[which] = reason
        if self.errors == "raise":
            raise ValueError(self.failure(*which))

    def _key(self) -> str:
        """What tells two collections apart: points, weights, costs, options."""
        o = self.options
        digest = hashlib.sha256(f"{o.eps:.6g} {self.debias} {o.seed}".encode())
        if (o.method, o.init, o.tol) != ("auto", "auto", None):
            digest.update(f"{o.method} {o.init} {o.tol}".encode())
        for space in self.spaces:
            if space is None:
                digest.update(b"failed")
                continue
            few = space.measure.points[:64]
            facts = f"{type(space.cost).__name__} {space.dim} {space.scale:.6g} {float(space.cost(few, few).sum()):.6g}"
            digest.update(facts.encode())
            for t in (space.measure.points, space.measure.weights):
                digest.update(t.cpu().numpy().tobytes())
        return digest.hexdigest()


def _build(given: list[Any], cost: Any, dim: Any, seed: int) -> tuple[list[Space | None], dict[int, Exception]]:
    """Spaces in one precision on one device, and the errors of those that are none."""
    if len(given) < 2:
        raise ValueError(f"a collection has at least 2 spaces to compare, got {len(given)}.")
    made, failures = list[Space | None](), dict[int, Exception]()
    for k, one in enumerate(given):
        try:
            made.append(_space(k, one, cost, dim, seed))
        except Exception as error:
            made.append(None)
            failures[k] = error
    alive = [(k, s) for k, s in enumerate(made) if s is not None]
    if len(alive) < 2:
        raise next(iter(failures.values()))
    if len({s.dtype for _, s in alive}) > 1:  # arrays of both precisions are taken in the wider one
        for k, s in alive:
            if not isinstance(given[k], Space) and not isinstance(s.cost, Indexed):
                made[k] = _space(k, s.measure.points.double(), cost, dim, seed)
    kinds: dict[tuple[torch.dtype, torch.device], int] = {}
    for k, s in enumerate(made):
        if s is not None:
            kinds.setdefault((s.dtype, s.device), k)
    if len(kinds) > 1:
        found = " and ".join(f"space {k} is {dtype} on {device}" for (dtype, device), k in kinds.items())
        raise ValueError(f"{found}: build all in one precision, on one device.")
    return made, failures


def _space(k: int, given: Any, cost: Any, dim: Any, seed: int) -> Space:
    """One space, with its unit; an error in its place is raised."""
    if isinstance(given, Exception):
        raise given
    made = given if isinstance(given, Space) else Space(given, cost=cost, dim=dim, seed=seed, name=f"space {k}")
    made.scale  # noqa: B018 - a cost that is no number somewhere shows here
    return made


def _warn_of_costs(spaces: list[Space | None]) -> None:
    """Warn where the costs of spaces are of several kinds, which cannot be compared in one unit."""
    kinds: dict[str, int] = {}
    for k, s in enumerate(spaces):
        if s is not None and not isinstance(s.cost, Indexed):
            kinds.setdefault(repr(s.cost), k)
    if len(kinds) > 1:
        found = ", ".join(f"{cost} (the first is space {k})" for cost, k in list(kinds.items())[:3])
        _check.warn(f"the spaces have {len(kinds)} different costs, whose values hardly compare: {found}.")


def _common_unit(spaces: list[Space | None], scale: str | float | None, eps: float) -> float:
    """What all costs are divided by."""
    if scale is None:
        return 1.0
    if not isinstance(scale, str):
        return _check.positive(scale, "scale")
    _check.choice(scale, ["joint"], "scale (or None, or a number)")
    units = {k: s.scale for k, s in enumerate(spaces) if s is not None}
    largest = max(units, key=lambda k: units[k])
    ratio = units[largest] / float(np.median(list(units.values())))
    if ratio > LARGE_RATIO and eps * ratio**2 > BLURRED:
        _check.warn(
            f"space {largest} is {ratio:.3g} times as large as most, and one temperature for all, in its unit, blurs "
            "the others: leave it out, bring all to one unit, or pass scale= a number."
        )
    return units[largest]


def _resume(path: str | Path | None, key: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """What was finished before; NaN elsewhere."""
    if path is None or not Path(path).exists():
        return np.full((count, count), np.nan), np.zeros((count, count), bool)

    def build(tensors: dict[str, Tensor], facts: dict[str, Any]) -> tuple[np.ndarray, np.ndarray] | None:
        if Stored(tensors, facts).text("key") != key:
            return None
        values, settled = tensors["values"], tensors["settled"]
        if (values.dtype, settled.dtype) != (torch.float64, torch.bool):
            raise ValueError(f"its values are {values.dtype} and {settled.dtype}")
        if not tuple(values.shape) == tuple(settled.shape) == (count, count) or bool(values.isinf().any()):
            raise ValueError(f"its values are infinite or of shape {tuple(values.shape)}, expected {(count, count)}")
        return values.numpy().copy(), settled.numpy().copy()

    found = read(path, "pairwise", "cpu", build)
    if found is None:
        raise ValueError(f"{path} belongs to other spaces or other options: choose another path, or delete it.")
    return found

"""The work of a collection as tasks: spaces to embed, and chunks of pairs to solve, in this process
or through joblib, whose backends (processes, Dask, Ray) run them elsewhere.

Spaces travel to other processes as one array, `Shared`, which joblib maps into the memory of its
workers, or scatters over a cluster, once; a task names the pairs alone.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from gromap import _check
from gromap._pair import Pair
from gromap._solve import solve
from gromap._space import Space
from gromap.search.batch import MOST_POINTS, is_small, match_batch
from gromap.search.search import Search

TASK_SECONDS = 0.5  # of one chunk of pairs: far above what it costs to send one, and little to lose
MOST_PAIRS = 1000  # of a chunk
AT_A_TIME = 4  # tasks for each worker, where a backend gives all of them back together
UNPACKED = 64  # spaces that a worker keeps at hand


@dataclass(frozen=True)
class Options:
    """What all pairs of a collection share."""

    eps: float  # in units of the costs, squared
    method: Any = "auto"
    init: Any = "auto"
    tol: float | None = None
    seed: int = 0


class Result(NamedTuple):
    """What became of one pair."""

    i: int
    j: int
    value: float  # NaN where it failed
    converged: bool
    reason: str = ""  # why it failed


class Chunk(NamedTuple):
    """What became of some pairs."""

    results: list[Result]
    seconds: float


def match_pair(x: Space, y: Space, own: bool, options: Options) -> tuple[float, bool]:
    """GW_ε of one pair, and whether the solve converged; a space is matched with itself from the
    identity."""
    init = np.arange(len(x)) if own else options.init
    given: dict[str, Any] = {"method": options.method, "tol": options.tol, "seed": options.seed}
    sol = solve(x, y, epsilon=options.eps, scale=None, init=init, **given)
    if not np.isfinite(sol.value):
        raise ValueError(sol.status.value)
    return sol.value, sol.converged


def match_chunk(spaces: Shared | Packed, pairs: Sequence[tuple[int, int]], options: Options) -> Chunk:
    """All of these pairs, whatever becomes of one of them; on a GPU small ones as one batch."""
    begin, results = time.perf_counter(), list[Result]()
    known = _batch(spaces, pairs, options)
    for i, j in pairs:
        if (i, j) in known:
            results.append(Result(i, j, *known[i, j]))
            continue
        try:
            results.append(Result(i, j, *match_pair(spaces[i], spaces[j], i == j, options)))
        except Exception as error:
            results.append(Result(i, j, np.nan, False, reason_of(error)))
    return Chunk(results, time.perf_counter() - begin)


def _batch(
    spaces: Shared | Packed, pairs: Sequence[tuple[int, int]], options: Options
) -> dict[tuple[int, int], tuple[float, bool]]:
    """The values of pairs that are solved as one batch, and whether they converged; of none where
    something fails, which is then told of the pair whose fault it is. On a CPU the digits of a pair
    would depend on those beside it, for little time."""
    search: Any = Search() if isinstance(options.init, str) and options.init == "auto" else options.init
    plain = options.method in ("auto", "cnt") and options.tol is None
    if not plain or not isinstance(search, Search) or search.chirality or spaces[pairs[0][0]].device.type != "cuda":
        return {}
    try:
        given = {(i, j): Pair(spaces[i], spaces[j], options.eps, seed=options.seed) for i, j in pairs if i != j}
        small = {key: pair for key, pair in given.items() if is_small(pair)}
        ends = match_batch(list(small.values()), search)
    except Exception:
        return {}
    return {key: (end.value, end.converged) for key, end in zip(small, ends, strict=True) if end is not None}


def embed_space(k: int, space: Space) -> tuple[int, dict[str, Any], str]:
    """What a space knows of itself once it is embedded, or why it cannot be."""
    before = set(vars(space))
    try:
        space.embedding  # noqa: B018 - computed here, and kept
        space.is_cnt  # noqa: B018
    except Exception as error:
        return k, {}, reason_of(error)
    return k, {name: value for name, value in vars(space).items() if name not in before}, ""


def reason_of(error: Exception) -> str:
    """What went wrong, in one line; of an error that no check of ours raised, its type too."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


class Runner:
    """Runs tasks: one after another here, or through joblib where it is installed."""

    def __init__(self, n_jobs: int | None, here: bool):
        """here: tasks stay in this process, one after another, as on a GPU."""
        self.n_jobs, self.joblib, self.pace, self.here = n_jobs, None, 0.0, here
        if not here and (n_jobs not in (None, 1) or find_spec("joblib")):
            self.joblib = _check.extra("joblib", "cluster")

    @property
    def workers(self) -> int:
        """How many tasks run at a time."""
        return self.joblib.effective_n_jobs(self.n_jobs) if self.joblib else 1

    def run(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """What the function gives for each task, as it is finished; tasks are drawn when their
        turn comes."""
        if self.joblib is None:
            yield from (function(*task) for task in tasks)
            return
        calls, given = (self.joblib.delayed(function)(*task) for task in tasks), {"n_jobs": self.n_jobs}
        try:
            parallel = self.joblib.Parallel(**given, batch_size=1, return_as="generator_unordered")
        except ValueError:  # of backends that give lists, such as Ray's
            with self.joblib.Parallel(**given, batch_size=1) as parallel:
                while some := list(itertools.islice(calls, AT_A_TIME * self.workers)):
                    yield from parallel(some)
        else:
            yield from parallel(calls)

    def match(self, spaces: Shared, pairs: Sequence[tuple[int, int]], options: Options) -> Generator[Result]:
        """All pairs, in chunks that grow to some tenths of a second where several run at a time, or
        that are batches."""
        alone = self.workers == 1
        together = self.here and all(s is None or len(s) <= MOST_POINTS for s in spaces.spaces)

        def tasks() -> Iterator[tuple[Shared, Sequence[tuple[int, int]], Options]]:
            at = 0
            while at < len(pairs):
                fair = -(-(len(pairs) - at) // (2 * self.workers))  # so that all workers end at a time
                size = 1 if alone or not self.pace else int(TASK_SECONDS / self.pace)
                size = MOST_PAIRS if together else max(1, min(size, fair, MOST_PAIRS))
                yield spaces, pairs[at : at + size], options
                at += size

        if not pairs:
            return
        for chunk in self.run(match_chunk, tasks()):
            self.pace = max(chunk.seconds, 1e-9) / len(chunk.results)
            yield from chunk.results


class Shared:
    """Spaces, at hand in this process; pickled, they are one array of bytes that tasks share."""

    def __init__(self, spaces: Sequence[Space | None]):
        self.spaces = spaces

    def __getitem__(self, k: int) -> Space:
        space = self.spaces[k]
        assert space is not None, "no pair of a space that failed is a task"
        return space

    @cached_property
    def packed(self) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of all spaces, and where each ends."""
        wrap = _check.extra("joblib", "cluster").wrap_non_picklable_objects  # costs may be functions of the caller's
        pieces = [pickle.dumps(wrap(_without_projection(s), keep_wrapper=False), 5) for s in self.spaces]
        return np.frombuffer(b"".join(pieces), np.uint8), np.cumsum([len(piece) for piece in pieces])

    def __reduce__(self) -> tuple[type[Packed], tuple[np.ndarray, np.ndarray]]:
        return Packed, self.packed

    def __sizeof__(self) -> int:
        """Of what is pickled: by this Dask knows to scatter it once."""
        return self.packed[0].nbytes


class Packed:
    """The same in another process: a space is made of its bytes when it is asked for."""

    def __init__(self, data: np.ndarray, ends: np.ndarray):
        self.data, self.ends = data, ends
        self.get = lru_cache(UNPACKED)(self._load)

    def __getitem__(self, k: int) -> Space:
        return self.get(k)

    def _load(self, k: int) -> Space:
        return pickle.loads(self.data[self.ends[k - 1] if k else 0 : self.ends[k]].data)

    def __reduce__(self) -> tuple[type[Packed], tuple[np.ndarray, np.ndarray]]:
        return Packed, (self.data, self.ends)

    def __sizeof__(self) -> int:
        return self.data.nbytes


def _without_projection(space: Space | None) -> Space | None:
    """The same space, without what embeds new points, which is as large as all the rest."""
    if space is None or not space.is_embedded:
        return space
    copied = object.__new__(Space)
    vars(copied).update(vars(space) | {"embedding": replace(space.embedding, project=_no_projection)})
    return copied


def _no_projection(points: Tensor) -> Tensor:
    raise ValueError("a space that was sent to another process embeds no new points.")

"""Group: the processes of one solve, and what they tell each other (`solve(group=)`).

Before and after the loop they exchange objects, and errors: what one of them raises, all raise. The
loop itself runs on a line of its own where that costs little (gloo, all processes of the job): a
process that fails hangs up, so that the others do not wait for it.
"""

from __future__ import annotations

import builtins
import gc
import hashlib
import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as _dist
from torch import Tensor

from gromap._torch import split

dist: Any = _dist  # most of it comes without types
LOST = "a process of the group ended, or lost its connection, so that this one cannot go on: see what it printed."


class LostProcessError(ConnectionError):
    """Another process of the group is gone."""

    def __init__(self) -> None:
        super().__init__(LOST)


class Group:
    """Some processes, of which the first one (rank 0) decides what is decided once."""

    def __init__(self, given: Any):
        if not dist.is_available() or not dist.is_initialized():
            raise ValueError(
                "group= is a group of processes, and this one is in none: start the script by torchrun, call "
                "torch.distributed.init_process_group() first, and pass group=torch.distributed.group.WORLD."
            )
        try:
            self.ranks: list[int] = dist.get_process_group_ranks(given)  # of its processes in the job
            self.rank, self.size = int(dist.get_rank(given)), len(self.ranks)
        except (ValueError, KeyError, AttributeError, RuntimeError, TypeError):
            raise TypeError(
                f"group must be a process group, such as torch.distributed.group.WORLD, got {given!r}."
            ) from None
        if self.rank < 0:
            raise ValueError("this process is not in group=: call solve in the processes of the group alone.")
        # a process that still holds a group as it exits may crash there, and solutions live as long
        self._given, self._own_line = weakref.ref(given), cast("Any", None)
        config: str = dist.get_backend_config(given)  # "cpu:gloo,cuda:nccl"
        self.backends = dict(cast("tuple[str, str]", tuple(part.split(":"))) for part in config.split(","))

    @property
    def given(self) -> Any:
        found = self._given()
        if found is None:
            raise ValueError(
                "the group of this solution has ended: what sums over rows of other processes comes before "
                "torch.distributed.destroy_process_group()."
            )
        return found

    @property
    def line(self) -> Any:
        """What messages of tensors go through."""
        return self._own_line or self.given

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    # Objects, and errors.

    def told(self, mine: Any) -> list[Any]:
        """What each process tells the others, in their order."""
        found: list[Any] = [None] * self.size
        self._call(dist.all_gather_object, found, mine, group=self.given)
        return found

    def from_first(self, mine: Any) -> Any:
        """What the first process tells."""
        box = [mine]
        self._call(dist.broadcast_object_list, box, src=self.ranks[0], group=self.given)
        return box[0]

    @contextmanager
    def same_errors(self) -> Generator[None]:
        """An error of one process in this block is one of all, at its end, by the same sentence."""
        error: BaseException | None = None
        try:
            yield
        except (Exception, KeyboardInterrupt) as raised:
            error = raised
        known = self.told(None if error is None else (type(error).__name__, str(error)))
        errors: list[tuple[str, str]] = [told for told in known if told is not None]
        if not errors:
            return
        told = next((told for told in errors if told[0] != LostProcessError.__name__), errors[0])
        if error is not None and (type(error).__name__, str(error)) == told:
            raise error
        raise _rebuilt(*told) from error

    @contextmanager
    def loop(self, device: torch.device) -> Generator[None]:
        """A block in which processes wait for each other's numbers, on such a device, with the
        errors of `same_errors`; where the line is that of others too, one that fails raises its
        error alone, and the others wait until it ends."""
        if self.backends[self._carrier(device)] != "gloo" or self.size != dist.get_world_size():
            yield
            return
        self._own_line = dist.new_group(self.ranks, backend="gloo")
        try:
            with self.same_errors():
                try:
                    yield
                except BaseException:
                    self._hang_up()
                    raise
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        """Close the line of the loop: who still waits there is told so at once."""
        line, self._own_line = self._own_line, None
        if line is None:
            return
        if hasattr(line, "abort"):  # torch 2.6
            line.abort()
        dist.destroy_process_group(line)
        del line
        gc.collect()  # its connections close with the last reference

    # Tensors.

    def sum(self, x: Tensor) -> Tensor:
        """Σ over the processes; x may be overwritten."""
        return self._reduced(x, dist.ReduceOp.SUM)

    def max(self, x: Tensor) -> Tensor:
        return self._reduced(x, dist.ReduceOp.MAX)

    def tensor_from_first(self, x: Tensor) -> Tensor:
        """That of the first process; of others the shape and the type alone are used, and it may be
        overwritten."""
        message = self._message(x)
        self._call(dist.broadcast, message, src=self.ranks[0], group=self.line)
        return message.to(x.device)

    def joined(self, x: Tensor, counts: Iterable[int]) -> Tensor:
        """The rows of all processes, of which each has so many, in all processes."""
        parts = list[Tensor]()
        for rank, count in enumerate(counts):
            part = self._message(x if rank == self.rank else x.new_empty(count, *x.shape[1:]))
            if count:
                self._call(dist.broadcast, part, src=self.ranks[rank], group=self.line)
            parts.append(part.to(x.device))
        return torch.cat(parts)

    def dealt(self, x: Tensor, counts: list[int]) -> Tensor:
        """Own rows of a tensor that the first process has; others give any of its width and
        type."""
        if not self.is_first:
            own = self._message(x.new_empty(counts[self.rank], *x.shape[1:]))
            self._call(dist.recv, own, src=self.ranks[0], group=self.line)
            return own.to(x.device)
        own, *others = split(x, counts)
        for rank, part in enumerate(others, start=1):
            self._call(dist.send, self._message(part), dst=self.ranks[rank], group=self.line)
        return own.clone()  # the whole may go

    def _reduced(self, x: Tensor, how: Any) -> Tensor:
        message = self._message(x)
        self._call(dist.all_reduce, message, how, group=self.line)
        return message.to(x.device)

    def _message(self, x: Tensor) -> Tensor:
        return x.contiguous().to(self._carrier(x.device))

    def _carrier(self, device: torch.device) -> str:
        """The kind of device that the group sends from: gloo sends from CPUs alone."""
        known = [kind for kind, backend in self.backends.items() if kind == "cpu" or backend != "gloo"]
        return device.type if device.type in known else known[0]

    def _call(self, send: Callable[..., Any], *given: Any, **options: Any) -> None:
        try:
            send(*given, **options)
        except RuntimeError as error:
            raise LostProcessError from error


def _rebuilt(name: str, text: str) -> BaseException:
    """The error of another process."""
    if name == LostProcessError.__name__:
        return LostProcessError()
    if name in ("KeyboardInterrupt", "Interrupted"):
        return KeyboardInterrupt(text)
    kind = getattr(builtins, name, RuntimeError)
    return kind(text) if kind in (ValueError, TypeError, MemoryError, IndexError, KeyError) else RuntimeError(text)


def described(value: Any) -> str:
    """An option in words that are the same in all processes: arrays by a digest.

    >>> described((1e-3, None)), described(np.zeros(2)) == described(torch.zeros(2).double())
    ('(0.001, None)', True)
    """
    if isinstance(value, Tensor | np.ndarray):
        array: Any = np.ascontiguousarray(
            value.detach().cpu().numpy() if isinstance(value, Tensor) else cast("Any", value)
        )
        return f"array {array.shape} {array.dtype} {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(described, cast('Iterable[Any]', value)))})"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{one.name}={described(getattr(value, one.name))}" for one in fields(value))
        return f"{type(value).__name__}({', '.join(parts)})"
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return repr(cast("Any", value))
    return getattr(value, "__qualname__", type(value).__qualname__)


def check_agreement(known: list[dict[str, Any]]) -> None:
    """Refuse options that differ from those of the first process."""
    for rank, theirs in enumerate(known):
        for name, value in known[0].items():
            if theirs[name] != value:
                raise ValueError(
                    f"{name} is {value} in process 0 of the group and {theirs[name]} in process {rank}: all processes "
                    "must pass the same."
                )

"""Threads to the size of the work, whatever else the machine does.

The threads of torch spin where they wait for each other, and they wait at the end of every
operation: on a machine with another busy process 300 points took 15 s in two threads for the 0.4 s
of one, and their eigenvectors 1.8 s for 8 ms. So embeddings and solves run on one thread of torch,
and

    side_by_side(work, parts)    runs independent parts, of some milliseconds each, on threads of
                                 our own, which sleep where they wait
    all_threads()                is for single large products of matrices

Both use as many threads as torch did outside.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

P = TypeVar("P")
R = TypeVar("R")

_lock = threading.Lock()
_inside = 0  # how many threads of Python are in a block of one thread
_outside = 0  # what torch used before the first of them came
_pool: ThreadPoolExecutor | None = None
_here = threading.local()  # `depth`: its blocks of one thread; `works`: one of the pool, which must not wait for it


def allowed() -> int:
    """Threads that work may take: those of torch, outside of `one_thread`."""
    return _outside if _inside else torch.get_num_threads()


@contextmanager
def one_thread() -> Generator[None]:
    """One thread of torch, until all such blocks are left.

    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    global _inside, _outside
    with _lock:
        _outside = torch.get_num_threads() if _inside == 0 else _outside
        _inside += 1
        torch.set_num_threads(1)
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1
        with _lock:
            _inside -= 1
            torch.set_num_threads(1 if _here.depth else _outside)


@contextmanager
def all_threads() -> Generator[None]:
    """All threads of torch again, inside of `one_thread`."""
    before = torch.get_num_threads()
    torch.set_num_threads(allowed())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def side_by_side(work: Callable[[P], R], parts: Sequence[P]) -> list[R]:
    """The results of `work` for each part, in their order; several parts at once, each on one
    thread of torch.

    >>> side_by_side(abs, [1, -2, 3])
    [1, 2, 3]
    """
    if len(parts) < 2 or allowed() < 2 or getattr(_here, "works", False):
        return [work(part) for part in parts]
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def alone(part: P) -> R:
        _here.works = True
        torch.set_num_threads(1)
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            return work(part)

    with one_thread():
        others = [_workers().submit(alone, part) for part in parts[1:]]
        return [work(parts[0]), *(other.result() for other in others)]


def _workers() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), thread_name_prefix="gromap")
        return _pool


def _forget_workers() -> None:
    """A child process has none of its parent's threads."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)

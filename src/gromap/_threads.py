"""Threads to the size of the work: torch's threads spin, and on tiny operations they only wait.

Between 80 points two threads save nothing on an idle machine (1.0 s for 1.0 s on 2 cores), and on
one where two other processes run they take 22 s for the 1.6 s of one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import torch

SMALL_PAIRS = 1 << 16  # pairs of points up to which one thread is as fast as several

_lock = threading.Lock()
_inside = 0  # how many threads of Python are in a block of small work
_outside = 0  # what torch used before the first of them came


@contextmanager
def threads_for(pairs: int) -> Generator[None]:
    """One thread of torch for work between so few points; else as many as there were.

    >>> with threads_for(100):
    ...     torch.get_num_threads()
    1
    """
    global _inside, _outside
    if pairs > SMALL_PAIRS:
        yield
        return
    with _lock:
        _outside = torch.get_num_threads() if _inside == 0 else _outside
        _inside += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            torch.set_num_threads(_outside)

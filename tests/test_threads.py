"""Small work runs on one thread of torch, whatever else runs, and leaves no trace."""

from __future__ import annotations

import threading

import pytest
import torch

from gromap import solve
from gromap._threads import SMALL_PAIRS, threads_for
from tests.conftest import cloud


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_small_work_has_one_thread_and_restores_the_others():
    for pairs, expected in ((SMALL_PAIRS, 1), (SMALL_PAIRS + 1, 2)):
        with threads_for(pairs):
            assert torch.get_num_threads() == expected
        assert torch.get_num_threads() == 2
    with pytest.raises(KeyboardInterrupt), threads_for(1):
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_solves_in_several_threads_of_python_restore_them_too():
    x, y = cloud(20, 3, 0)[0], cloud(15, 2, 1)[0]
    seen = []

    def work(seed):
        solve(x, y, epsilon=0.05, init="random", seed=seed, callback=lambda event: seen.append(torch.get_num_threads()))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2

"""Solves run on one thread of torch, and on threads of our own where there is much to do; they
leave no trace."""

from __future__ import annotations

import multiprocessing
import threading
import time

import pytest
import torch

from gromap import Space, solve
from gromap._threads import all_threads, allowed, one_thread, side_by_side
from gromap.transport import Dense, LowRank, split_cells
from gromap.transport.truncation import Grid
from tests.conftest import cloud


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_blocks_of_one_thread_restore_the_others():
    with one_thread():
        for _ in range(2):
            with one_thread():
                assert (torch.get_num_threads(), allowed()) == (1, 2)
                with all_threads():
                    assert torch.get_num_threads() == 2
                assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(KeyboardInterrupt), one_thread():
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_parts_run_at_once_each_on_one_thread_of_torch_and_keep_their_order():
    both = threading.Barrier(2, timeout=60)

    def work(part):
        both.wait()
        return part, torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    with torch.no_grad():
        assert side_by_side(work, [1, 2]) == [(k, 1, False, False) for k in (1, 2)]
    with torch.inference_mode():
        assert side_by_side(work, [1, 2]) == [(k, 1, False, True) for k in (1, 2)]
    assert torch.get_num_threads() == 2

    def fail(part):
        raise MemoryError(f"part {part}")

    with pytest.raises(MemoryError, match="part 0"):
        side_by_side(fail, [0, 1])
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_parts_may_have_parts():
    """Which a score of a user's own may ask for: a thread that waited for itself would not end."""
    inner = lambda part: side_by_side(abs, [part, -part - 1])  # noqa: E731
    assert side_by_side(inner, range(8)) == [[k, k + 1] for k in range(8)]


def test_one_allowed_thread_is_the_only_one():
    here = threading.get_ident()
    assert set(side_by_side(lambda _: threading.get_ident(), range(5))) == {here}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("kind", ["dense", "low rank", "truncated"])
def test_reductions_are_the_same_on_several_threads(monkeypatch, kind):
    generator = torch.Generator().manual_seed(0)
    q, k = (3 * torch.rand(n, 2, generator=generator, dtype=torch.float64) for n in (130, 170))
    u, v = (torch.rand(n, generator=generator, dtype=torch.float64) for n in (130, 170))
    score = LowRank(200 * q, k)
    u, v = u - 100 * q.square().sum(1), v - 100 * k.square().sum(1)
    score, log_n, log_m = {"dense": Dense(score.dense())}.get(kind, score), torch.zeros(130), torch.zeros(170)
    if kind == "truncated":
        score = LowRank(200 * q, k, Grid(split_cells(q, 8), split_cells(k, 8), 1e-4))
        score = score.truncate(u, v, log_n.double(), log_m.double())
        assert score.tile_share is not None
    monkeypatch.setattr("gromap.transport.tiles.CPU_TILE_ROWS", 16)

    def reduced():
        return *score.sums(u, v), score.lse(v), score.apply(u, v, k), *score.topk(v, 3), score.mT.lse(u)

    several = reduced()
    torch.set_num_threads(1)
    for one, other in zip(several, reduced(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("n", [40, 1500])
def test_embeddings_have_one_thread_too(n):
    seen, x = [], cloud(n, 3, 0)[0]

    def cost(left, right):
        seen.append(torch.get_num_threads())
        return torch.cdist(left, right)

    several = Space(x, cost=cost)
    seen.clear()
    theta = several.embedding.spectrum
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    torch.testing.assert_close(Space(x, cost=cost).embedding.spectrum, theta)


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


def _in_a_child(queue) -> None:
    torch.set_num_threads(2)
    queue.put(side_by_side(abs, [-1, -2, -3]))


@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Python, about forks of processes with threads
def test_a_forked_process_has_threads_of_its_own():
    assert side_by_side(abs, [-1, -2, -3]) == [1, 2, 3]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_a_child, args=(queue,))
    child.start()
    end = time.monotonic() + 60
    while queue.empty() and child.is_alive() and time.monotonic() < end:
        time.sleep(0.01)
    assert queue.get(timeout=5) == [1, 2, 3]
    child.join()

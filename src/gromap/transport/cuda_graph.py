"""Repeat a small step many times: on a GPU as a CUDA graph, so that its parts do not wait for
launches from Python."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from gromap.transport.marginals import Marginals
from gromap.transport.plan_cache import PlanCache
from gromap.transport.score import Score

State = tuple[Tensor, ...]
Advance = Callable[[Score | PlanCache, Marginals, State], State]
Repeat = Callable[[State, int], State]


class StepGraph:
    """One Sinkhorn step as a CUDA graph that later scores of the same shape reuse, and marginals
    of the same kind: their numbers are written where it reads.

    So one `StepGraph` belongs to one kind of step, between the same weights.

    >>> from gromap.transport.score import Dense
    >>> double = lambda score, to, state: (score.matrix * state[0],)
    >>> score, state = Dense(torch.full((2,), 2.0)), (torch.ones(2),)
    >>> to = Marginals(torch.zeros(1), torch.zeros(1))
    >>> steps = StepGraph().steps(double, score, to, state, worth=True)
    >>> steps((torch.ones(2),), 3)
    (tensor([8., 8.]),)
    """

    def __init__(self) -> None:
        self.own: tuple[Score, Marginals] | None = None  # what the graph reads must stay alive
        self.graph: Callable[[State], State] | None = None

    def steps(
        self,
        advance: Advance,
        score: Score | PlanCache,
        to: Marginals,
        state: State,
        worth: bool,
        first: bool = False,
    ) -> Repeat:
        """A function that takes some steps, in place.  worth: so many will follow that a graph
        pays.

        first: no step has run yet on such tensors, so that a graph may be used, but not made.
        `advance` must not wait for the device, and may overwrite the state that it is given.
        """
        plain = partial(_repeat, partial(advance, score, to))
        if not worth or state[0].device.type != "cuda" or isinstance(score, PlanCache):
            return plain
        if self.graph is not None and self.own is not None and _rewrite(self.own[0], score) and self.own[1].rewrite(to):
            return partial(_repeat, self.graph)
        own, weights = (None, None) if first else (score.graph_copy(), to.graph_copy())
        if own is None or weights is None:
            return plain
        self.own = own, weights
        self.graph = _capture(advance, *self.own, state)
        return partial(_repeat, self.graph)


def _repeat(step: Callable[[State], State], state: State, times: int) -> State:
    for _ in range(times):
        state = step(state)
    return state


def _capture(advance: Advance, score: Score, to: Marginals, state: State) -> Callable[[State], State]:
    score.factors  # noqa: B018 - prepared outside of the graph
    return captured(partial(advance, score, to), state)


def captured(step: Callable[[State], State], state: State) -> Callable[[State], State]:
    """A step as a CUDA graph, which has run before on such tensors. It returns its own tensors,
    which its next run overwrites; what it encloses must stay alive."""
    with torch.cuda.device_of(state[0]):
        graph, own = torch.cuda.CUDAGraph(), tuple(t.clone() for t in state)
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with _no_collection(), torch.cuda.stream(aside):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for t, new in zip(own, step(own), strict=True):
                    if new is not t:
                        t.copy_(new)
            finally:
                graph.capture_end()
        here.wait_stream(aside)

    def replay(state: State) -> State:
        if state[0] is not own[0]:
            for t, given in zip(own, state, strict=True):
                t.copy_(given)
        graph.replay()
        return own

    return replay


@contextmanager
def _no_collection() -> Generator[None]:
    """Keep Python from freeing an older graph that waits in a cycle: CUDA forbids it during a
    capture, which then fails."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _rewrite(own: Score, new: Score) -> bool:
    """Write the numbers of a new score where those of an old one are, and say whether they fit
    there."""
    if type(own) is not type(new) or own.shape != new.shape:
        return False
    pairs = list(zip(own.factors, new.factors, strict=True))
    if any(old.shape != t.shape or old.dtype != t.dtype for old, t in pairs):
        return False
    for old, t in pairs:
        old.copy_(t)
    return True

"""Repeat a small step many times: on a GPU as a CUDA graph, so that its parts do not wait for launches from Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gromap.engine.backend import backend
from gromap.engine.kept import Kept
from gromap.engine.score import LowRank, Pairs

State = tuple[Tensor, ...]
Advance = Callable[[Pairs | Kept, State], State]
Repeat = Callable[[State, int], State]

SMALL = 1 << 24  # entries of a dense score that a graph may have a copy of: with more, a step outlasts its launch anyway


class Replay:
    """Steps that depend on a score, many of them.

    The graph of the first score serves all later ones of its shape: their numbers are written where the graph reads. So one
    `Replay` belongs to one kind of step, with all else that it reads.

    >>> double = lambda score, state: (score * state[0],)
    >>> steps = Replay().steps(double, torch.full((2,), 2.0), (torch.ones(2),), worth=True)
    >>> steps((torch.ones(2),), 3)
    (tensor([8., 8.]),)
    """

    def __init__(self) -> None:
        self.own: Pairs | None = None  # what the graph reads must stay alive: its score, and what its step encloses
        self.advance: Advance | None = None
        self.graph: Callable[[State], State] | None = None

    def steps(self, advance: Advance, score: Pairs | Kept, state: State, worth: bool, first: bool = False) -> Repeat:
        """A function that takes some steps, in place.  worth: so many will follow that a graph pays.

        first: no step has run yet on such tensors, so that a graph may be used, but not made. `advance` must not wait for the
        device, and may overwrite the state that it is given.
        """
        large = isinstance(score, Tensor) and score.numel() > SMALL
        if not worth or large or state[0].device.type != "cuda" or isinstance(score, Kept):
            return partial(_repeat, partial(advance, score))
        if self.graph is None or self.own is None or not _rewrite(self.own, score):
            if first:
                return partial(_repeat, partial(advance, score))
            self.own, self.advance = _clone(score), advance
            self.graph = _capture(advance, self.own, state)
        return partial(_repeat, self.graph)


def _repeat(step: Callable[[State], State], state: State, times: int) -> State:
    for _ in range(times):
        state = step(state)
    return state


def _capture(advance: Advance, score: Pairs, state: State) -> Callable[[State], State]:
    """A step as a CUDA graph. It returns its own tensors, which its next run overwrites."""
    with torch.cuda.device_of(state[0]):
        backend(score).factors(score)  # prepared outside of the graph
        graph, own = torch.cuda.CUDAGraph(), tuple(t.clone() for t in state)
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for t, new in zip(own, advance(score, own), strict=True):
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


def _clone(score: Pairs) -> Pairs:
    return LowRank(score.q.clone(), score.k.clone()) if isinstance(score, LowRank) else score.clone()


def _rewrite(own: Pairs, new: Pairs) -> bool:
    """Whether the numbers of a new score fit where those of an old one are, and then puts them there."""
    if isinstance(own, LowRank) != isinstance(new, LowRank) or own.shape != new.shape:
        return False
    pairs = list(zip(*(backend(z).factors(z) for z in (own, new)), strict=True))
    if any(old.shape != t.shape or old.dtype != t.dtype for old, t in pairs):
        return False
    for old, t in pairs:
        old.copy_(t)
    return True

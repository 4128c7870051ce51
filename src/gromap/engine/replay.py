"""Repeat a few small steps many times: on a GPU as one CUDA graph, so that they do not wait for launches from Python."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

State = tuple[Tensor, ...]


def repeated(advance: Callable[[State], State], state: State, times: int, worth: bool) -> Callable[[State], State]:
    """A function that takes `times` steps at once. `worth` says that so many calls will follow that a graph pays.

    `advance` must have run before on such tensors, and must not wait for the device.

    >>> double = lambda s: (2 * s[0],)
    >>> repeated(double, (torch.ones(2),), 3, worth=True)((torch.ones(2),))
    (tensor([8., 8.]),)
    """

    def steps(state: State) -> State:
        for _ in range(times):
            state = advance(state)
        return state

    if not worth or state[0].device.type != "cuda":
        return steps
    with torch.cuda.device_of(state[0]):
        graph, own = torch.cuda.CUDAGraph(), tuple(t.clone() for t in state)
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for t, new in zip(own, steps(own), strict=True):
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

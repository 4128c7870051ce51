"""Wasserstein gradient flows of GW_ε and SGW_ε (Fig. gradientflow_entropicbias), and barycenters
on a free cloud.

    flow         x_i <- x_i - (τ / a_i) ∂/∂x_i SGW_ε(α, β)                    with momentum
    barycenter   the same for  Σ_k w_k SGW_ε(α, β_k)

Each step is one call of GromovLoss, which continues from the last. A step that raises the loss is
taken back and halved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check, _options
from gromap._files import save_figure
from gromap._progress import Event
from gromap._space import Space
from gromap.geometry.indexed_costs import Indexed
from gromap.learn.losses import GromovLoss, axes
from gromap.solvers.protocol import Callback, Solver

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gromap.mesh import Mesh

HALVINGS = 10  # steps in a row that were taken back, before the flow gives up
GROWTH = 1.05  # of the step, after one that lowered the loss
RISE = 10.0  # times the first loss, where a flow without step control has diverged
Objective = Callable[[Tensor], tuple[float, Tensor]]  # points to a loss and its gradient


class FlowStatus(Enum):
    """How a flow ended; the value is a sentence that says what to do."""

    FINISHED = "All steps were taken: take more if the loss still falls."
    CONVERGED = "The loss fell below tol times its start."
    STALLED = (
        "No step lowers the loss any more: a minimum, or the solver is too coarse; pass a method with finer tolerances."
    )
    DIVERGED = "The loss rose above ten times its start: lower step, or let the flow control it (adaptive=True)."
    NOT_FINITE = (
        "The loss or its gradient overflowed, or the points left the domain of the cost: raise epsilon, lower step, or "
        "pass float64 data."
    )
    STOPPED = "Stopped by the callback."
    INTERRUPTED = "Interrupted: these are the best points so far; go on with init=flow.points."


@dataclass(frozen=True)
class Flow:
    """A cloud on its way: the best points met, some frames, and the loss of every step."""

    points: Any  #: (N, d) where the loss was lowest; the last ones, if it was that of parts
    frames: Any = field(repr=False)  #: (F, N, d), the start first and the end last
    times: list[int] = field(repr=False)  #: the step of each frame
    losses: np.ndarray = field(repr=False)  #: the loss before each step that was kept, and at the end
    status: FlowStatus
    target: Any = field(default=None, repr=False)  #: (M, e) what the cloud flowed to, where it is one cloud

    def plot(self, path: str | Path | None = None, frames: int = 6) -> Figure:
        """Some frames in a row, beside the target; for points in 2-D or 3-D."""
        from gromap.report.flow import flow_figure

        figure = flow_figure([("", self)], frames)
        if path is not None:
            save_figure(figure, path, dpi=120)
        return figure

    def animate(self, path: str | Path, seconds: float = 4.0) -> Path:
        """Write the frames as an animated GIF."""
        from gromap.report.flow import write_gif

        return write_gif(self, Path(path), seconds)

    def surface(self, depth: int = 7, neighbors: int = 8, sides: Any = None) -> Mesh:
        """A closed surface through the points, by screened Poisson reconstruction; needs `pip
        install 'gromap[poisson]'`.

        Normals come from the nearest points: a thin shape, as a vertebra, takes 1500 points or
        more.  sides: rough outward directions, (N, 3), such as those of the surface that the flow
        began on, `gromap.mesh.poisson.normals_at(mesh, start)`.
        """
        from gromap.mesh.poisson import poisson_surface

        return poisson_surface(np.asarray(self.points), depth, neighbors, sides)


class FlowInterrupted(KeyboardInterrupt):
    """Ctrl-C during a flow. `flow` holds the best points so far; `init=error.flow.points` goes
    on from them."""

    def __init__(self, flow: Flow):
        super().__init__("the flow was interrupted; error.flow holds the best points so far.")
        self.flow = flow


def gradient_flow(
    X: Any,
    Y: Any,
    a: Any = None,
    b: Any = None,
    *,
    steps: int = 200,
    cost: Any = "euclidean",
    epsilon: float = 1e-3,
    scale: float | None = None,
    debias: bool = True,
    step: float = 0.05,
    momentum: float = 0.8,
    adaptive: bool = True,
    tol: float = 1e-4,
    frames: int = 20,
    method: str | Solver = "auto",
    dim: Any = "auto",
    init: Any = "auto",
    seed: int = 0,
    callback: Callback | None = None,
) -> Flow:
    """Let the points of X flow down SGW_ε(α, β), or GW_ε(α, β) with debias=False, which ends in
    clusters.

    step: how far points move in the first step, in units of the spread of X.  adaptive: halve and
    grow the step as the loss tells; else it stays.  tol: stop once the loss fell by this factor.
    frames: how many to keep, or up to twice as many.
    callback: called with an `Event` after each step that was kept; return True to stop.  The rest
    as in `GromovLoss`. Ctrl-C after the first step raises `FlowInterrupted`, whose `flow` is what
    there is so far.

    >>> import numpy as np, gromap
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.random((20, 2)), 2 * rng.random((15, 2))
    >>> flow = gromap.gradient_flow(X, Y, steps=10, epsilon=0.05, init="zero")
    >>> flow.points.shape, bool(flow.losses[-1] < 0.3 * flow.losses[0])
    ((20, 2), True)
    """
    dims, start, numpy = axes(dim), _check.points(X, "X"), _check.is_numpy(X)
    loss = GromovLoss(
        cost=cost,
        epsilon=epsilon,
        debias=debias,
        scale=scale,
        method=method,
        dim=(dims[0], "auto"),
        init=init,
        seed=seed,
    )
    weights = _check.weights(a, len(start), "a", "X", start)
    target = Y if isinstance(Y, Space) else _fixed_space(Y, b, loss.cost[1], dims[1], start)  # embedded and solved once

    def objective(z: Tensor) -> tuple[float, Tensor]:
        z = z.detach().requires_grad_()
        value = loss(z, target, weights)
        return float(value.detach()), torch.autograd.grad(value, z)[0]

    retract = loss.cost[0].retract
    options = FlowOptions(steps, step, momentum, adaptive, tol, frames, callback, retract)
    shown = target.measure.points if target.measure.points.is_floating_point() else None
    return descend(start, weights, objective, options, numpy, None if shown is None else _check.to_array(shown, numpy))


def _fixed_space(Y: Any, b: Any, cost: Any, dim: Any, like: Tensor) -> Space:
    """The target, in the precision and on the device of the cloud that flows to it."""
    points = _check.as_tensor(Y, "Y")
    points = points.to(like.device) if isinstance(cost, Indexed) else points.to(like)
    return Space(points, b, cost=cost, dim=dim, name="Y")


@dataclass(frozen=True)
class FlowOptions:
    steps: int
    step: float
    momentum: float
    adaptive: bool
    tol: float
    frames: int
    callback: Callback | None
    retract: Callable[[Tensor], Tensor]  # to points for which the cost is defined
    whole: bool = True  # else losses are those of parts, which tell little of each other

    def __post_init__(self) -> None:
        _options.whole(self.steps, "steps")
        _options.whole(self.frames, "frames", 2)
        _check.positive(self.step, "step")
        _options.share(self.momentum, "momentum")
        _options.share(self.tol, "tol")


def descend(
    z: Tensor,
    mass: Tensor,
    objective: Objective,
    options: FlowOptions,
    numpy: bool,
    target: Any,
) -> Flow:
    """Heavy-ball descent in the metric of the weights; the step is taken back and halved where
    the loss rises."""
    begin = time.perf_counter()
    value, gradient = objective(z)
    spread = (mass @ (z - mass @ z).square().sum(1)).sqrt()
    safe = torch.where(mass > 0, mass, 1.0)[:, None]
    slope = gradient / safe
    rate = options.step * float(spread / (mass @ slope.square().sum(1)).sqrt().clamp(min=1e-300))
    frames, losses, best = [(0, z)], [value], (value, z)
    n, stride, velocity, halvings, status = 0, 1, torch.zeros_like(z), 0, FlowStatus.FINISHED
    if not (np.isfinite(value) and bool(torch.isfinite(gradient).all())):
        status, options = FlowStatus.NOT_FINITE, replace(options, steps=0)
    try:
        for n in range(1, options.steps + 1):
            ahead = options.retract(z + options.momentum * velocity - rate * slope)
            value, gradient = _or_infinite(objective, ahead)
            finite = bool(np.isfinite(value)) and bool(torch.isfinite(gradient).all())
            if options.adaptive and (not finite or value > losses[-1]):
                velocity, rate, halvings = torch.zeros_like(z), rate / 2, halvings + 1
                if halvings == HALVINGS:
                    status = FlowStatus.STALLED if finite else FlowStatus.NOT_FINITE
                    break
                continue
            if not finite or value > RISE * losses[0]:
                status = FlowStatus.DIVERGED if finite else FlowStatus.NOT_FINITE
                break
            z, velocity, slope, halvings = ahead, ahead - z, gradient / safe, 0
            rate = GROWTH * rate if options.adaptive else rate
            losses.append(value)
            best = min(best, (value, z), key=lambda pair: pair[0]) if options.whole else (value, z)
            if n % stride == 0:
                frames.append((n, z))
            if len(frames) > 2 * options.frames:
                frames, stride = frames[::2], 2 * stride
            event = Event("flow", n, options.steps, time.perf_counter() - begin, value)
            if options.callback is not None and options.callback(event):
                status = FlowStatus.STOPPED
                break
            if value <= options.tol * losses[0]:
                status = FlowStatus.CONVERGED
                break
    except KeyboardInterrupt:
        status = FlowStatus.INTERRUPTED
    if frames[-1][1] is not z:
        frames.append((n, z))
    points, clouds = (_check.to_array(t, numpy) for t in (best[1], torch.stack([cloud for _, cloud in frames])))
    flow = Flow(points, clouds, [k for k, _ in frames], np.array(losses), status, target)
    if status is FlowStatus.INTERRUPTED:
        raise FlowInterrupted(flow)
    return flow


def _or_infinite(objective: Objective, z: Tensor) -> tuple[float, Tensor]:
    """The loss and its gradient; infinite where they are not defined, since the points went where
    the cost is not, or so far apart that the temperature is too low."""
    try:
        return objective(z)
    except ValueError:
        return np.inf, torch.zeros_like(z)

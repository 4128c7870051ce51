"""Barycenters on a free cloud: the flow of Σ_k w_k SGW_ε(α, β_k)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from gromap import _check, _options
from gromap._torch import tolist
from gromap.geometry.costs import as_cost
from gromap.geometry.measure import nearest, own_generator
from gromap.learn.flows import Flow, FlowOptions, descend
from gromap.learn.losses import GromovLoss
from gromap.solvers.protocol import Callback, Solver

FLOW_CLOUDS = 10  # of all points that a flow holds, beside its frames
LossFrom = Callable[[Any], GromovLoss]  # a loss whose first match begins at a given start


def barycenter(
    shapes: Iterable[Any],
    weights: Any = None,
    *,
    points: int | None = None,
    init: Any = None,
    match: str = "auto",
    batch: int | None = None,
    steps: int = 100,
    cost: Any = "euclidean",
    epsilon: float = 1e-3,
    scale: float | None = None,
    step: float = 0.05,
    momentum: float = 0.8,
    tol: float = 1e-4,
    frames: int = 2,
    method: str | Solver = "auto",
    dim: Any = "auto",
    seed: int = 0,
    callback: Callback | None = None,
) -> Flow:
    """A cloud between others: min over its points of Σ_k w_k SGW_ε(cloud, shapes_k).

    weights: of the shapes, None = equal.  points: of the cloud; None = as many as the shape of the
    largest weight, from whose points it starts unless init= is a cloud.  match: "auto" looks for
    the lowest match to each shape, "nearest" starts from nearest points, for shapes that lie in one
    pose.  batch: work on parts of so many points, one part per step; parts are drawn once and
    matched consistently, so that each continues from its last visit.  Ctrl-C is as in
    `gradient_flow`.  More points than fit in memory are refused before anything is made.

    >>> import numpy as np, gromap
    >>> x = np.random.default_rng(0).random((15, 2))
    >>> middle = gromap.barycenter([x, 3 * x], points=15, steps=30, epsilon=0.05)
    >>> round(float(np.std(middle.points) / np.std(x)))
    2
    """
    seed, batch = _options.seed(seed), None if batch is None else _options.whole(batch, "batch", 2)
    numpy, clouds = True, list[Tensor]()
    for k, shape in enumerate(shapes):  # which may be a generator
        numpy = _check.is_numpy(shape) if k == 0 else numpy
        clouds.append(_check.points(shape, f"shapes[{k}]"))
    if not clouds:
        raise ValueError("barycenter needs at least one shape, got none.")
    share = _check.tensor([1.0] * len(clouds) if weights is None else weights, "weights").double()
    if share.shape != (len(clouds),) or not bool((share >= 0).all()) or not float(share.sum()) > 0:
        raise ValueError(f"{len(clouds)} shapes need as many weights >= 0, not all zero, got {tolist(share)}.")
    share = share / share.max()  # of which the sum is finite
    share = share / share.sum()
    retract, whole = as_cost(_check.pair(cost)[0]).retract, batch is None
    options = FlowOptions(steps, step, momentum, whole, tol, frames, callback, retract, whole)
    generator, model = own_generator(seed), clouds[int(share.argmax())] if init is None else _check.points(init, "init")
    size = len(model) if points is None or init is not None else _options.whole(points, "points", 2)
    axes = {z.shape[1] for z in (model, *clouds)}
    if _check.choice(match, ["auto", "nearest"], "match") == "nearest" and len(axes) > 1:
        raise ValueError(
            "match='nearest' needs shapes in one space, init= too, with as many coordinates each: use match='auto'."
        )
    fewest = min(size, *map(len, clouds))
    count = 1 if batch is None else max(1, min(-(-size // batch), fewest // 2))  # of two points or more

    def loss(init: Any) -> GromovLoss:
        return GromovLoss(cost=cost, epsilon=epsilon, scale=scale, method=method, dim=dim, init=init, seed=seed)

    pairs = [(cloud, w) for cloud, w in zip(clouds, tolist(share), strict=True) if w > 0]
    _check_memory(size, count, retract(model), [cloud for cloud, _ in pairs], loss("auto"), options)
    start = retract(_drawn(model, size, generator) if init is None else model)
    parts = [p.to(start.device) for p in torch.randperm(len(start), generator=generator).tensor_split(count)]
    terms = [(w, _Term(parts, cloud.to(start), generator, loss, match)) for cloud, w in pairs]
    turns = itertools.cycle(range(count))

    def objective(z: Tensor) -> tuple[float, Tensor]:
        z, k = z.detach().requires_grad_(), next(turns)
        value = torch.stack([w * term(z, k) for w, term in terms]).sum()
        return float(value.detach()), torch.autograd.grad(value, z)[0] * (len(parts[k]) / len(z))

    return descend(start, torch.full_like(start[:, 0], 1 / len(start)), objective, options, numpy, None)


def _drawn(model: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """So many points of a cloud, in random order, each a little beside its place."""
    pick = torch.randperm(len(model), generator=generator)
    start = model[pick[torch.arange(size) % len(model)].to(model.device)]
    return start + 1e-3 * (model - model.mean(0)).std() * torch.randn(start.shape, generator=generator).to(start)


def _check_memory(
    size: int, parts: int, model: Tensor, clouds: list[Tensor], loss: GromovLoss, options: FlowOptions
) -> None:
    """Refuse so many points like those of the model, before any is there: the clouds of the flow,
    and then each match with a shape, in so many parts."""
    copies = FLOW_CLOUDS + 2 * min(options.steps + 1, 2 * options.frames)  # frames are stacked in the end
    flow, what = size * model[0].nbytes * copies, f"a barycenter of {size} points"
    _check.memory(flow, model.device, what, "take fewer points.")
    part = -(-size // parts)
    needed = max(loss.memory(model, cloud.to(model), part, -(-len(cloud) // parts)) for cloud in clouds)
    _check.memory(flow + needed, model.device, what, "take fewer points, or a batch= of points to match at a time.")


class _Term:
    """SGW_ε between a cloud and one shape, on all points or on fixed parts of both, taken in
    turn."""

    def __init__(self, parts: list[Tensor], shape: Tensor, generator: torch.Generator, loss: LossFrom, match: str):
        order = torch.randperm(len(shape), generator=generator) if len(parts) > 1 else torch.arange(len(shape))
        self.parts, self.shapes = parts, [shape[p.to(shape.device)] for p in order.tensor_split(len(parts))]
        self.loss, self.match = loss, match
        self.losses: list[GromovLoss] = []  # of each part

    def __call__(self, z: Tensor, k: int) -> Tensor:
        if k == len(self.losses):
            self.losses.append(self.loss(self._match(z.detach(), k)))
        return self.losses[k](z[self.parts[k]], self.shapes[k])

    def _match(self, z: Tensor, k: int) -> Any:
        """The match of the first part, carried over to another by nearest points: all parts then
        agree on left and right."""
        if k == 0 or self.match == "nearest":
            return "auto" if self.match == "auto" else nearest(z[self.parts[k]], self.shapes[k])
        plan = self.losses[0].plan
        assert plan is not None
        first = plan.argmax()[nearest(z[self.parts[k]], z[self.parts[0]])]
        return nearest(self.shapes[0][first], self.shapes[k])

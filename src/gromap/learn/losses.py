"""GromovLoss: GW_ε and the debiased divergence SGW_ε as differentiable losses (App. EGW-Grad,
Thm. cnt_sgw_properties).

    GW_ε(α, β)  = min_π Σ (c_X - c_Y)² π π + ε KL(π | a⊗b)
    SGW_ε(α, β) = GW_ε(α, β) - ½ (GW_ε(α, α) + GW_ε(β, β))

Each term is solved by the library's one loop; values and gradients are those of envelope.py. The
first call searches globally, the self terms start from the identity coupling, and later calls of a
module start from where the last one ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from gromap import _check, _options
from gromap._features import both_sides, feature_cost_of
from gromap._pair import ALPHA, LARGE, Pair, spaces_of
from gromap._plan import Plan
from gromap._solution import Status
from gromap._space import Space
from gromap._threads import one_thread
from gromap._torch import svd
from gromap.geometry.costs import as_cost
from gromap.geometry.indexed_costs import Indexed
from gromap.learn.envelope import (
    Sensitivity,
    SolvedPair,
    feature_gradient,
    point_gradient,
    self_sensitivity,
    sensitivity,
    solved,
    weight_gradient,
)
from gromap.learn.starts import Identity, LastCall
from gromap.search.starts import as_start
from gromap.solvers import CntGW, KernelGW, Loop, Multiscale, Solver
from gromap.solvers.protocol import Start
from gromap.solvers.run import memory_checked
from gromap.transport.gradient import once
from gromap.transport.sinkhorn import Sinkhorn

LOOPS = {  # gradients ask for more than a match; in float32 marginals do not come closer than 5e-5
    torch.float64: Loop(Sinkhorn(50), max_steps=1600, tol=1e-7, marginal_tol=1e-5),
    torch.float32: Loop(Sinkhorn(50), tol=3e-7, marginal_tol=1e-4),
}
EXACT_POINTS = 1000  # up to which "auto" is exact
LOSS_AXES = 50  # of the embedding, where there is one
FEW_POINTS = 100  # that show what an estimate of memory asks of a cloud
SAME_CLOUD = 0.25  # in units of its spread: a cloud that moved farther is another cloud, and starts anew


@dataclass
class _Memory:
    """Where the last call ended."""

    cross: SolvedPair | None = None
    left: SolvedPair | None = None
    right: SolvedPair | None = None


class GromovLoss(torch.nn.Module):
    """Gromov-Wasserstein between two weighted clouds as a loss with gradients for the points and
    the weights.

        SGW_ε(α, β) = GW_ε(α, β) - ½ (GW_ε(α, α) + GW_ε(β, β)) >= 0    with debias=True
        GW_ε(α, β)                                                     with debias=False

    cost, epsilon, init, seed: as in `gromap.solve`.
    scale: a fixed number by which costs are divided; None = taken as given. One that depends on the
    data would be no loss.
    alpha, feature_cost, reach: as in `gromap.solve`, with debias=False. Features are given at each
        call, count as they are, and have gradients too where their cost is "sqeuclidean" or
        "factors".
    dim: as in `gromap.solve`; "auto" = 50, since gradients ask for more than a match.
    method: "kernel" is exact and takes O(N²) memory; "cnt" and "multiscale" cut Γ to `dim` axes and
        take O(N); "auto" is exact up to 1000 points, and always for squared Euclidean costs, where
        the features are the points. A solver object brings its own tolerances.

    Called as `loss(X, Y, a=None, b=None, features=None)`: (N, d) and (M, e) tensors give a scalar;
    batches (B, N, d) and (B, M, e) give (B,). A `Space` may stand for a fixed side. Weights are
    normalized to one.

    State: the module keeps the plans and the clouds of the last call, and starts from them if the
    sizes agree and the points moved by less than a quarter of their spread, as in a descent;
    otherwise, as for random mini-batches, it starts anew. `reset()` forgets. `plan` and `status`
    are the coupling and the worst Status of the last problem that was solved. The state is no part
    of `state_dict()`.

    >>> import torch, gromap
    >>> X = torch.randn(30, 3, requires_grad=True)
    >>> loss = gromap.GromovLoss(epsilon=0.1)
    >>> loss(X, torch.randn(20, 2)).backward()
    >>> X.grad.shape
    torch.Size([30, 3])
    """

    def __init__(
        self,
        *,
        cost: Any = "euclidean",
        epsilon: float = 1e-3,
        debias: bool = True,
        scale: float | None = None,
        method: str | Solver = "auto",
        dim: Any = "auto",
        init: Any = "auto",
        seed: int = 0,
        alpha: float = ALPHA,
        feature_cost: Any = None,
        reach: Any = None,
    ):
        super().__init__()
        if reach is not None and debias:
            raise ValueError("SGW_ε needs fixed marginals: with reach= pass debias=False, which gives GW_ε itself.")
        self.alpha, self.feature_cost, self.rho = _options.balance(alpha), feature_cost, _options.reach(reach)
        self.cost = tuple(as_cost(c) for c in _check.pair(cost))
        self.epsilon, self.debias, self.scale = _check.positive(epsilon, "epsilon"), debias, _fixed(scale)
        if isinstance(method, Solver):
            method = method.for_gradients()
        else:
            _check.choice(method, ["auto", "cnt", "kernel", "multiscale"], "method")
        self.method, self.dim, self.init, self.seed = method, dim, init, _options.seed(seed)
        self.reset()

    def reset(self) -> None:
        """Forget where the last call ended: the next one searches globally again."""
        self._memory: dict[int, _Memory] = {}
        self.status: Status | None = None
        self.plan: Plan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_memory": {}, "plan": None}  # a copy starts without a memory

    def extra_repr(self) -> str:
        return f"cost={self.cost}, epsilon={self.epsilon:g}, debias={self.debias}, method={self.method!r}"

    def forward(self, X: Any, Y: Any, a: Any = None, b: Any = None, features: Any = None) -> Tensor:
        F, G = self._features(features)
        given: list[tuple[Any, int, str]] = [
            (X, 2, "X"),
            (Y, 2, "Y"),
            (a, 1, "a"),
            (b, 1, "b"),
            (F, 2, "F"),
            (G, 2, "G"),
        ]
        batches = {name: len(z) for z, one, name in given if _is_batch(z, one)}
        if not batches.keys() & {"X", "Y"}:
            return self._value(X, Y, a, b, F, G, 0)
        if len(set(batches.values())) > 1 or 0 in batches.values():
            sizes = ", ".join(f"{size} of {name}" for name, size in batches.items())
            raise ValueError(
                f"batches need as many items each, one or more, and have {sizes}: what counts for all items is given "
                "once, without a batch axis."
            )
        items = (tuple(z[k] if _is_batch(z, one) else z for z, one, _ in given) for k in range(max(batches.values())))
        return torch.stack([self._value(*one, item=k) for k, one in enumerate(items)])

    def _features(self, features: Any) -> tuple[Any, Any]:
        if features is None:
            return None, None
        if self.debias:
            raise ValueError("SGW_ε knows no features: with features= build the loss with debias=False, for GW_ε.")
        return both_sides(features)

    def memory(self, X: Tensor, Y: Tensor, n: int, m: int) -> int:
        """Bytes that a call takes at most, about, between n points like those of X and m like those
        of Y, which may be few: nothing of these sizes is made."""
        sides = zip((X, Y), self.cost, axes(self.dim), (n, m), "XY", strict=True)
        x, y = (Space(z[:FEW_POINTS], cost=c, name=name).stand_in(k, d) for z, c, d, k, name in sides)
        pairs = [Pair(s, t, s.scale * t.scale) for s, t in ((x, y), *([(x, x), (y, y)] if self.debias else []))]
        solver = _solver(self.method, pairs[0])
        return max(map(solver.memory, pairs))

    def _value(self, X: Any, Y: Any, a: Any, b: Any, F: Any, G: Any, item: int) -> Tensor:
        """One problem: a scalar that hangs in the graph of its inputs."""
        for Z, cost, name in ((X, self.cost[0], "X"), (Y, self.cost[1], "Y")):
            if isinstance(Z, Tensor) and not Z.is_floating_point() and not isinstance(cost, Indexed):
                raise TypeError(
                    f"{name} holds {Z.dtype}, which carries no gradient: pass {name}.float() or {name}.double()."
                )
        asked = [isinstance(t, Tensor) and t.requires_grad and torch.is_grad_enabled() for t in (X, Y, a, b, F, G)]
        with torch.no_grad(), torch.autocast(_device(X, Y).type, enabled=False):
            x, y = spaces_of(X, Y, a, b, self.cost, axes(self.dim), None, self.seed)
            memory = self._memory.setdefault(item, _Memory())
            value, depends_on = self._terms(x, y, memory, None if F is None else (F, G))
            known = [m.status for m in (memory.cross, memory.left, memory.right) if m is not None]
            self.status, self.plan = max(known, key=list(Status).index), memory.cross.plan if memory.cross else None
            inputs, gradients = list[Tensor](), list[Tensor]()
            for space, z, w, side in ((x, X, a, 0), (y, Y, b, 1)):
                points, weights = asked[side], asked[side + 2]
                depends = depends_on(side) if points or weights else None
                if depends and points:
                    inputs.append(z)
                    gradients.append((point_gradient(space, depends) / self.unit**2).to(z))
                if depends and weights:
                    inputs.append(w)
                    gradients.append((_tangent(weight_gradient(space, depends), space, w) / self.unit**2).to(w))
            for side, z in enumerate(cast("tuple[Any, Any]", (F, G))):
                if asked[4 + side]:
                    assert memory.cross is not None
                    inputs.append(z)
                    gradients.append(feature_gradient(memory.cross, (F, G), side, self.feature_cost).to(z))
            result = torch.tensor(value / self.unit**2, dtype=x.dtype, device=x.device)
        return _Attach.apply(result, gradients, *inputs) if inputs else result  # type: ignore[return-value]

    @property
    def unit(self) -> float:
        """What costs are divided by."""
        return 1.0 if self.scale is None else self.scale

    def _terms(
        self, x: Space, y: Space, memory: _Memory, features: tuple[Any, Any] | None
    ) -> tuple[float, Callable[[int], Sensitivity]]:
        """The value, in the units of the data, and how it depends on either side."""
        unit, fused = self.unit**2, None
        if features is not None:
            weights = x.measure.weights, y.measure.weights
            known = feature_cost_of(features, self.alpha, self.feature_cost, weights, False, self.seed)
            fused = known.times(unit)
        rho = (unit * self.rho[0], unit * self.rho[1])
        pair = Pair(x, y, self.epsilon * unit, seed=self.seed, fused=fused, rho=rho)
        solver = _solver(self.method, pair)
        if memory.cross is None:
            solver.check(pair)
        memory.cross = cross = _solve(pair, solver, memory.cross, as_start(self.init, pair))
        if not self.debias:
            return cross.value, lambda side: sensitivity(cross, side)
        left, right = (
            old if old is not None and old.pair.x is s else _solve(replace(pair, x=s, y=s), solver, old, Identity())
            for s, old in ((x, memory.left), (y, memory.right))
        )
        if cross.value - 0.5 * (left.value + right.value) < -solver.loop.tol * pair.energy_unit:
            left, right = _lower(cross, left, 0, solver), _lower(cross, right, 1, solver)
        memory.left, memory.right = left, right

        def depends_on(side: int) -> Sensitivity:  # a self term has its space on both sides: -½ counts twice
            return sensitivity(cross, side) + self_sensitivity((left, right)[side]).times(-1.0)

        return cross.value - 0.5 * (left.value + right.value), depends_on


def gw_loss(
    X: Any,
    Y: Any,
    a: Any = None,
    b: Any = None,
    *,
    cost: Any = "euclidean",
    epsilon: float = 1e-3,
    debias: bool = True,
    scale: float | None = None,
    method: str | Solver = "auto",
    dim: Any = "auto",
    init: Any = "auto",
    seed: int = 0,
    features: Any = None,
    alpha: float = ALPHA,
    feature_cost: Any = None,
    reach: Any = None,
) -> Tensor:
    """SGW_ε(α, β) >= 0, zero for isometric copies, or GW_ε(α, β) with debias=False: `GromovLoss`
    without a memory.

    >>> import torch, gromap
    >>> X = torch.rand(20, 2, dtype=torch.float64)
    >>> gromap.gw_loss(X, -X + 5.0, epsilon=0.01).abs().item() < 1e-6
    True
    >>> bool(gromap.gw_loss(X, X, epsilon=0.01, debias=False) > 1e-3)
    True
    """
    how: dict[str, Any] = {
        "cost": cost,
        "epsilon": epsilon,
        "debias": debias,
        "scale": scale,
        "method": method,
        "dim": dim,
    }
    how |= {"init": init, "seed": seed, "alpha": alpha, "feature_cost": feature_cost, "reach": reach}
    return GromovLoss(**how)(X, Y, a, b, features)


class _Attach(torch.autograd.Function):
    """A value whose gradients are known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *inputs: Tensor) -> Tensor:
        ctx.gradients = gradients
        ctx.save_for_backward(*inputs)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        scaled = (grads[0].to(g) * g for g in ctx.gradients)
        return None, None, *(once(z, g) for z, g in zip(ctx.saved_tensors, scaled, strict=True))


def _solve(pair: Pair, solver: Solver, old: SolvedPair | None, start: Start) -> SolvedPair:
    """From the last call if the clouds are still about where they were, else from the start."""
    with memory_checked(pair, solver), one_thread():
        if old is not None and _near(old.pair.x, pair.x) and _near(old.pair.y, pair.y):
            start = LastCall(old)
        problem = solver.problem(pair)
        return solved(pair, problem, solver.run(problem, start), solver.loop)


def _lower(cross: SolvedPair, own: SolvedPair, side: int, solver: Solver) -> SolvedPair:
    """A self term that is no higher than from Γ = U Σ Uᵀ, with Γ(α, β) = U Σ Vᵀ: then SGW_ε >= 0
    (Thm. cnt_sgw_properties)."""
    u, s, vt = svd(cross.problem.matrix(cross.gamma, cross.plan).double(), full_matrices=False)
    axes = u if side == 0 else vt.mT
    with one_thread():
        other = solved(own.pair, own.problem, solver.run(own.problem, Identity(axes * s @ axes.mT)), solver.loop)
    return other if other.value < own.value else own


def _near(old: Space, new: Space) -> bool:
    """Whether the points of a cloud moved by little."""
    p, q = old.measure.points, new.measure.points
    if p is q:
        return True
    if p.shape != q.shape or p.dtype != q.dtype or p.device != q.device:
        return False
    if not p.is_floating_point():
        return bool((p == q).all())
    spread = (q - q.mean(0)).square().sum()
    return bool((p - q).square().sum() <= SAME_CLOUD**2 * spread)


def _solver(method: str | Solver, pair: Pair) -> Solver:
    if not isinstance(method, str):
        return method
    if method == "auto":
        linear = all(s.cost.degree == 2 for s in (pair.x, pair.y))
        method = "kernel" if max(pair.shape) <= EXACT_POINTS and not linear else "cnt"
        method = "multiscale" if method == "cnt" and min(pair.shape) >= LARGE else method
    loop = LOOPS[pair.dtype]
    cnt = CntGW(loop).for_gradients()
    return {"kernel": KernelGW(loop), "cnt": cnt, "multiscale": Multiscale(cnt)}[method]


def _tangent(gradient: Tensor, space: Space, given: Tensor) -> Tensor:
    """The gradient for weights before they were normalized: w -> w / Σ w."""
    return (gradient - space.measure.weights.double() @ gradient) / given.double().sum()


def axes(dim: Any) -> tuple[Any, Any]:
    """`dim` of both sides, where "auto" means 50."""
    left, right = (_check.Auto(LOSS_AXES) if _check.is_auto(d) else d for d in _check.pair(dim))
    return left, right


def _fixed(scale: object) -> float | None:
    if isinstance(scale, str):
        raise ValueError(
            f"scale = {scale!r} depends on the data, and so would the loss: pass a fixed number to divide costs by, "
            "or None."
        )
    return None if scale is None else _check.positive(scale, "scale")


def _device(X: Any, Y: Any) -> torch.device:
    return next((Z.device for Z in (X, Y) if isinstance(Z, Tensor | Space)), torch.device("cpu"))


def _is_batch(z: Any, axes: int) -> bool:
    """Whether it has one axis more than a single item; what has not counts for all of a batch."""
    return not isinstance(z, Space) and getattr(z, "ndim", 0) == axes + 1

"""What a solve returns: Status (what happened, with advice), State (to continue from), Stats
(facts), Solution (everything)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap._files import read, write
from gromap._plan import Plan
from gromap._stats import Stats
from gromap._stored import ANY, Stored, columns, plain, shown
from gromap._torch import from_numpy
from gromap.geometry.measure import nearest
from gromap.transport import Dense, LowRank, Mixture, Score


class Status(Enum):
    """How the loop ended; the value is a sentence that says what to do."""

    CONVERGED = "Converged: the energy and the linear map settled and the marginals hold."
    MAX_ITER = "Stopped at max_iter before the energy settled: raise max_iter, or continue with init=solution."
    MARGINALS = "The energy settled but the plan misplaces mass: allow more Sinkhorn steps, or raise epsilon."
    OSCILLATES = (
        "The plan oscillates, as it may when a cost is not of negative type, or gradients are sampled: use a CNT cost, "
        "another method, or raise epsilon."
    )
    STOPPED = "Stopped by the callback: continue with init=solution."
    INTERRUPTED = "Interrupted: this is the best so far; continue with init=solution."
    NOT_FINITE = "The numbers overflowed: raise epsilon, or pass float64 data."


@dataclass(frozen=True)
class State:
    """The linear map and the dual potentials, in units of the scaled costs: what the loop
    carries and `init=` accepts."""

    gamma: Tensor | None = None  # (D, E); None where nothing was embedded
    f: Tensor | None = None  # (N,)
    g: Tensor | None = None  # (M,)
    # of an interrupted solve whose marginals are not fixed: what else is known of its plan
    moments: tuple[Tensor, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was known yet when a solve was interrupted."""
        return self.gamma is None and self.f is None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a solve. `state` is the best so far, and a start for another call: `solve(X,
    Y, init=error.state)`."""

    def __init__(self, state: State):
        super().__init__(
            "gromap.solve was interrupted; error.state is the best so far, continue with init=error.state."
        )
        self.state = state


Side = Tensor | Callable[[], Tensor]  # coordinates of a cloud, or how to find them


@dataclass(frozen=True)
class Solution:
    """The coupling, the linear map, the values, and how they were reached."""

    plan: Plan
    state: State
    value: float  #: alpha value_gw + (1 - alpha) value_features + value_marginals + ε KL(π | a⊗b)
    value_gw: float  #: L(π) = Σ (c_X - c_Y)² π π, in the scaled (and embedded) costs
    epsilon: float  #: the temperature used: π = a b exp((f + g - C) / ε)
    scale: tuple[float, float]  #: the units of both costs: c_X / scale[0] and c_Y / scale[1] were matched
    status: Status
    #: energy, gamma_change, inner_steps, marginal_error, seconds of each step
    history: dict[str, np.ndarray] = field(repr=False)
    value_features: float = 0.0  #: Σ c_F π, where features were given; value counts them 1 - alpha
    value_marginals: float = 0.0  #: ρ KL of both marginals, where reach= frees them
    alpha: float = 1.0  #: what value_gw counts in value
    mass: float = 1.0  #: how much is matched: of the lighter side, or the mass of unbalanced GW
    most: tuple[float, float] = (1.0, 1.0)  # times the weights, what the plan may hold of each side
    stats: Stats = field(default=Stats(), repr=False)  #: how it was found
    sides: tuple[Side, Side] | None = field(default=None, repr=False)  # where the points of X and Y lie, for maps
    #: vertex maps of two meshes, (N,) and (M,), where these are sharper than the plan
    refined: tuple[Tensor, Tensor] | None = field(default=None, repr=False)
    #: of two meshes the match that exchanges left and right, where it is clearly lower; files do
    #: not hold it
    mirrored: Solution | None = field(default=None, repr=False)
    # where nothing was embedded for the solve
    find_gamma: Callable[[], Tensor] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        n, m = self.plan.shape
        steps, stats = len(self.history["energy"]), self.stats
        inner = int(self.history["inner_steps"].sum())
        phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stats.seconds.items())
        lines = [
            f"gromap.Solution: {n} x {m} points, {self._way()}",
            f"  value           {self.value:.6g}   ({self._terms()})",
            f"  epsilon         {self.epsilon:.3g}   (costs in units of {self.scale[0]:.4g} and {self.scale[1]:.4g})",
        ]
        if stats.explained is not None:
            lines.append("  embedding       {:.1%} and {:.1%} of the variance".format(*stats.explained))
        if self.plan.wanted is not None:
            shares = (f"{self.matched(side):.1%}".replace("%", " %") for side in (0, 1))
            lines.append("  matched         {} of X and {} of Y".format(*shares))
        lines += [
            f"  marginal error  {self.plan.marginal_error:.2e}",
            f"  steps           {steps} outer, {inner} Sinkhorn" + (f"   ({phases})" if phases else ""),
        ]
        if stats.minima is not None:
            gap = "" if stats.runner_up is None else f", the next {stats.runner_up:.1%} higher".replace("%", " %")
            word = "minimum" if len(stats.minima) == 1 else "minima"
            lines.append(f"  search          {len(stats.minima)} {word}{gap}")
        if stats.near_distortion is not None:
            lines.append(f"  refined         {self._refinement()}")
        if self.mirrored is not None:
            share = f"{-(stats.mirrored or 0.0):.0%}".replace("%", " %")
            lines.append(f"  mirrored        a match that exchanges left and right is {share} lower: sol.mirrored")
        return "\n".join([*lines, f"  status          {self.status.value}"])

    def _terms(self) -> str:
        """What the value is made of: "GW 0.012 + eps KL 0.003"."""
        fused = self.alpha < 1
        terms = [f"{self.alpha:g} GW {self.value_gw:.6g}" if fused else f"GW {self.value_gw:.6g}"]
        if fused:
            terms.append(f"{1 - self.alpha:g} features {self.value_features:.6g}")
        if self.value_marginals:
            terms.append(f"marginals {self.value_marginals:.6g}")
        known = self.alpha * self.value_gw + (1 - self.alpha) * self.value_features + self.value_marginals
        return " + ".join([*terms, f"eps KL {self.value - known:.6g}"])

    def _refinement(self) -> str:
        """How the map was made sharper than the plan, and what it gained."""
        known, modes = self.stats.near_distortion or {}, self.stats.refined_modes or 0
        start, end = (known.get(str(k), math.nan) for k in (0, modes))
        if not modes:
            return f"no map keeps near distances better than the plan, which is off by {start:.2g} %"
        return f"by {modes} eigenfunctions: near distances off by {end:.2g} % of the root of the area, not {start:.2g}"

    def _way(self) -> str:
        """What was chosen: "multiscale (1500, 15000 points), 11 % of tiles, triton on cuda:0"."""
        way = self.stats.method
        if self.stats.levels:
            way += f" ({', '.join(map(str, self.stats.levels))} points)"
        if self.stats.tiles is not None:
            way += f", {self.stats.tiles:.0%} of tiles".replace("%", " %")
        return f"{way}, {self.stats.engine} on {self.stats.device}"

    def with_stats(self, **facts: Any) -> Solution:
        """The same solution with other facts about how it was found."""
        return replace(self, stats=replace(self.stats, **facts))

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    @cached_property
    def gamma(self) -> Any:
        """The linear map between the embeddings; a method that needs none computes them here.
        (D, E)"""
        gamma = self.state.gamma
        if gamma is None:
            if self.find_gamma is None:
                raise ValueError(
                    f"method {self.stats.method!r} embedded nothing before this solution was saved, so that its file "
                    "has no linear map: solve(..., method='cnt', init=sol) finds one."
                )
            gamma = self.find_gamma()
        return _check.to_array(gamma, self.plan.numpy)

    @property
    def kept_X(self) -> Any:
        """How much of each point of X is matched, over its weight, of a plan of mass one.  (N,)"""
        return self._kept(0)

    @property
    def kept_Y(self) -> Any:
        """The same of Y.  (M,)"""
        return self._kept(1)

    def matched(self, side: int) -> float:
        """The share of the mass of X (0) or of Y (1) at points that are matched: Σ min(kept, 1)."""
        weights, kept = (self.plan.a, self.plan.b)[side], torch.as_tensor(self._kept(side))
        return float((weights * kept.to(weights).clamp(max=1.0)).double().sum())

    def _kept(self, side: int) -> Any:
        weights = (self.plan.a, self.plan.b)[side]
        share = self.plan.sums[side] / (self.most[side] * weights.clamp(min=torch.finfo(weights.dtype).tiny))
        return _check.to_array(share, self.plan.numpy)

    @property
    def potentials(self) -> tuple[Any, Any]:
        """The dual potentials (f, g), in units of the scaled cost, squared."""
        f, g = self.state.f, self.state.g
        if f is None or g is None:
            raise ValueError(
                f"method {self.stats.method!r} has no potentials of the lifted cost C_Γ: sol.plan.u and sol.plan.v "
                "are its own, plus the logarithms of the weights; or continue with solve(..., method='cnt', init=sol)."
            )
        return _check.to_array(f, self.plan.numpy), _check.to_array(g, self.plan.numpy)

    def push(self, values: Any, *, labels: bool | None = None) -> Any:
        """Values on X, (N, ...), to Y, (M, ...): each target point takes the mean of what it
        receives.

        labels: True takes a vote instead: (N,) names of parts, numbers or words, of which each
        target point takes the one it receives most of. False says that a row of integers is to be
        averaged, of which None warns.  Shape people call this the pull-back by the map from Y to X.
        """
        return _carried(self.plan.T, values, labels)

    def pull(self, values: Any, *, labels: bool | None = None) -> Any:
        """Values on Y, (M, ...), to X, (N, ...): each source point takes the mean over where its
        mass goes, or with labels=True a vote, as in `push`."""
        return _carried(self.plan, values, labels)

    def map(self, how: str = "auto") -> Any:
        """For each point of X a point of Y.  (N,) integers in 0 .. M-1

        "auto": the map of two meshes that was refined beyond the plan (`gromap.mesh.match`), if
        there is one, else "mean";
        "mean": the one nearest to the mean of where its mass goes, which a blurred plan tells well;
        "argmax": the one that receives most of its mass, a noisy choice among many unless epsilon
        is small.

        >>> import numpy as np, gromap
        >>> X = np.random.default_rng(0).normal(size=(200, 3)) * [3, 2, 1]
        >>> sol = gromap.solve(X, X[::-1])
        >>> bool((sol.map() == np.arange(200)[::-1]).mean() > 0.95)
        True
        """
        if self.refined is not None and how == "auto":
            return _check.to_array(self.refined[0], self.plan.numpy)
        return _map(self.plan, None if self.sides is None else self.sides[1], how)

    def inverse_map(self, how: str = "auto") -> Any:
        """For each point of Y a point of X, as `map`.  (M,) integers in 0 .. N-1"""
        if self.refined is not None and how == "auto":
            return _check.to_array(self.refined[1], self.plan.numpy)
        return _map(self.plan.T, None if self.sides is None else self.sides[0], how)

    def images(self, some: np.ndarray) -> np.ndarray:
        """Where some points of X go: of `map("mean")` these rows alone, at the price of these rows
        alone."""
        assert self.sides is not None
        places, plan = _place(self.sides[1]).to(self.plan.v), self.plan
        means = plan.some_means(from_numpy(some).to(places.device), places)
        return nearest(means, places).cpu().numpy()

    @property
    def p2p_12(self) -> Any:
        """`map()`, by the name that mesh people know.  (N,)"""
        return self.map()

    @property
    def p2p_21(self) -> Any:
        """`inverse_map()`, by the name that mesh people know.  (M,)"""
        return self.inverse_map()

    def save(self, path: str | Path) -> Path:
        """Write everything to a .safetensors file, whole or not at all; `gromap.load` reads it
        back."""
        plan, state = self.plan, self.state
        tensors: dict[str, Tensor | None] = {**plan.score.tensors()}
        tensors |= {
            "u": plan.u,
            "v": plan.v,
            "a": plan.a,
            "b": plan.b,
            "gamma": state.gamma,
            "f": state.f,
            "g": state.g,
        }
        if plan.wanted is not None:
            tensors |= dict(zip(("wanted_x", "wanted_y"), plan.wanted, strict=True))
        if self.sides is not None:
            tensors |= dict(zip(("side_x", "side_y"), map(_place, self.sides), strict=True))
        if self.refined is not None:
            tensors |= dict(zip(("refined_x", "refined_y"), self.refined, strict=True))
        tensors |= {f"history.{name}": from_numpy(np.asarray(values)) for name, values in self.history.items()}
        facts = {"value": self.value, "value_gw": self.value_gw, "epsilon": self.epsilon, "scale": list(self.scale)}
        facts |= {"value_features": self.value_features, "value_marginals": self.value_marginals}
        facts |= {"alpha": self.alpha, "mass": self.mass, "most": list(self.most)}
        facts |= {"status": self.status.name, "numpy": plan.numpy, "stats": self.stats.facts()}
        return write(path, "solution", {name: t for name, t in tensors.items() if t is not None}, facts)


def _carried(plan: Plan, values: Any, labels: bool | None) -> Any:
    if labels:
        return plan.majority(values)[0]
    dtype = str(values.dtype if isinstance(values, Tensor) else np.asarray(values).dtype)
    if labels is None and np.ndim(values) == 1 and ("int" in dtype or "bool" in dtype):
        _check.warn(
            f"a row of {dtype.removeprefix('torch.')} was averaged: for labels pass labels=True, which takes a vote; "
            "for numbers labels=False."
        )
    return plan.conditional_mean(values)


def _place(side: Side) -> Tensor:
    return side if isinstance(side, Tensor) else side()


def _map(plan: Plan, side: Side | None, how: str) -> Any:
    """For each row a column: the one nearest to the mean of its row, or that of its largest
    entry."""
    if _check.choice(how, ["auto", "mean", "argmax"], "how") == "argmax":
        return plan.argmax()
    if side is None:
        raise ValueError("this file has no points, of which means could be taken: use map('argmax').")
    target = _place(side).to(plan.v)
    return _check.to_array(nearest(replace(plan, numpy=False).conditional_mean(target), target), plan.numpy)


def load(path: str | Path, device: torch.device | str = "cpu") -> Solution:
    """Read a solution that `Solution.save` wrote.

    >>> import numpy as np, gromap, tempfile, pathlib
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> sol = gromap.solve(X, X[::-1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = gromap.load(sol.save(pathlib.Path(folder) / "match.safetensors"))
    >>> again.value == sol.value
    True
    """
    return read(path, "solution", device, _rebuild)


def _rebuild(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Solution:
    """Older files say "info" for "stats", and keep the minima in the history."""
    stored = Stored(tensors, facts)
    if stored.text("status") not in Status.__members__:
        raise ValueError(f"its status is {facts['status']!r}, expected one of {', '.join(Status.__members__)}")
    status = Status[facts["status"]]
    finite = status is not Status.NOT_FINITE  # the file of a solve that overflowed holds what it found
    history = columns(stored, "history.")
    minima = {name: history.pop(name).tolist() for name in ("minima", "minima_starts") if name in history}
    if not {"energy", "inner_steps"} <= history.keys():
        raise ValueError("its history has no energy or no inner_steps")
    stats = Stats.of(stored.table("stats" if "stats" in facts else "info") | minima)
    plan = _plan(stored) if finite else _unchecked_plan(stored)
    n, m = plan.shape
    state = {
        name: stored.floats(name, shape) if finite else tensors[name]
        for name, shape in (("gamma", (ANY, ANY)), ("f", (n,)), ("g", (m,)))
        if name in tensors
    }
    usual = {"value_features": 0.0, "value_marginals": 0.0, "alpha": 1.0, "mass": 1.0}  # of older files
    known = {name: stored.number(name, finite) if name in facts else value for name, value in usual.items()}
    return Solution(
        plan=plan,
        state=State(state.get("gamma"), state.get("f"), state.get("g")),
        value=stored.number("value", finite),
        value_gw=stored.number("value_gw", finite),
        epsilon=stored.positive("epsilon"),
        scale=_pair_of(facts["scale"], "scale"),
        most=_pair_of(facts.get("most", [1.0, 1.0]), "most"),
        value_features=known["value_features"],
        value_marginals=known["value_marginals"],
        alpha=known["alpha"],
        mass=known["mass"],
        status=status,
        history=history,
        stats=stats,
        sides=(stored.points("side_x", n), stored.points("side_y", m)) if "side_x" in tensors else None,
        refined=_refined(stored, n, m) if "refined_x" in tensors else None,
    )


def _refined(stored: Stored, n: int, m: int) -> tuple[Tensor, Tensor]:
    there, back = stored.indices("refined_x", m), stored.indices("refined_y", n)
    if (len(there), len(back)) != (n, m):
        raise ValueError(f"its refined maps have {len(there)} and {len(back)} vertices, the plan {n} and {m}")
    return there, back


def _pair_of(value: Any, name: str) -> tuple[float, float]:
    if not plain(value, [0.0]) or len(value) != 2 or not all(0 < unit < math.inf for unit in value):
        raise ValueError(f"its {name} is {shown(value)}, expected two numbers > 0")
    return float(value[0]), float(value[1])


def _unchecked_plan(stored: Stored) -> Plan:
    """The plan, whatever its numbers are; all extents and types fit."""
    given = Stored({name: torch.zeros_like(t) for name, t in stored.tensors.items()}, stored.facts)
    _plan(given)
    t = stored.tensors
    wanted = (t["wanted_x"], t["wanted_y"]) if "wanted_x" in t else None
    return Plan(_score(t), t["u"], t["v"], t["a"], t["b"], stored.flag("numpy"), wanted)


def _plan(stored: Stored) -> Plan:
    u, v = (stored.floats(name, (ANY,), finite=False) for name in ("u", "v"))
    n, m = len(u), len(v)
    shapes = {"score": (n, m)} if "score" in stored.tensors else {}
    if not shapes:
        low = "" if "q" in stored.tensors else "log_"
        rank = stored.floats(f"{low}q", (n, ANY), finite=not low).shape[1]
        shapes = {f"{low}q": (n, rank), f"{low}k": (m, rank)}
    parts = {name: stored.floats(name, shape, finite=name in ("q", "k")) for name, shape in shapes.items()}
    a, b = stored.floats("a", (n,), least=0.0), stored.floats("b", (m,), least=0.0)
    if len({t.dtype for t in (u, v, a, b, *parts.values())}) > 1:
        raise ValueError("its plan is in several precisions")
    wanted = None
    if "wanted_x" in stored.tensors:
        wanted = stored.floats("wanted_x", (n,)), stored.floats("wanted_y", (m,))
    return Plan(_score(parts), u, v, a, b, stored.flag("numpy"), wanted)


def _score(parts: dict[str, Tensor]) -> Score:
    if "score" in parts:
        return Dense(parts["score"])
    return LowRank(parts["q"], parts["k"]) if "q" in parts else Mixture(parts["log_q"], parts["log_k"])

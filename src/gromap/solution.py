"""What a solver returns: State (what the loop carries), Status (what happened, with advice), Solution (everything)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap.engine import LowRank, Mixture, Score
from gromap.files import read, write
from gromap.plan import Plan


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
    """The linear map and the dual potentials, in units of the scaled costs: what the loop carries and `init=` accepts."""

    gamma: Tensor  # (D, E)
    f: Tensor | None = None  # (N,)
    g: Tensor | None = None  # (M,)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a solve. `state` is the best so far, and a start for another call: `solve(X, Y, init=error.state)`."""

    def __init__(self, state: State):
        super().__init__("gromap.solve was interrupted; error.state is the best so far, continue with init=error.state.")
        self.state = state


@dataclass(frozen=True)
class Solution:
    """The coupling, the linear map, the values, and how they were reached."""

    plan: Plan
    state: State
    value: float  #: GW_ε: value_gw + ε KL(π | a⊗b)
    value_gw: float  #: L(π) = Σ (c_X - c_Y)² π π, in the scaled (and embedded) costs
    epsilon: float  #: the temperature used: π = a b exp((f + g - C) / ε)
    scale: tuple[float, float]  #: the units of both costs: c_X / scale[0] and c_Y / scale[1] were matched
    status: Status
    #: energy, inner_steps, marginal_error, seconds, one entry per step; minima and minima_starts of the search
    history: dict[str, np.ndarray] = field(repr=False)
    info: dict[str, Any] = field(default_factory=dict, repr=False)  #: method, device, seconds of each phase, explained variance

    def __repr__(self) -> str:
        n, m = self.plan.shape
        steps = len(self.history["energy"])
        inner = int(self.history["inner_steps"].sum())
        phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.info.get("seconds", {}).items())
        lines = [
            f"gromap.Solution: {n} x {m} points, {self._way()}",
            f"  value           {self.value:.6g}   (GW {self.value_gw:.6g} + eps KL {self.value - self.value_gw:.6g})",
            f"  epsilon         {self.epsilon:.3g}   (costs in units of {self.scale[0]:.4g} and {self.scale[1]:.4g})",
            f"  marginal error  {self.plan.marginal_error:.2e}",
            f"  steps           {steps} outer, {inner} Sinkhorn" + (f"   ({phases})" if phases else ""),
            f"  status          {self.status.value}",
        ]
        if "minima" in self.history:
            others = f"{len(self.history['minima'])} minima"
            gap = f", the next {self.info['runner_up']:.1%} higher".replace("%", " %") if "runner_up" in self.info else ""
            lines.insert(-1, f"  search          {others}{gap}")
        if "explained" in self.info:
            lines.insert(3, "  embedding       {:.1%} and {:.1%} of the variance".format(*self.info["explained"]))
        return "\n".join(lines)

    def _way(self) -> str:
        """What was chosen: "multiscale (1500, 15000 points), 11 % of tiles, triton on cuda:0"."""
        way = self.info.get("method", "?")
        if "levels" in self.info:
            way += f" ({', '.join(map(str, self.info['levels']))} points)"
        if "tiles" in self.info:
            way += f", {self.info['tiles']:.0%} of tiles".replace("%", " %")
        return f"{way}, {self.info.get('engine', '?')} on {self.info.get('device', '?')}"

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    @property
    def gamma(self) -> Any:
        """The linear map between the embeddings.  (D, E)"""
        return _check.to_array(self.state.gamma, self.plan.numpy)

    @property
    def potentials(self) -> tuple[Any, Any]:
        """The dual potentials (f, g), in units of the scaled cost, squared."""
        f, g = self.state.f, self.state.g
        if f is None or g is None:
            raise ValueError(
                f"method {self.info.get('method', '?')!r} has no potentials of the lifted cost C_Γ: sol.plan.u and sol.plan.v "
                "are its own, plus the logarithms of the weights; or continue with solve(..., method='cnt', init=sol)."
            )
        return _check.to_array(f, self.plan.numpy), _check.to_array(g, self.plan.numpy)

    def push(self, values: Any) -> Any:
        """Values on X, (N, ...), to Y, (M, ...): each target point takes the mean of what it receives.

        Shape people call this the pull-back by the map from Y to X.
        """
        return self.plan.T.conditional_mean(values)

    def pull(self, values: Any) -> Any:
        """Values on Y, (M, ...), to X, (N, ...): each source point takes the mean over where its mass goes."""
        return self.plan.conditional_mean(values)

    @property
    def p2p_12(self) -> Any:
        """For each point of X, the point of Y that receives most of its mass.  (N,) integers in 0 .. M-1"""
        return self.plan.argmax()

    @property
    def p2p_21(self) -> Any:
        """For each point of Y, the point of X that sends it most of its mass.  (M,) integers in 0 .. N-1"""
        return self.plan.T.argmax()

    def save(self, path: str | Path) -> Path:
        """Write everything to a .safetensors file, whole or not at all; `gromap.load` reads it back."""
        plan, state = self.plan, self.state
        tensors = _score_tensors(plan.score) | {
            "u": plan.u,
            "v": plan.v,
            "a": plan.a,
            "b": plan.b,
            "gamma": state.gamma,
            "f": state.f,
            "g": state.g,
        }
        tensors |= {f"history.{name}": torch.from_numpy(np.asarray(values)) for name, values in self.history.items()}
        facts = {"value": self.value, "value_gw": self.value_gw, "epsilon": self.epsilon, "scale": list(self.scale)}
        facts |= {"status": self.status.name, "numpy": plan.numpy, "info": self.info}
        return write(path, "solution", {name: t for name, t in tensors.items() if t is not None}, facts)


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


def _score_tensors(score: Score) -> dict[str, Tensor]:
    if isinstance(score, Tensor):
        return {"score": score}
    return {"q": score.q, "k": score.k} if isinstance(score, LowRank) else {"log_q": score.q, "log_k": score.k}


def _score(tensors: dict[str, Tensor]) -> Score:
    if "score" in tensors:
        return tensors["score"]
    return LowRank(tensors["q"], tensors["k"]) if "q" in tensors else Mixture(tensors["log_q"], tensors["log_k"])


def _rebuild(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Solution:
    history = {name.removeprefix("history."): t.cpu().numpy() for name, t in tensors.items() if name.startswith("history.")}
    return Solution(
        plan=Plan(_score(tensors), tensors["u"], tensors["v"], tensors["a"], tensors["b"], facts["numpy"]),
        state=State(tensors["gamma"], tensors.get("f"), tensors.get("g")),
        value=facts["value"],
        value_gw=facts["value_gw"],
        epsilon=facts["epsilon"],
        scale=(facts["scale"][0], facts["scale"][1]),
        status=Status[facts["status"]],
        history=history,
        info=facts["info"],
    )

"""Entropic OT at a fixed score: Alg. sinkhorn and Alg. sinkhorn_symm, warm-started, annealed,
counted or thresholded.

    Alg. sinkhorn        f <- -log Σ_j b_j exp(s_ij + g_j)           `half_step`, `_standard_step`
                         g <- -log Σ_i a_i exp(s_ij + f_i)           with the new f
    Alg. sinkhorn_symm   f <- ½ (f - log Σ_j b_j exp(s_ij + g_j))    `_averaged_step`; in one sweep:
                         g <- ½ (g - log Σ_i a_i exp(s_ij + f_i))    `_symmetric_step` and `move`

Potentials are kept in nats at the temperature asked for, f = f_paper / ε, and π_ij = a_i b_j
exp(s_ij + f_i + g_j) with s = -C/ε. At a temporary temperature t ε the score is s / t and the
potentials f / t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from gromap._torch import untyped
from gromap.transport.backend import fused_for
from gromap.transport.cuda_graph import Repeat, State, StepGraph
from gromap.transport.marginals import Marginals
from gromap.transport.plan_cache import PlanCache, cached
from gromap.transport.score import Score
from gromap.transport.shared import shared_step


@dataclass(frozen=True)
class Annealing:
    """Temperatures that fall from `start` times the asked one down to it, over at most `steps`
    steps.

    "sqrt": ε_n = ε_0 / √n (Chizat 2024), which takes start² steps to arrive, so it is cut to
    `steps` of them; "geometric": equal ratios. The steps of the loop that follow run at the asked
    temperature.

    >>> Annealing(start=4, steps=3, schedule="geometric").temperatures()
    [4.0, 2.0, 1.0]
    """

    start: float = 100.0
    steps: int = 50
    schedule: Literal["geometric", "sqrt"] = "geometric"

    def __post_init__(self) -> None:
        if not self.start >= 1 or self.steps < 1:
            raise ValueError(f"Annealing needs start >= 1 and steps >= 1, got {self.start} and {self.steps}.")
        if self.schedule not in ("geometric", "sqrt"):
            raise ValueError(f"Annealing's schedule is 'geometric' or 'sqrt', got {self.schedule!r}.")

    def temperatures(self) -> list[float]:
        if self.schedule == "sqrt":
            return [max(1.0, self.start / (n + 1) ** 0.5) for n in range(self.steps)]
        return [self.start ** (1 - n / max(1, self.steps - 1)) for n in range(self.steps)]


@dataclass(frozen=True)
class Sinkhorn:
    """Options of the inner loop.

    steps: how many steps at the asked temperature, at most.  tol: stop once the marginal error, the
    L1 mass that the plan misplaces, is below; None = always take all steps.
    update: "standard" is Alg. sinkhorn, "symmetric" is Alg. sinkhorn_symm, and "accelerated" adds
    momentum to it: the symmetrized step is a gradient step of the concave dual, so Nesterov's
    method with restarts needs the square root of the steps (on real shapes at ε = 1e-3, hundreds in
    place of tens of thousands).
    """

    steps: int = 100
    tol: float | None = None
    update: Literal["accelerated", "symmetric", "standard"] = "accelerated"
    annealing: Annealing | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"Sinkhorn needs steps >= 1, got {self.steps}.")
        if self.tol is not None and not self.tol > 0:
            raise ValueError(f"Sinkhorn's tol must be > 0 or None, got {self.tol}.")
        if self.update not in ("accelerated", "symmetric", "standard"):
            raise ValueError(f"Sinkhorn's update is 'accelerated', 'symmetric' or 'standard', got {self.update!r}.")


class Potentials(NamedTuple):
    """Dual potentials in nats, with the momentum that the next call may carry on."""

    f: Tensor  # (..., N)
    g: Tensor  # (..., M)
    ahead: Tensor | None = None  # (..., N + M) the extrapolated potentials
    age: Tensor | None = None  # (..., 1) steps since the last restart of the momentum, -1 before the first
    steps: int = 0
    error: Tensor = torch.tensor(torch.inf)  # (...) L1 marginal error at the last step


CHECK_EVERY = 5  # steps between two looks at the marginal error on a GPU: each look waits for the device
CHECK_TOGETHER = 20  # where all of them are one launch, and later a quarter of the steps so far
LOOSE = 0.5  # misplaced mass of a plan that is too far from any coupling to go on from
TRUNCATE_EVERY = 10  # steps between two updates of the lists of tiles


SafeStep = Callable[[Score, Marginals, Tensor], tuple[Tensor, Tensor]]


def sinkhorn(
    score: Score, to: Marginals, start: Potentials, options: Sinkhorn, graph: StepGraph | None = None
) -> Potentials:
    """Run the inner loop from the given potentials.

    graph: one that earlier calls between the same weights, with the same update, have captured, to
    be used again.
    """
    z = to.begin(torch.cat([start.f, start.g], -1))  # (..., N + M)
    heat = options.annealing.temperatures() if options.annealing else []
    safe = _averaged_step if options.update == "symmetric" else _standard_step

    def advance(score: Score | PlanCache, to: Marginals, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z, ahead, age, _ = state
        if options.update != "standard":
            return _symmetric_step(score, to, z, ahead, age, options.update == "accelerated")
        assert isinstance(score, Score)
        new, error = _standard_step(score, to, ahead)
        return new, new, age, error

    fresh, error = torch.full_like(z[..., :1], -1.0), z.new_full(z.shape[:-1], torch.inf)
    for t in heat:
        hot = score * (1 / t)
        z, _, _, error = advance(hot, to, (z / t, z / t, fresh, error))
        z = t * _rescue(z, error, hot, to, safe)[0]
    ahead, age = (start.ahead, start.age) if not heat else (None, None)
    ahead = (z if ahead is None else to.begin(ahead)).clone()
    state: State = z, ahead, fresh if age is None else age, error  # a step may overwrite it
    used, graph = score if options.update == "standard" else cached(score), graph or StepGraph()
    truncates = score.truncates and options.update != "standard"
    together = None if truncates else _together(score, to, state, options.update)
    look = CHECK_EVERY if z.device.type == "cuda" else 1
    n, steps = 0, together
    while n < options.steps:  # for n = 0 to n_inner - 1
        if truncates and (n == 0 or n % TRUNCATE_EVERY == 1):
            used, steps = to.truncated(score, state[1]), None
        if steps is None or (n == 1 and together is None):
            worth = not truncates and options.steps - n >= 3 * look
            steps = graph.steps(advance, used, to, state, worth, first=n == 0)
        look = look if together is None else max(CHECK_TOGETHER, n // 4)
        take = 1 if n == 0 else min(look, options.steps - n)
        state, n = steps(state, take), n + take  # f, g <- f', g'
        z, ahead, age, error = state
        worst = float(error.max() if error.ndim else error)
        if worst == torch.inf or (worst > LOOSE and n == options.steps and options.update == "accelerated"):
            lost = (error > LOOSE)[..., None]
            z, error = _rescue(z, error, score, to, safe)
            state = z, torch.where(lost, z, ahead), torch.where(lost, fresh, age), error
        elif options.tol is not None and worst <= options.tol:
            break
    z, ahead, age, error = (t.clone() for t in state)
    return Potentials(*to.split(z), ahead, age, len(heat) + n, error)


def _together(score: Score, to: Marginals, state: State, update: str) -> Repeat | None:
    """A function that takes steps in one launch, between few points on a GPU."""
    whole = state[0].shape[:-1] == score.batch and not to.rows.shared
    if update == "standard" or not whole or not fused_for(state[0]):
        return None
    from gromap.transport import small_steps

    return small_steps.steps(score, to, update == "accelerated") if small_steps.serves(score) else None


def _symmetric_step(score: Score | PlanCache, to: Marginals, *state: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Alg. sinkhorn_symm in one sweep, from the potentials, where to look, and the rest that
    `move` takes; maybe in place."""
    if to.rows.shared:
        return shared_step(score, to, *state)
    f, g = to.split(state[1])
    totals = score.sums(f + to.log_a, g + to.log_b)
    if fused_for(f):
        from gromap.transport import potential_step

        return potential_step.move(totals, to, *state)
    return move(totals, to, *state)


def move(
    totals: tuple[Tensor, Tensor], to: Marginals, old: Tensor, ahead: Tensor, age: Tensor, momentum: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """f <- f - ½ log(r / a), g <- g - ½ log(c / b) with the row and column sums r, c of π at
    `ahead`.

    With momentum, the next step looks at new + β (new - old), where β = 0 once a step opposes the
    movement (Nesterov's extrapolation, O'Donoghue & Candès 2015). Returns the potentials, where to
    look next, the age, and the marginal error.

    After a jump of Γ or ε the exponentials may overflow, or underflow along a whole row: then no
    step is taken and the error is infinite, until `_rescue` takes it. Near the solution π_ij <=
    min(a_i, b_j) and this cannot happen.
    """
    total = torch.cat(totals, -1)
    ratio, mass = to.residual(total, ahead)
    ratio = ratio.masked_fill(to.empty, 0.0)  # points without mass keep their potential
    lost = ~torch.isfinite(ratio.sum(-1))
    error: Tensor = untyped.linalg.vector_norm(total - mass, 1, -1).masked_fill(lost, torch.inf)
    new = torch.sub(ahead, ratio.masked_fill(lost[..., None], 0.0), alpha=0.5)
    if not momentum:
        return new, new, age, error
    moved = new - old
    along = (to.mass * moved * (new - ahead)).sum(-1, keepdim=True)
    age = torch.where(along < 0, 0.0, age + 1)
    return new, torch.addcmul(new, age / (age + 3), moved), age, error


def _standard_step(score: Score, to: Marginals, z: Tensor) -> tuple[Tensor, Tensor]:
    """f from g, then g from the new f: Alg. sinkhorn. Columns come out exact; the error is that
    of the rows before."""
    f, g = to.split(z)
    new = to.half_step(score, z, 0)
    own = (to.log_a.exp() * torch.expm1((f - new).clamp(max=50.0)).abs()).sum(-1)
    (error,) = to.rows.sum(own)
    return torch.cat([new, to.half_step(score, torch.cat([new, g], -1), 1)], -1), error


def _averaged_step(score: Score, to: Marginals, z: Tensor) -> tuple[Tensor, Tensor]:
    """Alg. sinkhorn_symm as printed, through log-sum-exp; the error is not known."""
    new = torch.cat([to.half_step(score, z, side) for side in (0, 1)], -1)
    return 0.5 * (z + new), z.new_full(z.shape[:-1], torch.nan)


def _rescue(z: Tensor, error: Tensor, score: Score, to: Marginals, step: SafeStep) -> tuple[Tensor, Tensor]:
    """A step through log-sum-exp, over all tiles, for the problems that misplace more mass than
    LOOSE, or overflow.

    After a standard one, columns are exact whatever the potentials were: the plan has mass one, and
    Γ may be updated from it.
    """
    lost = error > LOOSE
    if not bool(lost.any()):
        return z, error
    new = step(score.full, to, z)[0]
    return torch.where(lost[..., None] & ~to.empty, new, z), torch.where(lost, error.clamp(max=2.0), error)

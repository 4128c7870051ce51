"""Entropic OT at a fixed score: Alg. sinkhorn and Alg. sinkhorn_symm, warm-started, annealed, counted or thresholded.

Potentials are kept in nats at the temperature asked for, f = f_paper / ε, and π_ij = a_i b_j exp(s_ij + f_i + g_j) with
s = -C/ε. At a temporary temperature t ε the score is s / t and the potentials f / t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gromap.engine import Score, lse, lse_if, sums


@dataclass(frozen=True)
class Annealing:
    """Temperatures that fall from `start` times the asked one down to it, over at most `steps` steps.

    "sqrt": ε_n = ε_0 / √n (Chizat 2024), which takes start² steps to arrive, so it is cut to `steps` of them;
    "geometric": equal ratios. The steps of the loop that follow run at the asked temperature.

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

    steps: how many steps at the asked temperature, at most.  tol: stop once the marginal error, the L1 mass that the plan
    misplaces, is below; None = always take all steps.
    update: "standard" is Alg. sinkhorn, "symmetric" is Alg. sinkhorn_symm, and "accelerated" adds momentum to it: the
    symmetrised step is a gradient step of the concave dual, so Nesterov's method with restarts needs the square root of
    the steps (on real shapes at ε = 1e-3, hundreds in place of tens of thousands).
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
    ahead: tuple[Tensor, Tensor] | None = None  # the extrapolated potentials
    age: Tensor | None = None  # (..., 1) Nesterov's t_n, 1 after a restart
    steps: int = 0
    error: Tensor = torch.tensor(torch.inf)  # (...) L1 marginal error at the last step


CHECK_EVERY = 5  # steps between two looks at the marginal error: each look waits for the device


def sinkhorn(score: Score, log_a: Tensor, log_b: Tensor, start: Potentials, options: Sinkhorn) -> Potentials:
    """Run the inner loop from the given potentials."""
    f, g = start.f, start.g
    heat = options.annealing.temperatures() if options.annealing else []
    step = _standard_step if options.update == "standard" else _symmetric_step
    for t in heat:
        f, g, _ = step(score * (1 / t), log_a, log_b, f / t, g / t)
        f, g = f * t, g * t
    ahead, age = (start.ahead, start.age) if not heat else (None, None)
    n, error = 0, start.error
    for n in range(1, options.steps + 1):
        new_f, new_g, error = step(score, log_a, log_b, *(ahead or (f, g)))
        if options.update == "accelerated":
            ahead, age = _look_ahead((f, g), ahead or (f, g), (new_f, new_g), age, (log_a.exp(), log_b.exp()))
        f, g = new_f, new_g
        if options.tol is not None and n % CHECK_EVERY == 0 and float(error.max()) <= options.tol:
            break
    return Potentials(f, g, ahead, age, len(heat) + n, error)


def _look_ahead(
    old: tuple[Tensor, Tensor],
    ahead: tuple[Tensor, Tensor],
    new: tuple[Tensor, Tensor],
    age: Tensor | None,
    weights: tuple[Tensor, Tensor],
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Nesterov's extrapolation new + β (new - old); β = 0 once the step opposes the movement (O'Donoghue & Candès 2015)."""
    move = [n - o for n, o in zip(new, old, strict=True)]
    along = torch.stack(
        [(w * m * (n - y)).sum(-1, keepdim=True) for w, m, n, y in zip(weights, move, new, ahead, strict=True)]
    ).sum(0)
    age = torch.ones_like(along) if age is None else torch.where(along < 0, torch.ones_like(age), age)
    older = (1 + (1 + 4 * age.square()).sqrt()) / 2
    beta = (age - 1) / older
    return (new[0] + beta * move[0], new[1] + beta * move[1]), older


def _symmetric_step(score: Score, log_a: Tensor, log_b: Tensor, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """f <- f - ½ log(r / a), g <- g - ½ log(c / b) with the row and column sums r, c of π: Alg. sinkhorn_symm in one sweep.

    After a jump of Γ or ε the exponentials may overflow, or underflow along a whole row: then the same step is taken
    through log-sum-exp, decided on the device. Near the solution π_ij <= min(a_i, b_j) and this cannot happen.
    """
    r, c = sums(score, f + log_a, g + log_b)
    error = (r - log_a.exp()).abs().sum(-1) + (c - log_b.exp()).abs().sum(-1)
    row = torch.where(log_a > -torch.inf, r.log() - log_a, 0.0)  # points without mass keep their potential
    col = torch.where(log_b > -torch.inf, c.log() - log_b, 0.0)
    lost = ~(torch.isfinite(row).all() & torch.isfinite(col).all())
    row = torch.where(lost, lse_if(lost, score, g + log_b) + f, row)
    col = torch.where(lost, lse_if(lost, score.mT, f + log_a) + g, col)
    return f - 0.5 * row, g - 0.5 * col, torch.where(lost, 2.0, error)


def _standard_step(score: Score, log_a: Tensor, log_b: Tensor, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """f from g, then g from the new f: Alg. sinkhorn. Columns come out exact; the error is that of the rows before."""
    new = half_step(score, log_b, g)
    error = (log_a.exp() * torch.expm1((f - new).clamp(max=50.0)).abs()).sum(-1)
    return new, half_step(score.mT, log_a, new), error


def half_step(score: Score, log_b: Tensor, g: Tensor) -> Tensor:
    """f = -log Σ_j b_j exp(s_ij + g_j): makes the row marginals exact. Also Alg. Interpolate, for new rows.  (..., N)"""
    return -lse(score, g + log_b)

"""Where to start: GW is not convex, and its local minima are the near-symmetries of the two shapes.

Γ is a tiny matrix that does not know the support of the measures, so many starts run as one batch on coarse clouds:

    1  Γ = 0; diag(±σ) on the leading axes, σ_d the largest correlation of both d-th axes; random Γ of that scale
    2  half of them cool down from temperatures at which most minima are not there yet: they find the wide ones
    3  a few outer steps; starts that came together are merged, and only the better distinct ones go on, until they settle
    4  hops from the best minima: flipped signs of one or two of their singular directions, as in 3
    5  the best distinct minima, and Γ = 0 again, on finer clouds, then those whose order is in doubt for some steps on still
       finer ones, and those that are close to a tie on the points themselves, or 5000 cells

`landmarks` lets the user choose instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap.engine import Replay, small_descents
from gromap.measure import own_generator
from gromap.sinkhorn import Potentials, Sinkhorn
from gromap.solvers.cnt import CntProblem
from gromap.solvers.loop import Loop, alternate, transport_value
from gromap.solvers.multiscale import interpolate

COARSE = 160  # points of the clouds of line 3
FINER = {"cpu": 400, "cuda": 256}  # and of line 5: as many as one launch a round serves on a GPU
HEATS = (5e-2, 1.5e-2, 5e-3)  # temperatures of line 2, over the constant part of the energy
FLIPPED, HOPPED = 3, 5  # leading axes, and singular directions, whose signs are flipped
BASES = 3  # minima to hop from
ROUND = 3  # outer steps until starts that came together are merged
OUTER = 12  # outer steps on the coarsest clouds, in one launch; where starts are merged on the way, they need more
NEARLY = 5e-3  # misplaced mass at which an outer step of the search ends
SETTLED = 0.1  # share of the tolerance of the energy, for 8 |Γ - Γ'|² of one step
SAME = 0.15  # relative distance of two Γ that count as one, entries in units of √(σ_d σ_e)
KEPT = 8  # distinct minima that are worth a finer cloud
DOUBT = 0.15  # relative gap of energies that clouds of line 5 cannot be trusted with
MIDDLE, LOOK = {"cpu": 800, "cuda": 3000}, 2  # points, and outer steps, that tell most of these apart
TIE = 0.01  # relative gap that remains
ARENA, SETTLE = 5000, 8  # points on which a tie is decided, and outer steps, at most
NEAR = 0.05  # relative gap of energies within which left and right may decide


@dataclass(frozen=True)
class Landmarks:
    """Pairs of points that belong together, as a start: Γ = Σ_k w_k X_k Y_kᵀ. Made by `landmarks`."""

    pairs: np.ndarray  # (k, 2) indices into X and Y
    weights: np.ndarray  # (k,) that sum to one


def landmarks(pairs: Any, weights: Any = None) -> Landmarks:
    """Start a match from pairs of points that belong together: `solve(X, Y, init=landmarks([[0, 5], [7, 2]]))`.

    pairs: (k, 2) indices, one of X and one of Y.  weights: how much each pair counts, None = equally.

    >>> landmarks([[0, 5], [7, 2]]).weights
    array([0.5, 0.5])
    """
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1:] != (2,) or len(array) == 0 or array.dtype.kind not in "iu":
        raise ValueError(f"landmarks are (k, 2) integer indices, one of X and one of Y, got {array.dtype} {array.shape}.")
    for side, name in enumerate("XY"):
        index, count = np.unique(array[:, side], return_counts=True)
        if count.max() > 1:
            raise ValueError(
                f"landmark {int(index[count.argmax()])} of {name} is used {count.max()} times: use each point once."
            )
    if weights is None:
        return Landmarks(array.astype(np.int64), np.full(len(array), 1 / len(array)))
    w = _check.tensor(weights, "the weights of the landmarks").double().numpy()
    if w.shape != (len(array),) or not (w > 0).all():
        raise ValueError(f"{len(array)} landmarks need as many weights > 0, got {w}.")
    return Landmarks(array.astype(np.int64), w / w.sum())


def landmark_start(given: Landmarks, x: Tensor, y: Tensor) -> Tensor:
    """Γ = Σ_k w_k X_k Y_kᵀ.  (D, E)"""
    for side, (name, z) in enumerate((("X", x), ("Y", y))):
        index = given.pairs[:, side]
        if index.min() < 0 or index.max() >= len(z):
            bad = int(index.min() if index.min() < 0 else index.max())
            raise ValueError(f"landmark {bad} of {name} is out of range: {name} has the points 0 to {len(z) - 1}.")
    left, right = (z[torch.from_numpy(given.pairs[:, k]).to(z.device)].double() for k, z in enumerate((x, y)))
    return left.mT @ (torch.from_numpy(given.weights).to(left)[:, None] * right)


@dataclass(frozen=True)
class Search:
    """Options of the global search: `init="auto"` is `init=Search()`.

    starts: random Γ to try, beside the sign flips.  chirality: among minima within 5 % of the best, prefer the one that
    keeps left and right apart, for clouds in space: GW itself cannot tell a shape from its mirror image.
    """

    starts: int = 100
    chirality: bool = False

    def __post_init__(self) -> None:
        if self.starts < 0:
            raise ValueError(f"Search needs starts >= 0, got {self.starts}.")


def grain(problem: CntProblem) -> Tensor:
    """√(σ_d σ_e), to compare Γ by: as it is, a long axis hides the others; in correlations, noise counts as much.  (D, E)"""
    sx, sy = problem.spread
    unit = (sx[:, None] * sy).sqrt()
    return unit.clamp(min=max(1e-6 * float(unit.max()), 1e-30))  # all points may be one


def sign_flips(sx: Tensor, sy: Tensor, axes: int = FLIPPED) -> Tensor:
    """Γ = 0, and the matrices that correlate the leading axes of both clouds with every choice of signs.  (S, D, E)"""
    axes = min(axes, len(sx), len(sy))
    signs = torch.tensor([(0.0,) * axes, *itertools.product((1.0, -1.0), repeat=axes)], dtype=sx.dtype, device=sx.device)
    gamma = sx.new_zeros(len(signs), len(sx), len(sy))
    index = torch.arange(axes, device=sx.device)
    gamma[:, index, index] = signs * sx[:axes] * sy[:axes]
    return gamma


def random_starts(sx: Tensor, sy: Tensor, count: int, seed: int) -> Tensor:
    """Entries uniform in [-1, 1], times the largest correlation that the two axes can have.  (count, D, E)"""
    draw = torch.rand(count, len(sx), len(sy), dtype=torch.float64, generator=own_generator(seed))
    return (2 * draw - 1).to(sx) * sx[:, None] * sy


def hops(gamma: Tensor, directions: int = HOPPED) -> Tensor:
    """Γ with the signs of one or two of its leading singular directions flipped.  (H, D, E)"""
    u, s, vt = torch.linalg.svd(gamma, full_matrices=False)
    few = range(min(directions, s.shape[-1]))
    flips = [c for k in (1, 2) for c in itertools.combinations(few, k)]
    signs = s.new_ones(len(flips), s.shape[-1])
    for row, chosen in enumerate(flips):
        signs[row, list(chosen)] = -1.0
    return (u[..., None, :, :] * (signs * s[..., None, :])[..., None, :] @ vt[..., None, :, :]).flatten(0, -3)


@dataclass(frozen=True)
class Minima:
    """Distinct minima of one problem, the lowest first."""

    gamma: Tensor  # (K, D, E)
    energy: Tensor  # (K,)
    f: Tensor  # (K, N) potentials in nats
    g: Tensor  # (K, M)
    count: Tensor  # (K,) starts that went there

    def __len__(self) -> int:
        return len(self.energy)

    def take(self, k: list[int] | slice) -> Minima:
        return Minima(self.gamma[k], self.energy[k], self.f[k], self.g[k], self.count[k])

    def duals(self, k: int) -> Potentials:
        return Potentials(self.f[k], self.g[k])


def descend(
    problem: CntProblem,
    gamma: Tensor,
    tol: float,
    keep: int | None = None,
    count: Tensor | None = None,
    steps: int = 31,
    rounds: int = 8,
    outer: int | None = None,
) -> Minima:
    """Run a batch of starts down to distinct minima, merged on the way; small clouds on a GPU take one launch for all of it.

    tol: energies that change by less in a round have settled.  keep: of the distinct ones, the worse third is dropped in each
    round, down to so many; None = all are kept to the end.  count: how many starts each one stands for.  outer: steps in one
    launch, None = those of all rounds.
    """
    count, unit = gamma.new_ones(len(gamma)) if count is None else count, grain(problem)
    found = _launch(problem, gamma, count, tol, steps, outer or ROUND * rounds)
    if found is not None:  # starts run side by side there, so that merging them saves no time
        return found if rounds == 1 else _merged(found, unit)[0].take(slice(keep))
    options = Loop(Sinkhorn(steps, tol=NEARLY), adaptive=False, max_iter=ROUND, tol=1e-3 * tol)
    f, g = (w.new_zeros(len(gamma), len(w)) for w in (problem.a, problem.b))
    found, replay = Minima(gamma, torch.full_like(count, torch.inf), f, g, count), Replay()
    for _ in range(rounds):
        end = alternate(problem, found.gamma, Potentials(found.f, found.g), options, replay=replay)
        settled = (found.energy - end.energy).abs() <= tol
        found, pick = _merged(Minima(end.gamma, end.energy, end.duals.f, end.duals.g, found.count), unit)
        most = None if keep is None else max(keep, 2 * len(found) // 3)
        found, pick = found.take(slice(most)), pick[:most]
        if bool(settled[pick].all()):
            break
    return found


def _launch(problem: CntProblem, gamma: Tensor, count: Tensor, tol: float, steps: int, outer: int) -> Minima | None:
    """Where a batch of starts is after so many outer steps, or has settled; None where no kernel serves such clouds."""
    clouds = problem.x, problem.y, (problem.x_norms, problem.y_norms), (problem.log_a, problem.log_b)
    end = small_descents(*clouds, gamma, problem.eps, outer, steps, NEARLY, SETTLED * tol)
    if end is None:
        return None
    energy, _ = problem.energy(end.gamma, end.new, transport_value(problem, Potentials(end.f, end.g), end.rows))
    return Minima(end.gamma, energy, end.f, end.g, count)


def _merged(minima: Minima, unit: Tensor) -> tuple[Minima, Tensor]:
    """The distinct ones, and which these are."""
    energy = minima.energy.nan_to_num(nan=torch.inf)
    pick, count = distinct(minima.gamma / unit, energy, minima.count)
    gamma, energy, f, g = (z[pick] for z in (minima.gamma, energy, minima.f, minima.g))
    return Minima(gamma, energy, f, g, count), pick


def cooled(problem: CntProblem, gamma: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """Line 2: Γ after a few outer steps at each of HEATS, merged, and how many starts each one stands for.  (K, D, E), (K,)"""
    count = gamma.new_ones(len(gamma))
    for eps in (share * problem.constant for share in HEATS):
        if eps > problem.eps:
            warm = descend(problem.at(eps), gamma, tol, count=count, rounds=1)
            gamma, count = warm.gamma, warm.count
    return gamma, count


def merge(gamma: Tensor, energy: Tensor, same: float = SAME) -> Tensor:
    """For each Γ the index of the lowest one that it is the same as, within a relative distance.  (S,)"""
    order = energy.argsort(stable=True)
    flat = gamma[order].flatten(1)
    size = flat.norm(dim=1)
    gaps = (torch.cdist(flat, flat) <= same * size).cpu().numpy()  # [i, j]: i is the same as j
    owner, leaders = np.arange(len(order)), []
    for i in range(len(order)):
        near = [j for j in leaders if gaps[i, j]]
        if near:
            owner[i] = near[0]
        else:
            leaders.append(i)
    where = torch.empty_like(order)
    where[order] = order[torch.from_numpy(owner).to(order.device)]
    return where


def distinct(gamma: Tensor, energy: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The indices of distinct Γ, the lowest first, and how many starts each stands for.  (K,) twice"""
    owner = merge(gamma, energy)
    kept = owner.unique()
    kept = kept[energy[kept].argsort(stable=True)]
    return kept, torch.zeros_like(count).index_add_(0, owner, count)[kept]


def coarse_minima(problem: CntProblem, tol: float, seed: int, search: Search) -> tuple[Tensor, Tensor]:
    """Lines 1 to 4: distinct Γ on coarse clouds, the lowest first, and how many starts each stands for.  (K, D, E), (K,)"""
    coarse = problem.coarser(COARSE, COARSE)
    drawn = random_starts(*coarse.spread, search.starts, seed)
    half = len(drawn) // 2
    gamma, count = cooled(coarse, torch.cat([sign_flips(*coarse.spread), drawn[:half]]), tol)
    count = torch.cat([count, count.new_ones(len(drawn) - half)])
    first = descend(coarse, torch.cat([gamma, drawn[half:]]), tol, keep=12, count=count, outer=OUTER)
    again = descend(coarse, hops(first.gamma[:BASES]), tol, keep=12, outer=OUTER)
    gamma, energy, count = (torch.cat(z) for z in zip(*((m.gamma, m.energy, m.count) for m in (first, again)), strict=True))
    pick, count = distinct(gamma / grain(coarse), energy, count)
    return gamma[pick], count


Hand = Callable[[CntProblem, Tensor, Potentials], float]


def best_start(
    problem: CntProblem, loop: Loop, seed: int = 0, search: Search | None = None, hand: Hand | None = None
) -> tuple[Tensor, Potentials, Minima]:
    """The lowest minimum of the search, with potentials for all points, and the distinct minima that were met.

    hand: of a match on coarse clouds, > 0 where it keeps left and right; it decides among minima that are nearly equal.
    """
    few = FINER[problem.x.device.type]
    finer = problem.coarser(few, few)
    gamma, count = coarse_minima(finer, 10 * loop.tol, seed, search or Search())
    gamma = torch.cat([gamma[:KEPT], torch.zeros_like(gamma[:1])])  # from Γ = 0 coarse clouds may lead elsewhere
    minima = descend(finer, gamma, 10 * loop.tol, count=torch.cat([count[:KEPT], torch.ones_like(count[:1])]), steps=51)
    if hand is not None:
        minima = minima.take(_keep_hand(finer, minima, hand))
    here, close = finer, int((minima.energy[:KEPT] <= _within(minima.energy, DOUBT)).sum())
    gamma, duals = minima.gamma[:close], Potentials(minima.f[:close], minima.g[:close])
    settle = replace(loop, sinkhorn=Sinkhorn(51, tol=2e-3), adaptive=False)
    for points, steps, gap in ((MIDDLE[problem.x.device.type], LOOK, TIE), (ARENA, SETTLE, 0.0)):
        if len(gamma) > 1:
            there = problem if max(len(problem.a), len(problem.b)) <= points else problem.coarser(points, points)
            if there is not here:
                duals = interpolate(here, gamma, duals, there)
            here = there
            gamma, duals = _lowest(here, gamma, duals, replace(settle, max_iter=min(loop.max_iter, steps)), gap)
    gamma, duals = gamma[0], Potentials(duals.f[0], duals.g[0])
    return gamma, duals if here is problem else interpolate(here, gamma, duals, problem), minima


def _lowest(problem: CntProblem, gamma: Tensor, duals: Potentials, loop: Loop, gap: float) -> tuple[Tensor, Potentials]:
    """Where those starts end that end within a relative gap of the lowest, the lowest first.

    They run as one batch, unless tiles may be left out, which batches cannot.
    """
    if problem.grid is None:
        ends = alternate(problem, gamma, duals, loop)
        gamma, energy, f, g = ends.gamma, ends.energy, ends.duals.f, ends.duals.g
    else:
        each = [alternate(problem, gamma[k], Potentials(duals.f[k], duals.g[k]), loop) for k in range(len(gamma))]
        parts = ((end.gamma, end.energy, end.duals.f, end.duals.g) for end in each)
        gamma, energy, f, g = (torch.stack(z) for z in zip(*parts, strict=True))
    energy = energy.nan_to_num(nan=torch.inf)
    order = energy.argsort(stable=True)
    order = order[: max(1, int((energy <= _within(energy[order], gap)).sum()))]
    return gamma[order], Potentials(f[order], g[order])


def _keep_hand(problem: CntProblem, minima: Minima, hand: Hand) -> list[int]:
    """The minima, without those that swap left and right while a nearly equal one does not."""
    near = [k for k in range(len(minima)) if float(minima.energy[k]) <= _within(minima.energy, NEAR)]
    hands = {k: hand(problem, minima.gamma[k], minima.duals(k)) for k in near}
    if max(hands.values()) <= 0:
        return list(range(len(minima)))
    return [k for k in range(len(minima)) if hands.get(k, 1.0) > 0]


def _within(energy: Tensor, gap: float) -> float:
    """The energy that lies so far above the lowest one, which comes first, relatively."""
    return float(energy[0]) + gap * abs(float(energy[0]))

"""Left and right among minima: which mirrored ones are left out, and how the others are found.

A match of a body and its mirror image differ by the signs of some singular directions of Γ, and so
does one that exchanges front and back, limb by limb, which thin bodies hardly tell from it: by the
minor ones, all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gromap._torch import svd
from gromap.search.budget import SearchBudget
from gromap.search.chirality import CLEAR
from gromap.solvers.embedded import CntProblem
from gromap.solvers.protocol import Minima
from gromap.transport.sinkhorn import Potentials

UNCLEAR = 0.75  # share of the clearest hand: a body whose limbs are front to back has 0.6, another seed 0.9 and more

# of a match on coarse clouds, > 0 where it keeps left and right
Hand = Callable[[CntProblem, Tensor, Potentials], float]


def reflections(gamma: Tensor, unit: Tensor, budget: SearchBudget) -> Tensor:
    """The best linear maps with signs of their leading singular directions turned over, and of all
    further ones together, in all combinations.  (B, D, E)

    unit: of their entries, (D, E).
    """
    u, s, vt = svd((gamma / unit)[: budget.reflected].double(), full_matrices=False)
    axes, last = budget.reflected_axes, s.shape[-1]
    turns = torch.tensor([[k >> min(d, axes) & 1 for d in range(last)] for k in range(1, 2 ** (axes + 1))])
    signs = 1 - 2.0 * turns.to(s)
    turned = (u[:, None] * (signs * s[:, None])[..., None, :]) @ vt[:, None]
    return turned.flatten(0, 1).to(unit) * unit


def keep_hand(problem: CntProblem, minima: Minima, hand: Hand, gap: float) -> Minima:
    """The minima, without those that swap left and right while a nearly equal one does not, or that
    keep them less clearly.

    Where the gap allows, also without those that swap while a higher one clearly does not.
    """
    hands = {
        k: hand(problem, minima.gamma[k], minima.potentials(k))
        for k in range(len(minima))
        if float(minima.energy[k]) <= within(minima.energy, gap)
    }
    ties = [k for k in hands if float(minima.energy[k]) <= within(minima.energy, SearchBudget.mirror_gap)]
    clearest = max(hands[k] for k in ties)
    if clearest > 0:
        left_out = [k for k in ties if hands[k] <= UNCLEAR * clearest]
    elif hands[0] < -CLEAR and max(hands.values()) > CLEAR:
        left_out = [k for k in hands if hands[k] <= CLEAR]
    else:
        return minima
    kept = minima.take([k for k in range(len(minima)) if k not in left_out])
    swapped = [float(minima.energy[k]) for k in left_out if hands[k] <= 0]
    return replace(kept, mirrored=min(swapped) / float(kept.energy[0]) - 1) if swapped else kept


def within(energy: Tensor, gap: float) -> float:
    """The energy that lies so far above the lowest one, which comes first, relatively."""
    return float(energy[0]) + gap * abs(float(energy[0]))

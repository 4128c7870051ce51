"""How much a search spends, and where: every number that the search was tuned by, with the
figure that chose it."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class SearchBudget:
    """Points, starts and steps of the global search, whose lines are listed in search.py."""

    coarse_points: int = 160
    """Points of the clouds of lines 1 to 4. 256 are not faster on a GPU, and as good."""

    finer_points: int = 400
    """Points of the clouds of line 5. On a GPU 256, as many as one launch serves."""

    heats: tuple[float, ...] = (5e-2, 1.5e-2, 5e-3)
    """Temperatures of line 2, over the constant of the energy. Without them vessels are missed
    by 2 to 5 % in 4 of 15 runs."""

    flipped_axes: int = 3
    """Leading axes whose signs are tried, 2³ of them in line 1."""

    hop_directions: int = 5
    """Singular directions whose signs are flipped in line 4, one or two at a time."""

    hop_bases: int = 3
    """Minima to hop from in line 4."""

    coarse_minima: int = 12
    """Distinct minima that line 3 keeps at least."""

    round_steps: int = 3
    """Outer steps until starts that came together are merged."""

    rounds: int = 8
    """Rounds of these, at most. 4 missed a valley of the man by 0.4 %."""

    launch_steps: int = 12
    """Outer steps of lines 3 and 4 where a batch is one launch, nothing merged on the way. 24
    are no better on 84 runs."""

    sinkhorn_steps: int = 31
    """Of each outer step of lines 2 to 4."""

    finer_sinkhorn_steps: int = 51
    """Of each outer step of line 5."""

    marginal_tol: float = 5e-3
    """Misplaced mass at which an outer step of lines 2 to 5 ends."""

    settled_share: float = 0.1
    """Share of the tolerance of the energy, for 8 |Γ - Γ'|² of one step, at which a start has
    settled."""

    same_gamma: float = 0.15
    """Relative distance of two Γ that count as one, entries in units of √(σ_d σ_e)."""

    max_minima: int = 8
    """Distinct minima that are worth a finer cloud."""

    unreliable_gap: float = 0.15
    """Relative gap of energies that the clouds of line 5 cannot tell. With 1 %, 5 of
    78 solves ended up to 5.6 % too high; 15 % leaves room."""

    middle_points: int = 800
    """Points that tell most of these apart. On a GPU 3000, the coarsest level itself."""

    middle_steps: int = 2
    """Outer steps there. One leaves up to 4 %."""

    tie_gap: float = 0.01
    """Relative gap that remains in doubt after that."""

    tie_points: int = 5000
    """Points on which a tie is decided, at most."""

    tie_steps: int = 8
    """Outer steps there, at most."""

    mirror_gap: float = 0.05
    """Relative gap of energies within which left and right may decide (Search(chirality=True))."""

    tol_share: float = 10.0
    """The search tells minima apart at this multiple of the tolerance of the loop."""

    @classmethod
    def on(cls, device: torch.device) -> SearchBudget:
        """The budget of a kind of device."""
        return cls(finer_points=256, middle_points=3000) if device.type == "cuda" else cls()

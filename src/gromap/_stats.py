"""Stats: how a solution was found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gromap._stored import plain, shown

PAIRS = ("explained", "spectrum", "cost_error")  # one for each side
EXAMPLES: dict[str, Any] = {  # of what a file holds
    **dict.fromkeys(("method", "engine", "device", "dtype"), ""),
    **dict.fromkeys(("memory", "tiles", "neglected_mass", "mirrored", "hand"), 0.0),
    **{name: [0.0] for name in ("levels", "minima", "minima_starts", "explained", "cost_error")},
    "seconds": {"": 0.0},
    "near_distortion": {"": 0.0},
    "refined_modes": 0,
    "not_refined": "",
    "spectrum": [[0.0]],
}


@dataclass(frozen=True, eq=False)
class Stats:
    """How a solution was found. What does not apply is None, or empty."""

    method: str = "?"
    engine: str = "?"  #: the file that reduced the scores: tiles, triton, mixture
    device: str = "?"
    dtype: str = "?"
    memory: int = 0  #: bytes that were expected
    seconds: dict[str, float] = field(default_factory=dict[str, float])  #: of each phase: embed, search, solve
    levels: tuple[int, ...] = ()  #: points of each level of a pyramid
    minima: np.ndarray | None = None  #: energies of the distinct minima that the search met, the lowest first
    minima_starts: np.ndarray | None = None  #: how many starts went to each
    explained: tuple[float, float] | None = None  #: shares of variance that the embeddings keep
    spectrum: tuple[tuple[float, ...], tuple[float, ...]] | None = None  #: variances along their axes
    cost_error: tuple[float, float] | None = None  #: relative errors of costs approximated by ones of low rank
    tiles: float | None = None  #: share of the tiles that were visited, where some were left out
    neglected_mass: float | None = None  #: bound on the mass of the others
    #: how far the lowest minimum that exchanges left and right lies above the one that was taken,
    #: relatively, where these were told apart
    mirrored: float | None = None
    hand: float | None = None  #: of a match of meshes: from -1, left and right are exchanged, to 1
    #: how far maps of meshes are from keeping distances between near vertices, in per cent of the
    #: root of the area: "0" that of the plan, others by their number of eigenfunctions
    near_distortion: dict[str, float] | None = None
    refined_modes: int | None = None  #: eigenfunctions of the map that was kept; 0: that of the plan
    not_refined: str | None = None  #: why there is no other map

    @property
    def runner_up(self) -> float | None:
        """How far the second lowest minimum lies above the lowest, relatively."""
        if self.minima is None or len(self.minima) < 2:
            return None
        return float(self.minima[1] / self.minima[0] - 1)

    def facts(self) -> dict[str, Any]:
        """What applies, as plain numbers and lists, for a JSON file."""
        plain = {name: z.tolist() if isinstance(z, np.ndarray) else z for name, z in asdict(self).items()}
        return {name: z for name, z in (plain | {"runner_up": self.runner_up}).items() if z is not None and z != ()}

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Stats:
        """From `facts`, or from those of an older version."""
        known: dict[str, Any] = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        if isinstance(known.get("minima"), int):  # older files count them here
            del known["minima"]
        for name, value in known.items():
            if (name in EXAMPLES and not plain(value, EXAMPLES[name])) or (name in PAIRS and len(value) != 2):
                raise ValueError(f"its stats have {name} = {shown(value)}")
        known |= {name: tuple(known[name]) for name in ("levels", "explained", "cost_error") if name in known}
        if "spectrum" in known:
            known["spectrum"] = tuple(tuple(side) for side in known["spectrum"])
        known |= {name: np.asarray(known[name]) for name in ("minima", "minima_starts") if name in known}
        known["dtype"] = str(known.get("dtype", "?")).removeprefix("torch.")
        return cls(**known)

"""The landscape of a match: its local minima, how many starts each attracts, and the plane in which they lie.

Random linear maps Γ_0 run down to the minima of D_ε as one batch on coarse clouds; minima are told apart by their Γ. A
principal component analysis of the minima, weighted by their basins, gives the plane that shows most of them, and the
objective C + 8 D_ε(Γ) is drawn on it (sec. Experiments, Fig. kids_landscape).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gromap import _check
from gromap.files import read, write
from gromap.plan import Plan
from gromap.prepare import spaces_of, units_of
from gromap.search import Minima, descend, distinct, grain, random_starts, sign_flips
from gromap.sinkhorn import Potentials, Sinkhorn, sinkhorn
from gromap.solution import Solution
from gromap.solve import solve
from gromap.solvers import CntGW, Loop
from gromap.solvers.cnt import CntProblem
from gromap.solvers.loop import transport_value
from gromap.solvers.multiscale import interpolate
from gromap.space import Space

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 100  # starts that run together
MANY = 15  # minima that are listed where nearly every start ends at one of its own


class Plane(NamedTuple):
    """The objective on a plane of linear maps: Γ(s, t) = centre + s axes[0] + t axes[1]."""

    s: np.ndarray  # (R,)
    t: np.ndarray  # (R,)
    values: np.ndarray  # (R, R) objective, values[j, i] at s[i], t[j]
    minima: np.ndarray  # (K, 2) coordinates of the minima
    centre: np.ndarray  # (D, E)
    axes: np.ndarray  # (2, D, E)


@dataclass(frozen=True)
class Landscape:
    """Distinct local minima of one problem, the lowest first."""

    found: Minima  # on the coarse clouds
    coarse: CntProblem
    starts: int  #: random starts that were run
    continuous: bool  #: a continuum of minima, of which the deepest samples are listed
    scale: str | None  #: as given to `landscape`
    spaces: tuple[Space, Space] | None = field(default=None, repr=False)  # None after `load`

    def __len__(self) -> int:
        return len(self.found)

    def __repr__(self) -> str:
        n, m = len(self.coarse.a), len(self.coarse.b)
        lines = [f"gromap.Landscape: {len(self)} minima from {self.starts} starts, on {n} x {m} coarse points"]
        if self.continuous:
            lines.append(
                "  hardly two starts end at the same minimum: the shapes are so symmetric that minima form a continuum"
            )
        shown = list(zip(self.energies, self.basins, strict=True))
        lines += [f"  {k:>3}   energy {e:.6f}   attracts {b:.1%}".replace("%", " %") for k, (e, b) in enumerate(shown[:10])]
        return "\n".join(lines + ([f"  and {len(shown) - 10} more"] if len(shown) > 10 else []))

    @property
    def minima(self) -> np.ndarray:
        """The linear map of each minimum.  (K, D, E)"""
        return self.found.gamma.cpu().numpy()

    @property
    def energies(self) -> np.ndarray:
        """The objective at each minimum, increasing.  (K,)"""
        return self.found.energy.cpu().numpy()

    @property
    def basins(self) -> np.ndarray:
        """The share of the starts that each minimum attracts.  (K,)"""
        return (self.found.count / self.found.count.sum()).cpu().numpy()

    def plan(self, k: int = 0) -> Plan:
        """The coupling of all points at one minimum: its potentials extended from the coarse clouds."""
        full, gamma = self._problem(), self.found.gamma[k]
        duals = interpolate(self.coarse, gamma, self.found.duals(k), full)
        numpy = self.spaces is None or self.spaces[0].numpy or self.spaces[1].numpy
        return Plan(full.score(gamma), duals.f + full.log_a, duals.g + full.log_b, full.a, full.b, numpy)

    def refine(self, k: int = 3, **options: Any) -> list[Solution]:
        """The k lowest minima taken to full resolution; options go to `solve`."""
        x, y = self._spaces()
        options = {"epsilon": self.coarse.eps, "scale": self.scale} | options
        return [solve(x, y, init=gamma, **options) for gamma in self.found.gamma[:k]]

    def plane(self, resolution: int = 40, margin: float = 0.35) -> Plane:
        """The objective on the plane through the minima (their PCA, weighted by their basins)."""
        if len(self) < 2:
            raise ValueError("one minimum does not span a plane: run more starts, or lower epsilon.")
        gamma, weight = self.found.gamma, self.found.count / self.found.count.sum()
        centre = (weight[:, None, None] * gamma).sum(0)
        flat = (gamma - centre).flatten(1)
        axes = torch.linalg.svd(weight.sqrt()[:, None] * flat, full_matrices=False)[2][:2]
        if len(axes) < 2 or float((flat @ axes.mT)[:, 1].abs().max()) < 1e-6 * float(flat.norm(dim=1).max()):
            spare = torch.randn(flat.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(flat)
            spare -= (spare @ axes[0]) * axes[0]
            axes = torch.stack([axes[0], spare / spare.norm()])  # two minima span a line: look across it at random
        at = flat @ axes.mT  # (K, 2)
        low, high = at.min(0).values, at.max(0).values
        half = (high - low).clamp(min=0.3 * float((high - low).max())) * (0.5 + margin)
        s, t = (
            torch.linspace(float(c - h), float(c + h), resolution, dtype=torch.float64)
            for c, h in zip((low + high) / 2, half, strict=True)
        )
        grid = torch.cartesian_prod(t, s).flip(-1).to(flat)  # rows of equal t
        values = [objective(self.coarse, centre + (part @ axes).unflatten(1, centre.shape)) for part in grid.split(BATCH)]
        array = lambda z: z.cpu().numpy()  # noqa: E731
        value = torch.cat(values).view(resolution, resolution)
        return Plane(array(s), array(t), array(value), array(at), array(centre), array(axes.unflatten(1, centre.shape)))

    def plot(self, path: str | Path | None = None, resolution: int = 40, pictures: int = 8) -> Figure:
        """The plane with contour lines, minima, basins and energies; for shapes in 2-D or 3-D also their matchings."""
        from gromap.report.landscape import landscape_figure

        figure = landscape_figure(self, resolution, pictures)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def save(self, path: str | Path) -> Path:
        """Write the minima and the coarse clouds to a .safetensors file; `gromap.Landscape.load` reads it back."""
        c, m = self.coarse, self.found
        tensors = {"x": c.x, "y": c.y, "a": c.a, "b": c.b, "gamma": m.gamma, "energy": m.energy, "f": m.f, "g": m.g}
        facts = {"starts": self.starts, "continuous": self.continuous, "scale": self.scale, "eps": c.eps}
        return write(path, "landscape", tensors | {"count": m.count}, facts)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> Landscape:
        """Read a landscape that `save` wrote. It knows the minima and the plane; for `plan` and `refine` run it anew."""

        def build(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Landscape:
            x, y, a, b, *found = (tensors[name] for name in ("x", "y", "a", "b", "gamma", "energy", "f", "g", "count"))
            coarse = CntProblem(x, y, a, b, facts["eps"])
            return cls(Minima(*found), coarse, facts["starts"], facts["continuous"], facts["scale"])

        return read(path, "landscape", device, build)

    def _spaces(self) -> tuple[Space, Space]:
        if self.spaces is None:
            raise ValueError(
                "a landscape that was loaded from a file has no points: use gromap.solve(X, Y, init=land.minima[k])."
            )
        return self.spaces

    def _problem(self) -> CntProblem:
        x, y = self._spaces()
        return CntGW(truncation=None).problem(x, y, units_of(x, y, self.scale), self.coarse.eps)


def objective(problem: CntProblem, gamma: Tensor, steps: int = 100) -> Tensor:
    """C + 8 D_ε(Γ) = C + 8 |Γ|² + OT_ε(C_Γ) for a batch of Γ, by the dual of the transport problem.  (B,)"""
    f, g = (w.new_zeros(len(gamma), len(w)) for w in (problem.a, problem.b))
    score = problem.score(gamma)
    end = sinkhorn(score, problem.log_a, problem.log_b, Potentials(f, g), Sinkhorn(steps, tol=2e-3))
    _, rows = problem.correlate(gamma, score, end.f + problem.log_a, end.g + problem.log_b)
    return problem.constant + 8 * problem.norm2(gamma) + transport_value(problem, end, rows)


def landscape(
    X: Any,
    Y: Any,
    starts: int = 500,
    a: Any = None,
    b: Any = None,
    cost: Any = "euclidean",
    epsilon: float = 1e-3,
    scale: str | None = "each",
    dim: Any = None,
    points: int = 250,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Landscape:
    """All minima of a match that so many random starts find, on clouds coarsened to so many points.

    >>> import numpy as np, gromap
    >>> t = np.linspace(0, 1, 60)
    >>> stick = np.stack([t, 0.1 * t**2], 1)
    >>> land = gromap.landscape(stick, stick, starts=20, epsilon=0.01)      # either way round
    >>> len(land), land.basins.sum().round(6).item()
    (2, 1.0)
    """
    if isinstance(starts, bool) or not isinstance(starts, int | np.integer) or starts < 1:
        raise ValueError(f"landscape needs starts >= 1, got {starts!r}.")
    eps = _check.positive(epsilon, "epsilon")
    x, y = spaces_of(X, Y, a, b, cost, dim, device, seed)
    units = units_of(x, y, scale)
    tol = Loop().tol * x.scale * y.scale / (units[0] * units[1])
    coarse = CntGW().problem(x, y, units, eps).coarser(points, points)
    gamma = torch.cat([sign_flips(*coarse.spread), random_starts(*coarse.spread, starts, seed)])[:starts]
    parts = [descend(coarse, part, 10 * tol) for part in gamma.split(BATCH)]
    gamma, energy, count = (torch.cat(z) for z in zip(*((m.gamma, m.energy, m.count) for m in parts), strict=True))
    pick, count = distinct(gamma / grain(coarse), energy, count)
    found = descend(coarse, gamma[pick], tol, count=count, steps=51, rounds=20)
    continuous = len(found) > max(MANY, starts // 3)
    if continuous:
        found = found.take(list(range(MANY)))
    return Landscape(found, coarse, int(starts), continuous, scale, (x, y))

"""The landscape of a match: its local minima, how many starts each attracts, and the plane in
which they lie.

Random linear maps Γ_0 run down to the minima of D_ε as one batch on coarse clouds; minima are told
apart by their Γ. A principal component analysis of the minima, weighted by their basins, gives the
plane that shows most of them, and the objective C + 8 D_ε(Γ) is drawn on it (sec. Experiments, Fig.
kids_landscape).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gromap import _check, _options
from gromap._files import read, save_figure, write
from gromap._pair import ALPHA, Pair
from gromap._plan import Plan
from gromap._solution import Solution
from gromap._stored import ANY, Stored
from gromap._threads import one_thread
from gromap._torch import norm, split, svd
from gromap.search.budget import RelaxedBudget
from gromap.search.descent import SAME_GAMMA, axis_units, descend, distinct
from gromap.search.proposals import random_starts, sign_flips
from gromap.search.relaxed import relaxed_minima
from gromap.search.search import Search
from gromap.search.starts import LinearMap, Moved
from gromap.solvers import CntGW, Loop, Solver
from gromap.solvers.choose import as_solver
from gromap.solvers.embedded import CntProblem
from gromap.solvers.protocol import Minima
from gromap.solvers.relaxed import Moments, RelaxedProblem
from gromap.solvers.run import solve_pair
from gromap.transport.sinkhorn import Potentials, Sinkhorn, sinkhorn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 100  # starts that run together
ROUGHLY = 10.0  # times the tolerance, for starts that are not told apart yet
LANDMARK_CHOICES = 2 * RelaxedBudget.landmark_sets  # of both sides
LISTED = 15  # minima that are listed where nearly every start ends at one of its own
LARGE_BASIN = 0.1  # share of the starts that no minimum of a continuum attracts


class Plane(NamedTuple):
    """The objective on a plane of linear maps: Γ(s, t) = center + s axes[0] + t axes[1]."""

    s: np.ndarray  # (R,)
    t: np.ndarray  # (R,)
    values: np.ndarray  # (R, R) objective, values[j, i] at s[i], t[j]
    minima: np.ndarray  # (K, 2) coordinates of the minima
    center: np.ndarray  # (D, E)
    axes: np.ndarray  # (2, D, E)


@dataclass(frozen=True)
class Landscape:
    """Distinct local minima of one problem, the lowest first."""

    found: Minima  # on the coarse clouds
    coarse: CntProblem
    starts: int  #: random starts that were run
    continuous: bool  #: a continuum of minima, of which the deepest samples are listed
    pair: Pair | None = field(default=None, repr=False)  # None after `load`
    states: list[Moments] = field(default_factory=list[Moments], repr=False)  # of matches of parts, in place of Γ

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
        lines += [
            f"  {k:>3}   energy {e:.6f}   attracts {b:.1%}".replace("%", " %") for k, (e, b) in enumerate(shown[:10], 1)
        ]
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
        return (self.found.count / self.starts).cpu().numpy()

    def plan(self, k: int = 0) -> Plan:
        """The coupling of all points at one minimum: its potentials extended from the coarse
        clouds."""
        pair, gamma = self._pair(), self.states[k] if self.states else self.found.gamma[k]
        full = CntGW(truncation=None).problem(pair)
        duals = self.coarse.interpolate(gamma, self.found.potentials(k), full)
        f = duals.f
        if self.states:
            gamma = self.coarse.carried(gamma, duals, full)
            f = f - full.plan(full.score(gamma), f, duals.g).sums[0].sum().log()
        return full.plan(full.score(gamma), f, duals.g, pair.numpy)

    def refine(self, k: int = 3, *, method: str | Solver = "auto", epsilon: float | None = None) -> list[Solution]:
        """The k lowest minima taken to full resolution.  epsilon: None = that of the landscape."""
        pair, k = self._pair(), _options.whole(k, "k")
        if epsilon is not None:
            pair = replace(pair, eps=_check.positive(epsilon, "epsilon"))
        solver = as_solver(method, pair)
        if self.states:
            return [solve_pair(pair, solver, Moved(self.plan(j))) for j in range(min(k, len(self)))]
        return [solve_pair(pair, solver, LinearMap(gamma)) for gamma in self.found.gamma[:k]]

    def plane(self, resolution: int = 40, margin: float = 0.35) -> Plane:
        """The objective on the plane through the minima (their PCA, weighted by their basins)."""
        if len(self) < 2:
            raise ValueError("one minimum does not span a plane: run more starts, or lower epsilon.")
        if self.states:
            raise ValueError(
                "matches of parts differ in what they match too, which no plane of linear maps shows: look at refine()."
            )
        gamma, weight = self.found.gamma, self.found.count / self.found.count.sum()
        center = (weight[:, None, None] * gamma).sum(0)
        flat = (gamma - center).flatten(1)
        axes = svd(weight.sqrt()[:, None] * flat, full_matrices=False)[2][:2]
        if len(axes) < 2 or float((flat @ axes.mT)[:, 1].abs().max()) < 1e-6 * float(norm(flat, dim=1).max()):
            spare = torch.randn(flat.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(flat)
            spare -= (spare @ axes[0]) * axes[0]
            axes = torch.stack([axes[0], spare / norm(spare)])  # two minima span a line: look across it at random
        at = flat @ axes.mT  # (K, 2)
        low, high = at.min(0).values, at.max(0).values
        half = (high - low).clamp(min=0.3 * float((high - low).max())) * (0.5 + margin)
        s, t = (
            torch.linspace(float(c - h), float(c + h), resolution, dtype=torch.float64)
            for c, h in zip((low + high) / 2, half, strict=True)
        )
        grid = torch.cartesian_prod(t, s).flip(-1).to(flat)  # rows of equal t
        values = [objective(self.coarse, center + (part @ axes).view(-1, *center.shape)) for part in split(grid, BATCH)]
        value = torch.cat(values).view(resolution, resolution)

        def array(z: Tensor) -> np.ndarray:
            return z.cpu().numpy()

        return Plane(array(s), array(t), array(value), array(at), array(center), array(axes.view(-1, *center.shape)))

    def plot(self, path: str | Path | None = None, resolution: int = 40, pictures: int = 8) -> Figure:
        """The plane with contour lines, minima, basins and energies; for shapes in 2-D or 3-D
        also their matchings."""
        from gromap.report.landscape import landscape_figure

        figure = landscape_figure(self, resolution, pictures)
        if path is not None:
            save_figure(figure, path, dpi=150)
        return figure

    def save(self, path: str | Path) -> Path:
        """Write the minima and the coarse clouds to a .safetensors file; `gromap.Landscape.load`
        reads it back."""
        c, m = self.coarse, self.found
        if self.states or c.fused is not None:
            raise ValueError("a landscape of parts or features is not written to a file: save what refine() gives.")
        tensors = {"x": c.x, "y": c.y, "a": c.a, "b": c.b, "gamma": m.gamma, "energy": m.energy, "f": m.f, "g": m.g}
        facts = {"starts": self.starts, "continuous": self.continuous, "eps": c.eps}
        return write(path, "landscape", tensors | {"count": m.count}, facts)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> Landscape:
        """Read a landscape that `save` wrote. It knows the minima and the plane; for `plan` and
        `refine` run it anew."""

        def build(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Landscape:
            stored = Stored(tensors, facts)
            a, b = (stored.floats(name, (ANY,), least=0.0) for name in ("a", "b"))
            x, y = (stored.floats(name, (len(w), ANY)) for name, w in (("x", a), ("y", b)))
            energy = stored.floats("energy", (ANY,))
            k = len(energy)
            gamma = stored.floats("gamma", (k, x.shape[1], y.shape[1]))
            f, g = stored.floats("f", (k, len(a))), stored.floats("g", (k, len(b)))
            count = stored.floats("count", (k,), least=0.0)
            if not k or not float(count.sum()) > 0:
                raise ValueError("it has no minima")
            if len({t.dtype for t in (x, y, a, b, f, g)}) > 1:
                raise ValueError("its clouds are in several precisions")
            coarse = CntProblem(x, y, a, b, stored.positive("eps"))
            return cls(Minima(gamma, energy, f, g, count), coarse, stored.count("starts"), stored.flag("continuous"))

        return read(path, "landscape", device, build)

    def _pair(self) -> Pair:
        if self.pair is None:
            raise ValueError(
                "a landscape that was loaded from a file has no points: use gromap.solve(X, Y, init=land.minima[k])."
            )
        return self.pair


def objective(problem: CntProblem, gamma: Tensor, steps: int = 400) -> Tensor:
    """C + 8 D_ε(Γ) = C + 8 |Γ|² + OT_ε(C_Γ) for a batch of Γ, by the dual of the transport
    problem; with features as in `CntProblem.energy`.  (B,)"""
    f, g = (w.new_zeros(len(gamma), len(w)) for w in (problem.a, problem.b))
    score = problem.score(gamma)
    end = sinkhorn(score, problem.marginals(gamma), Potentials(f, g), Sinkhorn(steps, tol=2e-3))
    _, rows = problem.correlate(gamma, score, end.f + problem.log_a, end.g + problem.log_b)
    return problem.energy(gamma, gamma, problem.transport_value(gamma, end, rows))[0]


def landscape(
    X: Any,
    Y: Any,
    a: Any = None,
    b: Any = None,
    *,
    starts: int = 500,
    points: int = 250,
    cost: Any = "euclidean",
    epsilon: float = 1e-3,
    scale: str | float | None = "auto",
    features: Any = None,
    alpha: float = ALPHA,
    feature_cost: Any = None,
    reach: Any = None,
    mass: float | None = None,
    dim: Any = "auto",
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Landscape:
    """The distinct minima that random starts lead to, on clouds coarsened to so many points; all
    else as in `solve`.

    With reach or mass, most starts are landmarks, of which only the most promising go on: `basins`
    are shares of these, and the clouds have 150 points at most.

    >>> import numpy as np, gromap
    >>> t = np.linspace(0, 1, 60)
    >>> stick = np.stack([t, 0.1 * t**2], 1)
    >>> land = gromap.landscape(stick, stick, starts=20, epsilon=0.01)      # either way round
    >>> len(land), land.basins.sum().round(6).item()
    (2, 1.0)
    """
    starts, points = _options.whole(starts, "starts"), _options.whole(points, "points", 2)
    given: dict[str, Any] = {"features": features, "alpha": alpha, "feature_cost": feature_cost}
    given |= {"reach": reach, "mass": mass, "device": device, "seed": seed}
    pair = Pair.of(X, Y, a, b, cost=cost, epsilon=epsilon, scale=scale, dim=dim, **given)
    solver = CntGW()
    solver.check(pair)
    if pair.relaxed:
        return _parts(pair, solver, starts, points)
    coarse = solver.problem(pair).coarser(points, points)
    tol = Loop.tol * coarse.unit
    gamma = torch.cat([sign_flips(*coarse.spread), random_starts(*coarse.spread, starts, pair.seed)])[:starts]
    with one_thread():
        parts = [descend(coarse, part, ROUGHLY * tol) for part in split(gamma, BATCH)]
        gamma, energy, count = (torch.cat(z) for z in zip(*((m.gamma, m.energy, m.count) for m in parts), strict=True))
        pick, count = distinct(gamma / axis_units(coarse), energy, count, SAME_GAMMA)
        found = descend(coarse, gamma[pick], tol, count=count, sinkhorn_steps=51, rounds=20)
    continuous = is_continuum(found.count, starts)
    if continuous:
        found = found.take(list(range(LISTED)))
    return Landscape(found, coarse, starts, continuous, pair)


def _parts(pair: Pair, solver: CntGW, starts: int, points: int) -> Landscape:
    """The minima of a match of parts, each as deep in the list as its energy says."""
    points = min(points, RelaxedBudget.whole)
    budget = replace(RelaxedBudget(), kept=LISTED, gap=math.inf, landmark_starts=max(1, starts // LANDMARK_CHOICES))
    coarse = solver.problem(pair).coarser(points, points)
    assert isinstance(coarse, RelaxedProblem)
    with one_thread():
        found, states = relaxed_minima(coarse, solver.loop, pair.seed, min(starts, Search.starts), budget)
    return Landscape(found, coarse, int(found.count.sum()), False, pair, states)


def is_continuum(count: Tensor, starts: int) -> bool:
    """Whether hardly two starts ended at the same minimum, given how many ended at each."""
    return len(count) > max(LISTED, starts // 3) and float(count.max()) < max(2, LARGE_BASIN * starts)

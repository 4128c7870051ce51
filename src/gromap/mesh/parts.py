"""Which points a match of parts keeps: of those that it leaves out, maps and transfers say
nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gromap._solution import Solution

HALF = 0.5  # of its weight: a point of which less is matched is left out


@dataclass(frozen=True, eq=False)
class Parts:
    """How much of both sides a match keeps."""

    kept: tuple[np.ndarray, np.ndarray]  #: of each point, over its weight: (N,) and (M,)
    means: tuple[float, float]  #: over all weight, at most all of a point counted
    below: tuple[float, float]  #: the share of the weight at points that are left out

    @property
    def matched(self) -> tuple[np.ndarray, np.ndarray]:
        """The points that are not left out.  (N,) and (M,) bool"""
        left, right = (kept >= HALF for kept in self.kept)
        return left, right

    def __str__(self) -> str:
        return "{:.1f} % of the source and {:.1f} % of the target".format(*(100 * mean for mean in self.means))


def parts(sol: Solution) -> Parts | None:
    """What a match keeps; None where it keeps all there is, by its marginals.

    >>> import gromap
    >>> X = np.random.default_rng(0).normal(size=(90, 2)) * [3, 1]
    >>> right = X[X[:, 0] > 0]
    >>> print(parts(gromap.solve(X, X)))
    None
    >>> found = parts(gromap.solve(right, X, reach=0.1, epsilon=3e-3))
    >>> [bool(0.3 < share < 0.7) for share in found.below]
    [False, True]
    """
    plan = replace(sol.plan, numpy=False)
    if plan.wanted is None:
        return None
    known = replace(sol, plan=plan)
    kept = [z.double().cpu().numpy() for z in (known.kept_X, known.kept_Y)]
    below = [float(w.double().cpu().numpy() @ (z < HALF)) for w, z in zip((plan.a, plan.b), kept, strict=True)]
    return Parts((kept[0], kept[1]), (known.matched(0), known.matched(1)), (below[0], below[1]))

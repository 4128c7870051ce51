"""Left and right of a match of two meshes, which distances do not tell: which hand it has, and the
space in whose matches the other hand is the right one.
"""

from __future__ import annotations

from copy import copy

import torch

from gromap import _check
from gromap._solution import Solution
from gromap._space import Space
from gromap.search.chirality import CLEAR, normals_of, orientation

LOWER = 0.05  # from which a match that exchanges left and right is better by more than chance


def with_hand(sol: Solution, x: Space, y: Space) -> Solution:
    """The same, which knows whether it exchanges left and right, where both meshes have two
    sides."""
    if x.normals is None or y.normals is None or x.mesh is None or y.mesh is None or sol.plan.wanted is not None:
        return sol
    points, places = (torch.as_tensor(z.mesh.vertices).double() for z in (x, y) if z.mesh is not None)
    there, (above, normals) = torch.as_tensor(sol.map()).cpu(), normals_of(x, y)
    ends = None if normals is None else normals.cpu()[there]
    hand = orientation(points, places[there], None if above is None else above.cpu(), ends)
    return sol.with_stats(hand=hand)


def is_mirrored(sol: Solution) -> bool:
    """Whether a match is known to exchange left and right."""
    return sol.stats.hand is not None and sol.stats.hand < -CLEAR


def lower(sol: Solution) -> float:
    """By how much the search met a match of the other hand below the one that was taken, as a
    share; 0 where that is not clear."""
    share = 0.0 if sol.stats.hand is None or sol.stats.mirrored is None else -sol.stats.mirrored
    return share if share > LOWER else 0.0


def reflected(space: Space) -> Space:
    """A mesh in a mirror: its distances are the same, and matches with it keep left and right where
    those with the mesh itself exchange them."""
    other, mirror = copy(space), torch.tensor([-1.0, 1.0, 1.0])
    points = space.measure.points if space.vertices is None else space.vertices
    other.vertices = points * mirror.to(points)
    other.normals = None if space.normals is None else space.normals * mirror.to(space.normals)
    return other


def tell_of(sol: Solution) -> None:
    """Warn of a match that exchanges left and right, or of one that is lower and does."""
    if is_mirrored(sol):
        _check.warn(
            "this match exchanges left and right, as if one mesh were a mirror image of the other. If it is, pass "
            "allow_mirror=True; else init=gromap.landmarks(pairs)."
        )
    elif lower(sol):
        kept = "left out" if sol.mirrored is None else "kept beside this one, as sol.mirrored"
        _check.warn(
            f"a match that exchanges left and right is {100 * lower(sol):.0f} % lower in energy, and was {kept}: where "
            "one mesh is a mirror image of the other, as right and left bones are, pass allow_mirror=True."
        )

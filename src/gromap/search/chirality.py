"""Left and right: whether a match keeps the orientation of space, which Gromov-Wasserstein
cannot see.

Four points span a signed volume. A match keeps left and right apart if the volumes of small
tetrahedra keep their sign; a mirrored one turns them over. Tetrahedra are drawn among neighbors, so
that a change of pose does not matter.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gromap._torch import untyped
from gromap.solvers.embedded import CntProblem
from gromap.solvers.objective import lifted_score
from gromap.transport.sinkhorn import Potentials

SAMPLED_POINTS = 600  # points of X that are looked at
NEIGHBORS = 60  # of them, among which the other corners are drawn
TETRAHEDRA = 4000


def handedness(problem: CntProblem) -> Callable[[CntProblem, Tensor, Potentials], float]:
    """A function of a match on coarse clouds that is > 0 where it keeps orientations, between -1
    and 1."""
    assert problem.pair is not None
    x, y = problem.pair.x, problem.pair.y
    px, py = ((s.measure.points if s.vertices is None else s.vertices).double() for s in (x, y))
    for space, points in ((x, px), (y, py)):
        if points.shape[1] != 3:
            raise ValueError(
                f"chirality needs points in space, (N, 3); {space.name} has {points.shape[1]} coordinates."
            )
    some = torch.randperm(len(px), generator=torch.Generator().manual_seed(0))[:SAMPLED_POINTS].to(px.device)
    corners = _corners(px[some])

    def hand(coarse: CntProblem, gamma: Tensor, duals: Potentials) -> float:
        """The mean sign of det(T x) / det(x), weighted by |det(x)|, for the barycentric map T of
        the match, at the temperature of the coarse clouds."""
        cols = lifted_score(gamma, coarse.x, problem.y, coarse.eps, norms=(coarse.x_norms, problem.y_norms))
        g = -cols.mT.lse(duals.f + coarse.log_a)  # Interpolate
        score = lifted_score(
            gamma, problem.x[some], problem.y, coarse.eps, norms=(problem.x_norms[some], problem.y_norms)
        )
        v = g + problem.log_b
        moved = score.apply(-score.lse(v), v, py.to(problem.y)).double()
        return _kept(px[some], moved, corners)

    return hand


def orientation(points: Tensor, images: Tensor) -> float:
    """The same for points in space and where they are sent, (N, 3) both: > 0 where left and right
    are kept apart, < 0 where the images are mirrored."""
    points, images = points.double(), images.double()
    some = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[:SAMPLED_POINTS].to(points.device)
    return _kept(points[some], images[some], _corners(points[some]))


def _kept(points: Tensor, images: Tensor, corners: Tensor) -> float:
    before, after = _volumes(points, corners), _volumes(images, corners)
    return float((before * after.sign()).sum() / before.abs().sum().clamp(min=1e-300))


def _corners(points: Tensor) -> Tensor:
    """Indices of random tetrahedra among neighbors.  (T, 4)"""
    generator = torch.Generator().manual_seed(1)
    near = torch.cdist(points, points).topk(min(NEIGHBORS, len(points)), largest=False).indices
    first = torch.randint(len(points), (TETRAHEDRA,), generator=generator).to(points.device)
    others = torch.randint(near.shape[1], (TETRAHEDRA, 3), generator=generator).to(points.device)
    return torch.cat([first[:, None], near[first].gather(1, others)], 1)


def _volumes(points: Tensor, corners: Tensor) -> Tensor:
    p = points[corners]
    return untyped.linalg.det(p[:, 1:] - p[:, :1])

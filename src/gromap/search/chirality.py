"""Left and right: whether a match keeps the orientation of space, which Gromov-Wasserstein
cannot see.

Four points span a signed volume. A match keeps left and right apart if the volumes of small
tetrahedra keep their sign; a mirrored one turns them over. Tetrahedra are drawn among neighbors, so
that a change of pose does not matter. Where surfaces are open, the fourth corner lies above the
first one, along its normal: so sheets that bend the other way are not taken for mirrored ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gromap._space import Space
from gromap._torch import untyped
from gromap.solvers.embedded import CntProblem
from gromap.solvers.objective import lifted_score
from gromap.transport.sinkhorn import Potentials

SAMPLED_POINTS = 600  # points of X that are looked at
NEIGHBORS = 60  # of them, among which the other corners are drawn
NEAR_NEIGHBORS = 20  # the same for normals
CLEAR = 0.1  # from which left and right are told apart; right matches have 0.3 and more, blurred ones of bodies 0.2
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
    some = _some(px)
    above, there = normals_of(x, y)
    frames = _Frames(px[some], None if above is None else above[some])
    targets = py if there is None else torch.cat([py, there], 1)

    def hand(coarse: CntProblem, gamma: Tensor, duals: Potentials) -> float:
        """The mean sign of det(T x) / det(x), weighted by |det(x)|, for the barycentric map T of
        the match, at the temperature of the coarse clouds."""
        cols = lifted_score(gamma, coarse.x, problem.y, coarse.eps, norms=(coarse.x_norms, problem.y_norms))
        g = -cols.mT.lse(duals.f + coarse.log_a)  # Interpolate
        score = lifted_score(
            gamma, problem.x[some], problem.y, coarse.eps, norms=(problem.x_norms[some], problem.y_norms)
        )
        v = g + problem.log_b
        return frames.kept(score.apply(-score.lse(v), v, targets.to(problem.y)).double())

    return hand


def normals_of(x: Space, y: Space) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """The normals of two surfaces with two sides, of which one is open. Solids are told by their
    tetrahedra, which a blurred match keeps better."""
    if x.normals is None or y.normals is None or (x.closed and y.closed):
        return None, None
    return x.normals, y.normals


def orientation(
    points: Tensor, images: Tensor, normals: Tensor | None = None, image_normals: Tensor | None = None
) -> float:
    """The same for points in space and where they are sent, (N, 3) both: > 0 where left and right
    are kept apart, < 0 where the images are mirrored. normals: of two surfaces, at the points and
    at their images."""
    points, images, some = points.double(), images.double(), _some(points)
    if normals is None or image_normals is None:
        return _Frames(points[some]).kept(images[some])
    frames = _Frames(points[some], normals[some].double())
    return frames.kept(torch.cat([images, image_normals.double()], 1)[some])


def _some(points: Tensor) -> Tensor:
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
    return order[:SAMPLED_POINTS].to(points.device)


class _Frames:
    """Random tetrahedra among neighbors, and their volumes."""

    def __init__(self, points: Tensor, normals: Tensor | None = None):
        generator = torch.Generator().manual_seed(1)
        most = NEIGHBORS if normals is None else NEAR_NEIGHBORS
        near = torch.cdist(points, points).topk(min(most, len(points)), largest=False).indices
        first = torch.randint(len(points), (TETRAHEDRA,), generator=generator).to(points.device)
        others = torch.randint(near.shape[1], (TETRAHEDRA, 3), generator=generator).to(points.device)
        self.corners = torch.cat([first[:, None], near[first].gather(1, others)], 1)  # (T, 4)
        self.before = self._volumes(points if normals is None else torch.cat([points, normals.double()], 1))

    def kept(self, images: Tensor) -> float:
        """The mean sign of the volumes of images, times that of before, weighted by |volume|.

        images: (n, 3), or (n, 6) with their normals.
        """
        same = self.before * self._volumes(images).sign()
        return float(same.sum() / self.before.abs().sum().clamp(min=1e-300))

    def _volumes(self, points: Tensor) -> Tensor:
        p = points[self.corners]  # (T, 4, 3), or 6
        sides = p[:, 1:, :3] - p[:, :1, :3]
        if points.shape[1] == 6:
            sides[:, 2] = p[:, 0, 3:]
        return untyped.linalg.det(sides)

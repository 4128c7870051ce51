"""What a plan carries to the target: colors, fields, labels and textures (App. "Transport plan
visualizations").

    C_Y(y) = ∫ C_X(x) dπ(x, y) / (dα(x) dβ(y)) dα(x)     each target point takes the mean

Where the vertex map is known better than the plan tells, as between two refined meshes, each target
vertex takes the mean over the images of itself and its neighbors: the map sends vertices to
vertices, and this evens out by how much they miss.

A texture is carried by its texture coordinates. On a seam a vertex has several of them, whose mean
is meaningless, so the mean is taken on one side of the seam at a time: the side on which most of a
target face lies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree

from gromap._plan import Plan
from gromap.mesh.clean import components
from gromap.mesh.mesh import Mesh
from gromap.mesh.texture import checkerboard, split, with_texture
from gromap.transport.marginals import Marginals, half_step
from gromap.transport.sinkhorn import Annealing, Potentials, Sinkhorn, sinkhorn

TOP = 16  # source points that the texture coordinates of a target vertex are averaged over, where there are seams
WINDOW = 0.25  # of the extent of a chart: points farther apart are on two sides of a seam
NEIGHBORS = 12  # of a target vertex, whose images count beside its own
FACES_AT_ONCE = 4096  # target faces per batch


def push(plan: Plan, values: Any) -> Any:
    """`Solution.push` for a plan: values on the source, (N, ...), to the target, (M, ...)."""
    return plan.T.conditional_mean(values)


def push_labels(plan: Plan, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """For each target point the label it receives most of, and its share of what it receives.
    (M,), (M,)

    >>> import gromap
    >>> X = np.random.default_rng(0).normal(size=(40, 3)) * [3, 2, 1]
    >>> plan = gromap.solve(X, X[::-1]).plan
    >>> bool((push_labels(plan, X[:, 0] > 0)[0] == (X[::-1, 0] > 0)).mean() > 0.9)
    True
    """
    return replace(plan.T, numpy=True).majority(np.asarray(labels))


def pull_back(values: Any, target: Mesh, back: np.ndarray) -> np.ndarray:
    """Values on the source, (N, ...), to the target, (M, ...), along a map from target vertices to
    source vertices.

    >>> square = Mesh(np.eye(4)[:, :3], np.array([[0, 1, 2], [0, 2, 3]]))
    >>> pull_back([0.0, 1.0, 2.0, 3.0], square, np.array([3, 2, 1, 0])).tolist()
    [1.5, 2.0, 1.5, 1.0]
    """
    return np.asarray(values)[_images(target, back)].mean(1)


def _images(target: Mesh, back: np.ndarray) -> np.ndarray:
    """Where a map sends each target vertex and its neighbors.  (M, k)"""
    return back[np.column_stack([np.arange(len(back)), target.ring(NEIGHBORS)])]


def colored(target: Mesh, source: Mesh, plan: Plan, back: np.ndarray | None = None) -> Mesh:
    """The target in the colors that it receives.  back: a map from target to source, to be followed
    in place of the plan."""
    _fits(target, source, plan)
    if source.colors is None:
        raise ValueError(
            "the source has no colors: give it some, as replace(source, colors=rgb) with (N, 3) in [0, 1]."
        )
    if back is not None:
        return replace(target, colors=pull_back(source.colors, target, back))
    return replace(target, colors=push(replace(plan, numpy=True), source.colors).clip(0, 1))


def sharpen(plan: Plan, factor: float = 4.0, steps: int = 1000, tol: float = 1e-2) -> Plan:
    """The plan of the same linear map at a temperature so many times lower: nearly a map, for
    textures.

    The temperature falls as ε_n = ε_0 / √n (Chizat 2024), as in the paper's last step; then at most
    `steps` steps are taken, until the plan misplaces less than `tol` of the mass. Γ stays as it is,
    and so do, in a match of parts, its marginals.

    >>> import gromap
    >>> X = np.random.default_rng(0).normal(size=(40, 3)) * [3, 2, 1]
    >>> plan = gromap.solve(X, X[::-1]).plan
    >>> bool(sharpen(plan).dense().max(1).mean() > plan.dense().max(1).mean())
    True
    """
    if not factor > 1:
        raise ValueError(f"sharpen divides the temperature by a factor > 1, got {factor}.")
    score = plan.score.full * factor
    a, b = (plan.a, plan.b) if plan.wanted is None else plan.sums
    log_a, log_b = a.log(), b.log()
    f, g = (factor * torch.where(w > 0, z - w.log(), 0.0) for z, w in ((plan.u, a), (plan.v, b)))
    cooling = Annealing(factor, int(np.ceil(factor**2)), "sqrt")
    end = sinkhorn(score, Marginals(log_a, log_b), Potentials(f, g), Sinkhorn(steps, tol, annealing=cooling))
    return replace(plan, score=score, u=half_step(score, log_b, end.g) + log_a, v=end.g + log_b)


def textured(target: Mesh, source: Mesh, plan: Plan, back: np.ndarray | None = None) -> Mesh:
    """The target in the source's texture.  back: as in `colored`.

    A source without uv gets a planar projection (`with_texture`), one without an image a
    checkerboard. Without seams every target vertex takes the mean texture coordinates of what it
    receives, as in the paper. With seams each face chooses a side, and its corners the mean over
    those of their 16 largest entries that are on it. Faces across a seam then end at the seam: they
    show a little less, or more, of one side than they should, and the texture may jump by the blur
    of the plan.
    """
    _fits(target, source, plan)
    if not len(target.faces):
        raise ValueError("the target is a cloud, which has no faces to put a texture on: use `colored`.")
    source = source if source.uv is not None else with_texture(source, texture=source.texture)
    texture = source.texture if source.texture is not None else checkerboard()
    original, faces, uv = split(source)
    plan = replace(plan, numpy=True)
    if len(original) == len(source.vertices):
        carried = push(plan, uv) if back is None else pull_back(uv, target, back)
        return replace(target, uv=carried[target.faces].astype(np.float64), texture=texture)
    if back is None:
        senders, shares = _largest(plan)
    else:
        senders = _images(target, back)
        shares = np.full(senders.shape, 1 / senders.shape[1])
    return replace(target, uv=_across_seams(target, source, senders, shares, original, faces, uv), texture=texture)


def _largest(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """The source points that each target point receives most of, and their shares of it.  (M, k)
    twice"""
    score = plan.score.full.mT
    # rows sum to at most 1
    near = Plan(score, -score.lse(plan.u), plan.u, plan.b, plan.a).sparse(min(TOP, plan.shape[0]))
    senders = near.indices.reshape(plan.shape[1], -1)
    return senders, np.asarray(near.data, np.float64).reshape(senders.shape)


def _across_seams(
    target: Mesh,
    source: Mesh,
    senders: np.ndarray,
    shares: np.ndarray,
    original: np.ndarray,
    faces: np.ndarray,
    uv: np.ndarray,
) -> np.ndarray:
    """Texture coordinates of each target corner.  senders, shares: (M, k) source points and what
    each target point receives of them; original, faces, uv: the wedges of the source, from `split`.
    (F, 3, 2)"""
    count, chart = components(Mesh(source.vertices[original], faces))
    low, high = np.full((count, 2), np.inf), np.full((count, 2), -np.inf)
    np.minimum.at(low, chart, uv)
    np.maximum.at(high, chart, uv)
    extent = (high - low).max(1).clip(1e-12)  # (charts,)
    wedges = _table(original, len(source.vertices))  # (N, K)
    best = np.take_along_axis(senders, shares.argmax(1)[:, None], 1)[:, 0]

    def apart(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Distances between wedges in the texture, in units of their chart; inf across a seam."""
        far = np.linalg.norm(uv[one] - uv[other], axis=-1) / extent[chart[one]]
        cut = (one < 0) | (other < 0) | (chart[one] != chart[other]) | (far > WINDOW)
        return np.where(cut, np.inf, far)

    out = np.empty((len(target.faces), 3, 2))
    for start in range(0, len(target.faces), FACES_AT_ONCE):
        corners = target.faces[start : start + FACES_AT_ONCE]  # (C, 3)
        own = wedges[best[corners]]  # (C, 3, K)
        sides = own.reshape(len(corners), -1)  # (C, 3K) where the face may lie
        spread = apart(sides[:, :, None, None], own[:, None]).min(-1)  # (C, 3K, 3)
        anchor = np.take_along_axis(sides, np.minimum(spread, 10.0).sum(-1).argmin(1)[:, None], 1)[:, 0]  # (C,)
        sent = wedges[senders[corners]]  # (C, 3, k, K)
        gap = apart(sent, anchor[:, None, None, None])
        closest = gap.argmin(-1)[..., None]
        share = shares[corners] * np.isfinite(np.take_along_axis(gap, closest, -1)[..., 0])  # (C, 3, k)
        place = uv[np.take_along_axis(sent, closest, -1)[..., 0]]  # (C, 3, k, 2)
        total = share.sum(-1)  # (C, 3)
        mean = (share[..., None] * place).sum(2) / total.clip(np.finfo(np.float64).tiny)[..., None]
        face, corner = np.nonzero(total == 0)  # corners that receive nothing from the side of their face
        points = source.vertices[best[corners[face, corner]]]
        mean[face, corner] = _snapped(points, anchor[face], source.vertices[original], chart, uv)
        out[start : start + FACES_AT_ONCE] = mean
    return out


def _snapped(
    points: np.ndarray, anchor: np.ndarray, wedges: np.ndarray, chart: np.ndarray, uv: np.ndarray
) -> np.ndarray:
    """Texture coordinates of the nearest wedge in the anchor's chart, on the anchor's side of
    the seam.  (n, 2)"""
    out = uv[anchor]
    for c in np.unique(chart[anchor]):
        inside, mine = np.flatnonzero(chart == c), np.flatnonzero(chart[anchor] == c)
        few = KDTree(wedges[inside]).query(points[mine], k=min(8, len(inside)))[1].reshape(len(mine), -1)
        places = uv[inside[few]]
        closest = np.linalg.norm(places - uv[anchor[mine]][:, None], axis=-1).argmin(1)
        out[mine] = places[np.arange(len(mine)), closest]
    return out


def _table(original: np.ndarray, n: int) -> np.ndarray:
    """The wedges of each vertex, -1 where there are fewer.  (N, K)"""
    order = np.argsort(original, kind="stable")
    counts = np.bincount(original, minlength=n)
    rank = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)
    table = np.full((n, counts.max()), -1)
    table[original[order], rank] = order
    return table


def _fits(target: Mesh, source: Mesh, plan: Plan) -> None:
    if plan.shape != (len(source.vertices), len(target.vertices)):
        raise ValueError(
            f"the plan is {plan.shape[0]} x {plan.shape[1]}, the source has {len(source.vertices)} vertices and the "
            f"target {len(target.vertices)}: give the meshes that were matched, source second."
        )

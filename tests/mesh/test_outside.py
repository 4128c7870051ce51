"""Left and right of meshes that have two sides are told apart, whatever the file is like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gromap import Event, Status
from gromap.datasets import humans
from gromap.mesh import Mesh, match
from gromap.mesh.outside import outside
from tests.conftest import rotation
from tests.mesh.test_embedding import book, grid

FAST: dict[str, Any] = {"refine": False}
SOLID = np.array([-1, 1, 1])  # the mirror image is of the first axis


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("GROMAP_CACHE", "off")


def mirror_image(mesh: Mesh) -> Mesh:
    """With its outside outside."""
    return replace(mesh, vertices=mesh.vertices * SOLID, faces=mesh.faces[:, ::-1].copy())


def solid(twist: float) -> Mesh:
    """A bent drop, closed; it is its own mirror image, unless it is twisted."""
    height, around = 26, 24
    t, u = np.meshgrid(np.linspace(0, np.pi, height)[1:-1], np.linspace(0, 2 * np.pi, around, endpoint=False))
    ring = np.stack([np.sin(t) * np.cos(u), np.sin(t) * np.sin(u), np.cos(t)], -1).transpose(1, 0, 2).reshape(-1, 3)
    x, y, z = np.concatenate([ring, [[0, 0, 1], [0, 0, -1]]]).T
    width = 1.2 + 0.5 * z
    points = np.stack([0.6 * width * x, width * y + 0.5 * z**2 + 0.6 * y**2, 2.5 * z], 1)
    points[:, 0] += twist * z * points[:, 1]
    k = np.arange((height - 2) * around).reshape(height - 2, around)
    p, q, r, s = k[:-1], np.roll(k, -1, 1)[:-1], k[1:], np.roll(k, -1, 1)[1:]
    north, south = len(points) - 2, len(points) - 1
    faces = [np.stack(corners, -1).reshape(-1, 3) for corners in ((p, r, s), (p, s, q))]
    faces += [np.stack([np.full(around, north), k[0], np.roll(k[0], -1)], 1)]
    faces += [np.stack([np.full(around, south), np.roll(k[-1], -1), k[-1]], 1)]
    return Mesh(points, np.concatenate(faces))


def test_normals_point_outwards_whatever_the_order_of_corners():
    mesh = solid(0.0)
    found, turned = (outside(replace(mesh, faces=faces)) for faces in (mesh.faces, mesh.faces[:, ::-1]))
    assert found is not None
    assert turned is not None
    assert found.closed
    assert turned.normals == pytest.approx(found.normals)
    assert ((mesh.vertices - mesh.vertices.mean(0)) * found.normals).sum(1).mean() > 0


def band() -> Mesh:
    """A Moebius band of 24 vertices."""
    t = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    rims = [
        np.stack([(2 + s * np.cos(t / 2)) * np.cos(t), (2 + s * np.cos(t / 2)) * np.sin(t), s * np.sin(t / 2)], 1)
        for s in (-0.5, 0.5)
    ]
    ahead = [k + 1 for k in range(11)] + [12]  # once around, the other rim follows
    faces = [f for k, j in enumerate(ahead) for f in ([k, j, k + 12], [j, (j + 12) % 24, k + 12])]
    return Mesh(np.concatenate(rims), np.array(faces))


def test_what_has_no_two_sides_has_no_outside():
    mesh = grid()
    found = outside(mesh)
    assert found is not None
    assert not found.closed
    assert outside(replace(mesh, faces=np.concatenate([mesh.faces[:1, ::-1], mesh.faces[1:]]))) is None
    assert outside(book()) is None  # three pages at one edge
    assert outside(replace(mesh, faces=mesh.faces[:0])) is None
    assert outside(band()) is None


@pytest.mark.parametrize("faces", ["as they are", "inside out"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_mirror_image_of_a_symmetric_solid_is_matched_hand_to_hand(faces, seed):
    """Also where a file has its faces inside out, in any pose and order of vertices."""
    mesh = solid(0.0)
    other = mirror_image(mesh)
    order = np.random.default_rng(seed).permutation(len(mesh.vertices))
    turn = rotation(3, seed) * np.sign(np.linalg.det(rotation(3, seed)))
    corners = np.argsort(order)[other.faces][:, :: -1 if faces == "inside out" else 1]
    moved = Mesh((other.vertices @ turn)[order], corners)
    sol = match(mesh, moved, seed=seed, **FAST)
    places = other.vertices[order][sol.map()]
    kept, mirrored = (np.linalg.norm(places - mesh.vertices * [s, 1, 1], axis=1).mean() for s in (1, -1))
    assert kept < 0.5 * mirrored
    assert sol.stats.hand is not None
    assert sol.stats.hand > 0.3


def test_a_mirror_image_is_taken_for_one_where_that_is_allowed():
    """Of a solid without any symmetry, which fits its mirror image in one way only."""
    mesh = solid(0.5)
    other = mirror_image(mesh)
    allowed = match(mesh, other, allow_mirror=True, **FAST)
    assert np.linalg.norm(other.vertices[allowed.map()] - other.vertices, axis=1).mean() < 0.2
    assert allowed.stats.hand is not None
    assert allowed.stats.hand < -0.3
    with pytest.warns(UserWarning, match=r"exchanges left and right.*sol.mirrored.*allow_mirror=True"):
        sol = match(mesh, other, **FAST)
    assert sol.stats.hand is not None
    assert sol.stats.mirrored is not None
    assert sol.stats.hand > 0.1
    assert sol.stats.mirrored < -0.05
    assert sol.value_gw > allowed.value_gw
    assert sol.mirrored is not None  # and is kept beside it
    assert sol.mirrored.value == pytest.approx(allowed.value, rel=1e-3)
    assert sol.mirrored.stats.hand == pytest.approx(allowed.stats.hand, abs=0.05)
    assert (sol.mirrored.map() == allowed.map()).mean() > 0.9
    assert "mirrored        a match that exchanges left and right is" in str(sol)
    assert match(mesh, mesh, **FAST).mirrored is None
    assert allowed.mirrored is None


def test_ctrl_c_during_the_match_of_the_other_hand_keeps_the_first():
    mesh = solid(0.5)

    def press(event: Event) -> None:
        if str(event).startswith("mirrored, step 1"):
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="was left out"):
        sol = match(mesh, mirror_image(mesh), callback=press, **FAST)
    assert (sol.status, sol.mirrored) == (Status.INTERRUPTED, None)
    assert sol.stats.hand is not None
    assert sol.stats.hand > 0.1


def test_a_body_is_not_matched_front_to_back():
    """A match that exchanges left and right, and front and back of each limb, is lower by 1 % here,
    and keeps the hand by half."""
    pair = humans()
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    order = rng.permutation(len(pair.target.vertices))
    source = Mesh(pair.source.vertices.astype(np.float32), pair.source.faces)
    points = (pair.target.vertices @ turn)[order].astype(np.float32)
    sol = match(source, Mesh(points, np.argsort(order)[pair.target.faces]), **FAST)
    direct, mirrored = pair.errors(order[sol.map()])
    assert direct < 0.03 < 0.1 < mirrored


def test_sheets_that_bend_the_other_way_are_not_mirrored():
    """Their volumes are, their sides are not."""
    flat = grid(24, 12)
    flat = replace(flat, vertices=flat.vertices * (1 + 0.04 * flat.vertices[:, :1]))  # no turn is a symmetry
    up, down = (replace(flat, vertices=flat.vertices + s * flat.vertices[:, :1] ** 2 * [0, 0, 0.03]) for s in (1, -1))
    sol = match(up, down, **FAST)
    assert sol.stats.hand is not None
    assert sol.stats.hand > 0.3
    assert np.linalg.norm(flat.vertices[sol.map()] - flat.vertices, axis=1).mean() < 1

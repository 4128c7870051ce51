"""`gromap.mesh.match`: search blurred, then sharpen; what it takes, what it says, and what
Ctrl-C gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import gromap
from gromap import Space, Status, solve
from gromap.mesh import Mesh, match, recipe, write_mesh
from gromap.mesh.descriptors import pair_of_descriptors
from gromap.mesh.match import auto_cost
from tests.mesh.test_embedding import grid


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("GROMAP_CACHE", "off")


def sheet(dtype: str = "float32") -> Mesh:
    """A sheet with a corner pulled out, which no symmetry maps to itself."""
    mesh = grid(9, 5)
    vertices = mesh.vertices.copy()
    vertices[-1] += [3.0, 2.0, 0.0]
    return Mesh(vertices.astype(dtype), mesh.faces, name="sheet")


def turned(mesh: Mesh) -> tuple[Mesh, np.ndarray]:
    """The mesh in another pose and order of vertices, and where each vertex went."""
    order = np.random.default_rng(0).permutation(len(mesh.vertices))
    where = np.argsort(order)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    return Mesh((mesh.vertices @ turn)[order].astype(mesh.vertices.dtype), where[mesh.faces], name="turned"), where


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_turned_copy_is_found_in_both_directions(dtype):
    """The map nearest to the means, which a blurred plan knows well: for meshes that is the map
    to use."""
    source = sheet(dtype)
    target, where = turned(source)
    sol = match(source, target, epsilon=1e-4)
    assert sol.plan.u.dtype == getattr(torch, dtype)
    assert (sol.map() == where).mean() > 0.95
    assert (sol.inverse_map() == np.argsort(where)).mean() > 0.95
    assert np.array_equal(sol.p2p_12, sol.map())


def test_the_recipe_is_a_blurred_search_and_a_sharper_solve():
    source = sheet("float64")
    x, y = (Space.from_mesh(mesh) for mesh in (source, turned(source)[0]))
    warm = solve(x, y, epsilon=1e-3)
    sharp = solve(x, y, epsilon=2e-4, init=warm)
    sol, search = match(x, y, epsilon=2e-4), match(x, y, epsilon=2e-4, refine=False)
    assert (search.epsilon, search.value) == (1e-3, warm.value)
    assert (sol.epsilon, sol.value) == (2e-4, sharp.value)
    assert np.array_equal(sol.history["energy"], sharp.history["energy"])
    assert np.array_equal(sol.stats.minima, warm.stats.minima)  # of the search, which the second solve does not know
    assert sharp.stats.minima is None
    blurred = match(x, y, epsilon=5e-3)
    assert (blurred.epsilon, blurred.value) == (5e-3, solve(x, y, epsilon=5e-3).value)


def test_seconds_of_both_solves_are_summed(monkeypatch):
    real, parts = recipe.solve, []

    def solve(*args, **options):
        parts.append(real(*args, **options))
        return parts[-1]

    monkeypatch.setattr(recipe, "solve", solve)
    sol = match(sheet(), turned(sheet())[0])
    assert len(parts) == 2
    for name in ("embed", "search", "solve"):
        assert sol.stats.seconds[name] == sum(part.stats.seconds[name] for part in parts)


def test_it_takes_files_meshes_and_spaces_in_any_precision(tmp_path):
    source = sheet("float32")
    target, _ = turned(source)
    path = write_mesh(target, tmp_path / "turned.obj")  # read in float64
    values = [
        match(*shapes, cost="biharmonic", refine=False).value
        for shapes in ((source, target), (source, path), (str(path), source))
    ]
    assert values == pytest.approx([values[0]] * 3, rel=1e-3)
    space = Space.from_mesh(source, cost="biharmonic")
    assert match(space, path, cost=("auto", "biharmonic"), refine=False).value == pytest.approx(values[0], rel=1e-3)
    with pytest.raises(ValueError, match="the source is a Space, which has its own cost and dim"):
        match(space, target, cost="biharmonic")
    with pytest.raises(ValueError, match="the target is a Space"):
        match(target, space, dim=("auto", 5))
    with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
        match(space, space, epsilon=0)


def test_the_default_cost_is_geodesic_on_surfaces_alone():
    source = sheet()
    cloud = replace(source, faces=np.zeros((0, 3), int), name="cloud")
    notes: list[str] = []
    match(source, source, refine=False, callback=lambda event: notes.append(str(event)))
    assert any(note.startswith("sheet, multidimensional scaling") for note in notes)
    mixed = match(source, cloud, refine=False)
    weights = source.vertex_areas()
    assert mixed.value == pytest.approx(solve(source.vertices, source.vertices, a=weights).value, rel=1e-3)
    assert (auto_cost([source, source]), auto_cost([source, cloud])) == ("geodesic", "euclidean")


def test_one_event_for_each_step_and_a_word_for_the_second_solve():
    x, y = (Space.from_mesh(mesh, cost="euclidean") for mesh in (sheet(), turned(sheet())[0]))
    events: list[gromap.Event] = []
    sol = match(x, y, callback=events.append)
    lines = [str(event) for event in events]
    at = lines.index("sharpen")
    assert lines[0].startswith("step 1 of at most 100, energy")
    assert lines[at + 1].startswith("sharpen, step 1 of at most 100, energy")
    assert [event.value for event in events[at + 1 :]] == sol.history["energy"].tolist()


def test_a_callback_stops_the_whole_match():
    x, y = (Space.from_mesh(mesh, cost="euclidean") for mesh in (sheet("float64"), grid()))
    sol = match(x, y, init="random", callback=lambda event: event.stage == "solve")
    assert (sol.status, sol.epsilon) == (Status.STOPPED, 1e-3)
    assert len(sol.history["energy"]) == 1


def test_progress_shows_the_embeddings_and_both_solves(capsys, monkeypatch):
    monkeypatch.setattr("gromap._progress.LINE_EVERY", 0)  # all lines, though stderr is no terminal
    match(sheet(), turned(sheet())[0], progress=True)
    shown = capsys.readouterr().err
    assert "gromap: sheet, multidimensional scaling of 45 vertices" in shown
    assert "gromap: turned, multidimensional scaling of 45 vertices" in shown
    assert shown.count("looking for a good start") == 2


@pytest.mark.parametrize(("line", "epsilon"), [("step 2", 1e-3), ("sharpen, step 1", 1e-5)])
def test_ctrl_c_gives_the_best_so_far(line, epsilon):
    """In the second step of the search, or in the first one after it."""
    x, y = (Space.from_mesh(mesh, cost="euclidean") for mesh in (sheet("float64"), grid()))

    def press(event: gromap.Event) -> None:
        if str(event).startswith(line):
            raise KeyboardInterrupt

    sol = match(x, y, epsilon=1e-5, init="random", callback=press)
    assert (sol.status, sol.epsilon) == (Status.INTERRUPTED, epsilon)
    assert np.isfinite(sol.value)
    assert sol.map().shape == (45,)


def test_ctrl_c_before_there_is_a_match_is_one(monkeypatch):
    def press(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(recipe, "solve", press)
    with pytest.raises(KeyboardInterrupt):
        match(sheet(), grid(), cost="euclidean")


@pytest.mark.parametrize("kind", ["wks", "hks", "normals", "color"])
def test_features_by_their_name_are_those_of_both_meshes(kind):
    source = replace(rolled(), colors=np.random.default_rng(3).random((45, 3)))
    given = pair_of_descriptors(source, source, kind)
    options: dict[str, Any] = {"cost": "euclidean", "alpha": 0.7, "init": "zero"}
    named, sol = (match(source, source, features=z, **options) for z in (kind, given))
    assert (named.value, named.value_features, named.alpha) == (sol.value, sol.value_features, 0.7)


def test_features_decide_where_distances_cannot():
    """A sheet matches its mirror image; colors say which way round."""
    flat = replace(grid(9, 5), colors=np.linspace(0, 1, 45)[:, None] * np.ones(3))
    assert np.array_equal(match(flat, flat, cost="euclidean", features="color").map(), np.arange(45))


def rolled() -> Mesh:
    """The same, bent more and more."""
    mesh = sheet("float64")
    return replace(mesh, vertices=mesh.vertices + 0.1 * mesh.vertices[:, :1] ** 2 * [0, 0, 1])


def cut() -> tuple[Mesh, Mesh, np.ndarray]:
    """The two thirds of a rolled sheet that have its pulled corner, all of it in another pose, and
    where the vertices went."""
    whole = rolled()
    faces = whole.faces[(whole.faces >= 15).all(1)]
    target, where = turned(whole)
    return Mesh(whole.vertices[15:], faces - 15), target, where[15:]


def test_a_part_is_matched_to_its_place():
    """By the search, and by the sharper solve that goes on from there."""
    part, whole, where = cut()
    sol = match(part, whole, cost="euclidean", reach=0.1)
    assert sol.epsilon == 3e-4
    gaps = np.linalg.norm(whole.vertices[sol.map()] - whole.vertices[where], axis=1)
    assert np.median(gaps) < 1.0  # of edges of 1
    assert (sol.kept_X > 0.5).mean() > 0.9
    left = np.setdiff1d(np.arange(45), where)
    assert sol.kept_Y[left].mean() < 0.3 < 0.7 < sol.kept_Y[where].mean()


def test_mass_is_a_share_of_the_smaller_area():
    part, whole, _ = cut()
    spaces = [Space.from_mesh(mesh, cost="euclidean") for mesh in (part, whole)]
    assert [space.total for space in spaces] == pytest.approx([part.area, whole.area])
    sol = match(*spaces, mass=0.8, refine=False)
    assert sol.mass == pytest.approx(0.8)
    assert sol.most == pytest.approx((1 / 0.8, whole.area / part.area / 0.8))
    assert (sol.kept_X @ spaces[0].weights, sol.kept_Y @ spaces[1].weights) == pytest.approx(
        (0.8, 0.8 * part.area / whole.area), rel=1e-3
    )


def test_ctrl_c_while_a_match_is_sharpened_keeps_its_parts():
    part, whole, _ = cut()

    def press(event: gromap.Event) -> None:
        if str(event).startswith("sharpen, step 1"):
            raise KeyboardInterrupt

    sol = match(part, whole, cost="euclidean", reach=0.1, callback=press)
    assert (sol.status, sol.epsilon) == (Status.INTERRUPTED, 3e-4)
    assert sol.matched(0) > 0.9


def test_features_of_spaces_have_no_names():
    space = Space.from_mesh(sheet(), cost="euclidean")
    with pytest.raises(ValueError, match="features='wks' are computed from two meshes, and a Space is none"):
        match(space, sheet(), features="wks")
    with pytest.raises(ValueError, match="reach and mass both say how much is matched"):
        match(space, space, reach=0.1, mass=0.5)

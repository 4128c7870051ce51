"""The pictures of a landscape: numbers that can be read, contours without corners, meshes where
they lie in space."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gromap
from gromap import Space
from gromap.report.charts import plane_map
from gromap.report.landscape import FINER, label_places, landscape_figure, relief
from tests.conftest import cloud


def test_numbers_do_not_hide_each_other():
    rng = np.random.default_rng(0)
    at, radii, letter = rng.random((24, 2)) * [200, 150], rng.uniform(3, 14, 24), 9.0
    at[1] = at[0]  # two at one place
    shifts = label_places(at, radii, letter)
    places = (at + shifts)[~np.isnan(shifts).any(1)]
    assert len(places) >= 20
    apart = np.abs(places[:, None] - places) >= [letter * 0.6, letter]
    assert (apart.any(2) | np.eye(len(places), dtype=bool)).all()


def test_a_number_is_inside_of_a_disc_that_has_room():
    shifts = label_places(np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]]), np.array([10.0, 2.0, 10.0]), 9.0)
    assert not shifts[[0, 2]].any()
    assert np.hypot(*shifts[1]) > 9


def test_the_relief_is_fine_and_keeps_its_values():
    s = np.linspace(-1, 1, 15)
    values = 1 + s[:, None] ** 2 + s**2
    fine, lines = relief(values, 1.0)
    assert fine.shape == (15 * FINER, 15 * FINER)
    ends = fine[[0, -1]][:, [0, -1]]
    assert ends == pytest.approx(np.log10(1e-3 + 2.0) * np.ones((2, 2)), abs=1e-6)
    assert (np.diff(lines) > 0).all()
    along = np.linspace(-1, 1, 15 * FINER)
    exact = np.log10(1e-3 + along[:, None] ** 2 + along**2)
    far = np.hypot(along[:, None], along) > 0.3
    assert np.abs(fine - exact)[far].max() < 0.05


def test_the_page_numbers_all_minima_once():
    s = np.linspace(0, 1, 6)
    minima = np.array([[0.5, 0.5], [0.52, 0.5], [0.1, 0.9]])
    text = plane_map(s, s, 1 + np.add.outer(s, s), minima, [1.0, 1.1, 1.2], [0.6, 0.3, 0.1])
    assert [text.count(f">{k}</text>") for k in (1, 2, 3)] == [1, 1, 1]
    assert text.count("<circle") == 3


def test_meshes_are_drawn_where_their_vertices_lie():
    """Their points, in R^8, cannot be drawn."""
    pytest.importorskip("matplotlib")
    spaces = []
    for seed in (0, 1):
        x, a = cloud(40, 5, seed)
        space = Space(x, a)
        space.vertices = torch.as_tensor(x[:, :3])
        spaces.append(space)
    land = gromap.landscape(*spaces, starts=12, epsilon=0.02)
    assert len(land) > 1
    drawn = landscape_figure(land, 5, 8)
    assert len(drawn.axes) == 1 + min(8, len(land))
    for space in spaces:
        space.vertices = None
    plain = landscape_figure(land, 5, 8)
    assert len(plain.axes) == 1
    assert "colors" not in plain.texts[0].get_text()

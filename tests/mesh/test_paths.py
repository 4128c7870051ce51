"""Shortest paths over divided edges, and landmarks that are far from each other."""

from __future__ import annotations

import numpy as np
import pytest

from gromap.datasets import humans
from gromap.mesh import Mesh
from gromap.mesh.embedding import decimate
from gromap.mesh.geodesic import distances
from gromap.mesh.paths import farthest_vertices, shortest_paths
from tests.mesh.test_embedding import book, grid, two_sheets


def test_paths_are_geodesics_but_for_a_percent_or_two():
    """And come closer the more points the edges have."""
    mesh, _ = decimate(humans().source, np.zeros(4000, int), 1000, seed=0)
    sources = np.arange(0, 960, 120)
    exact = distances(mesh, sources)
    over = [shortest_paths(mesh, sources, k)[exact > 0] / exact[exact > 0] - 1 for k in range(4)]
    assert all((z > -1e-6).all() for z in over)
    means = [float(z.mean()) for z in over]
    assert means == sorted(means, reverse=True)
    assert means[2] < 0.025
    ratio = 1 + over[2]
    assert np.abs(ratio / np.median(ratio) - 1).mean() < 0.015  # most of it is one factor


def test_paths_know_any_faces_and_the_way_back():
    mesh = book()  # three pages at one edge, which exact geodesics refuse
    there = shortest_paths(mesh, np.arange(5))
    assert there == pytest.approx(there.T)
    assert there[2, 3] == pytest.approx(2.0, rel=0.02)  # across the spine
    flat = Mesh(np.array([[0.0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 0, 0]]), np.array([[0, 1, 2], [1, 2, 3]]))
    assert shortest_paths(flat, np.array([0]))[0] == pytest.approx([0, 1, 1, 2], abs=1e-9)  # without any area
    assert np.isinf(shortest_paths(two_sheets(), np.array([0]))[0, 108:]).all()


def test_landmarks_are_spread_over_all_pieces():
    mesh = two_sheets()
    chosen = farthest_vertices(mesh, 12)
    assert len(set(chosen.tolist())) == 12
    assert (chosen < 108).sum() == 6
    places = mesh.vertices[chosen]
    gaps = np.linalg.norm(places[:, None] - places, axis=2) + 99 * np.eye(12)
    assert gaps.min() > 3  # of a sheet of 11 x 5.6
    assert sorted(farthest_vertices(grid(3, 2), 99).tolist()) == list(range(6))  # all there are

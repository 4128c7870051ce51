"""The page of a collection: an order in which near shapes are neighbors, a map that keeps
distances, and failures that are seen."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from gromap import Neighbors
from gromap.report.collection import filled, heat_map, labels_beside, scaling, tree_of, write_collection


def distances_of(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - points, axis=2)


@pytest.fixture
def groups():
    """Two groups of three, whose members alternate."""
    rng = np.random.default_rng(0)
    return distances_of(rng.normal(size=(6, 2)) + 20 * (np.arange(6) % 2)[:, None])


def test_groups_are_together_in_the_tree(groups):
    tree = tree_of(groups)
    sides = tree.order % 2
    assert sorted(tree.order) == list(range(6))
    assert np.abs(np.diff(sides)).sum() == 1
    assert tree.merges[-1, 2] > 10 * tree.merges[-2, 2] / 2


@pytest.mark.parametrize("count", [0, 1])
def test_there_is_no_tree_of_less_than_two(count):
    tree = tree_of(np.zeros((count, count)))
    assert tree.order.tolist() == list(range(count))
    assert "path" in heat_map(np.zeros((1, 1)), tree_of(np.zeros((1, 1))), ["a"])


def test_the_plane_keeps_distances_of_the_plane():
    rng = np.random.default_rng(1)
    distances = distances_of(rng.normal(size=(9, 2)) * [3, 1])
    points, share = scaling(distances)
    assert distances_of(points) == pytest.approx(distances)
    assert share == pytest.approx(1)
    assert scaling(np.zeros((3, 3)))[1] == 1
    assert scaling(distances_of(rng.normal(size=(30, 8))))[1] < 0.7


def test_labels_do_not_overlap():
    rng = np.random.default_rng(2)
    at = rng.random((40, 2)) * [300, 200]
    places, width, height = labels_beside(at, [30.0] * 40, 12.0), 30.0, 12.0
    apart = np.abs(places[:, None] - places) >= np.array([width, height]) - 1e-9
    assert (apart.any(2) | np.eye(40, dtype=bool)).all()
    assert np.median(np.abs(places[:, 1] - at[:, 1])) < height


def test_a_page_with_failures(tmp_path, groups):
    distances = groups.copy()
    distances[2] = distances[:, 2] = np.nan
    distances[0, 1] = distances[1, 0] = np.nan
    names = ["a<b", *"cdefg"]
    path = write_collection(
        tmp_path / "page.html", names, title="six & more", distances=distances, failures=["d: no points"]
    )
    text = path.read_text("utf-8")
    assert "d: no points" in text
    assert "six &amp; more" in text
    assert "a&lt;b" in text
    assert "{{" not in text
    facts = json.loads(re.search(r'application/json">(.*?)</script>', text, re.DOTALL)[1])
    assert facts["names"][-1] == "d"
    order = [names.index(name) for name in facts["names"]]
    shown = np.array(facts["distances"], float)
    assert shown == pytest.approx(distances[np.ix_(order, order)], rel=1e-3, nan_ok=True)
    assert filled(np.array([[0, np.nan], [3.0, 0]])).tolist() == [[0, 3], [3, 0]]


def test_a_page_where_nothing_was_compared(tmp_path):
    nothing = np.full((3, 3), np.nan)
    text = write_collection(tmp_path / "page.html", list("abc"), title="none", distances=nothing).read_text("utf-8")
    assert "no two shapes" in text


def test_a_table_of_neighbors(tmp_path):
    found = Neighbors(np.array([[1], [0], [-1]]), np.array([[4.0], [4.0], [np.nan]]), 1, 3)
    text = write_collection(tmp_path / "page.html", list("abc"), title="near", neighbors=found).read_text("utf-8")
    assert '<tr><th scope="row">a</th><td>b (2)</td></tr>' in text
    assert '<tr><th scope="row">c</th><td></td></tr>' in text
    assert "1 of 3 pairs were solved (33.3 %)" in text

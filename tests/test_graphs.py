"""Graphs as spaces: paths, heat and walks, from networkx, igraph and matrices."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.linalg import expm

import gromap
from gromap import Space
from gromap.geometry.graphs import AXES, WHOLE_NODES
from tests.conftest import cloud

nx = pytest.importorskip("networkx")


def weighted(n: int = 20, seed: int = 0):
    graph, rng = nx.connected_watts_strogatz_graph(n, 4, 0.3, seed=seed), np.random.default_rng(seed)
    for _, _, edge in graph.edges(data=True):
        edge["weight"] = rng.uniform(0.5, 2)
    return graph


def costs(space: Space) -> np.ndarray:
    points = space.measure.points
    return space.cost(points, points).numpy()


def test_paths_are_those_of_networkx():
    graph = weighted()
    for weight in ("weight", None):
        known = dict(nx.all_pairs_dijkstra_path_length(graph, weight=weight or (lambda *_: 1)))
        expected = [[known[i][j] for j in graph] for i in graph]
        np.testing.assert_allclose(costs(Space.from_graph(graph, weight=weight)), expected, atol=1e-12)


def test_heat_and_walks_are_those_of_the_matrices():
    graph, t = weighted(), 3.0
    W = nx.to_numpy_array(graph)
    degree = W.sum(1)
    K = expm(-t * (np.eye(20) - W / np.sqrt(np.outer(degree, degree))))
    np.testing.assert_allclose(
        costs(Space.from_graph(graph, kind="heat", time=t)), K.diagonal()[:, None] + K.diagonal() - 2 * K, atol=1e-12
    )
    walk = np.linalg.matrix_power((np.eye(20) + W / degree[:, None]) / 2, 3)
    gaps = (walk[:, None] - walk) ** 2 @ (degree.sum() / degree)  # diffusion distance, squared
    np.testing.assert_allclose(costs(Space.from_graph(graph, kind="diffusion", time=t)) ** 2, gaps, atol=1e-12)


@pytest.mark.parametrize("kind", ["paths", "heat", "diffusion"])
def test_all_forms_of_a_graph_are_one(kind):
    graph = weighted()
    A = nx.to_scipy_sparse_array(graph)
    forms = [
        A,
        A.toarray(),
        scipy.sparse.csr_matrix(A),
        torch.tensor(A.toarray()),
        torch.tensor(A.toarray()).to_sparse(),
    ]
    expected = costs(Space.from_graph(graph, kind=kind))
    for form in forms:
        np.testing.assert_allclose(costs(Space.from_graph(form, kind=kind)), expected, atol=1e-9)


@pytest.mark.parametrize("weight", ["weight", None])
def test_igraph(weight):
    igraph = pytest.importorskip("igraph")
    graph = weighted()
    other = igraph.Graph.from_networkx(graph)
    np.testing.assert_allclose(
        costs(Space.from_graph(other, weight=weight)), costs(Space.from_graph(graph, weight=weight))
    )


def test_large_graphs_keep_few_axes():
    graph = nx.random_geometric_graph(WHOLE_NODES + 100, 0.15, seed=1)
    space = Space.from_graph(graph, kind="heat", time=40.0)
    assert space.measure.points.shape == (WHOLE_NODES + 100, AXES)
    W = nx.to_numpy_array(graph)
    L = np.eye(len(W)) - W / np.sqrt(np.outer(W.sum(1), W.sum(1)))
    K = expm(-40.0 * L)
    np.testing.assert_allclose(costs(space), K.diagonal()[:, None] + K.diagonal() - 2 * K, atol=0.02 * K.max())


def test_what_few_axes_miss_is_told():
    ring = nx.to_scipy_sparse_array(nx.cycle_graph(WHOLE_NODES + 100))
    with pytest.warns(UserWarning, match=r"near nodes are too close: pass time=\d+ or more") as caught:
        Space.from_graph(ring, kind="heat")
    enough = float(str(caught[0].message).split("time=")[1].split()[0]) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Space.from_graph(ring, kind="heat", time=enough)


def test_parallel_edges():
    graph = nx.MultiGraph(nx.path_graph(4))
    graph.add_edge(0, 1)
    with pytest.raises(ValueError, match="parallel edges"):
        Space.from_graph(graph)
    assert float(costs(Space.from_graph(graph, weight=None))[0, 3]) == 3


def test_a_relabelled_graph_is_found_again():
    graph, order = weighted(30, 2), np.random.default_rng(0).permutation(30)
    A = nx.to_scipy_sparse_array(graph).tocsr()
    for kind in ("paths", "heat", "diffusion"):
        sol = gromap.solve(*(Space.from_graph(B, kind=kind) for B in (A, A[order][:, order])), epsilon=1e-4)
        assert (order[sol.map()] == np.arange(30)).mean() > 0.95


def test_a_matrix_stays_as_it_is():
    A = gromap.neighbor_graph(cloud(30, 2, 0)[0], 8)
    data = A.data.copy()
    Space.from_graph(A, weight=None)
    np.testing.assert_array_equal(A.data, data)


def test_weights_of_nodes():
    a = np.arange(1.0, 21)
    np.testing.assert_allclose(Space.from_graph(weighted(), a).weights, a / a.sum())


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.disjoint_union(nx.path_graph(4), nx.path_graph(3)), "falls into 2 components of 4 and 3 points"),
        (nx.DiGraph([(0, 1), (1, 2)]), r"directed.*to_undirected"),
        (np.triu(np.ones((4, 4)), 1), r"directed.*A\.maximum\(A\.T\)"),
        (np.ones((4, 3)), "square matrix of the weights"),
        (-(1 - np.eye(4)), "finite and >= 0"),
        (np.full((4, 4), np.inf), "finite and >= 0"),
        (np.zeros((1, 1)), "single point"),
    ],
)
def test_what_is_no_graph_of_distances_says_so(graph, message):
    with pytest.raises(ValueError, match=message):
        Space.from_graph(graph)


def test_options_are_checked():
    with pytest.raises(ValueError, match="unknown kind 'path': did you mean 'paths'"):
        Space.from_graph(weighted(), kind="path")
    with pytest.raises(ValueError, match="time must be a finite number > 0"):
        Space.from_graph(weighted(), kind="heat", time=-1)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "correlation"])
def test_neighbors_are_those_of_scikit_learn(metric):
    neighbors = pytest.importorskip("sklearn.neighbors")
    x, _ = cloud(80, 6, 0)
    theirs = neighbors.kneighbors_graph(x, 7, mode="distance", metric=metric)
    mine = gromap.neighbor_graph(x, 7, metric=metric)
    np.testing.assert_allclose(mine.toarray(), theirs.maximum(theirs.T).toarray(), atol=1e-9)


def test_neighbors_that_coincide_are_joined():
    x = np.repeat(cloud(12, 3, 0)[0], 3, axis=0)
    A = gromap.neighbor_graph(x, 6)
    joined = A.toarray() > 0
    assert all(joined[i, j] for i in range(36) for j in range(36) if i != j and i // 3 == j // 3)
    assert not joined.diagonal().any()


def test_neighbors_that_cannot_be_say_so():
    with pytest.raises(ValueError, match="k = 5 neighbors of each of 5 points"):
        gromap.neighbor_graph(np.eye(5), 5)
    with pytest.raises(ValueError, match="row 2 of X is constant"):
        gromap.neighbor_graph(np.vstack([np.eye(2, 3), np.ones(3)]), 1, metric="correlation")
    with pytest.raises(ValueError, match=r"falls into .* more neighbors|more\s+neighbors"):
        Space.from_graph(gromap.neighbor_graph(np.repeat([[0.0], [9.0]], 4, axis=0) + np.arange(8)[:, None] / 9, 2))

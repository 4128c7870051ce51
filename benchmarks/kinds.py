"""Ten kinds of data to match, small and large, for anydata.py: most with a known right answer.

A problem is drawn anew for each seed. `copies` are isometric, permuted copies, whose right match is
known; the others are two samples or two views of one thing. Needs `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.linalg
import scipy.sparse.csgraph
from scipy.spatial import KDTree

DATA = Path(os.environ.get("GROMAP_DATA", "data"))
POSES = ("dog_0", "dog_1"), ("dog_0", "dog_2"), ("mh_man_0", "mh_man_1"), ("mh_woman_0", "mh_woman_1")
PLANE = ("horse_silhouette", "heart"), ("three", "five"), ("S", "C")


@dataclass(frozen=True)
class Problem:
    """What is given to `gromap.solve`, and the match that is right, if one is known."""

    name: str
    x: np.ndarray
    y: np.ndarray
    options: dict[str, Any] = field(default_factory=dict)
    truth: np.ndarray | None = None  # a start that is near the right answer: T(i) for each point of x
    exact: bool = False  # whether the truth is an isometry, so that a match can be right or wrong


def shuffled(name: str, x: np.ndarray, y: np.ndarray, rng: np.random.Generator, **options: Any) -> Problem:
    """y in another order, where y[i] belongs to x[i]."""
    order = rng.permutation(len(y))
    where = np.argsort(order)
    square = options.get("cost") == "precomputed"
    exact = bool(options.pop("exact", False))
    return Problem(name, x, y[np.ix_(order, order)] if square else y[order], options, where, exact)


def turned(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return x @ np.linalg.qr(rng.normal(size=(x.shape[1],) * 2))[0]


def shapes(n: int, dim: int, rng: np.random.Generator) -> Iterator[Problem]:
    for left, right in PLANE if dim == 2 else POSES:
        if dim == 2:
            x, y = (np.load(DATA / "shapes2d" / f"{z}.npy").astype(float) for z in (left, right))
            n, truth = min(n, len(x), len(y)), False
        else:
            x, y = (_vertices(DATA / "poses" / f"{z}.ply") for z in (left, right))
            truth = True
        keep = rng.permutation(len(x))[:n]
        if truth:
            other = rng.permutation(len(y))[:n]
            p = shuffled(f"{left}-{right}", x[keep], y[other], rng)
            near = KDTree(y[other]).query(y[keep])[1]  # vertex i of one is vertex i of the other
            assert p.truth is not None
            yield Problem(p.name, p.x, p.y, p.options, p.truth[near])
        else:
            yield Problem(f"{left}-{right}", x[keep], y[rng.permutation(len(y))[:n]])


def mixtures(n: int, dim: int, rng: np.random.Generator) -> Iterator[Problem]:
    k = min(8, n // 3)
    centers = rng.normal(size=(k, dim))

    def draw() -> np.ndarray:
        return centers[rng.integers(k, size=n)] + 0.3 * rng.normal(size=(n, dim)) * np.linspace(1, 0.3, dim)

    x = draw()
    yield shuffled(f"mixture{dim} noisy copy", x, turned(x + 0.05 * rng.normal(size=x.shape), rng), rng)
    yield Problem(f"mixture{dim} two samples", draw(), turned(draw(), rng))
    yield shuffled(f"mixture{dim} copy", x, turned(x, rng), rng, exact=True)
    yield shuffled(f"mixture{dim} copy, squared", x, turned(x, rng), rng, exact=True, cost="sqeuclidean")


def digits(n: int, dim: int, rng: np.random.Generator) -> Iterator[Problem]:
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA
    from sklearn.neural_network import MLPClassifier

    pixels, label = load_digits(return_X_y=True)
    pixels = np.asarray(pixels) / 16.0
    keep = rng.permutation(len(pixels))[:n]
    width = min(dim, 64)
    net = MLPClassifier((width,), max_iter=60, random_state=0).fit(pixels, label)
    hidden = np.maximum(pixels @ net.coefs_[0] + net.intercepts_[0], 0)
    yield shuffled(f"digits pixels-mlp{width}", pixels[keep], hidden[keep], rng)
    features = np.cos(pixels @ rng.normal(size=(64, 200)) * 0.4 + rng.uniform(0, 6, 200))
    yield shuffled(f"digits pca{width}-features", PCA(width).fit_transform(pixels)[keep], features[keep], rng)


def graphs(n: int, dim: int, rng: np.random.Generator) -> Iterator[Problem]:
    blocks = max(2, n // 10)
    sizes = [n // blocks + (i < n % blocks) for i in range(blocks)]
    named = {
        "karate": nx.karate_club_graph(),
        "lesmis": nx.les_miserables_graph(),
        f"ba{n}": nx.barabasi_albert_graph(n, 3, seed=int(rng.integers(1 << 30))),
        f"sbm{n}": nx.stochastic_block_model(
            sizes, np.full((blocks, blocks), 0.03) + 0.4 * np.eye(blocks), seed=int(rng.integers(1 << 30))
        ),
    }
    for name, graph in named.items():
        graph = graph.subgraph(max(nx.connected_components(graph), key=len))
        adjacency = (nx.to_numpy_array(graph) > 0).astype(float)
        weighted = adjacency * rng.uniform(0.5, 1.5, adjacency.shape)  # lengths, so that no two paths are alike
        weighted = np.triu(weighted) + np.triu(weighted).T
        paths, long = (scipy.sparse.csgraph.shortest_path(w, directed=False) for w in (adjacency, weighted))
        laplacian = np.diag(adjacency.sum(1)) - adjacency
        for t in (0.3, 3.0):
            heat = scipy.linalg.expm(-t * laplacian / laplacian.diagonal().mean())
            cost = np.diag(heat)[:, None] + np.diag(heat) - 2 * heat
            yield shuffled(f"{name} heat {t}", cost, cost, rng, cost="precomputed", exact=True)
        yield shuffled(f"{name} paths", paths, paths, rng, cost="precomputed", exact=True)
        yield shuffled(f"{name} lengths", long, long, rng, cost="precomputed", exact=True)


def trees(n: int, dim: int, rng: np.random.Generator) -> Iterator[Problem]:
    def tree(seed: int) -> np.ndarray:
        graph = nx.random_labeled_tree(n, seed=seed)
        lengths = nx.to_numpy_array(graph) * rng.uniform(0.5, 1.5, (n, n))
        return scipy.sparse.csgraph.shortest_path(np.triu(lengths), directed=False)

    seeds = rng.integers(1 << 30, size=2).tolist()
    one, other = tree(seeds[0]), tree(seeds[1])
    yield shuffled("tree copy", one, one, rng, cost="precomputed", exact=True)
    yield Problem("tree-other tree", one, other, {"cost": "precomputed"})


def hyperbolic(n: int, dim: int, rng: np.random.Generator) -> Iterator[Problem]:
    d = min(dim, 20)
    v = rng.normal(size=(n, d))
    v *= rng.uniform(0.2, 0.95, (n, 1)) / np.linalg.norm(v, axis=1, keepdims=True)
    yield shuffled(f"hyperbolic{d} copy", v, turned(v, rng), rng, cost="hyperbolic", exact=True)
    yield shuffled(f"hyperbolic{d} noisy copy", v, turned(v * rng.uniform(0.9, 1, (n, 1)), rng), rng, cost="hyperbolic")


def spherical(n: int, dim: int, rng: np.random.Generator) -> Iterator[Problem]:
    d = max(3, min(dim, 20))

    def draw() -> np.ndarray:
        v = rng.normal(size=(n, d)) + 2 * np.eye(d)[rng.integers(3, size=n)]
        return v / np.linalg.norm(v, axis=1, keepdims=True)

    v = draw()
    yield shuffled(f"spherical{d} copy", v, turned(v, rng), rng, cost="spherical", exact=True)
    yield Problem(f"spherical{d} two samples", v, turned(draw(), rng), {"cost": "spherical"})


def cells(n: int, dim: int, rng: np.random.Generator) -> Iterator[Problem]:
    rna, atac = (np.load(DATA / "multimodal" / f"SNAREseq_{z}_feat.npy").astype(float) for z in ("rna", "atac"))
    keep = rng.permutation(len(rna))[:n]
    unit = [z / np.linalg.norm(z, axis=1, keepdims=True) for z in (rna[keep], atac[keep])]
    yield shuffled("cells, unit rows", unit[0], unit[1], rng)
    yield shuffled("cells", rna[keep], atac[keep], rng)


def rolls(n: int, dim: int, rng: np.random.Generator) -> Iterator[Problem]:
    t, h = 1.5 * np.pi * (1 + 2 * rng.uniform(size=n)), 8 * rng.uniform(size=n)
    roll, flat = np.stack([t * np.cos(t), h, t * np.sin(t)], 1), np.stack([0.5 * t**2 / 3, h], 1)
    yield shuffled("swiss roll-plane", roll, flat, rng)
    tree = KDTree(roll)
    gaps, near = map(np.asarray, tree.query(roll, min(n, 9)))
    rows = np.repeat(np.arange(n), min(n, 9))
    graph = scipy.sparse.csr_array((gaps.ravel() + 1e-12, (rows, near.ravel())), shape=(n, n))
    paths = scipy.sparse.csgraph.shortest_path(graph, directed=False)
    paths[~np.isfinite(paths)] = 1.5 * paths[np.isfinite(paths)].max()
    yield shuffled("swiss roll paths-copy", paths, paths, rng, cost="precomputed", exact=True)


def outliers(n: int, dim: int, rng: np.random.Generator) -> Iterator[Problem]:
    x = rng.normal(size=(n, dim)) * np.linspace(1, 0.2, dim)
    far = rng.permutation(n)[: max(1, n // 20)]
    x[far] += 10 * rng.normal(size=(len(far), dim))
    yield shuffled(f"outliers{dim} copy", x, turned(x, rng), rng, exact=True)
    y = x + 0.05 * rng.normal(size=x.shape)
    y[rng.permutation(n)[: max(1, n // 20)]] += 10 * rng.normal(size=(max(1, n // 20), dim))
    yield shuffled(f"outliers{dim} others", x, turned(y, rng), rng)


KINDS: dict[str, Callable[[int, int, np.random.Generator], Iterator[Problem]]] = {
    "shapes": shapes,
    "mixtures": mixtures,
    "digits": digits,
    "graphs": graphs,
    "trees": trees,
    "hyperbolic": hyperbolic,
    "spherical": spherical,
    "cells": cells,
    "rolls": rolls,
    "outliers": outliers,
}
IN_ANY_DIMENSION = {"mixtures", "digits", "hyperbolic", "spherical", "outliers"}  # the others have one of their own


def problems(kind: str, n: int, dim: int, seed: int) -> list[Problem]:
    """All problems of a kind, of about n points in `dim` dimensions, where it can be chosen."""
    salt = sum(kind.encode())
    return list(KINDS[kind](n, dim, np.random.default_rng([seed, salt, n, dim])))


def _vertices(path: Path) -> np.ndarray:
    from gromap.mesh.io import read_mesh

    return np.asarray(read_mesh(path).vertices, dtype=float)

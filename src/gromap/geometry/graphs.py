"""Graphs as spaces: how far their nodes are from each other.

    paths       the length of the shortest path                            weights are lengths
    heat        |x_i - x_j|² = K_ii + K_jj - 2 K_ij,  K = exp(-t L)        weights are similarities
    diffusion   |x_i - x_j| between the rows of the lazy random walk after t steps

L = I - D^-½ W D^-½ has its spectrum in [0, 2], whatever the unit of the weights. Heat and diffusion
are Euclidean between points, found from the lowest eigenvectors of L: in linear memory, and CNT.
Paths take a matrix of all pairs.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from gromap import _check, _options
from gromap._torch import norm
from gromap.transport import LowRank

sparse, csgraph, linalg = (cast("Any", import_module(f"scipy.sparse{name}")) for name in ("", ".csgraph", ".linalg"))

KINDS = ("paths", "heat", "diffusion")
METRICS = ("euclidean", "cosine", "correlation")
WHOLE_NODES = 512  # up to which all eigenvectors are taken
AXES = 64  # eigenvectors of larger graphs
CUT = 0.3  # share of the first axis from which the last one that is kept is missed no more
TIME = 10.0  # how far heat and walks go, unless given
TINY = 1e-300
SKEW = 1e-6  # of the largest weight, that both directions of an edge may differ by


def adjacency(graph: Any, weight: str | None) -> Any:
    """The symmetric weights of the edges of a graph, as a CSR array.  (N, N)

    graph: of networkx, of igraph, or a square matrix, sparse or not, in which 0 is no edge.
    """
    if hasattr(graph, "get_adjacency_sparse"):  # of igraph
        known = weight is not None and weight in graph.es.attributes()
        edges = graph.get_adjacency_sparse(attribute=weight if known else None)
        directed, parallel = graph.is_directed(), graph.has_multiple()
    elif hasattr(graph, "nodes") and hasattr(graph, "edges"):
        edges = _check.extra("networkx", "graph").to_scipy_sparse_array(graph, weight=weight, dtype=float)
        directed, parallel = graph.is_directed(), graph.is_multigraph()
    else:
        edges, directed, parallel = _matrix(graph), False, False
    if parallel and weight is not None:
        raise ValueError(
            "the graph has parallel edges, which weigh as their sum, or are as long as their shortest: keep one of "
            "each, as networkx.Graph(graph) or graph.simplify(combine_edges='min'), or count them with weight=None."
        )
    edges = sparse.csr_array(edges, dtype=np.float64, copy=True)
    _check.count(edges.shape[0], "the graph")
    if not np.isfinite(edges.data).all() or (edges.data < 0).any():
        raise ValueError("the weights of the edges of a graph must be finite and >= 0.")
    if weight is None:
        edges.data[:] = 1.0
    skew = abs(edges - edges.T)
    if skew.nnz and float(skew.max()) > SKEW * float(edges.max()):
        hint = "graph.to_undirected()" if directed else "A.maximum(A.T), which counts an edge of either direction"
        raise ValueError(
            "the graph is directed, its edges differ between both directions, and distances are the same in both: "
            f"pass {hint}."
        )
    return edges


def _matrix(graph: Any) -> Any:
    if isinstance(graph, Tensor) and graph.layout != torch.strided:
        graph = graph.detach().to_sparse_coo().coalesce().cpu()
        indices = graph.indices().numpy()
        graph = sparse.coo_array((graph.values().numpy(), indices), shape=tuple(graph.shape))
    edges = graph if hasattr(graph, "tocsr") else _check.as_tensor(graph, "the graph").detach().cpu().numpy()
    if edges.ndim != 2 or edges.shape[0] != edges.shape[1]:
        raise ValueError(
            "a graph is one of networkx or igraph, or a square matrix of the weights of its edges, got shape "
            f"{tuple(edges.shape)}."
        )
    return edges


def check_connected(edges: Any) -> None:
    """Refuse a graph in pieces, between which there is no distance."""
    count, labels = csgraph.connected_components(edges, directed=False)
    if count == 1:
        return
    sizes = _check.component_sizes(np.bincount(labels))
    raise ValueError(
        f"the graph falls into {sizes}, and no path leads from one to another: keep one, as "
        "Space.from_graph(A[part][:, part]) with part = np.flatnonzero(labels == 0), where labels = "
        "scipy.sparse.csgraph.connected_components(A)[1]; or connect them by edges, of a graph of neighbors by more "
        "neighbors."
    )


def path_lengths(edges: Any) -> np.ndarray:
    """The lengths of the shortest paths between all nodes.  (N, N)"""
    n = edges.shape[0]
    what, remedy = f"the lengths of paths between {n} nodes", "take kind='heat' or 'diffusion', which are linear."
    _check.memory(3 * 8 * n**2, torch.device("cpu"), what, remedy)
    return np.asarray(csgraph.shortest_path(edges, directed=False))


def walk_points(edges: Any, kind: str, time: float, seed: int) -> np.ndarray:
    """Points whose distances are those of heat, squared, or of diffusion.  (N, D)"""
    degree = np.asarray(edges.sum(1)).reshape(-1)
    root = np.sqrt(degree.clip(min=np.finfo(float).tiny))
    scaled = sparse.diags_array(1 / root) @ edges @ sparse.diags_array(1 / root)
    n = edges.shape[0]
    if n <= WHOLE_NODES:
        values, vectors = np.linalg.eigh(scaled.toarray())
    else:
        start = cast("Any", np.random.default_rng(seed).normal(size=n))
        values, vectors = linalg.eigsh(scaled, k=AXES, which="LA", v0=start)
    if kind == "heat":  # 1 - value is an eigenvalue of L
        decay, heights = np.exp(-time / 2 * (1 - values)), 1.0
    else:
        decay, heights = ((1 + values.clip(min=-1)) / 2) ** time, (np.sqrt(degree.sum()) / root)[:, None]
    if n > WHOLE_NODES and decay.min() > CUT * decay.max():
        _check.warn(
            f"{kind} at time = {time:g} has more axes than the {AXES} that are kept of {n} nodes, so that near nodes "
            f"are too close: pass time={time * math.log(CUT) / math.log(decay.min() / decay.max()):.0f} or more."
        )
    return vectors * decay * heights


def neighbor_graph(X: Any, k: int, *, metric: str = "euclidean") -> Any:
    """The graph in which points are joined to their k nearest neighbors, either to the other; with
    the distances of these as weights.  (N, N) CSR array

    metric: "euclidean", "cosine" or "correlation".

    >>> import numpy as np, gromap
    >>> A = gromap.neighbor_graph(np.arange(9.0)[:, None], 2)
    >>> gromap.Space.from_graph(A).cost.matrix[0, 8]
    tensor(8., dtype=torch.float64)
    """
    points = _check.points(X, "X").double()
    n, k = len(points), _options.whole(k, "k")
    if k >= n:
        raise ValueError(f"k = {k} neighbors of each of {n} points: choose 1 <= k <= {n - 1}.")
    if _check.choice(metric, METRICS, "metric") == "correlation":
        points = points - points.mean(1, keepdim=True)
    if metric != "euclidean":
        norms = norm(points, dim=1)[:, None]
        if bool((norms == 0).any()):
            where = int((norms[:, 0] == 0).nonzero()[0, 0])
            raise ValueError(f"row {where} of X is constant or zero, and has no {metric}: leave it out.")
        points = points / norms
    points = points - points.mean(0)
    near = LowRank(points, points).topk(-0.5 * points.square().sum(1), k + 1)[1].cpu()
    rows = torch.arange(n)[:, None].expand(n, k + 1)
    i, j = rows[near != rows], near[near != rows]  # points that coincide may hide one from itself
    lengths = norm(points.cpu()[i] - points.cpu()[j], dim=1)
    lengths = lengths if metric == "euclidean" else lengths.square() / 2
    lengths = lengths.clamp(min=TINY)  # points that coincide are joined too, and 0 is no edge
    edges = sparse.csr_array((lengths.numpy(), (i.numpy(), j.numpy())), shape=(n, n))
    return edges.maximum(edges.T)

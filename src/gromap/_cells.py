"""What is read of an AnnData: representations, weights and graphs of its cells, without anndata."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gromap import _check

REPRESENTATION = "X_pca"  # that scanpy computes, taken where it is there


def representation(adata: Any, use_rep: str | None) -> Any:
    """The coordinates of the cells, in memory.  (N, d)"""
    if use_rep is None:
        use_rep = REPRESENTATION if REPRESENTATION in adata.obsm else "X"
    if use_rep != "X":
        return adata.obsm[_check.choice(use_rep, ["X", *adata.obsm.keys()], "use_rep")]
    if adata.X is None:
        raise ValueError(f"this AnnData has no X: pass use_rep=, one of {', '.join(map(repr, adata.obsm.keys()))}.")
    n, d = adata.shape
    remedy = "pass use_rep=, a key of obsm with fewer columns, such as the result of scanpy.pp.pca."
    _check.memory(2 * 8 * n * d, torch.device("cpu"), f"X of {n} cells and {d} genes as a dense array", remedy)
    X: Any = adata.X
    return X[:] if adata.isbacked else X


def weights(adata: Any, a: Any) -> Any:
    """Of the cells: as they are given, or a column of `obs`."""
    if isinstance(a, str):
        return np.asarray(adata.obs[_check.choice(a, list(adata.obs.columns), "column of obs")], dtype=float)
    index = getattr(a, "index", None)
    if index is not None and hasattr(index, "equals") and not index.equals(adata.obs_names):
        raise ValueError("the weights have another index than the cells: pass a.reindex(adata.obs_names).")
    return a


def stored_graph(adata: Any, key: str) -> Any:
    """A graph of `obsp`, with an edge where there is one in either direction."""
    edges = adata.obsp[_check.choice(key, list(adata.obsp.keys()), "graph, a key of obsp (or a number of neighbors)")]
    return edges.maximum(edges.T)

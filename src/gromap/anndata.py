"""Cells of two AnnData brought together by Gromov-Wasserstein (pip install 'gromap[anndata]').

a, b -> Space.from_anndata -> solve -> a.obsm, b.obsm (one set of coordinates), a.uns, b.uns
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gromap import _cells, _check
from gromap._solution import Solution
from gromap._solve import solve
from gromap._space import Space


def align(
    a: Any,
    b: Any,
    *,
    use_rep: Any = None,
    graph: Any = None,
    metric: Any = "euclidean",
    kind: str = "paths",
    weights: Any = None,
    labels: Sequence[str] | str = (),
    keep: int | None = None,
    key: str = "gromap",
    **options: Any,
) -> Solution:
    """Match the cells of a to those of b, and write in both what comes of it:

        obsm["X_gromap"]     coordinates in the representation of b: each cell of a at the mean
                             of where its mass goes, those of b where they are
        uns["gromap"]        values and settings
        obs["gromap_..."]    of a: `labels` of b, by vote; "gromap_kept", how much of each cell is
                             matched, where parts are (reach=, mass=)
        obsm["gromap_plan"]  of a, with keep=k: the k largest entries of each row of the plan, a
                             sparse (N, M) array whose columns are the cells of b,
                             uns["gromap"]["cells"]

    Parameters
    ----------
    a, b
        AnnData, in memory or backed; a view becomes a copy, as by any writing to it.
    use_rep, graph, metric
        As in `Space.from_anndata`, or pairs for a and for b.
    kind
        As in `Space.from_anndata`.
    weights
        A pair of arrays, or the name of a column of `obs` in both.
    labels
        Columns of `b.obs` that a is to have.
    keep
        How many entries of each row of the plan to write; None writes none.
    key
        What the entries are called.
    options
        Those of `gromap.solve`, such as epsilon=, reach= or seed=.

    Returns
    -------
    Solution
        As of `gromap.solve`.

    Examples
    --------
    >>> import numpy as np, anndata, gromap.anndata
    >>> x = np.random.default_rng(0).normal(size=(60, 5)) * [5, 4, 3, 2, 1]
    >>> rna, atac = anndata.AnnData(x), anndata.AnnData(x[::-1] @ np.eye(5, 8))
    >>> sol = gromap.anndata.align(rna, atac)
    >>> rna.obsm["X_gromap"].shape, rna.uns["gromap"]["status"]
    ((60, 8), 'CONVERGED')
    """
    reps, graphs, metrics, masses = (_check.pair(z) for z in (use_rep, graph, metric, weights))
    names = [labels] if isinstance(labels, str) else list(labels)
    for name in names:
        _check.choice(name, list(b.obs.columns), "label, a column of b.obs")
    cost = _check.pair(options.pop("cost", "euclidean"))
    dim, seed, device = _check.pair(options.pop("dim", "auto")), options.get("seed", 0), options.pop("device", None)
    spaces = [
        Space.from_anndata(
            cells,
            masses[k],
            use_rep=reps[k],
            graph=graphs[k],
            metric=metrics[k],
            kind=kind,
            cost=cost[k],
            dim=dim[k],
            seed=seed,
            device=device,
        )
        for k, cells in enumerate((a, b))
    ]
    sol = solve(*spaces, **options)
    target = _check.as_tensor(_cells.representation(b, reps[1]), "the representation of b").numpy()
    a.obsm[f"X_{key}"], b.obsm[f"X_{key}"] = sol.plan.conditional_mean(target), target
    for name in names:
        a.obs[f"{key}_{name}"] = sol.pull(np.asarray(b.obs[name].astype(str)), labels=True)
    if sol.plan.wanted is not None:
        a.obs[f"{key}_kept"], b.obs[f"{key}_kept"] = sol.kept_X, sol.kept_Y
    facts = {"value": sol.value, "value_gw": sol.value_gw, "epsilon": sol.epsilon, "scale": list(sol.scale)}
    facts |= {"status": sol.status.name, "method": sol.stats.method, "kind": kind, "seed": seed}
    for k, cells in enumerate((a, b)):
        settings = {"use_rep": reps[k], "graph": graphs[k], "metric": metrics[k]}
        cells.uns[key] = facts | {name: str(z) for name, z in settings.items() if z is not None}
    if keep is not None:
        a.obsm[f"{key}_plan"] = sol.plan.sparse(min(keep, b.n_obs))
        a.uns[key]["cells"] = np.asarray(b.obs_names, dtype=str)
    return sol

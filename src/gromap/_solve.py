"""gromap.solve: check, spaces, start, run, finish. It holds no word about any one solver."""

from __future__ import annotations

from typing import Any

import torch

from gromap._pair import ALPHA, EPSILON, Pair
from gromap._progress import Progress
from gromap._solution import Interrupted, Solution, State
from gromap.search.starts import as_start
from gromap.solvers.choose import as_solver, sharpens
from gromap.solvers.own_rows import local, processes_of
from gromap.solvers.protocol import Callback, Solver, Start
from gromap.solvers.run import solve_pair
from gromap.solvers.together import solve_together


def solve(
    X: Any,
    Y: Any,
    a: Any = None,
    b: Any = None,
    *,
    cost: Any = "euclidean",
    epsilon: float | None = None,
    scale: str | float | None = "auto",
    method: str | Solver = "auto",
    dim: Any = "auto",
    init: Any = "auto",
    features: Any = None,
    alpha: float = ALPHA,
    feature_cost: Any = None,
    reach: Any = None,
    mass: float | None = None,
    sharpen: bool | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    group: Any = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Solution:
    """Match two weighted clouds by entropic Gromov-Wasserstein:

        min_π  α Σ (c_X(x_i, x_k) - c_Y(y_j, y_l))² π_ij π_kl + (1 - α) Σ c_F(f_i, g_j) π_ij
               + ρ_X KL(π 1 | a) + ρ_Y KL(πᵀ 1 | b) + ε KL(π | a⊗b)

    over plans of mass one; without features α = 1, and without `reach` both marginals are fixed.

    Parameters
    ----------
    X, Y
        (N, d) and (M, e) points, numpy or torch; square matrices of costs with
        ``cost="precomputed"``; or prepared `Space`s.
    a, b
        Weights >= 0; None = uniform.
    cost
        A name, a `Cost`, a function of two point tensors, or a pair of them for X and for Y.
    epsilon
        Temperature, in units of the scaled costs, squared; None is 1e-3.
    scale
        What costs are divided by. "each": each by its own unit, `Space.scale`, so that nine tenths
        of the mass have radius 1; "joint": both by the larger unit; "radius": each so that all
        points do, as in the paper; a number: both by it; None: taken as given. "auto" is "each",
        or "joint" with `reach` or `mass`: a part is smaller than the whole.
    method
        "cnt", "kernel", "multiscale", or a solver object with options; "auto" is "multiscale"
        from 3000 points, "kernel" for costs that are not CNT, or "cnt". Those before: "entropic",
        "lowrank-cost", "lowrank", "sampled", "dual", "proximal", "proximal-kernel",
        "conditional-gradient". One epsilon means the same for all that have an entropy.
    dim
        Axes of the embedding, a share of variance in (0, 1), or a pair; "auto": all that count
        up to 512 points, beyond that at least 20, and up to 128 until they explain 80 % of the
        variance, with a warning where they do not.
    init
        "auto" or `Search(...)` (a global search on coarse clouds), "zero", "random",
        `landmarks(pairs)`, a (D, E) matrix, an (N, M) plan, a map of N integers, an earlier
        `Solution`.
    features, alpha
        A pair (F, G) of one row, number or label per point, whose costs count 1 - alpha, and the
        distances alpha in [0, 1]: fused GW.
    feature_cost
        Of the features, in their own unit: "sqeuclidean", or any cost that is CNT; "labels" (0
        where they agree, 1 where not; of integers and words by default); "factors", <F_i, G_j>.
    reach
        For shapes that overlap in part, and for outliers: how far costs may disagree, in units of
        the scaled costs, before it is better to leave points unmatched; ρ = reach². 0.1 is a good
        first choice; a pair is for X and for Y; None keeps the weights of a side, 0 frees them.
    mass
        Instead, the share of the lighter side that is to be matched. Weights are then masses in one
        unit, such as areas; without weights both sides have the same.
    sharpen
        Whether to go on from the match to a coupling without blur, of lower `value_gw`, by
        "conditional-gradient": up to a few thousand points. None: between matrices of up to
        1000 points, where neither epsilon nor a method is given and POT is installed.
    max_iter, tol
        Outer steps (100), and the change of energy below which the loop stops (1e-5, in
        units of the scaled costs, squared); None = those of the method.
    seed
        Of the random starts, and of landmarks of the embedding.
    device
        Where to compute. None: where the tensors are; numpy float32 arrays from 3000 points go
        to a GPU if there is one.
    group
        Match together with the other processes of this `torch.distributed` group, as those of
        torchrun: each passes its own rows of X, Y, a and b, or `Shard(0)` DTensors, and gets the
        plan of its rows of X against all of Y, whose rows are in the order of the processes. For
        "cnt" and "multiscale"; docs/clusters.md.
    progress
        Show a line on stderr while the work goes on; of a group, in the first process.
    callback
        Called with an `Event` after each outer step; return True to stop. Of a group, that of the
        first process is called, and decides.

    Returns
    -------
    Solution
        The coupling, the maps, the values, and how they were reached. numpy in, numpy out;
        torch in, torch out.

    Raises
    ------
    Interrupted
        On Ctrl-C; its `state` is a start for another call: ``solve(X, Y, init=error.state)``,
        the usual one where nothing was found yet.
    MemoryError
        Where the solve would not fit, before it begins.

    Examples
    --------
    >>> import numpy as np, gromap
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3)) * [3, 2, 1]
    >>> turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    >>> sol = gromap.solve(X, X[::-1] @ turn)            # a reversed, rotated copy
    >>> bool((sol.map() == np.arange(100)[::-1]).mean() > 0.95)
    True
    """
    eps = EPSILON if epsilon is None else epsilon
    plain = epsilon is None and isinstance(method, str) and method == "auto"
    given: dict[str, Any] = {"cost": cost, "scale": scale, "dim": dim, "device": device, "seed": seed}
    given |= {"features": features, "alpha": alpha, "feature_cost": feature_cost, "reach": reach, "mass": mass}

    def prepare(X: Any, Y: Any, a: Any, b: Any, init: Any) -> tuple[Pair, Solver, Start]:
        pair = Pair.of(X, Y, a, b, epsilon=eps, **given)
        solver = as_solver(method, pair, max_iter, tol, sharpens(sharpen, pair, plain))
        solver.check(pair)
        return pair, solver, as_start(init, pair, solver.name)

    try:
        show = Progress() if progress else None
        processes = processes_of(group, X)
        if processes is None:
            pair, solver, start = prepare(local(X, "X"), local(Y, "Y"), local(a, "a"), local(b, "b"), init)
            return solve_pair(pair, solver, start, callback, show)
        options = {"epsilon": epsilon, "method": method, "max_iter": max_iter, "tol": tol, "sharpen": sharpen}
        return solve_together(processes, (X, Y, a, b), prepare, options | given | {"init": init}, callback, show)
    except Interrupted:
        raise
    except KeyboardInterrupt:  # before the search has found anything
        raise Interrupted(State()) from None

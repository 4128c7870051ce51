"""Gromov-Wasserstein by the names of POT: `import gromap.pot as gw` in place of `ot.gromov`.

Matrices in, plans out, as arrays of the kind that was given; `log=True` adds a dictionary. What is
solved is the same problem, in the same units: epsilon is absolute, in units of the costs, squared.

    gromov_wasserstein           min_T  Σ L(C1_ik, C2_jl) T_ij T_kl
    fused_gromov_wasserstein     min_T  α Σ L(C1_ik, C2_jl) T_ij T_kl + (1 - α) <M, T>
    entropic_...                 the same, less ε times the entropy of T
    ...2                         the value without the entropy, differentiable in torch

    L(x, y) = (x - y)²  "square_loss",    x log(x / y) - x + y  "kl_loss"

Starts are searched (`gromap.Search`) where POT takes the product of the weights; without an entropy
the lower of both ends is returned, so that values are at most POT's from there. Matrices are costs:
symmetric, with a zero diagonal. `armijo`, `symmetric` and `warmstart` choose steps of POT's own
solvers, and change nothing here.
"""

from __future__ import annotations

from typing import Any

import torch

from gromap import _check
from gromap._solve import solve
from gromap.pot.problem import Problem, Result
from gromap.solvers import KernelGW, Loop, ProximalGW

__all__ = [
    "entropic_fused_gromov_wasserstein",
    "entropic_fused_gromov_wasserstein2",
    "entropic_gromov_wasserstein",
    "entropic_gromov_wasserstein2",
    "fused_gromov_wasserstein",
    "fused_gromov_wasserstein2",
    "gromov_wasserstein",
    "gromov_wasserstein2",
]

MARGINALS = {torch.float64: 1e-7, torch.float32: 1e-4}  # mass that an entropic plan may misplace
ELSEWHERE = {  # what is not here, by the word in its name
    "partial": "gromap.solve(C1, C2, p, q, cost='precomputed', mass=m / min(sum(p), sum(q)))",
    "semirelaxed": "gromap.solve(C1, C2, p, cost='precomputed', reach=(None, 0))",
    "unbalanced": "gromap.solve(C1, C2, p, q, cost='precomputed', reach=...)",
    "barycenters": "gromap.barycenter, of clouds",
    "lowrank": "gromap.solve(X, Y, method='lowrank')",
    "sampled": "gromap.solve(X, Y, method='sampled')",
    "quantized": "gromap.solve(X, Y, method='multiscale')",
}


def __getattr__(name: str) -> Any:
    there = next((f": use {instead}, see docs/parts.md" for word, instead in ELSEWHERE.items() if word in name), "")
    raise AttributeError(f"gromap.pot has no {name!r}{there}.")


def gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    log: bool = False,
    armijo: bool = False,
    G0: Any = None,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    verbose: bool = False,
) -> Any:
    """A coupling without blur between two matrices of costs, by conditional gradient.  (N, M)

    G0: a coupling to start from, as in POT; None searches. log=True: also "gw_dist", "u" and "v",
    the potentials of the last linear program, and "solution", a `gromap.Solution`. tol_rel: the
    change of the loss below which it stops, in units of the problem; tol_abs adds nothing.

    >>> import numpy as np, gromap.pot as gw
    >>> x = np.random.default_rng(0).normal(size=(20, 2))
    >>> C = np.linalg.norm(x[:, None] - x, axis=-1)
    >>> T, log = gw.gromov_wasserstein(C, C[::-1, ::-1], log=True)
    >>> bool(log["gw_dist"] < 1e-12), bool((T.argmax(1) == np.arange(20)[::-1]).all())
    (True, True)
    """
    return _sharp(Problem.of(C1, C2, p, q, loss_fun), G0, max_iter, tol_rel, verbose).coupling(log)


def gromov_wasserstein2(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    log: bool = False,
    armijo: bool = False,
    G0: Any = None,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    verbose: bool = False,
) -> Any:
    """The value of `gromov_wasserstein`, with gradients for C1, C2, p and q in torch. log=True:
    also the plan, "T".

    >>> import torch, gromap.pot as gw
    >>> C = (1 - torch.eye(5)).requires_grad_()
    >>> gw.gromov_wasserstein2(C, 2 - 2 * torch.eye(5)).backward()
    >>> round(float(C.grad.sum()), 3)                    # Σ 2 (c - 2 c) p p
    -1.6
    """
    return _sharp(Problem.of(C1, C2, p, q, loss_fun), G0, max_iter, tol_rel, verbose).value(log)


def fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    alpha: float = 0.5,
    armijo: bool = False,
    G0: Any = None,
    log: bool = False,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    verbose: bool = False,
) -> Any:
    """`gromov_wasserstein` with a cost M between features, (N, M), beside; alpha is the share of
    the matrices. log=True: "fgw_dist" for "gw_dist"."""
    return _sharp(Problem.of(C1, C2, p, q, loss_fun, M, alpha), G0, max_iter, tol_rel, verbose).coupling(log)


def fused_gromov_wasserstein2(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    alpha: Any = 0.5,
    armijo: bool = False,
    G0: Any = None,
    log: bool = False,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    verbose: bool = False,
) -> Any:
    """The value of `fused_gromov_wasserstein`, with gradients for M, C1, C2, p, q and alpha in
    torch. log=True: also "T", and both terms, "quad_loss" and "lin_loss"."""
    return _sharp(Problem.of(C1, C2, p, q, loss_fun, M, alpha), G0, max_iter, tol_rel, verbose).value(log)


def entropic_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    G0: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-9,
    solver: str = "PGD",
    warmstart: bool = False,
    verbose: bool = False,
    log: bool = False,
) -> Any:
    """The coupling at the temperature epsilon, in units of the costs, squared.  (N, M)

    solver: "PGD", or "PPA" for proximal steps, which end without blur. tol: the change of energy
    below which it stops, in units of the problem. log=True: also "gw_dist", without the entropy,
    and "solution".

    >>> import numpy as np, gromap.pot as gw
    >>> C = 1 - np.eye(4)
    >>> gw.entropic_gromov_wasserstein(C, C, epsilon=0.01).round(2).max(1).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    return _blurred(Problem.of(C1, C2, p, q, loss_fun), epsilon, G0, max_iter, tol, solver, verbose).coupling(log)


def entropic_gromov_wasserstein2(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    G0: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-9,
    solver: str = "PGD",
    warmstart: bool = False,
    verbose: bool = False,
    log: bool = False,
) -> Any:
    """The value of `entropic_gromov_wasserstein`, without the entropy. Its gradients for C1 and C2
    keep the plan fixed: they are those of the value with the entropy."""
    return _blurred(Problem.of(C1, C2, p, q, loss_fun), epsilon, G0, max_iter, tol, solver, verbose).value(log)


def entropic_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    alpha: float = 0.5,
    G0: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-9,
    solver: str = "PGD",
    warmstart: bool = False,
    verbose: bool = False,
    log: bool = False,
) -> Any:
    """`entropic_gromov_wasserstein` with a cost M between features beside, (N, M)."""
    problem = Problem.of(C1, C2, p, q, loss_fun, M, alpha)
    return _blurred(problem, epsilon, G0, max_iter, tol, solver, verbose).coupling(log)


def entropic_fused_gromov_wasserstein2(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    alpha: Any = 0.5,
    G0: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-9,
    solver: str = "PGD",
    warmstart: bool = False,
    verbose: bool = False,
    log: bool = False,
) -> Any:
    """The value of `entropic_fused_gromov_wasserstein`, without the entropy, as
    `entropic_gromov_wasserstein2`."""
    problem = Problem.of(C1, C2, p, q, loss_fun, M, alpha)
    return _blurred(problem, epsilon, G0, max_iter, tol, solver, verbose).value(log)


def _sharp(problem: Problem, G0: Any, max_iter: float, tol: float, verbose: bool) -> Result:
    """By conditional gradient from G0; else from a search and from the product of the weights,
    whichever ends lower."""
    options: dict[str, Any] = problem.options() | {"max_iter": int(max_iter), "tol": tol, "progress": verbose}
    if G0 is not None:
        problem.check_coupling(G0)
    first = "zero" if G0 is None else G0
    found = [solve(*problem.spaces, epsilon=problem.blur, method="conditional-gradient", init=first, **options)]
    if G0 is None:
        options |= {"tol": None, "max_iter": None}
        found.append(solve(*problem.spaces, epsilon=problem.blur, method="kernel", sharpen=True, **options))
    return Result(problem, min(found, key=lambda s: s.alpha * s.value_gw + (1 - s.alpha) * s.value_features), True)


def _blurred(
    problem: Problem, epsilon: float, G0: Any, max_iter: int, tol: float, solver: str, verbose: bool
) -> Result:
    name = _check.choice(solver, ["PGD", "PPA"], "solver")
    loop = Loop(max_steps=10_000, marginal_tol=MARGINALS[problem.spaces[0].dtype])
    method = KernelGW(loop) if name == "PGD" else ProximalGW(loop)
    eps = _check.positive(epsilon, "epsilon") / problem.unit**2
    options: dict[str, Any] = problem.options() | {"max_iter": int(max_iter), "tol": tol, "progress": verbose}
    init = "auto" if G0 is None else G0
    try:
        return Result(problem, solve(*problem.spaces, epsilon=eps, method=method, init=init, **options), False)
    except ValueError as error:
        if str(error).startswith("epsilon"):
            error.add_note(f"These are in units of {problem.unit**2:.3g}, by which epsilon = {epsilon:g} was divided.")
        raise

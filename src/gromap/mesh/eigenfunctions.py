"""Many eigenfunctions of the Laplacian of a surface of area one, ∫ φ² = 1, to three digits: enough
for maps, which are fitted to them.

Those of a large mesh come from a decimated one: waves that are many edges long are nearly the same
on both. All of it runs on one thread of BLAS: beside other work, ARPACK took 39 s of two for the 2
of one, since they spin where they wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from gromap import _check
from gromap.mesh.embedding import factor, laplacian
from gromap.mesh.mesh import Mesh

SHIFT = 25.0  # of eigenvalues of a shape of area 1, of which the k-th is about 4πk: to be inverted


def eigenfunctions(mesh: Mesh, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The first eigenfunctions, and the areas of the vertices.  (N, count) float32, (N,)

    Those of the inverse of √M⁻¹ L √M⁻¹ + a shift: sums in single precision are twice as fast.
    """
    _, area, solve = _shifted(mesh)
    root = np.sqrt(area)
    apply = lambda v: (root * solve(root * v.ravel())).astype(np.float32)  # noqa: E731
    shape = len(area), len(area)
    inverse: Any = scipy.sparse.linalg.LinearOperator(shape, matvec=apply, dtype=np.float32)  # type: ignore[call-arg]
    start = np.random.default_rng(seed).normal(size=len(area)).astype(np.float32)
    basis = min(len(area), max(count + 20, count * 6 // 5))
    options: dict[str, Any] = {"which": "LM", "v0": start, "tol": 1e-2, "ncv": basis}
    with _one_blas_thread():
        theta, v = scipy.sparse.linalg.eigsh(inverse, count, **options)
    return (v[:, np.argsort(-theta)] / root[:, None]).astype(np.float32), area


def refined(mesh: Mesh, rough: np.ndarray) -> np.ndarray:
    """The first eigenfunctions, from as many rough ones, (N, count): one step of inverse iteration,
    which smooths them, and the best functions in their span (Rayleigh & Ritz).  (N, count) float32
    """
    with _one_blas_thread():
        stiff, area, solve = _shifted(mesh)
        v = solve(area[:, None] * rough.astype(np.float64))
        v = (v / np.sqrt(area @ v**2)).astype(np.float32)
        inner, energy = v.T @ (area.astype(np.float32)[:, None] * v), v.T @ (stiff.astype(np.float32) @ v)
        turn = scipy.linalg.eigh(energy.astype(np.float64), inner.astype(np.float64))[1]
        return v @ turn.astype(np.float32)


def _one_blas_thread() -> Any:
    return _check.extra("threadpoolctl", "mesh").threadpool_limits(limits=1, user_api="blas")


def _shifted(mesh: Mesh) -> tuple[Any, np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """L, the diagonal of M, and the solver of L + SHIFT M, as for a surface of area one."""
    stiff, area = laplacian(mesh)
    area = area / area.sum()
    return stiff, area, factor(stiff + SHIFT * scipy.sparse.diags_array(area))

"""The lines of docs/coming_from.md that can be run beside the other library.

They run where it is installed (pip install ott-jax geomloss pyfmaps), and are skipped elsewhere.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

import gromap
from tests.conftest import cloud, rotation

EXACT = {"scale": None, "method": "kernel", "tol": 1e-12, "max_iter": 1000, "sharpen": False}


@pytest.fixture
def sides():
    """Matrices of distances, weights, and features of both sides."""
    (x, a), (y, b) = cloud(25, 3, 0), cloud(21, 3, 0)
    y = y @ rotation(3) + 0.1 * cloud(21, 3, 2)[0]
    left, right = (np.linalg.norm(z[:, None] - z, axis=2) for z in (x, y))
    return left, right, a / a.sum(), b / b.sum(), cloud(25, 2, 3)[0], cloud(21, 2, 4)[0]


@pytest.mark.parametrize("penalty", [0.0, 0.7, 3.0])
def test_gw_and_fused_gw_of_ott(sides, penalty):
    jax = pytest.importorskip("jax", reason="pip install ott-jax")
    geometry = pytest.importorskip("ott.geometry.geometry", reason="pip install ott-jax")
    from ott.problems.quadratic.quadratic_problem import QuadraticProblem
    from ott.solvers.linear.sinkhorn import Sinkhorn
    from ott.solvers.quadratic.gromov_wasserstein import GromovWasserstein

    left, right, a, b, f, g = sides
    e, alpha = 0.5, 1 / (1 + 2 * penalty)
    with jax.enable_x64(True):
        cross = ((f[:, None] - g) ** 2).sum(-1)
        given = {"geom_xy": geometry.Geometry(cross), "fused_penalty": penalty} if penalty else {}
        problem = QuadraticProblem(geometry.Geometry(left), geometry.Geometry(right), a=a, b=b, **given)
        inner = Sinkhorn(threshold=1e-10, max_iterations=20_000)
        theirs = GromovWasserstein(inner, epsilon=e, threshold=1e-12, max_iterations=500)(problem)
        plan = np.asarray(theirs.matrix)
    features = {"features": (f, g), "alpha": alpha} if penalty else {}
    sol = gromap.solve(
        left, right, a, b, cost="precomputed", epsilon=2 * e * alpha, init=plan, **features, **EXACT
    )  # fmt: skip
    assert abs(np.asarray(sol.plan.dense()) - plan).sum() < 5e-3


def test_transport_of_geomloss(sides):
    geomloss = pytest.importorskip("geomloss", reason="pip install geomloss")
    import torch

    *_, a, b, f, g = sides
    blur = 0.3
    loss = geomloss.SamplesLoss("sinkhorn", p=2, blur=blur, debias=False, scaling=0.99, backend="tensorized")
    theirs = float(loss(*(torch.as_tensor(z) for z in (a, f, b, g))))
    sol = gromap.solve(f, g, a, b, features=(f, g), alpha=0, epsilon=2 * blur**2, **EXACT)
    assert sol.value / 2 == pytest.approx(theirs, rel=1e-3)


def test_alignment_of_scot():
    """Its distances, its solver and its projection, written down with POT."""
    ot = pytest.importorskip("ot", reason="pip install POT")
    rng = np.random.default_rng(0)
    t = rng.random(60)
    x = np.stack([3 * t, np.sin(4 * t), 0.1 * rng.normal(size=60)], 1)
    y = x[:50] @ rotation(3) + 0.02 * rng.normal(size=(50, 3))
    paths = []
    for z in (x, y):
        gaps = np.linalg.norm(z[:, None] - z, axis=2)
        near = gaps <= np.sort(gaps, 1)[:, 10:11]
        hops = shortest_path(np.where(near | near.T, 1.0, 0.0), directed=False)
        paths.append(np.minimum(hops, hops[np.isfinite(hops)].max()) / hops[np.isfinite(hops)].max())
    plan = ot.gromov.entropic_gromov_wasserstein(*paths, loss_fun="square_loss", epsilon=0.02, tol=1e-10)
    sol = gromap.solve(*paths, cost="precomputed", epsilon=0.02, init=plan, **EXACT)
    assert np.allclose(sol.pull(y), plan @ y / plan.sum(1, keepdims=True), atol=0.02)


def test_maps_of_pyfm():
    spectral = pytest.importorskip("pyFM.spectral", reason="pip install pyfmaps")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)) * [3, 2, 1]
    order = rng.permutation(80)
    sol = gromap.solve(x, x[order])
    basis = np.linalg.qr(rng.normal(size=(80, 20)))[0]
    functional = spectral.p2p_to_FM(sol.p2p_21, basis, basis[order])
    assert np.allclose(functional, np.eye(20), atol=1e-8)
    assert (spectral.FM_to_p2p(functional, basis, basis[order]) == sol.p2p_21).all()

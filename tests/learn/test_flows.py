"""Flows end where the theory says, stop with a reason, and barycenters lie between."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gromap
from gromap import Flow, FlowInterrupted, FlowStatus, Loop, Power, barycenter, gradient_flow, gw_loss
from gromap.solvers import KernelGW
from tests.conftest import cloud
from tests.learn.test_losses import shapes2d

X, Y = cloud(14, 2, 0)[0], cloud(11, 2, 1)[0]
ROUGH = KernelGW(Loop(tol=1e-6, marginal_tol=1e-4))


def gaps(points):
    """The distance of each point to its nearest neighbor."""
    d = np.linalg.norm(points[:, None] - points, axis=-1)
    np.fill_diagonal(d, np.inf)
    return d.min(1)


def spread(points):
    return np.linalg.norm(points - points.mean(0)) / np.sqrt(len(points))


def test_the_divergence_reaches_the_target_and_the_biased_loss_collapses():
    """Fig. gradientflow_entropicbias."""
    x, y = (np.load(shapes2d() / f"{name}.npy")[:n].astype("float64") for name, n in (("cross", 50), ("heart", 45)))
    flow = gradient_flow(x, y, steps=25, epsilon=1e-2, method=ROUGH)
    assert flow.losses[-1] < 0.01 * flow.losses[0]
    biased = gradient_flow(x, y, steps=25, epsilon=1e-2, method=ROUGH, debias=False)
    assert np.median(gaps(flow.points)) > 0.6 * np.median(gaps(y))
    assert np.median(gaps(biased.points)) < 0.5 * np.median(gaps(y))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_flow_descends_and_records(kind):
    x, y = (X, Y) if kind == "numpy" else (torch.from_numpy(X), torch.from_numpy(Y))
    a = 0.2 + np.random.default_rng(0).random(14)
    seen = []
    flow = gradient_flow(
        x,
        y,
        steps=12,
        a=a,
        epsilon=0.5,
        frames=4,
        init="zero",
        tol=0,
        callback=lambda event: seen.append((event.step, event.value)),
    )
    assert np.all(np.diff(flow.losses) <= 0)
    assert [value for _, value in seen] == flow.losses[1:].tolist()
    assert type(flow.points) is type(flow.frames) is type(x)
    assert flow.times[0] == 0
    assert 4 <= len(flow.frames) == len(flow.times) <= 9
    np.testing.assert_array_equal(np.asarray(flow.frames[-1]), np.asarray(flow.points))
    again = gw_loss(flow.points, y, a, epsilon=0.5)
    assert flow.losses[-1] == pytest.approx(float(again), rel=1e-3)


def test_a_flow_that_diverges_stops_with_its_best_points():
    flow = gradient_flow(X, Y, steps=20, epsilon=0.5, step=30.0, adaptive=False, init="zero")
    assert flow.status is FlowStatus.DIVERGED
    assert "lower step" in flow.status.value
    assert float(gw_loss(flow.points, Y, epsilon=0.5)) == pytest.approx(flow.losses.min(), rel=1e-2)
    tamed = gradient_flow(X, Y, steps=20, epsilon=0.5, step=30.0, init="zero")
    assert tamed.losses[-1] < tamed.losses[0]


def ring(n, seed):
    z = cloud(n, 3, seed)[0] + [1.0, 0.0, 0.0]
    return z / np.linalg.norm(z, axis=1, keepdims=True)


@pytest.mark.parametrize("adaptive", [True, False])
def test_flows_stay_where_their_cost_is_defined(adaptive):
    """They ended in a ValueError after a step or a few, and all was lost."""
    options = {"steps": 12, "epsilon": 0.05, "init": "zero", "adaptive": adaptive}
    sphere = gradient_flow(ring(12, 0), ring(9, 1), cost="spherical", **options)
    np.testing.assert_allclose(np.linalg.norm(sphere.frames, axis=-1), 1.0, rtol=1e-12)
    assert sphere.losses[-1] < 0.7 * sphere.losses[0]
    x, y = X / 10, Y / 2
    assert 0.8 < np.linalg.norm(y, axis=1).max() < 1
    disk = gradient_flow(x, y, cost="hyperbolic", step=1.0, **options)
    assert np.linalg.norm(disk.frames, axis=-1).max() < 1
    assert disk.losses.min() < disk.losses[0]
    middle = barycenter([ring(12, 0), ring(12, 1)], cost="spherical", steps=4, epsilon=0.05, init=ring(12, 2))
    np.testing.assert_allclose(np.linalg.norm(middle.points, axis=-1), 1.0, rtol=1e-12)


def fenced(x, y):
    """The Euclidean distance between points that are less than 3 away from the origin."""
    c = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.where((x.norm(dim=1) < 3)[:, None] & (y.norm(dim=1) < 3), c, torch.nan).fill_diagonal_(0)


@pytest.mark.filterwarnings("ignore:the cost of")
def test_a_flow_that_leaves_the_domain_of_its_cost_is_kept():
    x, y = X / np.linalg.norm(X, axis=1).max(), 20 * Y
    options = {"cost": (fenced, "euclidean"), "steps": 40, "epsilon": 1.0, "step": 0.5, "init": "zero"}
    flow = gradient_flow(x, y, adaptive=False, **options)
    assert flow.status is FlowStatus.NOT_FINITE
    assert "left the domain" in flow.status.value
    assert flow.losses.min() < flow.losses[0]
    assert np.linalg.norm(flow.points, axis=1).max() < 3
    tamed = gradient_flow(x, y, **options)
    assert tamed.losses[-1] < flow.losses.min()


def test_a_flow_stops_where_it_is_told_to():
    flow = gradient_flow(X, Y, steps=20, epsilon=0.5, init="zero", callback=lambda event: event.step == 3)
    assert flow.status is FlowStatus.STOPPED
    assert flow.times[-1] == 3
    near = gradient_flow(X, Y, steps=50, epsilon=0.5, init="zero", tol=0.5)
    assert near.status is FlowStatus.CONVERGED


def test_ctrl_c_leaves_the_best_points():
    def press(event):
        if event.step == 3:
            raise KeyboardInterrupt

    options = {"epsilon": 0.5, "init": "zero", "tol": 0}
    with pytest.raises(KeyboardInterrupt) as caught:
        gradient_flow(X, Y, steps=20, callback=press, **options)
    assert isinstance(caught.value, FlowInterrupted)
    flow, whole = caught.value.flow, gradient_flow(X, Y, steps=3, **options)
    assert flow.status is FlowStatus.INTERRUPTED
    np.testing.assert_array_equal(flow.points, whole.points)
    np.testing.assert_array_equal(flow.losses, whole.losses)
    assert flow.times[-1] == 3


def test_the_barycenter_of_copies_of_two_sizes_has_the_size_between():
    """Under c = |x - x'|², GW interpolates linearly between a cloud and its multiple: c = (1 -
    t) c_0 + t c_1."""
    middle = barycenter([X, 2 * X], [0.75, 0.25], steps=60, cost="sqeuclidean", epsilon=0.1)
    assert spread(middle.points) == pytest.approx(np.sqrt(0.75 * 1 + 0.25 * 4) * spread(X), rel=0.02)


def test_shapes_in_one_pose_start_from_nearest_points():
    """A rectangle and the same one upright: a search would turn it; from nearest points they
    meet in a square."""
    lying = np.stack(np.meshgrid(np.linspace(0, 4, 4), np.linspace(0, 2, 3)), -1).reshape(-1, 2)
    pair, options = [lying, lying[:, ::-1].copy()], {"epsilon": 0.1, "steps": 6, "method": ROUGH}
    posed = np.ptp(barycenter(pair, match="nearest", **options).points, axis=0)
    assert posed[0] / posed[1] == pytest.approx(1, rel=0.2)


def test_parts_of_a_barycenter_agree_with_the_whole():
    rng = np.random.default_rng(0)
    x = rng.random((90, 2)) * [3, 1]
    options = {"epsilon": 0.05, "cost": Power(1.0), "points": 60, "method": ROUGH}
    parts = barycenter([x, 2 * x], batch=30, steps=30, **options)
    start = sum(0.5 * float(gw_loss(parts.frames[0], z, epsilon=0.05, method=ROUGH)) for z in (x, 2 * x))
    end = sum(0.5 * float(gw_loss(parts.points, z, epsilon=0.05, method=ROUGH)) for z in (x, 2 * x))
    assert parts.points.shape == (60, 2)
    assert end < 0.7 * start
    assert spread(parts.points) == pytest.approx(1.5 * spread(x), rel=0.1)


CASES = {
    "no shapes": (lambda: barycenter([]), "at least one shape"),
    "weights": (lambda: barycenter([X, X], weights=[1.0]), "2 shapes need as many weights"),
    "negative weights": (lambda: barycenter([X, X], weights=[2.0, -1.0]), "weights >= 0"),
    "match": (lambda: barycenter([X, X], match="near"), "unknown match 'near': did you mean 'nearest'"),
    "poses": (lambda: barycenter([X, cloud(9, 3, 0)[0]], match="nearest"), "shapes in one space"),
    "momentum": (lambda: gradient_flow(X, Y, momentum=1.0), "momentum must be a number >= 0 and < 1, got 1.0"),
    "steps": (lambda: gradient_flow(X, Y, steps=0), "steps must be an integer >= 1, got 0"),
    "points": (lambda: gradient_flow(X[:, 0], Y), r"X must have shape \(N, d\)"),
    "flat surface": (
        lambda: Flow(X, X[None], [0], np.zeros(1), FlowStatus.FINISHED).surface(),
        r"points in space, \(N, 3\)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    flow = gradient_flow(X, Y, steps=4, epsilon=0.5, frames=3, init="zero")
    flow.plot(tmp_path / "flow.png")
    flow.animate(tmp_path / "flow.gif")
    from PIL import Image

    with Image.open(tmp_path / "flow.gif") as picture:
        assert getattr(picture, "n_frames", 1) == len(flow.frames)
    assert (tmp_path / "flow.png").stat().st_size > 5000


def test_a_surface_through_a_sphere():
    pytest.importorskip("pymeshlab", reason="no pymeshlab: pip install 'gromap[poisson]'")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    mesh = Flow(x, x[None], [0], np.zeros(1), FlowStatus.FINISHED).surface(depth=6)
    assert mesh.area == pytest.approx(4 * np.pi, rel=0.05)
    assert ((mesh.vertices[mesh.faces].mean(1) * mesh.face_normals()).sum(1) > 0).mean() > 0.99  # outwards
    with pytest.raises(ValueError, match="no surface goes through these 4 points"):
        Flow(x[:4], x[None, :4], [0], np.zeros(1), FlowStatus.FINISHED).surface()


def test_names_are_public():
    assert {"GromovLoss", "gw_loss", "gradient_flow", "barycenter"} <= set(gromap.__all__)

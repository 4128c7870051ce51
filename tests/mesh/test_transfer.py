"""What a plan carries: the paper's formula, sharper plans, and textures across their cuts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gromap import Plan, solve
from gromap.datasets import humans
from gromap.mesh import Mesh
from gromap.mesh.texture import split, with_texture
from gromap.mesh.transfer import colored, pull_back, push, push_labels, sharpen, textured
from gromap.transport import Dense

RNG = np.random.default_rng(0)


@pytest.fixture(params=["float32", "float64"])
def solution(request, pair):
    x, y, a, b = (z.astype(request.param) for z in pair)
    return solve(x, y, a=a, b=b, epsilon=0.01)


def cloud(points: np.ndarray, **extras) -> Mesh:
    return Mesh(points, np.zeros((0, 3), int), **extras)


def test_colors_and_fields_follow_the_formula(solution, pair):
    pi = solution.plan.dense().astype(float)
    rgb = RNG.random((len(pi), 3))
    expected = (pi / pi.sum(0)).T @ rgb
    assert push(solution.plan, rgb) == pytest.approx(expected, abs=1e-5)
    assert push(solution.plan, rgb[:, 0]) == pytest.approx(expected[:, 0], abs=1e-5)
    target = colored(cloud(pair[1]), cloud(pair[0], colors=rgb), solution.plan)
    assert target.colors == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match="the source has no colors"):
        colored(cloud(pair[1]), cloud(pair[0]), solution.plan)
    with pytest.raises(ValueError, match=r"the plan is 40 x 31, the source has 31 vertices"):
        colored(cloud(pair[0]), cloud(pair[1]), solution.plan)


def test_labels_go_where_most_of_their_mass_goes(solution):
    pi = solution.plan.dense()
    labels = RNG.choice(["head", "arm", "leg"], len(pi))
    mass = np.stack([pi[labels == name].sum(0) for name in ("arm", "head", "leg")])
    found, share = push_labels(solution.plan, labels)
    assert np.array_equal(found, np.array(["arm", "head", "leg"])[mass.argmax(0)])
    assert share == pytest.approx(mass.max(0) / pi.sum(0), abs=1e-5)
    with pytest.raises(ValueError, match="expected 40 labels"):
        push_labels(solution.plan, labels[:5])


def test_sharpening_is_transport_at_a_lower_temperature(solution):
    """The same cost at ε / 5, against plain Sinkhorn on the dense matrix."""
    plan = solution.plan
    sharp = sharpen(plan, factor=5, steps=5000, tol=1e-5)
    score = torch.as_tensor(plan.score.dense()).double() * 5
    log_a, log_b = plan.a.double().log(), plan.b.double().log()
    g = torch.zeros_like(log_b)
    for _ in range(5000):
        f = -(score + g + log_b).logsumexp(1)
        g = -(score.T + f + log_a).logsumexp(1)
    expected = (score + (f + log_a)[:, None] + g + log_b).exp().numpy()
    assert np.abs(sharp.dense() - expected).sum() < 1e-3
    assert sharp.marginal_error < 1e-3
    rows = [p / p.sum(1, keepdims=True) for p in (plan.dense(), sharp.dense())]
    assert rows[1].max(1).mean() > rows[0].max(1).mean()
    with pytest.raises(ValueError, match="a factor > 1"):
        sharpen(plan, factor=1)


def test_a_coupling_of_low_rank_cannot_be_sharpened(pair):
    x, y, a, b = pair
    with pytest.raises(ValueError, match="a coupling of low rank has no lower temperature"):
        sharpen(solve(x, y, a, b, method="lowrank", epsilon=0.01).plan)


def test_sharpening_leaves_points_without_mass_alone(pair):
    x, y, a, b = pair
    a[3] = b[5] = 0
    sharp = sharpen(solve(x, y, a=a, b=b, epsilon=0.01).plan)
    assert np.isfinite(sharp.dense()).all()
    assert sharp.dense()[3].sum() == 0
    assert np.isfinite(push(sharp, x)).all()  # also at y[5], which has no mass


def blurred_copy(mesh: Mesh, blur: float, seed: int = 0) -> tuple[Mesh, Plan, np.ndarray]:
    """The mesh in another order of vertices, a plan that sends each vertex to its copy, blurred,
    and that order."""
    order = np.random.default_rng(seed).permutation(len(mesh.vertices))
    where = np.argsort(order)
    x = torch.as_tensor(mesh.vertices, dtype=torch.float64)
    score = -torch.cdist(x, x[order]).square() / (2 * blur**2)
    a = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    u = a.log() - torch.logsumexp(score + a.log(), 1)
    copy = Mesh(mesh.vertices[order], where[mesh.faces])
    return copy, Plan(Dense(score), u, a.log(), a, a), order


@pytest.fixture(scope="module")
def small() -> Mesh:
    from fast_simplification import simplify

    mesh = humans().source
    vertices, faces = simplify(mesh.vertices, mesh.faces.astype(np.int32), target_reduction=0.8, agg=3)
    return Mesh(np.asarray(vertices, np.float64), np.asarray(faces, np.int64))


def test_a_texture_without_cuts_follows_the_formula(small):
    source = with_texture(small)
    copy, plan, _ = blurred_copy(small, 0.02)
    pi = plan.dense()
    uv = split(source)[2]
    out = textured(copy, source, plan)
    assert out.uv == pytest.approx(((pi / pi.sum(0)).T @ uv)[copy.faces])
    assert out.texture is source.texture
    plain = textured(copy, small, plan)  # a source without a texture is looked at from its widest side
    assert np.array_equal(plain.uv, out.uv)
    assert np.array_equal(plain.texture, out.texture)


def circular(difference: np.ndarray) -> np.ndarray:
    """The texture repeats from left to right."""
    return np.linalg.norm((difference + 0.5) % 1 - 0.5, axis=-1)


@pytest.mark.parametrize(("blur", "worst", "naive_worst"), [(1e-3, 1e-6, 1e-6), (0.01, 0.05, 0.5)])
def test_a_texture_with_a_cut_is_carried_on_both_sides_of_it(small, blur, worst, naive_worst):
    """Around the body the mean of places on both sides of the cut would be in front, while the
    cut is behind."""
    source = with_texture(small, "spherical")
    assert source.uv is not None
    original = split(source)[0]
    assert len(original) > len(small.vertices)  # there is a cut
    copy, plan, _ = blurred_copy(small, blur)
    out = textured(copy, source, plan)
    assert out.uv is not None
    away = np.abs(source.uv[..., 1] - 0.5).max(1) < 0.45  # from the poles, where longitudes meet
    error = circular(out.uv - source.uv)[away]
    assert np.quantile(error, 0.99) < worst
    assert np.ptp(out.uv[away][..., 0], axis=1).max() < 0.5  # no face is drawn across the image
    naive = push(plan, split(source)[2][: len(small.vertices)])[copy.faces]
    assert circular(naive - source.uv)[away].max() == pytest.approx(naive_worst, abs=0.1)


def test_two_charts_never_mix(small):
    """Front and back far apart in the texture: each target face lies in one of them."""
    front = small.face_normals()[:, 2] > 0
    source = with_texture(small)
    assert source.uv is not None
    uv = source.uv * [0.45, 1] + np.where(front, 0.0, 0.55)[:, None, None] * [1, 0]
    source = replace(source, uv=uv)
    copy, plan, _ = blurred_copy(small, 0.01)
    out = textured(copy, source, plan)
    assert out.uv is not None
    left, right = (out.uv[..., 0] < 0.46).all(1), (out.uv[..., 0] > 0.54).all(1)
    assert (left | right).all()
    areas = small.face_areas()
    assert areas[left == front].sum() > 0.93 * areas.sum()
    error = np.linalg.norm(out.uv - uv, axis=-1)[left == front]
    assert np.quantile(error, 0.99) < 0.03


def test_a_vertex_without_mass_has_a_place_too(small):
    source = with_texture(small, "spherical")
    copy, plan, _ = blurred_copy(small, 1e-3)
    v = plan.v.clone()
    v[::7] = -torch.inf
    whole, holed = textured(copy, source, plan), textured(copy, source, replace(plan, v=v, b=v.exp()))
    assert whole.uv is not None
    assert holed.uv is not None
    assert circular(holed.uv - whole.uv).max() < 1e-6


def test_textures_need_faces(small):
    copy, plan, _ = blurred_copy(small, 0.01)
    with pytest.raises(ValueError, match="the target is a cloud"):
        textured(cloud(copy.vertices), small, plan)
    with pytest.raises(ValueError, match="a cloud has no faces"):
        textured(copy, cloud(small.vertices), plan)
    with pytest.raises(ValueError, match="'planar' or 'spherical', got 'cubic'"):
        with_texture(small, "cubic")  # type: ignore[arg-type]


def test_a_sphere_is_cut_once(small):
    """Longitude and latitude of every corner are right up to whole turns."""
    mesh = with_texture(small, "spherical")
    assert mesh.uv is not None
    center = (small.vertices.min(0) + small.vertices.max(0)) / 2
    d = (small.vertices - center)[small.faces]
    u, v = mesh.uv[..., 0], mesh.uv[..., 1]
    radius = np.hypot(d[..., 0], d[..., 2])
    assert np.sin(2 * np.pi * (u - 0.5)) * radius == pytest.approx(d[..., 0], abs=1e-9)
    assert np.sin(np.pi * (v - 0.5)) * np.linalg.norm(d, axis=-1) == pytest.approx(d[..., 1], abs=1e-9)
    around = radius.max(1) < 0.1  # only faces around a pole are wider than half a turn
    assert np.ptp(u[~around], axis=1).max() <= 0.5


def test_a_sharpened_match_of_a_part_leaves_out_the_same():
    x = np.random.default_rng(0).normal(size=(80, 2)) * [3, 1]
    part = x[x[:, 0] > 0]
    plan = solve(part, x, reach=0.1, epsilon=3e-3, init="zero").plan
    sharp = sharpen(plan)
    assert abs(sharp.marginals[1] - plan.marginals[1]).sum() < 0.02
    assert (sharp.dense() ** 2).sum() > 1.2 * (plan.dense() ** 2).sum()


def test_a_map_carries_textures_and_colors_past_a_blurred_plan(small):
    """Between a mesh and a copy in another order, of which the map is known and the plan is not."""
    source = replace(with_texture(small, "spherical"), colors=(small.vertices - small.vertices.min(0)) / 2)
    copy, plan, order = blurred_copy(small, 0.2)
    out = textured(copy, source, plan, order)
    assert out.uv is not None
    assert source.uv is not None
    gap = circular(out.uv - source.uv)
    blurred = textured(copy, source, plan)
    assert blurred.uv is not None
    assert gap.mean() < 0.02  # of the image: about an edge
    assert gap.mean() < 0.3 * circular(blurred.uv - source.uv).mean()
    painted, dull = colored(copy, source, plan, order).colors, colored(copy, source, plan).colors
    assert source.colors is not None
    assert painted is not None
    assert dull is not None
    assert np.abs(painted - source.colors[order]).mean() < 0.3 * np.abs(dull - source.colors[order]).mean()


def test_values_pulled_back_are_the_means_over_a_vertex_and_its_neighbors(small):
    back = np.random.default_rng(0).integers(0, 50, len(small.vertices))
    found = pull_back(np.arange(50.0), small, back)
    around = np.unique(small.faces[(small.faces == 7).any(1)])
    ends = back[around]
    assert ends.min() <= found[7] <= ends.max()
    assert pull_back(np.ones((50, 2)), small, back) == pytest.approx(np.ones((len(back), 2)))

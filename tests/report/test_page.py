"""The report as a file: what is in it, what it refuses. tests/report/test_browser.py opens it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
import torch

import gromap
from gromap.mesh import Mesh
from gromap.mesh.mesh import in_space
from gromap.mesh.quality import Quality
from gromap.report import pose
from gromap.report.charts import chart
from gromap.report.page import write_report
from gromap.report.paint import LEFT_OUT, RAMP, carry, ramp
from tests.conftest import cloud, rotation

N, M = 70, 55
NO_FACES = np.zeros((0, 3), int)


@pytest.fixture(scope="module")
def match():
    """Two clouds with weights, and their match in float64."""
    (x, a), (y, b) = cloud(N, 3, 0), cloud(M, 3, 1)
    return Mesh(x, NO_FACES, name="left"), Mesh(y, NO_FACES), gromap.solve(x, y, a=a, b=b, epsilon=0.05)


def grid(n: int, m: int) -> Mesh:
    """A bent sheet with uv and no symmetry."""
    u, v = np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, m), indexing="ij")
    vertices = np.stack([3 * u, 2 * v, 0.5 * u**2 + 0.2 * v], -1).reshape(-1, 3)
    i = np.arange(n * m).reshape(n, m)
    corners = [i[:-1, :-1], i[1:, :-1], i[1:, 1:], i[:-1, 1:]]
    faces = np.concatenate([np.stack([corners[k].ravel() for k in three], 1) for three in ((0, 1, 2), (0, 2, 3))])
    return Mesh(vertices, faces, uv=np.stack([u, v], -1).reshape(-1, 2)[faces])


def part_of_a_sheet() -> tuple[Mesh, Mesh]:
    """The first half of a bent sheet, and all of it."""
    whole = grid(20, 12)
    n = 120
    kept = (whole.faces < n).all(1)
    assert whole.uv is not None
    return Mesh(whole.vertices[:n], whole.faces[kept], uv=whole.uv[kept]), whole


def blocks(text: str) -> dict[str, np.ndarray]:
    """The arrays of a page, read as its viewer does."""
    found = {}
    for name, kind, data in re.findall(
        r'<script type="application/octet-stream" id="block-([\w-]+)" data-type="(\w+)">(.*?)<', text
    ):
        kind = np.dtype(kind)
        planes = np.frombuffer(zlib.decompress(base64.b64decode(data)), np.uint8).reshape(kind.itemsize, -1)
        found[name] = planes.T.copy().view(kind)[:, 0]
    return found


def facts(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="facts">(.*?)</script>', text, re.S)[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_file_holds_the_plan(tmp_path, dtype):
    (x, a), (y, b) = cloud(N, 3, 0), cloud(M, 2, 1)
    sol = gromap.solve(x.astype(dtype), y.astype(dtype), a=a, b=b, epsilon=0.05)
    page = write_report(tmp_path / "a.html", Mesh(x, NO_FACES), Mesh(y, NO_FACES), sol)  # the target is flat
    found = blocks(page.read_text("utf-8"))
    q, k = found["q"].reshape(N, -1).astype(float), found["k"].reshape(M, -1).astype(float)
    plan = np.exp(q @ k.T + found["u"][:, None] + found["v"])
    assert np.allclose(plan, sol.plan.dense(), rtol=1e-3, atol=1e-9)
    assert found["target-points"].reshape(M, 3)[:, 2].tolist() == [0] * M


def test_colors_are_pushed(tmp_path, match):
    source, target, sol = match
    colors = np.random.default_rng(0).random((N, 3))
    page = write_report(tmp_path / "a.html", replace(source, colors=colors), target, sol)
    found = blocks(page.read_text("utf-8"))
    assert abs(found["source-colors"].reshape(N, 3) / 255 - colors).max() <= 0.5 / 255 + 1e-9
    assert abs(found["target-colors"].reshape(M, 3) / 255 - sol.push(colors)).max() <= 0.5 / 255 + 1e-6


def test_labels_take_the_likeliest(tmp_path, match):
    source, target, sol = match
    labels = np.random.default_rng(1).integers(-1, 3, N)
    page = write_report(tmp_path / "a.html", source, target, sol, labels=labels)
    found = blocks(page.read_text("utf-8"))
    names = np.unique(labels)
    swatches = facts(page.read_text("utf-8"))["modes"]["labels"]["swatches"]
    assert [name for name, _ in swatches] == ["-1", "0", "1", "2"]
    palette = np.array([[int(c) for c in css[4:-1].split()] for _, css in swatches])
    likeliest = sol.push((labels[:, None] == names).astype(float)).argmax(1)
    assert np.array_equal(found["target-labels"].reshape(M, 3), palette[likeliest])
    assert np.array_equal(found["source-labels"].reshape(N, 3), palette[np.searchsorted(names, labels)])


def test_error_and_its_mean(tmp_path, match):
    source, target, sol = match
    error = np.linspace(0, 2, N)
    text = write_report(tmp_path / "a.html", source, target, sol, error=error).read_text("utf-8")
    assert np.allclose(blocks(text)["error"], error)
    assert "mean 1," in facts(text)["modes"]["error"]["note"]
    assert "error" not in facts(write_report(tmp_path / "b.html", source, target, sol).read_text("utf-8"))["modes"]


def test_the_quality_of_the_map(tmp_path, match):
    source, target, sol = match
    errors = np.linspace(0, 0.3, N)
    measured = Quality(0.8, 1.25, errors, 0, "heat")
    text = write_report(tmp_path / "a.html", source, target, sol, error=errors, quality=measured).read_text("utf-8")
    assert "Quality of the map" in text
    assert f"{100 * errors.mean():.2f} % of √area, by the heat method" in text
    assert "80.0 % of the target" in text
    assert "25 % of √area</text>" in text  # where the curve ends
    assert facts(text)["errorUnit"] == " √area"
    assert "√area, carried" in facts(text)["modes"]["error"]["note"]
    plain = write_report(tmp_path / "b.html", source, target, sol, error=errors).read_text("utf-8")
    assert "Quality of the map" not in plain
    assert facts(plain)["errorUnit"] == ""
    unknown = Quality(0.8, 1.25)
    text = write_report(tmp_path / "c.html", source, target, sol, quality=unknown).read_text("utf-8")
    assert "Geodesic error" not in text


def test_lines_lead_from_points_far_apart_to_their_matches(tmp_path, match):
    source, target, sol = match
    lines = np.array(facts(write_report(tmp_path / "a.html", source, target, sol).read_text("utf-8"))["lines"])
    assert len(np.unique(lines[:, 0])) == len(lines) > 20
    assert np.array_equal(lines[:, 1], sol.map()[lines[:, 0]])


def test_axes_have_different_labels():
    for values in ([0.02671, 0.02672, 0.0267153], [0.0, 0.0], [1e-9, 3e-9], [5.0], [1234567.0, 1234569.0]):
        for log in (False, True):
            text = chart("energy", {"energy": np.array(values)}, log)
            labels = re.findall(r'text-anchor="end">([^<]+)<', text)
            assert len(set(labels)) == len(labels) == (3 if text else 0)
    drift = chart("energy", {"energy": 0.0267 + 1e-6 * np.arange(5)})
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', drift)]
    assert max(heights) - min(heights) < 20  # of 132 pixels: no trend


def test_carrying_is_the_conditional_mean_also_without_mass(match):
    _, _, sol = match
    values = np.random.default_rng(2).normal(size=(M, 4))
    moved = carry(sol.plan, {"a": values[:, :1], "b": values[:, 1:]})
    assert np.allclose(np.concatenate([moved["a"], moved["b"]], 1), sol.pull(values))
    x, a = cloud(N, 3, 0)
    a[3] = 0
    empty = gromap.solve(x, x[:M], a=a, epsilon=0.05)
    assert np.allclose(carry(empty.plan, {"a": values})["a"], empty.pull(values))


def test_a_dense_plan_gives_its_largest_entries(tmp_path):
    (x, a), (y, b) = cloud(N, 3, 0), cloud(M + 20, 2, 1)
    sol = gromap.solve(x, y, a=a, b=b, epsilon=0.05, method="kernel")
    text = write_report(tmp_path / "a.html", Mesh(x, NO_FACES), Mesh(y, NO_FACES), sol).read_text("utf-8")
    found, plan = blocks(text), sol.plan.dense()
    assert not facts(text)["factors"]
    for name, pi in (("row", plan), ("column", plan.T)):
        shares, places = (found[f"{name}-{what}"].reshape(len(pi), 64) for what in ("shares", "places"))
        assert np.allclose(shares, np.take_along_axis(pi / pi.sum(1, keepdims=True), places, 1), atol=1e-6)
        assert (shares.sum(1) > 0.99).all()


def test_a_mirrored_match_is_called_so(tmp_path, match):
    source, target, sol = match
    mirrored = replace(source, vertices=source.vertices * [1, -1, 1])
    same = gromap.solve(source.vertices, source.vertices, epsilon=0.05)
    for other, word in ((source, "kept"), (mirrored, "mirrored")):
        text = write_report(tmp_path / f"{word}.html", source, other, same).read_text("utf-8")
        assert f"{word} (" in text
        assert ("Mirrored: left and right are exchanged" in text) == (word == "mirrored")
    flat = replace(target, vertices=target.vertices[:, :2])
    assert "Left and right" not in write_report(tmp_path / "flat.html", source, flat, sol).read_text("utf-8")


def test_a_plan_that_overflowed_still_has_a_page(tmp_path, match):
    source, target, sol = match
    lost = replace(
        sol, plan=replace(sol.plan, v=sol.plan.v * torch.nan), value=float("nan"), status=gromap.Status.NOT_FINITE
    )
    text = write_report(tmp_path / "a.html", source, target, lost).read_text("utf-8")
    assert "raise epsilon" in text


def test_tensors_are_as_good_as_arrays(tmp_path, match):
    source, target, _ = match
    sol = gromap.solve(torch.tensor(source.vertices), torch.tensor(target.vertices), epsilon=0.05, method="kernel")
    assert write_report(tmp_path / "a.html", source, target, sol).exists()


def test_texture_is_drawn_on_the_target_only_where_it_is_the_same(tmp_path):
    source, target = grid(9, 7), grid(8, 7)
    sol = gromap.solve(source.vertices, target.vertices, epsilon=0.05)
    image = np.random.default_rng(0).integers(0, 255, (20, 30, 3)).astype(np.uint8)
    plain = blocks(write_report(tmp_path / "a.html", source, target, sol).read_text("utf-8"))
    assert plain["texture-size"].tolist() == [256, 256]  # a checkerboard
    assert "target-uv" not in plain  # its own uv say nothing of the source
    textured = replace(source, texture=image), replace(target, texture=image)
    found = blocks(write_report(tmp_path / "b.html", *textured, sol).read_text("utf-8"))
    assert np.array_equal(found["texture"].reshape(image.shape), image)
    assert np.allclose(found["target-uv"].reshape(target.uv.shape), target.uv)
    corner = image[-1, 0]  # (0, 0) is the lower left
    assert np.array_equal(found["source-texture"].reshape(-1, 3)[0], corner)


def test_landscape(tmp_path):
    t = np.linspace(0, 1, 40)
    stick = np.stack([t, 0.1 * t**2, 0 * t], 1)
    mesh, land = Mesh(stick, NO_FACES), gromap.landscape(stick, stick, starts=12, epsilon=0.01)
    sol = gromap.solve(stick, stick, epsilon=0.01)
    text = write_report(tmp_path / "a.html", mesh, mesh, sol, landscape=land).read_text("utf-8")
    assert text.count('<g class="minimum"') == len(land)
    found = blocks(text)
    for k in range(len(land)):
        assert found[f"minimum-{k}"].shape == (120,)
    colors = found["source-colors"].reshape(40, 3) / 255
    assert abs(land.plan(1).T.conditional_mean(colors) - found["minimum-1"].reshape(40, 3) / 255).max() < 0.01
    again = gromap.Landscape.load(land.save(tmp_path / "l.safetensors"))
    bare = write_report(tmp_path / "b.html", mesh, mesh, sol, landscape=again).read_text("utf-8")
    assert "minimum-0" not in blocks(bare)
    assert "holds no points" in bare
    small = gromap.solve(stick[::2], stick, epsilon=0.01)
    with pytest.raises(ValueError, match="landscape is of 40 x 40 points and the plan of 20 x 40"):
        write_report(tmp_path / "c.html", Mesh(stick[::2], NO_FACES), mesh, small, landscape=land)


def test_the_panel_says_what_the_solver_says(tmp_path, match):
    source, target, _ = match
    sol = gromap.solve(source.vertices, target.vertices, epsilon=0.05, init="zero")
    assert len(sol.history["energy"]) > 1
    sol = sol.with_stats(spectrum=((3.0, 1.0), (2.0, 0.5)))
    text = write_report(tmp_path / "a.html", source, target, sol, settings={"cost": "<b>", "ε": 0.05}).read_text(
        "utf-8"
    )
    said = unescape(re.sub("<[^>]*>", " ", text.partition('id="match"')[2].partition("</aside>")[0]))
    for words in (
        f"{sol.value:.6g}",
        sol.status.value,
        "70 × 55",
        "<b>",
        "Spectrum",
        "Time of each phase",
        "Energy at each",
    ):
        assert words in said
    assert "left · 70 vertices" in facts(text)["sides"][0]["caption"]


def test_a_match_of_parts_is_gray_where_it_is_none(tmp_path):
    source, target = part_of_a_sheet()
    sol = gromap.solve(source.vertices, target.vertices, reach=0.1, epsilon=3e-3, init="zero")
    error = np.linspace(0, 1, len(source.vertices))
    text = write_report(tmp_path / "a.html", source, target, sol, error=error).read_text("utf-8")
    found = blocks(text)
    assert found["target-kept"] == pytest.approx(sol.kept_Y, rel=1e-5)
    assert found["source-kept"] == pytest.approx(sol.kept_X, rel=1e-5)
    left_out = sol.kept_Y < 0.5
    assert 0.3 < left_out.mean() < 0.7
    for mode, shown in facts(text)["modes"].items():
        colors = found[f"target-{mode}"].reshape(-1, 3)
        assert (colors[left_out] == LEFT_OUT).all()
        assert not (colors[~left_out] == LEFT_OUT).all(1).any()
        assert shown["swatches"] == [["not matched", "rgb(176 178 182)"]]
    known = error[sol.kept_X >= 0.5].mean()
    assert f"mean {known:.4g}," in facts(text)["modes"]["error"]["note"]
    said = unescape(re.sub("<[^>]*>", " ", text))
    assert f"Matched: {100 * sol.matched(0):.1f} % of the source and {100 * sol.matched(1):.1f} % of the target" in said
    assert f"{sol.value_marginals:.6g}" in said
    plain = write_report(tmp_path / "b.html", source, source, gromap.solve(source.vertices, source.vertices))
    assert not any("kept" in name for name in blocks(plain.read_text("utf-8")))
    assert "not matched" not in plain.read_text("utf-8").partition('id="facts"')[2].partition("</script>")[0]


def test_the_panel_tells_features_from_distances(tmp_path, match):
    source, target, _ = match
    given = {"features": (source.vertices[:, :1], target.vertices[:, :1]), "alpha": 0.7, "epsilon": 0.05}
    sol = gromap.solve(source.vertices, target.vertices, **given)
    text = write_report(tmp_path / "a.html", source, target, sol).read_text("utf-8")
    said = " ".join(unescape(re.sub("<[^>]*>", " ", text)).split())
    assert f"All terms {sol.value:.6g}" in said
    assert f"GW, counts 0.7 {sol.value_gw:.6g}" in said
    assert f"Features, count 0.3 {sol.value_features:.6g}" in said


def test_nothing_is_fetched_and_nothing_escapes(tmp_path, match):
    source, target, sol = match
    evil = "</script><script>alert(1)</script>"
    page = write_report(
        tmp_path / "a.html", replace(source, name=evil), target, sol, title=evil + "{{facts}}", settings={evil: evil}
    )
    text = page.read_text("utf-8")
    assert "alert(1)</script>" not in text
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert text.count("{{facts}}") == 2  # the title, as given
    assert "Permission is hereby granted" in text  # three.js


def test_an_existing_file_is_left_alone_unless_forced(tmp_path, match):
    path = tmp_path / "a.html"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="force=True"):
        write_report(path, *match)
    assert path.read_text() == "mine"
    assert write_report(path, *match, force=True) == path
    assert path.read_text("utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]


def test_an_interruption_leaves_the_old_file(tmp_path, match, monkeypatch):
    path = tmp_path / "a.html"
    path.write_text("mine")
    monkeypatch.setattr("gromap.report.page.block", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_report(path, *match, force=True)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_places_where_no_page_can_be(tmp_path, match):
    with pytest.raises(ValueError, match=r"must end in \.html"):
        write_report(tmp_path / "a.pdf", *match)
    with pytest.raises(FileNotFoundError, match="create it"):
        write_report(tmp_path / "nowhere" / "a.html", *match)
    (tmp_path / "a.html").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_report(tmp_path / "a.html", *match, force=True)


def test_wrong_shapes_are_refused(tmp_path, match):
    source, target, sol = match
    wrong = [
        ((target, source, sol), {}, r"the source has vertices of shape \(55, 3\), but the plan matches 70"),
        ((replace(source, faces=np.array([[0, 1, 70]])), target, sol), {}, r"indices in 0 \.\. 69"),
        ((replace(source, faces=np.array([[0, 1, 2, 3]])), target, sol), {}, r"faces of shape \(F, 3\)"),
        ((source, replace(target, colors=np.zeros((N, 3))), sol), {}, r"colors of shape \(55, 3\), got \(70, 3\)"),
        ((source, replace(target, uv=np.zeros((2, 3, 2))), sol), {}, r"uv of shape \(0, 3, 2\)"),
        ((replace(source, vertices=source.vertices * np.nan), target, sol), {}, "NaN"),
        (match, {"labels": np.zeros(N)}, r"labels must be integers of shape \(70,\)"),
        (match, {"labels": np.zeros(M, int)}, r"labels must be integers of shape \(70,\)"),
        (match, {"labels": np.arange(N)}, "70 different values"),
        (match, {"error": np.zeros(M)}, r"error must be finite numbers of shape \(70,\)"),
        (match, {"error": np.full(N, np.nan)}, "error must be finite"),
    ]
    for arguments, options, words in wrong:
        with pytest.raises(ValueError, match=words):
            write_report(tmp_path / "a.html", *arguments, **options)
    assert not any(tmp_path.iterdir())


def test_ramp_is_monotone_and_clipped():
    colors = ramp(np.array([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan]))
    assert colors[[0, 1, 5]].tolist() == [RAMP[0].tolist()] * 3
    assert colors[[3, 4]].tolist() == [RAMP[-1].tolist()] * 2
    assert colors[2].tolist() == RAMP[2].tolist()


def test_a_turned_target_is_turned_back():
    x, w = cloud(N, 3, 0)
    frame = pose.upright(x)
    assert np.linalg.det(frame) == pytest.approx(1)
    turn = rotation(3, 5)
    turn *= np.linalg.det(turn)
    found = pose.beside(x @ turn.T, x, w, frame)  # y = turn x
    assert found == pytest.approx(frame @ turn.T)
    assert pose.beside(x, x, w, frame) is frame
    shuffled = np.random.default_rng(0).permutation(x @ turn.T)
    assert pose.beside(shuffled, x, w, frame) is frame  # a match that says nothing
    mirror = np.eye(3) - 2 * np.outer(frame[0], frame[0])
    assert pose.beside(x @ mirror, x, w, frame) is frame  # a mirrored match of shapes that stand alike


def test_the_thin_axis_points_at_the_viewer():
    x = np.random.default_rng(0).normal(size=(50, 3))
    for thin, up in ((0, 1), (1, 2), (2, 1)):
        frame = pose.upright(x * np.where(np.arange(3) == thin, 0.1, 1.0))
        assert frame[2, thin] == 1
        assert frame[1, up] == 1


def test_clouds_of_many_dimensions_keep_their_widest_axes():
    x = np.random.default_rng(0).normal(size=(50, 6)) * [0.01, 3, 0.01, 2, 0.01, 1]
    flat = in_space(x)
    assert flat.shape == (50, 3)
    assert np.var(flat, axis=0).sum() == pytest.approx(np.var(x, axis=0).sum(), rel=1e-3)


@pytest.mark.parametrize("values", [[9.8e-4, 9.79e-4], [1e-3], [1e-3, 1e-3, 1e-3], [0.1, 1e-5]])
def test_a_log_axis_has_three_labels(values):
    labels = re.findall(r'text-anchor="end">([^<]*)', chart("misplaced mass", {"": np.array(values)}, log=True))
    assert len(set(labels)) == 3

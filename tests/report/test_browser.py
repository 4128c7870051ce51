"""The report in a real browser: it draws, answers clicks, changes its colors, and complains of
nothing."""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gromap
from gromap.datasets import humans
from gromap.mesh import Mesh
from gromap.report.page import write_report
from tests.report.test_page import NO_FACES, grid, part_of_a_sheet

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PICTURES = Path(__file__).parents[2] / "test-artefacts"
QUIET = "--no-sandbox --disable-quic --no-first-run --disable-background-networking "
QUIET += "--disable-component-update --disable-sync"
SOFTWARE = "--use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader"  # no GPU is needed

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH: apt-get install chromium")


@pytest.fixture(scope="module")
def driver():
    api = pytest.importorskip(
        "playwright.sync_api", reason="the browser is driven by playwright: pip install playwright"
    )
    with api.sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="module")
def browser(driver):
    with driver.chromium.launch(executable_path=CHROMIUM, args=f"{QUIET} {SOFTWARE}".split()) as browser:
        yield browser


@pytest.fixture(scope="module")
def men():
    pair = humans()
    options = {"cost": "sqeuclidean", "epsilon": 5e-3}
    land = gromap.landscape(pair.source.vertices, pair.target.vertices, starts=8, points=30, **options)
    sol = gromap.solve(pair.source.vertices, pair.target.vertices, init=land.minima[0], max_iter=1, **options)
    return pair, sol, land


@pytest.fixture(scope="module")
def meshes(tmp_path_factory, men):
    """A page with all there is."""
    pair, sol, land = men
    height = pair.source.vertices[:, 1]
    facts = {
        "labels": np.digitize(height, [-0.5, 0, 0.5]),
        "error": abs(height),
        "landscape": land,
        "settings": {"max_iter": 3},
    }
    return write_report(
        tmp_path_factory.mktemp("page") / "men.html", pair.source, pair.target, sol, title="Two men", **facts
    )


class Opened:
    """A page on the screen, and what it complained of."""

    def __init__(self, browser, path: Path, width: int = 1400, height: int = 900, scheme: str = "light"):
        self.page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: request.url.startswith("file:") or self.complaints.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-state=ready], html[data-state=failed]", state="attached")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.page.close()
        if kind is None:
            assert self.complaints == []

    def canvas(self, side: int):
        return self.page.locator(".view canvas").nth(side)

    def picture(self, side: int) -> np.ndarray:
        """What one canvas shows.  (H, W, 3) in [0, 1]"""
        from matplotlib.image import imread

        self.page.wait_for_timeout(250)  # the next frame
        return imread(io.BytesIO(self.canvas(side).screenshot()))[4:-4, 4:-4, :3]  # without the frame around it

    def click(self, side: int, x: float = 0.5, y: float = 0.45) -> None:
        """x, y: shares of the canvas."""
        box = self.canvas(side).bounding_box()
        self.page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])

    def keep(self, name: str) -> None:
        PICTURES.mkdir(exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")


def painted(picture: np.ndarray) -> np.ndarray:
    """Which pixels differ from the background, the upper left one."""
    return abs(picture - picture[0, 0]).max(-1) > 0.05


def changed(before: np.ndarray, after: np.ndarray) -> float:
    return float((abs(before - after).max(-1) > 0.05).mean())


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_shapes_are_drawn_and_not_cropped(browser, meshes, width, height, scheme):
    with Opened(browser, meshes, width, height, scheme) as opened:
        opened.keep(f"men-{width}-{scheme}")
        assert opened.page.locator("html").get_attribute("data-theme") == scheme
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        for side in (0, 1):
            seen = painted(opened.picture(side))
            assert 0.05 < seen.mean() < 0.6
            assert not seen[:3, 20:-20].any()  # the corners are round
            assert not seen[-3:, 20:-20].any()
            assert not seen[20:-20, :3].any()
            assert not seen[20:-20, -3:].any()
        opened.page.click("#theme")
        assert opened.page.locator("html").get_attribute("data-theme") != scheme


def test_a_click_shows_the_row_of_the_plan(browser, meshes, men):
    plan = men[1].plan.dense().astype(float)
    with Opened(browser, meshes) as opened:
        for side, names in enumerate([("source", "target"), ("target", "source")]):
            before = opened.picture(1 - side)
            opened.click(side)
            opened.page.wait_for_selector(f'#readout td:text-matches("{names[0]} \\\\d+")')
            assert changed(before, opened.picture(1 - side)) > 0.02
            opened.keep(f"probe-{names[0]}")
            said = dict(re.findall(r"([^\t\n]+)\t([^\n]+)", opened.page.inner_text("#readout table")))
            index = int(said["Vertex"].split()[1])
            row = plan[index] / plan[index].sum() if side == 0 else plan[:, index] / plan[:, index].sum()
            best, share = re.fullmatch(names[1] + r" (\d+), ([\d.]+) % of the mass", said["Best match"]).groups()
            assert int(best) == row.argmax()
            assert float(share) == pytest.approx(100 * row.max(), abs=0.06)
            points = float(re.search(r"about ([\d.,]+) points", said["Spread"])[1].replace(",", ""))
            assert points == pytest.approx(np.exp(-(row[row > 0] * np.log(row[row > 0])).sum()), rel=0.01)
            opened.page.click("#clear")
            assert changed(before, opened.picture(1 - side)) < 0.001


def test_every_mode_has_its_colors(browser, meshes):
    with Opened(browser, meshes) as opened:
        labels = opened.page.locator("#modes label")
        assert labels.all_inner_texts() == ["Colors", "Coordinates", "Labels", "Error", "Spread"]
        seen = []
        for k in range(labels.count()):
            labels.nth(k).click()
            seen.append(opened.picture(1))
            assert all(changed(seen[-1], other) > 0.03 for other in seen[:-1])
        assert "and more" in opened.page.inner_text("#legend")


def test_cameras_are_linked(browser, meshes):
    with Opened(browser, meshes) as opened:
        start = opened.picture(1)
        box = opened.canvas(0).bounding_box()
        opened.page.mouse.move(box["x"] + 200, box["y"] + 300)
        opened.page.mouse.down()
        opened.page.mouse.move(box["x"] + 300, box["y"] + 320, steps=4)
        opened.page.mouse.up()
        turned = opened.picture(1)
        assert changed(start, turned) > 0.02
        assert opened.page.locator("#clear").is_disabled()  # a drag is not a click
        opened.page.mouse.wheel(0, -400)
        assert painted(opened.picture(1)).mean() > 1.3 * painted(turned).mean()
        opened.page.mouse.dblclick(box["x"] + 20, box["y"] + 60)
        assert changed(start, opened.picture(1)) < 0.001
        opened.canvas(0).focus()
        opened.page.keyboard.press("ArrowRight")
        assert changed(start, opened.picture(1)) > 0.02
        opened.page.click("#reset")
        opened.page.click("#roll")
        assert changed(start, opened.picture(1)) > 0.05


def test_shapes_fill_their_frames(browser, meshes):
    """The higher one nearly to the edges, whichever way they lie."""
    with Opened(browser, meshes) as opened:
        for axis in (1, 0):  # rows, then columns
            extents = [painted(opened.picture(side)).any(axis).mean() for side in (0, 1)]
            assert max(extents) > 0.75
            opened.page.click("#roll")


def test_lines_edges_and_a_picture(browser, meshes, tmp_path):
    with Opened(browser, meshes) as opened:
        lines = opened.page.locator("#lines line:not(.under)")
        assert lines.count() == 0
        opened.page.click("#show-lines")
        opened.page.wait_for_timeout(250)
        assert 12 < lines.count() <= 24
        opened.keep("lines")
        for line in lines.all():  # from a point of the source to one of the target
            ends = [float(line.get_attribute(name)) for name in ("x1", "x2")]
            middle = opened.page.locator(".view").nth(1).bounding_box()["x"]
            left = opened.page.locator(".pair").bounding_box()["x"]
            assert ends[0] + left < middle < ends[1] + left
        before = opened.picture(0)
        opened.page.click("#wireframe")
        wired = opened.picture(0)
        assert changed(before, wired) > 0.02
        opened.keep("wireframe")
        with opened.page.expect_download() as download:
            opened.page.click("#picture")
        assert download.value.suggested_filename == "Two men.png"
        from matplotlib.image import imread

        picture = imread(download.value.path())[..., :3]
        assert picture.shape[1] == pytest.approx(opened.page.locator(".pair").bounding_box()["width"], abs=1)
        assert all(painted(half).mean() > 0.02 for half in np.array_split(picture[60:-20, 20:-20], 2, 1))
        opened.page.click("#show-lines")
        assert lines.count() == 0


def test_minima_recolor_the_target(browser, meshes, men):
    land = men[2]
    with Opened(browser, meshes) as opened:
        opened.page.click("#tab-landscape")
        assert opened.page.locator("#match").is_hidden()
        assert opened.page.locator("svg .minimum").count() == len(land)
        pictures = []
        for k in range(2):
            opened.page.click(f"button[data-minimum='{k}']")
            pictures.append(opened.picture(1))
        opened.keep("landscape")
        assert changed(*pictures) > 0.02
        opened.page.locator("g[data-minimum='0'] circle").click(force=True)
        assert changed(pictures[0], opened.picture(1)) < 0.001


def test_points_by_their_number(browser, meshes):
    with Opened(browser, meshes) as opened:
        opened.page.select_option("#probe-side", "1")
        opened.page.fill("#probe-index", "3899")
        opened.page.keyboard.press("Enter")
        opened.page.wait_for_selector('#readout td:text("target 3899")')
        opened.page.fill("#probe-index", "3900")
        opened.page.keyboard.press("Enter")
        opened.page.wait_for_selector('#readout :text("vertices 0 to 3899")')


def test_clouds_and_dense_plans(browser, tmp_path, men):
    pair = men[0]
    x, y = pair.source.vertices[::8], pair.target.vertices[::10]
    sol = gromap.solve(x, y, method="kernel", cost="sqeuclidean", epsilon=5e-3, max_iter=3, init="zero")
    page = write_report(tmp_path / "clouds.html", Mesh(x, NO_FACES), Mesh(y, NO_FACES), sol)
    with Opened(browser, page) as opened:
        assert all(0.02 < painted(opened.picture(side)).mean() < 0.5 for side in (0, 1))
        assert opened.page.locator("#wireframe").is_hidden()
        opened.page.fill("#probe-index", "7")
        opened.page.keyboard.press("Enter")
        opened.page.wait_for_selector(f'#readout td:text("target {sol.map("argmax")[7]},")')
        assert "largest entries" in opened.page.inner_text("#readout")
        opened.keep("clouds")


def test_textures(browser, tmp_path):
    source, target = grid(25, 20), grid(20, 22)
    image = np.random.default_rng(0).integers(0, 255, (8, 8, 3)).astype(np.uint8)
    sol = gromap.solve(source.vertices, target.vertices, cost="sqeuclidean", epsilon=5e-3, init="zero")
    page = write_report(tmp_path / "a.html", replace(source, texture=image), replace(target, texture=image), sol)
    with Opened(browser, page) as opened:
        assert opened.page.locator("#modes :checked").input_value() == "texture"
        drawn = [opened.picture(side) for side in (0, 1)]
        opened.keep("textures")
        opened.page.click("#modes label:has-text('Coordinates')")
        assert all(changed(drawn[side], opened.picture(side)) > 0.1 for side in (0, 1))


def test_textures_end_where_nothing_is_matched(browser, tmp_path):
    source, target = part_of_a_sheet()
    image = np.zeros((8, 8, 3), np.uint8) + np.array([200, 30, 30], np.uint8)
    sol = gromap.solve(source.vertices, target.vertices, reach=0.1, epsilon=3e-3, init="zero")
    page = write_report(tmp_path / "a.html", replace(source, texture=image), replace(target, texture=image), sol)
    with Opened(browser, page) as opened:
        opened.keep("part")
        picture = opened.picture(1)
        shown = picture[painted(picture)]
        red = (shown[:, 0] > 2 * shown[:, 1]).mean()
        assert 0.3 < red < 0.7
        opened.page.select_option("#probe-side", "1")
        opened.page.fill("#probe-index", "239")
        opened.page.keyboard.press("Enter")
        opened.page.wait_for_selector('#readout th:text("Matched")')
        said = dict(re.findall(r"([^\t\n]+)\t([^\n]+)", opened.page.inner_text("#readout table")))
        assert said["Matched"].endswith("% of its weight")


def test_a_browser_without_webgl_says_so(driver, meshes):
    arguments = f"{QUIET} --disable-gpu --disable-webgl --disable-3d-apis --disable-software-rasterizer"
    with (
        driver.chromium.launch(executable_path=CHROMIUM, args=arguments.split()) as browser,
        Opened(browser, meshes) as opened,
    ):
        assert "no WebGL 2" in opened.page.inner_text("#notice")
        assert "Sinkhorn" in opened.page.inner_text("#match")  # the numbers are there

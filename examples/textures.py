"""A checkerboard on a man and on a femur: python examples/textures.py draws
docs/images/texture_man.png and texture_femur.png.

These are the pages of `gromap match --transfer texture`, as Chromium shows them. The shapes are
read from $GROMAP_DATA; the browser is driven by playwright.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from gromap.bench.shapes import data_folder
from gromap.cli import main as gromap

PAIRS = {
    "man": ("poses/mh_man_0.ply", "poses/mh_man_2.ply"),
    # with seed 0 the search ends 4 % too high: one half of the bone is turned against the other
    "femur": ("anatomy/femur_R.ply", "anatomy/femur_L.ply", "--allow-mirror", "--seed", "1"),
}
SOFTWARE = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
COLORS = 128  # of a picture


def photograph(page: Path, picture: Path) -> None:
    """Both shapes of a page, without the rest of it."""
    with (
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=shutil.which("chromium"), args=SOFTWARE) as browser,
    ):
        shown = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
        shown.goto(page.resolve().as_uri())
        shown.wait_for_selector("html[data-state=ready]", state="attached")
        shown.locator(".pair").screenshot(path=picture)
    Image.open(picture).convert("RGB").quantize(COLORS).save(picture, optimize=True)


def main(folder: str = "docs/images") -> None:
    for name, (source, target, *options) in PAIRS.items():
        with tempfile.TemporaryDirectory() as out:
            shapes = [str(data_folder() / file) for file in (source, target)]
            gromap(["match", *shapes, *options, "--transfer", "texture", "--force", "--out", out])
            photograph(Path(out) / "report.html", Path(folder) / f"texture_{name}.png")


if __name__ == "__main__":
    main(*sys.argv[1:])

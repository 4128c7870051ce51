"""python -m gromap.demo [OUT.png]: match a standing man to a running one by geodesic distances,
and draw the result.

The picture is written to OUT.png, an interactive page to OUT.html.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import gromap
from gromap import _check
from gromap._files import save_figure
from gromap._progress import Progress
from gromap.datasets import humans
from gromap.mesh import match
from gromap.report.figures import color_field, correspondence_figure
from gromap.report.page import write_report

COST = "geodesic"


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 with one line on stderr if the page or the picture cannot be
    written."""
    parser = argparse.ArgumentParser(prog="python -m gromap.demo", description="Match a standing man to a running one.")
    parser.add_argument(
        "output", nargs="?", default="demo.png", help="the picture to write (demo.png), and a page beside it"
    )
    try:
        path = _writable(Path(parser.parse_args(argv).output))
        _check.extra("matplotlib.figure", "plot", "matplotlib")
        _demo(path)
    except (OSError, ImportError) as error:
        print(f"gromap.demo: {error}", file=sys.stderr)
        return 2
    return 0


def _demo(path: Path) -> None:
    begin = time.perf_counter()
    pair = humans()
    source, target = pair.source, pair.target
    progress = Progress()
    x, y = (
        gromap.Space.from_mesh(mesh, cost=COST, callback=lambda event, name=name: progress(f"{name}, {event}"))
        for mesh, name in ((source, "standing man"), (target, "running man"))
    )
    progress.close()
    sol = match(x, y, progress=True)
    if sol.status is gromap.Status.INTERRUPTED:
        raise KeyboardInterrupt
    found = sol.map()
    direct, mirrored = pair.errors(found)
    swap = "" if direct <= mirrored else ", left and right swapped, which distances cannot tell"
    seconds = time.perf_counter() - begin
    line = f"matching error {min(direct, mirrored):.2%} of the target's diagonal{swap}; {seconds:.1f} s in total"
    print(x.mesh_embedding, y.mesh_embedding, sol, line, sep="\n")

    colors = color_field(source.vertices)
    n, m = sol.plan.shape
    title = f"Colors of the source, pushed to the target: {n:,} x {m:,} vertices matched by gromap"
    save_figure(correspondence_figure(source, target, colors, sol.push(colors), title, line), path, dpi=150)
    print(f"wrote {path}")
    truth = pair.direct if direct <= mirrored else pair.mirrored
    error = np.linalg.norm(target.vertices[found] - truth, axis=1) / np.linalg.norm(np.ptp(target.vertices, axis=0))
    settings = {"cost": COST, "epsilon": sol.epsilon, "error": "straight, over the diagonal of the target"}
    page = path.with_suffix(".html")
    write_report(page, source, target, sol, title="Standing to running", error=error, settings=settings, force=True)
    print(f"wrote {page.resolve()}: open it in a browser")


def _writable(path: Path) -> Path:
    """The path if a PNG may be written there: nothing but a PNG is ever overwritten."""
    folder = path.parent
    if path.suffix.lower() != ".png":
        raise OSError(f"the picture is a PNG file, so its name must end in .png, got {str(path)!r}.")
    if not folder.is_dir():
        raise OSError(f"there is no folder {str(folder)!r}: create it, or choose another one.")
    if path.exists():
        if not path.is_file() or not _is_png(path):
            raise OSError(f"{str(path)!r} exists and is not a PNG file, so it was left alone: choose another name.")
        if not os.access(path, os.W_OK):
            raise OSError(f"{str(path)!r} is read-only: choose another name.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            return path
    except OSError as error:
        raise OSError(f"cannot write in the folder {str(folder)!r} ({error.strerror}): choose another one.") from error


def _is_png(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8) == b"\x89PNG\r\n\x1a\n"


if __name__ == "__main__":
    sys.exit(main())

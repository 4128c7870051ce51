"""python -m gromap.demo [OUT.png]: match a standing man to a running one, print the result and draw it."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import gromap
from gromap.datasets import humans
from gromap.report.figures import colour_field, correspondence_figure, require_matplotlib


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 with one line on stderr where the picture cannot be drawn or written."""
    parser = argparse.ArgumentParser(prog="python -m gromap.demo", description="Match a standing man to a running one.")
    parser.add_argument("output", nargs="?", default="demo.png", help="the picture to write (demo.png)")
    try:
        path = _writable(Path(parser.parse_args(argv).output))
        require_matplotlib()
        _demo(path)
    except (OSError, ImportError) as error:
        print(f"gromap.demo: {error}", file=sys.stderr)
        return 2
    return 0


def _demo(path: Path) -> None:
    begin = time.perf_counter()
    pair = humans()
    source, target = pair.source, pair.target
    sol = gromap.solve(
        source.vertices,
        target.vertices,
        a=source.vertex_areas(),
        b=target.vertex_areas(),
        cost=gromap.Power(0.5),  # √|x - x'|: a pose moves the limbs against each other, so near points tell more than far ones
        progress=True,
    )
    direct, mirrored = pair.errors(sol.p2p_12)
    swap = "" if direct <= mirrored else ", left and right swapped, which distances cannot tell"
    seconds = time.perf_counter() - begin
    line = f"matching error {min(direct, mirrored):.2%} of the target's diagonal{swap}; {seconds:.1f} s in total"
    print(sol, line, sep="\n")

    colours = colour_field(source.vertices)
    n, m = sol.plan.shape
    title = f"Colours of the source, pushed to the target: {n:,} x {m:,} vertices matched by gromap"
    correspondence_figure(source, target, colours, sol.push(colours), title, line).savefig(path, dpi=150, format="png")
    print(f"wrote {path}")


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

"""The folder of results: checked before the long work; nothing is replaced unless forced; files
are written atomically."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gromap import _check
from gromap._files import replacing


class KeptResults(Exception):  # noqa: N818 - not an error
    """Ctrl-C; the message says which files are kept, and where."""


def ready(folder: Path, names: Iterable[str], force: bool) -> Path:
    """The folder, created if need be, after a check that these files may be written there."""
    if not _check.is_text(str(folder)):
        raise ValueError(f"the name of the folder {str(folder)!r} is not UTF-8: choose another one with --out.")
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file: choose another folder with --out.")
    there = [name for name in names if (folder / name).exists()]
    if there and not force:
        raise FileExistsError(
            f"{folder} already has {', '.join(there)}: choose another --out, or --force to replace them."
        )
    if any((folder / name).is_dir() for name in there):
        raise IsADirectoryError(f"{folder} has a folder where {there[0]} would go: choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise type(error)(f"cannot write in the folder {folder} ({error.strerror}): choose another --out.") from error


@contextmanager
def keeping(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Raise `KeptResults` on Ctrl-C if some of these files were written; those left from an
    earlier run are then removed.

    The message of the KeyboardInterrupt, if it has one, says what the files hold.
    """
    before = {name: _stamp(folder / name) for name in names}
    try:
        yield
    except KeyboardInterrupt as error:
        done = [name for name in names if _stamp(folder / name) != before[name]]
        if not done:
            raise
        for name in names:
            if name not in done:
                (folder / name).unlink(missing_ok=True)
        what = f": {error}" if str(error) else ""
        raise KeptResults(f"kept {', '.join(done)} in {folder}{what}.") from None


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes when a file is replaced."""
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None


def write_text(path: Path, text: str) -> Path:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def write_json(path: Path, facts: dict[str, Any]) -> Path:
    return write_text(path, json.dumps(facts, indent=2) + "\n")


def write_map(path: Path, match: np.ndarray) -> Path:
    """One index per line, counted from 0."""
    return write_text(path, "\n".join(map(str, match.tolist())) + "\n")


def write_array(path: Path, array: np.ndarray) -> Path:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)
    return path

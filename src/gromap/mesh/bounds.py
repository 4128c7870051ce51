"""What a file may ask for: memory in proportion to its bytes, and other files of its own folder."""

from __future__ import annotations

from pathlib import Path

RATIO = 100  # times its own bytes that reading a file may take
ROOM = 4 << 20  # bytes that any file may take beyond that
IMAGE_ROOM = 48 << 20  # and its images, since one color alone packs well: 4096 x 4096 pixels


def check_size(needed: int, given: int, what: str, room: int = ROOM) -> None:
    """Refuse, before anything is allocated, what so few bytes cannot stand for."""
    if needed > RATIO * given + room:
        raise ValueError(f"{what} would take {needed / 2**20:.0f} MiB, out of all proportion to its {given} bytes")


def beside(path: Path, name: str) -> Path | None:
    """The file of this name in the folder of a mesh, or below it; None for a name that leads out
    of it, or that no file can have."""
    try:
        folder = path.parent.resolve()
        found = (folder / name.strip()).resolve()
        found.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RuntimeError):  # too long, with a zero byte, or a link to itself
        return None
    return path.parent / name.strip() if found.is_relative_to(folder) else None

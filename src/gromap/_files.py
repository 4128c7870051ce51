"""Files that are written whole or not at all; result files, tensors and plain facts in one
.safetensors file."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

VERSION = 1
T = TypeVar("T")


@contextmanager
def replacing(path: str | Path) -> Generator[Path]:
    """A new file beside `path` that takes its place at the end, so that an interruption leaves
    the old file, or none."""
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except OSError as error:
        remedy = "create it" if not path.parent.is_dir() else "choose another one"
        raise type(error)(f"cannot write in the folder {path.parent} ({error.strerror}): {remedy}.") from error
    try:
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # what the umask gave; some writers are stricter
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: str | Path, kind: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Path:
    """Write tensors and facts; `read` gives them back."""
    import safetensors.torch

    path = Path(path)
    untyped: Any = safetensors.torch
    header = {"format": f"gromap-{kind}", "version": str(VERSION), kind: json.dumps(facts)}
    with replacing(path) as temporary:
        untyped.save_file(
            {name: t.detach().cpu().contiguous() for name, t in tensors.items()}, temporary, metadata=header
        )
    return path


def read(
    path: str | Path, kind: str, device: torch.device | str, build: Callable[[dict[str, Tensor], dict[str, Any]], T]
) -> T:
    """What `build` makes of the tensors and facts of a file. Everything that is wrong with a
    file is a ValueError."""
    from safetensors import SafetensorError, safe_open

    path, what = Path(path), "result" if kind == "solution" else kind
    if not path.is_file():
        raise FileNotFoundError(f"no {what} file at {path}.")
    try:
        untyped: Any = safe_open(path, framework="pt", device=str(device))
        with untyped as stored:
            header: dict[str, str] = stored.metadata() or {}
            if header.get("format") != f"gromap-{kind}":
                raise ValueError(f"{path} is a safetensors file, but not a gromap {what}.")
            if int(header.get("version", 0)) > VERSION:
                raise ValueError(
                    f"{path} was written by a newer gromap (format {header['version']}): upgrade gromap to read it."
                )
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - not a dict
            return build(tensors, json.loads(header[kind]))
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a gromap {what}, or it is truncated or corrupted ({error}).") from error

"""Files that are written whole or not at all; result files, tensors and plain facts in one
.safetensors file."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from gromap import _options

VERSION = 1
UNSEALED = ("solution", "landscape", "pairwise")  # kinds of which older files have no checksum
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
    except OSError as error:
        if str(error).startswith("cannot write "):
            raise
        left = "the old file is as it was" if path.exists() else "nothing is left of it"
        raise type(error)(
            f"cannot write {path} ({error.strerror or error}): free some space, or choose another place; {left}."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def save_figure(figure: Any, path: str | Path, dpi: int) -> None:
    """A figure of matplotlib; the suffix of the name chooses the format, as it does there."""
    path = Path(path)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format=path.suffix.removeprefix(".").lower() or "png")


def write(path: str | Path, kind: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Path:
    """Write tensors and facts; `read` gives them back."""
    import safetensors.torch
    from safetensors import SafetensorError

    path = Path(path)
    untyped: Any = safetensors.torch
    stored = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    header = {"format": f"gromap-{kind}", "version": str(VERSION), kind: json.dumps(facts)}
    header["checksum"] = _checksum(stored, header[kind])
    with replacing(path) as temporary:
        try:
            untyped.save_file(stored, temporary, metadata=header)
        except SafetensorError as error:  # which is no OSError, and all that can go wrong here is the disk
            raise OSError(errno.EIO, str(error)) from error
    return path


def read(
    path: str | Path, kind: str, device: torch.device | str, build: Callable[[dict[str, Tensor], dict[str, Any]], T]
) -> T:
    """What `build` makes of the tensors and facts of a file. Everything that is wrong with a
    file is a ValueError."""
    from safetensors import SafetensorError, safe_open

    path, what, device = Path(path), "result" if kind == "solution" else kind, _options.device(device) or "cpu"
    if not path.is_file():
        raise FileNotFoundError(f"no {what} file at {path}.")
    try:
        untyped: Any = safe_open(path, framework="pt", device="cpu")
        with untyped as stored:
            header: dict[str, str] = stored.metadata() or {}
            if header.get("format") != f"gromap-{kind}":
                raise ValueError(f"{path} is a safetensors file, but not a gromap {what}.")
            if int(header.get("version", 0)) > VERSION:
                raise ValueError(
                    f"{path} was written by a newer gromap (format {header['version']}): upgrade gromap to read it."
                )
            # copies: its own tensors are the pages of the file, and change with it
            tensors = {name: cast("Tensor", stored.get_tensor(name)).clone() for name in stored.keys()}  # noqa: SIM118
            if "checksum" not in header and kind not in UNSEALED:
                raise ValueError("it has no checksum")
            if header.get("checksum", "") not in ("", _checksum(tensors, header[kind])):
                raise ValueError("its checksum does not match")
            facts = json.loads(header[kind])
        if not isinstance(facts, dict):
            raise ValueError("its facts are not a table")
        return build({name: t.to(device) for name, t in tensors.items()}, cast("dict[str, Any]", facts))
    except (SafetensorError, KeyError, RecursionError, ValueError) as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path} is not a gromap {what}, or it is truncated or corrupted ({error}).") from error


def _checksum(tensors: dict[str, Tensor], facts: str) -> str:
    """Of names, types, shapes and bytes of all tensors, and of the facts."""
    digest = hashlib.blake2b(facts.encode(), digest_size=16)
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(cast("Any", t.contiguous().reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def read_array(path: Path) -> np.ndarray:
    """The numbers of a .npy file. Everything that is wrong with it is a ValueError."""
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            begin, size = file.tell(), path.stat().st_size
            length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
            if length > size:
                raise ValueError(f"it announces {length} bytes, and the file has {size}")
            file.seek(begin)
            shape, by_columns, dtype = header(file)
        except Exception as error:  # numpy evaluates the header, which may fail in any way
            raise ValueError(f"its header is broken ({error})") from error
        if dtype.kind not in "biuf":
            raise ValueError(f"it must hold numbers, and holds {dtype}")
        if any(isinstance(n, bool) or n < 0 for n in shape):
            raise ValueError(f"its header announces the shape {shape}")
        count, left = math.prod(shape), size - file.tell()
        if count * dtype.itemsize > left:
            raise ValueError(f"its header announces {dtype} of shape {shape}, and {left} bytes follow")
        return np.fromfile(file, dtype, count).reshape(shape, order="F" if by_columns else "C")

"""Mesh embeddings cached on disk, by a hash of all that they depend on: in $GROMAP_CACHE, or
gromap in the user's cache folder.

GROMAP_CACHE=off disables the cache. A file that cannot be read, whose checksum does not match or
that holds anything else is made anew, and a read-only folder is ignored. Several processes may
share a folder: files appear whole, and all make the same.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap._files import read, write
from gromap._stored import Stored
from gromap.mesh.embedding import MeshEmbedding, Tell, embed_mesh
from gromap.mesh.mesh import Mesh

RECIPE = 2  # raise it whenever the embedding of the same mesh changes


def cached_embedding(
    mesh: Mesh,
    method: str = "geodesic",
    dim: int = 8,
    vertices: int = 2000,
    seed: int = 0,
    device: torch.device | str = "cpu",
    tell: Tell | None = None,
) -> MeshEmbedding:
    """`embed_mesh`, or its result from the cache."""
    folder, given = _folder(), (np.float64(mesh.vertices), np.int64(mesh.faces))
    name = hashlib.sha256(repr((RECIPE, method, dim, vertices, seed, *(z.shape for z in given))).encode())
    for array in given:
        name.update(np.ascontiguousarray(array).tobytes())
    path = folder / f"{name.hexdigest()[:32]}.safetensors" if folder else None
    if path and path.is_file():
        try:
            return read(path, "embedding", "cpu", partial(_rebuild, len(mesh.vertices), dim))
        except (ValueError, OSError, RuntimeError):  # the last, where another process has just removed it
            pass
    made = embed_mesh(mesh, method, dim, vertices, seed, device, tell)
    if path:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            facts = {"distances": made.distances, "distortion": made.distortion, "pieces": made.pieces}
            write(path, "embedding", {k: torch.from_numpy(getattr(made, k)) for k in ("points", "anchors")}, facts)
        except OSError:
            pass
    return made


def _folder() -> Path | None:
    named = os.environ.get("GROMAP_CACHE")
    if named:
        return None if named.lower() == "off" else Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        return Path(base) / "gromap" if base else Path.home() / ".cache" / "gromap"
    except RuntimeError:  # no home
        return None


def _rebuild(n: int, dim: int, tensors: dict[str, Tensor], facts: dict[str, Any]) -> MeshEmbedding:
    stored = Stored(tensors, facts)
    points = stored.floats("points", (n, dim)).double()
    way, distortion = stored.text("distances"), stored.number("distortion", finite=False)
    anchors = stored.indices("anchors", n).long()
    return MeshEmbedding(points.numpy(), way, anchors.numpy(), distortion, stored.count("pieces"))

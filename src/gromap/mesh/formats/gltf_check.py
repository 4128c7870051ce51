"""What a glTF or GLB file announces, checked before trimesh allocates any of it: accessors within
their buffers, all of a size that the bytes can stand for, and no file outside of its folder."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from gromap.mesh.bounds import beside, check_size

BYTES = {5120: 1, 5121: 1, 5122: 2, 5123: 2, 5125: 4, 5126: 4}  # of a componentType
NUMBERS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}  # of a type
PER_VERTEX, PER_INDEX = 160, 40  # bytes that each takes until it is part of a mesh
JSON_CHUNK = b"JSON"


def check_scene(path: Path) -> int:
    """The bytes of a scene, those of the files beside it included. ValueError if what they
    announce is out of proportion, or leads out of the folder."""
    data = path.read_bytes()
    size = len(data)
    if data[:4] == b"glTF":
        data = _json_chunk(data)
    try:
        scene = json.loads(data.decode("utf-8", errors="replace"))
    except RecursionError as error:
        raise ValueError("trimesh cannot read it (its header is nested too deeply)") from error
    except ValueError as error:
        raise ValueError(f"trimesh cannot read it (its header is broken, {error})") from error
    if not isinstance(scene, dict):
        raise ValueError("trimesh cannot read it (its header is not a table)")
    try:
        size += _linked(path, scene)
        _check_counts(scene, size)
    except (AttributeError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(f"its header is broken ({type(error).__name__}: {error})") from error
    return size


def _json_chunk(data: bytes) -> bytes:
    """The scene of a GLB file; all chunks end inside of it."""
    if data[16:20] != JSON_CHUNK:
        raise ValueError("its header is broken or cut off")
    at, lengths = 12, []
    while at < len(data):
        lengths.append(int.from_bytes(data[at : at + 4], "little"))
        at += 8 + lengths[-1]
    if at > len(data):
        raise ValueError(f"its header is broken or cut off: {at} bytes are announced, and it has {len(data)}")
    return data[20 : 20 + lengths[0]]


def _linked(path: Path, scene: dict[str, Any]) -> int:
    """Bytes of the buffers and images beside it."""
    size = 0
    for uri in {one["uri"] for kind in ("buffers", "images") for one in scene.get(kind, []) if "uri" in one}:
        if uri.startswith("data:"):
            continue
        found = beside(path, uri)
        if found is None:
            raise ValueError(f"it names the file {uri[:100]!r}, outside of its folder: put it beside it")
        size += found.stat().st_size if found.is_file() else 0
    return size


def _check_counts(scene: dict[str, Any], size: int) -> None:
    views, accessors = scene.get("bufferViews", []), scene.get("accessors", [])
    needed = sum(_count(view["byteLength"]) for view in views)
    for accessor in accessors:
        count = _count(accessor["count"])
        wanted = count * BYTES[accessor["componentType"]] * NUMBERS[accessor["type"]]
        if "bufferView" in accessor:
            view = views[_count(accessor["bufferView"])]
            _count(view.get("byteOffset", 0))
            left = _count(view["byteLength"]) - _count(accessor.get("byteOffset", 0))
            if (count if "byteStride" in view else wanted) > left:
                raise ValueError(f"it announces {count} entries where {left} bytes are left")
        needed += wanted
    counts = [accessor["count"] for accessor in accessors]
    times = Counter(node["mesh"] for node in scene.get("nodes", []) if "mesh" in node)
    edges = Counter(_count(k) for node in scene.get("nodes", []) for k in node.get("children", []))
    if any(number > 1 for number in edges.values()):
        raise ValueError("it has a node with two parents")
    for k, mesh in enumerate(scene.get("meshes", [])):
        for part in mesh["primitives"]:
            attributes = part["attributes"]
            used = [counts[_count(i)] for i in attributes.values()]
            indices = counts[_count(part["indices"])] if "indices" in part else max(used, default=0)
            needed += max(1, times[k]) * (PER_VERTEX * max(used, default=0) + PER_INDEX * indices)
    check_size(needed, size, "what is announced in it")


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"it has {value!r} where a whole number >= 0 is expected")
    return value

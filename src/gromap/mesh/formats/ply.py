"""PLY: ascii and binary of both byte orders; colors of the vertices, uv of the vertices or of
the corners."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gromap.mesh.formats.polygons import bytes_of, fan, parsed, rgb
from gromap.mesh.mesh import Mesh
from gromap.mesh.texture import load_beside

NUMBERS = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "float": "f4",
    "double": "f8",
}
NUMBERS |= {"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"}
NUMBERS |= {"float32": "f4", "float64": "f8"}
ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">", "ascii": ""}
UV_NAMES = [("s", "t"), ("u", "v"), ("texture_u", "texture_v")]


class Element(NamedTuple):
    name: str
    count: int
    properties: list[tuple[str, str, str | None]]  # name, kind of number, kind of the length of a list


class Lists(NamedTuple):
    counts: np.ndarray  # (n,)
    items: np.ndarray  # all lists, one after another


Column = np.ndarray | Lists


def read(path: Path) -> Mesh:
    data = path.read_bytes()
    order, elements, comments, begin = _header(data)
    columns = _ascii(data[begin:], elements) if not order else _binary(data, begin, elements, order)
    vertex = columns.get("vertex", {})
    if not {"x", "y", "z"} <= vertex.keys():
        raise ValueError("it has no vertices with x, y and z")
    if any(isinstance(column, Lists) for column in vertex.values()):
        raise ValueError("it has vertices with lists of numbers")
    vertices = np.stack([np.asarray(vertex[name]) for name in "xyz"], 1)
    if vertices.dtype.kind != "f":
        vertices = vertices.astype(np.float64)
    face = columns.get("face", {})
    polygons = next((face[name] for name in ("vertex_indices", "vertex_index") if name in face), None)
    corners = faces = np.zeros((0, 3), np.int64)
    if isinstance(polygons, Lists):
        if polygons.items.dtype.kind not in "iu":
            raise ValueError("it has faces whose corners are not whole numbers")
        corners = fan(polygons.counts, len(polygons.items))
        faces = polygons.items[corners].astype(np.int64)
    colors = None
    if {"red", "green", "blue"} <= vertex.keys():
        colors = rgb(np.stack([np.asarray(vertex[name]) for name in ("red", "green", "blue")], 1))
    uv = None
    for names in UV_NAMES:
        if set(names) <= vertex.keys() and len(faces) and faces.max() < len(vertices) and faces.min() >= 0:
            uv = np.stack([np.asarray(vertex[name], np.float64) for name in names], 1)[faces]
    places = face.get("texcoord")
    if isinstance(places, Lists) and isinstance(polygons, Lists) and (places.counts == 2 * polygons.counts).all():
        uv = places.items.reshape(-1, 2)[corners].astype(np.float64)
    image = next((text.split(None, 1)[1] for text in comments if text.startswith("TextureFile ")), None)
    texture = load_beside(path, image) if image and uv is not None else None
    return Mesh(vertices, faces, colors, uv, texture)


def _header(data: bytes) -> tuple[str, list[Element], list[str], int]:
    """The byte order ("" for ascii), the elements, the comments, and where the numbers begin."""
    if not data.startswith(b"ply"):
        raise ValueError("it does not start with 'ply'")
    end = data.find(b"end_header")
    begin = data.find(b"\n", end) + 1
    if end < 0 or begin == 0:
        raise ValueError("its header has no end")
    order, elements, comments = None, [], []
    for line in data[:end].decode("latin-1").splitlines()[1:]:
        words = line.split()
        match words:
            case ["format", name, *_]:
                order = ORDERS.get(name)
            case ["comment" | "obj_info", *_]:
                comments.append(line.split(None, 1)[1] if len(words) > 1 else "")
            case ["element", name, count]:
                elements.append(Element(name, int(count), []))
            case ["property", "list", length, kind, name] if elements:
                elements[-1].properties.append((name, NUMBERS[kind], NUMBERS[length]))
            case ["property", kind, name] if elements:
                elements[-1].properties.append((name, NUMBERS[kind], None))
            case [_, *_]:
                raise ValueError(f"its header has a line that makes no sense, {line!r}")
    if order is None:
        raise ValueError("its header names no known format")
    if any(element.count < 0 for element in elements):
        raise ValueError("its header announces a negative number of elements")
    return order, elements, comments, begin


def _binary(data: bytes, at: int, elements: list[Element], order: str) -> dict[str, dict[str, Column]]:
    columns = {}
    for element in elements:
        least = sum(np.dtype(size or kind).itemsize for _, kind, size in element.properties)
        if element.count * max(least, 1) > len(data) - at:
            raise ValueError(f"its header announces {element.count} times '{element.name}', the file holds less")
        table = _even(data, at, element, order)
        if table is None:
            columns[element.name], at = _uneven(data, at, element, order)
        else:
            columns[element.name] = {name: _column(table, name, size) for name, _, size in element.properties}
            at += table.nbytes
    return columns


def _even(data: bytes, at: int, element: Element, order: str) -> np.ndarray | None:
    """All entries at once, if the lists of each are as long as those of the first, as in most
    files."""
    if not element.count or not element.properties:
        return np.zeros(0, _fields(element, order, [0] * len(element.properties)))
    lengths, end = [], at
    for _, kind, size in element.properties:
        if size:
            lengths.append(int(np.frombuffer(data, order + size, 1, end)[0]))
            end += np.dtype(size).itemsize
        end += (lengths[-1] if size else 1) * np.dtype(kind).itemsize
        if end > len(data) or (size and lengths[-1] < 0):
            return None
    if element.count * (end - at) > len(data) - at:
        return None
    table = np.frombuffer(data, _fields(element, order, lengths), element.count, at)
    lists = [name for name, _, size in element.properties if size]
    return table if all((table[f"{name} length"] == table[name].shape[1]).all() for name in lists) else None


def _fields(element: Element, order: str, lengths: list[int]) -> np.dtype:
    fields: list[tuple] = []
    left = iter(lengths)
    for name, kind, size in element.properties:
        if size:
            fields += [(f"{name} length", order + size), (name, order + kind, (next(left),))]
        else:
            fields.append((name, order + kind))
    return np.dtype(fields)


def _column(table: np.ndarray, name: str, size: str | None) -> Column:
    values = table[name].astype(table.dtype[name].base.newbyteorder("="))
    return Lists(np.full(len(table), values.shape[1]), values.reshape(-1)) if size else values


def _uneven(data: bytes, at: int, element: Element, order: str) -> tuple[dict[str, Column], int]:
    """Entry by entry, for lists of several lengths."""
    counts, items = _empty(element), {name: bytearray() for name, *_ in element.properties}
    widths = {name: (np.dtype(kind).itemsize, size) for name, kind, size in element.properties}
    for _ in range(element.count):
        for name, (width, size) in widths.items():
            number = 1
            if size:
                number, at = int(np.frombuffer(data, order + size, 1, at)[0]), at + np.dtype(size).itemsize
            if number < 0 or at + number * width > len(data):
                raise ValueError(f"it ends inside '{element.name}'")
            items[name] += data[at : at + number * width]
            counts[name].append(number)
            at += number * width
    kinds = {name: np.dtype(order + kind) for name, kind, _ in element.properties}
    native = {
        name: np.frombuffer(items[name], kind).astype(kind.newbyteorder("="), copy=False)
        for name, kind in kinds.items()
    }
    return _joined(element, counts, native), at


def _empty(element: Element) -> dict[str, array]:
    return {name: array("q") for name, *_ in element.properties}


def _joined(element: Element, counts: dict[str, array], items: dict[str, np.ndarray]) -> dict[str, Column]:
    return {
        name: Lists(np.array(counts[name], np.int64), items[name]) if size else items[name]
        for name, _, size in element.properties
    }


def _ascii(body: bytes, elements: list[Element]) -> dict[str, dict[str, Column]]:
    words, at, columns = body.split(), 0, {}
    for element in elements:
        kinds = {name: kind for name, kind, _ in element.properties}
        width = len(element.properties)
        if element.count * max(width, 1) > len(words) - at:
            raise ValueError(f"its header announces {element.count} times '{element.name}', the file holds less")
        if not any(size for *_, size in element.properties):
            end = at + element.count * width
            columns[element.name] = {
                name: parsed(words[at + k : end : width], kinds[name]) for k, name in enumerate(kinds)
            }
            at = end
            continue
        counts, items = _empty(element), {name: [] for name in kinds}
        for _ in range(element.count):
            for name, _, size in element.properties:
                number = 1
                if size:
                    number, at = _length(words, at), at + 1
                if number < 0 or at + number > len(words):
                    raise ValueError(f"it ends inside '{element.name}'")
                items[name] += words[at : at + number]
                counts[name].append(number)
                at += number
        columns[element.name] = _joined(element, counts, {name: parsed(items[name], kinds[name]) for name in kinds})
    return columns


def _length(words: Sequence[bytes], at: int) -> int:
    if at >= len(words):
        raise ValueError("it ends inside a list")
    return int(words[at])


def write(mesh: Mesh, path: Path) -> None:
    """Binary, little endian; positions in their own precision, colors as bytes."""
    kind = "f8" if mesh.vertices.dtype == np.float64 else "f4"
    fields: list[tuple] = [(name, f"<{kind}") for name in "xyz"]
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(mesh.vertices)}"]
    header += [f"property {'double' if kind == 'f8' else 'float'} {name}" for name in "xyz"]
    if mesh.colors is not None:
        fields += [(name, "u1") for name in ("red", "green", "blue")]
        header += [f"property uchar {name}" for name in ("red", "green", "blue")]
    table = np.zeros(len(mesh.vertices), fields)
    for k, name in enumerate("xyz"):
        table[name] = mesh.vertices[:, k]
    if mesh.colors is not None:
        for k, name in enumerate(("red", "green", "blue")):
            table[name] = bytes_of(mesh.colors)[:, k]
    polygons = np.zeros(len(mesh.faces), [("count", "u1"), ("corners", "<i4", (3,))])
    polygons["count"], polygons["corners"] = 3, mesh.faces
    header += [f"element face {len(mesh.faces)}", "property list uchar int vertex_indices", "end_header\n"]
    path.write_bytes("\n".join(header).encode() + table.tobytes() + polygons.tobytes())

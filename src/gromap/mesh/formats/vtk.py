"""VTK surfaces: legacy files (POLYDATA, ascii or binary) and VTP, with colors and texture
coordinates of the vertices."""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import numpy as np

from gromap.mesh.bounds import check_size
from gromap.mesh.formats.polygons import fan, parsed, rgb, steps
from gromap.mesh.mesh import Mesh

LEGACY = {"unsigned_char": "u1", "char": "i1", "unsigned_short": "u2", "short": "i2", "unsigned_int": "u4", "int": "i4"}
LEGACY |= {"unsigned_long": "u8", "long": "i8", "float": "f4", "double": "f8", "vtktypeint64": "i8", "vtkidtype": "i4"}
XML = {"Int8": "i1", "UInt8": "u1", "Int16": "i2", "UInt16": "u2", "Int32": "i4", "UInt32": "u4"}
XML |= {"Int64": "i8", "UInt64": "u8", "Float32": "f4", "Float64": "f8"}
PER_NUMBER = 80  # bytes that a number of a compressed array may take until it is part of a mesh


def read_legacy(path: Path) -> Mesh:
    data = path.read_bytes()
    if not data.startswith(b"# vtk DataFile"):
        raise ValueError("it does not start with '# vtk DataFile'")
    cursor = _Cursor(data)
    cursor.line()
    cursor.line()  # the title
    cursor.binary = cursor.line().upper() == "BINARY"
    kind = cursor.line().split()
    if kind != ["DATASET", "POLYDATA"]:
        raise ValueError(f"it holds {kind[-1] if kind else 'nothing'}: of VTK files only POLYDATA, surfaces, are read")
    points, polygons = np.zeros((0, 3)), (np.zeros(0, np.int64), np.zeros(0, np.int64))
    of_points, found = False, {}
    while line := cursor.line():
        words = line.split()
        match [words[0].upper(), *words[1:]]:
            case ["POINTS", n, number]:
                points = cursor.numbers(3 * int(n), LEGACY[number.lower()]).reshape(-1, 3)
            case ["POLYGONS", n, size]:
                polygons = cursor.cells(int(n), int(size))
            case ["VERTICES" | "LINES", n, size]:
                cursor.cells(int(n), int(size))
            case ["POINT_DATA", _]:
                of_points = True
            case ["COLOR_SCALARS", _, width] if of_points:
                values = cursor.numbers(int(width) * len(points), "u1" if cursor.binary else "f4")
                found["colors"] = rgb(values.reshape(len(points), -1))
            case ["SCALARS", _, number, *width] if of_points:
                wide = int(width[0]) if width else 1
                cursor.line()  # LOOKUP_TABLE
                values = cursor.numbers(wide * len(points), LEGACY[number.lower()]).reshape(len(points), -1)
                if wide in (3, 4) and number.lower() == "unsigned_char":
                    found["colors"] = rgb(values)
            case ["TEXTURE_COORDINATES", _, width, number] if of_points:
                found["uv"] = cursor.numbers(int(width) * len(points), LEGACY[number.lower()]).reshape(len(points), -1)[
                    :, :2
                ]
            case ["NORMALS" | "VECTORS", _, number] if of_points:
                cursor.numbers(3 * len(points), LEGACY[number.lower()])
            case ["METADATA"]:
                while cursor.line(skip_empty=False):
                    pass
            case ["TRIANGLE_STRIPS", *_]:
                raise ValueError("it has triangle strips: export it as plain triangles")
            case _:
                break  # other data, which a mesh does not hold
    return _mesh(points, *polygons, found.get("colors"), found.get("uv"))


def _mesh(
    points: np.ndarray, counts: np.ndarray, corners: np.ndarray, colors: np.ndarray | None, uv: np.ndarray | None
) -> Mesh:
    faces = corners[fan(counts, len(corners))]
    inside = len(faces) and faces.min() >= 0 and faces.max() < len(points)
    points = points if points.dtype.kind == "f" else points.astype(np.float64)
    return Mesh(points, faces, colors, uv[faces].astype(np.float64) if uv is not None and inside else None)


class _Cursor:
    """Lines and blocks of numbers, one after another."""

    def __init__(self, data: bytes):
        self.data, self.at, self.binary = data, 0, False

    def line(self, skip_empty: bool = True) -> str:
        while self.at < len(self.data):
            end = self.data.find(b"\n", self.at)
            end = len(self.data) if end < 0 else end
            text, self.at = self.data[self.at : end].decode("latin-1").strip(), end + 1
            if text or not skip_empty:
                return text
        return ""

    def numbers(self, count: int, kind: str) -> np.ndarray:
        if count < 0 or count * (np.dtype(kind).itemsize if self.binary else 2) > len(self.data) - self.at + 1:
            raise ValueError(f"it announces {count} numbers where {max(len(self.data) - self.at, 0)} bytes are left")
        if self.binary:
            values = np.frombuffer(self.data, f">{kind}", count, self.at)
            self.at += values.nbytes
            return values.astype(kind)
        words: list[bytes] = []
        while len(words) < count and self.at < len(self.data):
            end = self.data.find(b"\n", self.at)
            end = len(self.data) if end < 0 else end
            words += self.data[self.at : end].split()
            self.at = end + 1
        if len(words) != count:
            raise ValueError(f"it announces {count} numbers and {len(words)} were found")
        return parsed(words, kind)

    def cells(self, n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """How many corners each has, and all of them: as (count, corners...)*, or as offsets and
        corners (VTK 5)."""
        if not 0 <= n <= size + 1:
            raise ValueError(f"it announces {n} faces with {size} numbers in all")
        here = self.at
        if self.line().upper().startswith("OFFSETS"):
            self.at = here
            offsets = _indices(self.numbers(n, LEGACY[self.line().split()[1].lower()]))
            corners = _indices(self.numbers(size, LEGACY[self.line().split()[1].lower()]))
            if len(offsets) and offsets[0] != 0:
                raise ValueError(f"the offsets of its faces start at {offsets[0]}, and not at 0")
            return steps(offsets)[1:], corners
        self.at = here
        flat = self.numbers(size, "i4").astype(np.int64)
        counts, at = np.empty(n, np.int64), 0
        for k in range(n):
            if not 0 <= at < size or flat[at] < 0:
                raise ValueError("its faces do not add up")
            counts[k] = flat[at]
            at += int(flat[at]) + 1
        if at != size:
            raise ValueError("its faces do not add up")
        heads = np.cumsum(counts + 1) - counts - 1
        return counts, np.delete(flat, heads)


def read_vtp(path: Path) -> Mesh:
    data = path.read_bytes()
    size = len(data)
    begin = data.find(b"<AppendedData")
    head = data[begin : data.find(b">", begin) + 1] if begin >= 0 else b""
    appended = data[begin + len(head) : data.rfind(b"</AppendedData>")].lstrip().removeprefix(b"_") if head else b""
    if head:
        data = data[:begin] + b"</VTKFile>"
    if b"<!" in data.replace(b"<!--", b""):
        raise ValueError("it declares entities, which no VTK file needs")
    try:
        root = ET.fromstring(data)
    except ET.ParseError as error:
        raise ValueError(f"its XML is broken ({error})") from error
    piece = root.find("PolyData/Piece")
    if root.tag != "VTKFile" or piece is None:
        raise ValueError("it has no PolyData")
    if len(root.findall("PolyData/Piece")) > 1:
        raise ValueError("it has several pieces: merge them first")
    reader = _Arrays(root, appended, b"base64" in head, size)
    points = reader.read(piece.find("Points/DataArray")).reshape(-1, 3)
    if len(points) != int(piece.get("NumberOfPoints", -1)):
        raise ValueError(f"it announces {piece.get('NumberOfPoints')} points and has {len(points)}")
    polygons = {array.get("Name"): array for array in piece.findall("Polys/DataArray")}
    offsets = _indices(reader.read(polygons.get("offsets")))
    corners = _indices(reader.read(polygons.get("connectivity")))
    about_points = piece.find("PointData")
    colors, uv = (
        None if array is None else reader.read(array).reshape(len(points), int(array.get("NumberOfComponents", 1)))
        for array in _appearance(about_points if about_points is not None else ET.Element("PointData"))
    )
    return _mesh(
        points, steps(offsets), corners, None if colors is None else rgb(colors), None if uv is None else uv[:, :2]
    )


def _appearance(arrays: ET.Element) -> tuple[ET.Element | None, ET.Element | None]:
    """The array of the colors of the points, and that of their texture coordinates: the last of
    each."""
    colors, uv = None, None
    for array in arrays:
        width = int(array.get("NumberOfComponents", 1))
        if array.get("type") == "UInt8" and width in (3, 4):
            colors = array
        elif array.get("Name") == arrays.get("TCoords") and width >= 2:
            uv = array
    return colors, uv


def _indices(values: np.ndarray) -> np.ndarray:
    if len(values) and values.dtype.kind not in "iu":
        raise ValueError("it has faces whose corners are not whole numbers")
    return values.astype(np.int64)


class _Arrays:
    """The arrays of a VTP file: ascii, base64 or appended, plain or compressed by zlib."""

    def __init__(self, root: ET.Element, appended: bytes, encoded: bool, file_size: int):
        self.order = ">" if root.get("byte_order") == "BigEndian" else "<"
        self.size = np.dtype(self.order + XML[root.get("header_type", "UInt32")])
        if self.size.kind != "u":
            raise ValueError(f"its sizes are given as {root.get('header_type')}: expected UInt32 or UInt64")
        compressor = root.get("compressor")
        if compressor not in (None, "vtkZLibDataCompressor"):
            raise ValueError(f"its arrays are compressed by {compressor}: export it with zlib, or uncompressed")
        self.compressed, self.appended, self.encoded = compressor is not None, appended, encoded
        self.file_size, self.taken = file_size, 0

    def read(self, array: ET.Element | None) -> np.ndarray:
        if array is None:
            return np.zeros(0)
        kind = np.dtype(self.order + XML[array.get("type", "")])
        if array.get("format") == "ascii":
            return parsed((array.text or "").split(), kind.str[1:])
        if array.get("format") == "appended":
            offset = int(array.get("offset", 0))
            if not 0 <= offset <= len(self.appended):
                raise ValueError(f"an array begins at {offset}, and {len(self.appended)} bytes are appended")
            body, encoded = self.appended[offset:], self.encoded
        else:
            body, encoded = (array.text or "").strip().encode(), True
        content = self._inflated(body, encoded, kind) if self.compressed else self._plain(body, encoded)
        return np.frombuffer(content, kind).astype(kind.newbyteorder("="))

    def _plain(self, body: bytes, encoded: bool) -> bytes:
        """The number of bytes, and the bytes."""
        width = self.size.itemsize
        head, rest = (_decoded(body, width), body) if encoded else (body[:width], body)
        count = int(np.frombuffer(head, self.size, 1)[0])
        if count > len(rest):
            raise ValueError(f"it announces {count} bytes where {len(rest)} are left")
        return (_decoded(body, width + count) if encoded else body[: width + count])[width:]

    def _inflated(self, body: bytes, encoded: bool, kind: np.dtype) -> bytes:
        """The number of blocks, the size of a block, the size of the last (0: as the others),
        the sizes of all, compressed."""
        width = self.size.itemsize
        head = _decoded(body, 3 * width) if encoded else body
        blocks, block, last = (int(x) for x in np.frombuffer(head, self.size, 3))
        if blocks * width > len(body):
            raise ValueError(f"it announces {blocks} blocks where {len(body)} bytes are left")
        length = (3 + blocks) * width
        head = _decoded(body, length) if encoded else body[:length]
        sizes = [int(x) for x in np.frombuffer(head, self.size, blocks, 3 * width)]
        if sum(sizes) > len(body):
            raise ValueError(f"it announces {sum(sizes)} bytes where {len(body)} are left")
        rest = _decoded(body[-(-length // 3) * 4 :], sum(sizes)) if encoded else body[length:]
        self.taken += PER_NUMBER * (max(blocks - 1, 0) * block + (last or block) * min(blocks, 1)) // kind.itemsize
        check_size(self.taken, self.file_size, "what is compressed in it")
        out, at = [], 0
        for k, size in enumerate(sizes):
            expected = last if k == blocks - 1 and last else block
            try:
                out.append(zlib.decompressobj().decompress(rest[at : at + size], expected) if expected else b"")
            except zlib.error as error:
                raise ValueError(f"a compressed block is broken ({error})") from error
            if len(out[-1]) != expected:
                raise ValueError(f"a compressed block holds {len(out[-1])} bytes, and {expected} are announced")
            at += size
        return b"".join(out)


def _decoded(text: bytes, count: int) -> bytes:
    """The first `count` bytes of base64."""
    decoded = base64.b64decode(text[: -(-count // 3) * 4])
    if len(decoded) < count:
        raise ValueError(f"it announces {count} bytes where {len(decoded)} are left")
    return decoded[:count]

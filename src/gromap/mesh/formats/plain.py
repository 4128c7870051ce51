"""OFF, STL, and clouds: NPY, and numbers in lines (XYZ, TXT, CSV)."""

from __future__ import annotations

import re
from array import array
from pathlib import Path

import numpy as np

from gromap._files import read_array
from gromap.mesh.formats.polygons import bytes_of, fan, parsed, rgb, whole
from gromap.mesh.mesh import Mesh


def read_off(path: Path) -> Mesh:
    """OFF and COFF, comments and empty lines anywhere, the counts on the first or the second
    line."""
    lines = [line.partition("#")[0].split() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    lines = [words for words in lines if words]
    if not lines or not re.fullmatch(r"(ST)?C?N?OFF", lines[0][0]):
        raise ValueError("it does not start with 'OFF'")
    if "N" in lines[0][0] or "ST" in lines[0][0]:
        raise ValueError(
            f"{lines[0][0]} files, with normals or texture coordinates, are not read: export it as PLY or OBJ"
        )
    lines[0] = lines[0][1:]
    lines = lines if lines[0] else lines[1:]
    if not lines or len(lines[0]) < 2:
        raise ValueError("it does not say how many vertices and faces it has")
    n, f = (int(word) for word in lines[0][:2])
    if min(n, f) < 0 or n + f > len(lines) - 1:
        raise ValueError(f"it announces {n} vertices and {f} faces, and has {len(lines) - 1} lines")
    rows, counts, corners = lines[1 : n + 1], array("q"), []
    for words in lines[n + 1 : n + 1 + f]:
        count = int(words[0])
        if not 0 <= count < len(words):
            raise ValueError(f"it has a face of {words[0]} corners on a line with {len(words) - 1}")
        counts.append(count)
        corners += map(int, words[1 : count + 1])
    if any(len(row) < 3 for row in rows):
        raise ValueError("it has vertices with fewer than three coordinates")
    vertices = np.array([row[:3] for row in rows], np.float64).reshape(-1, 3)
    colors = None
    if n and all(len(row) >= 6 for row in rows):
        in_bytes = all("." not in word for row in rows for word in row[3:6])
        values = np.array([row[3:6] for row in rows], np.float64)
        colors = rgb(values / 255 if in_bytes else values)
    return Mesh(vertices, whole(corners)[fan(np.array(counts, np.int64), len(corners))], colors)


def write_off(mesh: Mesh, path: Path) -> None:
    style = " ".join(["%.17g" if mesh.vertices.dtype == np.float64 else "%.9g"] * 3)
    lines = ["OFF" if mesh.colors is None else "COFF", f"{len(mesh.vertices)} {len(mesh.faces)} 0"]
    positions = [style % tuple(row) for row in mesh.vertices.tolist()]
    if mesh.colors is not None:
        positions = [
            f"{p} {r} {g} {b} 255" for p, (r, g, b) in zip(positions, bytes_of(mesh.colors).tolist(), strict=True)
        ]
    faces = [f"3 {i} {j} {k}" for i, j, k in mesh.faces.tolist()]
    path.write_text("\n".join(lines + positions + faces) + "\n", encoding="ascii")


TRIANGLE = np.dtype([("normal", "<f4", (3,)), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


def read_stl(path: Path) -> Mesh:
    """STL stores every triangle on its own: corners at exactly the same place become one vertex,
    in order of appearance."""
    data = path.read_bytes()
    count = int.from_bytes(data[80:84], "little") if len(data) >= 84 else -1
    if len(data) == 84 + 50 * count:
        corners = np.frombuffer(data, TRIANGLE, count, 84)["corners"]
    elif data.lstrip().startswith(b"solid") and b"facet" in data:
        text = data.decode("ascii", errors="replace")
        numbers = re.findall(r"vertex\s+(\S+)\s+(\S+)\s+(\S+)", text)
        if len(numbers) != 3 * text.count("endfacet") or "endsolid" not in text:
            raise ValueError("it ends inside a triangle")
        corners = parsed(numbers, "f4").reshape(-1, 3, 3)
    elif count >= 0:
        raise ValueError(f"it announces {count} triangles, {84 + 50 * count} bytes, and has {len(data)}")
    else:
        raise ValueError("it is too short for an STL file")
    places, first, index = np.unique(corners.reshape(-1, 3), axis=0, return_index=True, return_inverse=True)
    order = first.argsort()
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Mesh(places[order], rank[index].reshape(-1, 3))


def write_stl(mesh: Mesh, path: Path) -> None:
    table = np.zeros(len(mesh.faces), TRIANGLE)
    normals = mesh.face_normals()
    table["normal"] = normals / np.linalg.norm(normals, axis=1, keepdims=True).clip(np.finfo(np.float64).tiny)
    table["corners"] = mesh.vertices[mesh.faces]
    path.write_bytes(b"gromap".ljust(80) + len(table).to_bytes(4, "little") + table.tobytes())


def read_npy(path: Path) -> Mesh:
    """Points, (N, d)."""
    points = read_array(path)
    if points.ndim != 2 or not points.shape[1]:
        raise ValueError(f"points are an (N, d) array of numbers, it holds {points.dtype} of shape {points.shape}")
    return _cloud(points if points.dtype in (np.float32, np.float64) else points.astype(np.float64))


def read_lines(path: Path) -> Mesh:
    """Points, one per line, their coordinates between spaces, commas or semicolons; a first line
    of names is skipped."""
    lines = path.read_text(encoding="utf-8-sig").replace(",", " ").replace(";", " ").splitlines()
    rows = [words for line in lines if (words := line.partition("#")[0].split())]
    if rows and not any(_is_number(word) for word in rows[0]):
        rows = rows[1:]
    width = len(rows[0]) if rows else 0
    for number, row in enumerate(rows):
        if len(row) != width:
            raise ValueError(f"row {number + 1} has {len(row)} numbers where the first has {width}")
    return _cloud(np.array(rows, np.float64).reshape(len(rows), width))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def write_npy(mesh: Mesh, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, mesh.vertices)


def write_lines(mesh: Mesh, path: Path, delimiter: str = " ") -> None:
    digits = 17 if mesh.vertices.dtype == np.float64 else 9
    np.savetxt(path, mesh.vertices, f"%.{digits}g", delimiter=delimiter)


def _cloud(points: np.ndarray) -> Mesh:
    return Mesh(points, np.zeros((0, 3), np.int64))

"""OBJ: vertices in the order of the file, texture coordinates of each corner, and the images of
the materials."""

from __future__ import annotations

import math
import os
from array import array
from pathlib import Path

import numpy as np

from gromap import _check
from gromap._files import replacing
from gromap.mesh.bounds import beside
from gromap.mesh.formats.polygons import bytes_of, fan, parsed, rgb, whole
from gromap.mesh.mesh import Mesh
from gromap.mesh.texture import atlas, load_all, png

Material = str | tuple[int, int, int]  # the name of an image, or a plain color
GRAY = (200, 200, 200)  # of a material without a color


def read(path: Path) -> Mesh:
    positions: list[list[str]] = []
    uv_points: list[list[str]] = []
    corners: list[int] = []  # vertices of all polygons, one after another
    uv_corners: list[int] = []  # their texture coordinates, -1 for none
    counts = array("q")
    used: dict[str, int] = {"": 0}  # materials, numbered
    material_of = array("q")  # the number of the material of each polygon
    libraries: dict[str, None] = {}
    material, known = 0, False
    for line in path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ").splitlines():
        words = line.split()
        match words:
            case ["v", *numbers]:
                positions.append(numbers[:6])
            case ["vt", *numbers]:
                uv_points.append([*numbers, "0"][:2])
            case ["f", *polygon]:
                for corner in polygon:
                    vertex, _, rest = corner.partition("/")
                    uv_point = rest.partition("/")[0]
                    corners.append(_index(vertex, len(positions)))
                    uv_corners.append(_index(uv_point, len(uv_points)) if uv_point else -1)
                counts.append(len(polygon))
                material_of.append(material)
            case ["usemtl", *_]:
                material = used.setdefault(line.split(None, 1)[1] if len(words) > 1 else "", len(used))
            case ["mtllib", *_] if len(words) > 1:
                libraries[line.split(None, 1)[1]] = None
            case []:
                continue
        known = known or words[0] in ("v", "f", "vt", "vn", "o", "g", "mtllib")
    if not known:
        raise ValueError("it has no line that an OBJ file would have")
    vertices, colors = _vertices(positions)
    triangles = fan(np.array(counts, np.int64), len(corners))
    faces, uv_index = whole(corners)[triangles], whole(uv_corners)[triangles]
    if not len(faces) or uv_index.min() < 0:
        return Mesh(vertices, faces, colors)
    if uv_index.max() >= len(uv_points):
        raise ValueError(f"a face uses texture coordinates {uv_index.max() + 1}, and {len(uv_points)} are given")
    uv = parsed(uv_points, "f8").reshape(-1, 2)[uv_index]
    owner = np.repeat(np.array(material_of), np.maximum(np.array(counts) - 2, 0))  # the material of each triangle
    materials: dict[str, Material] = {}
    for library in libraries:
        materials |= _materials(path, library)
    return Mesh(vertices, faces, colors, *_textured(path, uv, owner, [materials.get(name, GRAY) for name in used]))


def _index(word: str, known: int) -> int:
    """An index counted from 1, or backwards from the last entry read."""
    number = int(word)
    if number == 0 or -number > known:
        raise ValueError(f"a face uses entry {number}, and only {known} came before it; OBJ counts from 1")
    return number - 1 if number > 0 else known + number


def _vertices(rows: list[list[str]]) -> tuple[np.ndarray, np.ndarray | None]:
    """Positions, and colors where every line has them (x y z r g b, as several programs write)."""
    if any(len(row) < 3 for row in rows):
        raise ValueError("it has vertices with fewer than three coordinates")
    vertices = parsed([row[:3] for row in rows], "f8").reshape(-1, 3)
    if not rows or any(len(row) < 6 for row in rows):
        return vertices, None
    colors = parsed([row[3:6] for row in rows], "f8")
    return vertices, rgb(colors / 255 if colors.max() > 1 else colors)


def _materials(mesh: Path, library: str) -> dict[str, Material]:
    """The name of the image of each material, or its color."""
    path = beside(mesh, library)
    if path is None:
        _check.warn(
            f"{mesh} takes its materials from {library[:100]!r}, outside of its folder, which is not read: put that "
            "file beside it, and its name alone in the mtllib line."
        )
        return {}
    if not path.is_file():
        return {}
    found: dict[str, Material] = {}
    name = ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        match words:
            case ["newmtl", *_]:
                name = line.split(None, 1)[1].strip() if len(words) > 1 else ""
                found[name] = GRAY
            case ["Kd", r, g, b] if not isinstance(found.get(name), str):
                red, green, blue = (_byte(x) for x in (r, g, b))
                found[name] = (red, green, blue)
            case ["map_Kd", *_, image]:
                whole_name = line.split(None, 1)[1].strip()
                there = beside(path, whole_name)
                place = Path(os.path.relpath(path.parent, mesh.parent))
                found[name] = str(place / (whole_name if there is not None and there.is_file() else image))
    return found


def _byte(word: str) -> int:
    """A share of 1 as a byte."""
    share = float(word)
    if not math.isfinite(share):
        raise ValueError(f"a material has the color {word}")
    return round(255 * min(max(share, 0.0), 1.0))


def _textured(
    path: Path, uv: np.ndarray, material_of: np.ndarray, materials: list[Material]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Texture coordinates and the texture: the one image, or all images and plain colors in use,
    side by side."""
    used: dict[Material, list[int]] = {}  # the materials of each image or color, in order of appearance
    for k in dict.fromkeys(material_of.tolist()):
        used.setdefault(materials[k], []).append(k)
    if not any(isinstance(one, str) for one in used):
        return uv, None
    images = load_all(path, used)
    if len(images) == 1:
        return uv, images[0]
    of = [np.flatnonzero(np.isin(material_of, numbers)) for numbers in used.values()]
    texture, joined = atlas(images, [uv[faces] for faces in of])
    uv = uv.copy()
    uv[np.concatenate(of)] = joined
    return uv, texture


def companions(path: Path) -> list[Path]:
    """The files beside a textured OBJ file: its material and its image."""
    return [path.with_suffix(".mtl"), path.with_suffix(".png")]


def write(mesh: Mesh, path: Path, named: Path) -> None:
    """Write the file at `path`, which will be renamed to `named`, and beside that its material
    and its image."""
    digits = 17 if mesh.vertices.dtype == np.float64 else 9
    rows = mesh.vertices if mesh.colors is None else np.hstack([mesh.vertices, bytes_of(mesh.colors) / 255])
    style = " ".join([f"%.{digits}g"] * 3 + ["%.4g"] * (rows.shape[1] - 3))
    lines = [f"v {style % tuple(row)}" for row in rows.tolist()]
    if mesh.uv is None:
        lines += [f"f {i} {j} {k}" for i, j, k in (mesh.faces + 1).tolist()]
    else:
        uv_points, index = np.unique(mesh.uv.reshape(-1, 2), axis=0, return_inverse=True)
        lines += [f"vt {u:.9g} {v:.9g}" for u, v in uv_points.tolist()]
        both = np.stack([mesh.faces, index.reshape(-1, 3)], 2) + 1
        lines += [f"f {i}/{r} {j}/{s} {k}/{t}" for i, r, j, s, k, t in both.reshape(-1, 6).tolist()]
    if mesh.uv is None or mesh.texture is None:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    material, image = companions(named)
    with replacing(image) as new_image, replacing(material) as new_material:  # all of the three files, or none
        lines = [f"mtllib {material.name}", "usemtl texture", *lines]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        new_image.write_bytes(png(mesh.texture))
        new_material.write_text(f"newmtl texture\nKd 1 1 1\nmap_Kd {image.name}\n", encoding="utf-8")

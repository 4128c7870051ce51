"""OBJ: vertices in the order of the file, texture coordinates of each corner, and the images of
the materials."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gromap._files import replacing
from gromap.mesh.formats.polygons import bytes_of, fan
from gromap.mesh.mesh import Mesh
from gromap.mesh.texture import atlas, load_image, png

GRAY = (200, 200, 200)  # of a material without a color


def read(path: Path) -> Mesh:
    positions: list[list[str]] = []
    uv_points: list[list[str]] = []
    corners: list[int] = []  # vertices of all polygons, one after another
    uv_corners: list[int] = []  # their texture coordinates, -1 for none
    counts: list[int] = []
    material_of: list[str] = []  # the material of each polygon
    materials: dict[str, Path | tuple[int, int, int]] = {}
    material, known = "", False
    for line in path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ").splitlines():
        words = line.split()
        match words:
            case ["v", *numbers]:
                positions.append(numbers)
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
                material = line.split(None, 1)[1] if len(words) > 1 else ""
            case ["mtllib", *_] if len(words) > 1:
                materials |= _materials(path.parent / line.split(None, 1)[1])
            case []:
                continue
        known = known or words[0] in ("v", "f", "vt", "vn", "o", "g", "mtllib")
    if not known:
        raise ValueError("it has no line that an OBJ file would have")
    vertices, colors = _vertices(positions)
    triangles = fan(np.array(counts, np.int64))
    faces = np.array(corners, np.int64)[triangles]
    uv_index = np.array(uv_corners, np.int64)[triangles]
    if not len(faces) or uv_index.min() < 0:
        return Mesh(vertices, faces, colors)
    uv = np.array(uv_points, np.float64).reshape(-1, 2)[uv_index]
    owner = np.repeat(np.arange(len(counts)), np.maximum(np.array(counts) - 2, 0))  # the polygon of each triangle
    return Mesh(vertices, faces, colors, *_textured(uv, np.array(material_of)[owner], materials))


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
    vertices = np.array([row[:3] for row in rows], np.float64).reshape(-1, 3)
    if not rows or any(len(row) < 6 for row in rows):
        return vertices, None
    colors = np.array([row[3:6] for row in rows], np.float64)
    return vertices, colors / 255 if colors.max() > 1 else colors


def _materials(path: Path) -> dict[str, Path | tuple[int, int, int]]:
    """The image of each material, or its color."""
    if not path.is_file():
        return {}
    found: dict[str, Path | tuple[int, int, int]] = {}
    name = ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        match words:
            case ["newmtl", *_]:
                name = line.split(None, 1)[1].strip() if len(words) > 1 else ""
                found[name] = GRAY
            case ["Kd", r, g, b] if not isinstance(found.get(name), Path):
                red, green, blue = (round(255 * float(x)) for x in (r, g, b))
                found[name] = (red, green, blue)
            case ["map_Kd", *_, image]:
                whole = line.split(None, 1)[1].strip()
                found[name] = next(
                    (p for p in (path.parent / whole, path.parent / image) if p.is_file()), path.parent / image
                )
    return found


def _textured(
    uv: np.ndarray, material_of: np.ndarray, materials: dict[str, Path | tuple[int, int, int]]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Texture coordinates and the texture: the one image, or all images and plain colors in use,
    side by side."""
    names = list(dict.fromkeys(material_of.tolist()))
    found = [materials.get(name, GRAY) for name in names]
    if not any(isinstance(one, Path) for one in found):
        return uv, None
    images = [load_image(one) if isinstance(one, Path) else np.full((4, 4, 3), one, np.uint8) for one in found]
    if len(images) == 1:
        return uv, images[0]
    of = [np.flatnonzero(material_of == name) for name in names]
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
        if mesh.texture is not None:
            material, image = companions(named)
            with replacing(image) as temporary:
                temporary.write_bytes(png(mesh.texture))
            with replacing(material) as temporary:
                temporary.write_text(f"newmtl texture\nKd 1 1 1\nmap_Kd {image.name}\n", encoding="utf-8")
            lines = [f"mtllib {material.name}", "usemtl texture", *lines]
        both = np.stack([mesh.faces, index.reshape(-1, 3)], 2) + 1
        lines += [f"f {i}/{r} {j}/{s} {k}/{t}" for i, r, j, s, k, t in both.reshape(-1, 6).tolist()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

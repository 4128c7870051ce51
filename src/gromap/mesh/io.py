"""Mesh files: vertices in the order and at the coordinates of the file, with colors, uv and
texture.

| read and write | holds |
|---|---|
| .ply | colors; read: ascii or binary, uv and texture |
| .obj | colors, uv and texture (.mtl and .png beside it) |
| .off | colors |
| .stl | triangles alone; when read, corners at the same place become one vertex |
| .glb | colors, or uv and texture, inside; read: .gltf too, all meshes of the scene as one |
| .npy, .xyz, .txt, .csv | points of any dimension |
| .vtk, .vtp (read) | colors, uv |

Nothing is cleaned, centered or rotated: see `gromap.mesh.clean`. Polygons become fans of triangles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from gromap._files import replacing
from gromap.mesh.formats import gltf, obj, plain, ply, vtk
from gromap.mesh.mesh import Mesh
from gromap.mesh.objects import mesh_of

READERS: dict[str, Callable[[Path], Mesh]] = {
    ".ply": ply.read,
    ".obj": obj.read,
    ".off": plain.read_off,
    ".stl": plain.read_stl,
    ".glb": gltf.read,
    ".gltf": gltf.read,
    ".vtk": vtk.read_legacy,
    ".vtp": vtk.read_vtp,
    ".npy": plain.read_npy,
    ".xyz": plain.read_lines,
    ".txt": plain.read_lines,
    ".csv": plain.read_lines,
}
WRITERS: dict[str, Callable[[Mesh, Path], None]] = {
    ".ply": ply.write,
    ".off": plain.write_off,
    ".stl": plain.write_stl,
    ".glb": gltf.write,
    ".npy": plain.write_npy,
    ".xyz": plain.write_lines,
    ".txt": plain.write_lines,
    ".csv": partial(plain.write_lines, delimiter=","),
}
CLOUDS = (".npy", ".xyz", ".txt", ".csv")
SIGNS = {
    b"ply": ".ply",
    b"OFF": ".off",
    b"COFF": ".off",
    b"solid": ".stl",
    b"glTF": ".glb",
    b"# vtk": ".vtk",
    b"\x93NUMPY": ".npy",
}


class MeshError(ValueError):
    """A file that is not a mesh, or an invalid mesh; the message is one line with the file, what
    is wrong, and the remedy."""


def read_mesh(path: Any) -> Mesh:
    """The mesh or cloud in a file, its vertices in the order and at the coordinates of the file;
    or that of an object of trimesh, pyvista, open3d, meshio or pyFM, or of a pair of arrays.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     face = Mesh(np.eye(3), np.array([[0, 1, 2]]))
    ...     read_mesh(write_mesh(face, pathlib.Path(folder) / "face.ply"))
    Mesh(3 vertices, 1 faces)
    """
    if not isinstance(path, str | PathLike):
        return _of_object(path)
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it.")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}: check its name.")
    read = READERS.get(path.suffix.lower())
    if read is None:
        raise MeshError(
            f"{path} ends in {path.suffix or 'nothing'!r}, which is not read: use one of {', '.join(READERS)}."
        )
    with path.open("rb") as file:
        head = file.read(16)
    if not head:
        raise MeshError(f"{path} is empty: export or copy it again.")
    try:
        mesh = read(path)
    except (ValueError, IndexError, KeyError, EOFError) as error:
        why = str(error) if isinstance(error, ValueError) else f"it is truncated ({type(error).__name__}: {error})"
        sign = next((kind for sign, kind in SIGNS.items() if head.startswith(sign)), path.suffix.lower())
        other = sign != path.suffix.lower() and {sign, path.suffix.lower()} != {".glb", ".gltf"}
        remedy = f"it looks like a {sign} file, rename it" if other else "export or copy it again"
        raise MeshError(f"{path} cannot be read as {path.suffix.lower()}, {_short(why)}: {remedy}.") from error
    check(mesh, str(path))
    return replace(mesh, name=path.stem.encode("utf-8", "replace").decode())  # names of files may be any bytes


def _of_object(thing: Any) -> Mesh:
    kind = f"a {type(thing).__name__} of {type(thing).__module__.split('.')[0]}"
    mesh = mesh_of(thing)
    if mesh is None:
        remedy = ", or its surface, as mesh.extract_surface()" if hasattr(thing, "extract_surface") else ""
        raise TypeError(
            "a mesh is a file, a gromap.mesh.Mesh, an object with vertices and faces, or a pair of arrays, got "
            f"{kind}: pass Mesh(vertices, faces){remedy}."
        )
    check(mesh, kind)
    return mesh


def write_mesh(mesh: Mesh, path: str | Path, force: bool = False) -> Path:
    """Write a mesh or cloud atomically; the suffix of the name chooses the format.

    force: replace an existing file.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind != ".obj" and kind not in WRITERS:
        raise MeshError(
            f"{path} ends in {kind or 'nothing'!r}, which is not written: use one of .obj, {', '.join(WRITERS)}."
        )
    check(mesh, "the mesh")
    if kind not in CLOUDS and mesh.vertices.shape[1] != 3:
        raise MeshError(
            f"{path} cannot hold points in {mesh.vertices.shape[1]}-D: use one of {', '.join(CLOUDS)}, or pad them "
            "to 3."
        )
    if kind in CLOUDS and len(mesh.faces):
        raise MeshError(
            f"{path} can hold points alone, and the mesh has {len(mesh.faces)} faces: use .ply, .obj, .off or .glb."
        )
    if kind == ".stl" and not len(mesh.faces):
        raise MeshError(f"{path} can hold triangles alone, and the cloud has none: use .ply or {', '.join(CLOUDS)}.")
    textured = kind == ".obj" and mesh.uv is not None and mesh.texture is not None
    for place in [path, *(obj.companions(path) if textured else [])]:
        if place.is_dir():
            raise IsADirectoryError(f"{place} is a folder: choose another name.")
        if place.exists() and not force:
            raise FileExistsError(f"{place} exists: choose another name, or force=True to replace it.")
    with replacing(path) as temporary:
        if kind == ".obj":
            obj.write(mesh, temporary, path)
        else:
            WRITERS[kind](mesh, temporary)
    return path


def check(mesh: Mesh, name: str) -> None:
    """Raise unless a mesh is valid: finite vertices, faces between them, a color for each
    vertex, uv for each corner."""
    vertices, faces, n = mesh.vertices, mesh.faces, len(mesh.vertices)
    if vertices.ndim != 2 or faces.ndim != 2 or faces.shape[1] != 3 or (len(faces) and vertices.shape[1] != 3):
        raise MeshError(
            f"{name} has vertices of shape {vertices.shape} and faces of shape {faces.shape}: expected (N, 3) and "
            "(F, 3), or (N, d) and (0, 3)."
        )
    if n == 0:
        raise MeshError(f"{name} has no vertices: export it again.")
    bad = np.flatnonzero(~np.isfinite(vertices).all(1))
    if len(bad):
        raise MeshError(
            f"{name} has {len(bad)} vertices with NaN or infinite coordinates, the first is vertex {bad[0]}: "
            "repair or remove them."
        )
    if len(faces) and (faces.min() < 0 or faces.max() >= n):
        wrong = int(faces.min() if faces.min() < 0 else faces.max())
        raise MeshError(f"{name} has a face with corner {wrong}, and its vertices are 0 to {n - 1}: export it again.")
    if mesh.colors is not None and mesh.colors.shape != (n, 3):
        raise MeshError(f"{name} has colors of shape {mesh.colors.shape}: expected one rgb for each vertex, ({n}, 3).")
    if mesh.uv is not None and mesh.uv.shape != (len(faces), 3, 2):
        raise MeshError(
            f"{name} has uv of shape {mesh.uv.shape}: expected one pair for each corner, ({len(faces)}, 3, 2)."
        )
    for what, values in (("colors", mesh.colors), ("texture coordinates", mesh.uv)):
        if values is not None and not np.isfinite(values).all():
            raise MeshError(f"{name} has {what} that are NaN or infinite: repair or remove them.")


def _short(text: str, most: int = 160) -> str:
    """One line of at most so many characters, without a final stop."""
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= most else line[: most - 3] + "..."

"""Textures as (H, W, 3) arrays, and texture coordinates: images, atlases, a checkerboard,
projections, seams."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gromap import _check
from gromap.mesh.bounds import IMAGE_ROOM, beside, check_size
from gromap.mesh.mesh import Mesh

Image = Any  # of Pillow


def pixels(image: Image) -> np.ndarray:
    """An open image as rgb.  (H, W, 3) uint8, the top row first"""
    module = _check.extra("PIL.Image", "mesh", "pillow")
    try:
        return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, LookupError, OverflowError, struct.error, zlib.error,
            module.DecompressionBombError) as error:  # fmt: skip
        raise ValueError(f"its texture cannot be read ({error})") from error


def check_images(images: Iterable[Image], given: int) -> None:
    """Refuse images whose pixels are out of proportion to the bytes that they come from."""
    needed = sum(4 * image.width * image.height for image in images)
    check_size(needed, given, "the images of its texture", IMAGE_ROOM)


def load_all(mesh: Path, sources: Iterable[str | tuple[int, int, int]]) -> list[np.ndarray]:
    """The images of these names beside a mesh, as `pixels`, and small ones of plain colors."""
    module = _check.extra("PIL.Image", "mesh", "pillow")
    with ExitStack() as stack:
        found, given = [], 0
        for source in sources:
            path = source if isinstance(source, tuple) else _image_beside(mesh, source)
            if isinstance(path, Path):
                data = path.read_bytes()  # of a file, Pillow would take as much room as a chunk announces
                given += len(data)
                try:
                    found.append(stack.enter_context(module.open(io.BytesIO(data))))
                except (OSError, SyntaxError, ValueError, module.DecompressionBombError) as error:
                    raise ValueError(f"its texture cannot be read ({error})") from error
            else:
                found.append(module.new("RGB", (4, 4), path))
        check_images(found, given)
        return [pixels(image) for image in found]


def load_beside(mesh: Path, name: str) -> np.ndarray:
    """The image of this name in the folder of a mesh."""
    return load_all(mesh, [name])[0]


def _image_beside(mesh: Path, name: str) -> Path:
    path = beside(mesh, name)
    if path is None:
        raise ValueError(f"its texture {name[:100]!r} is outside of its folder: put the image beside it, by its name")
    if not path.is_file():
        raise ValueError(f"its texture {path} is not there: put the image beside it")
    return path


def png(texture: np.ndarray) -> bytes:
    """The image as a PNG file."""
    out = io.BytesIO()
    _check.extra("PIL.Image", "mesh", "pillow").fromarray(np.asarray(texture, np.uint8)).save(out, "png")
    return out.getvalue()


def checkerboard(squares: int = 16, size: int = 512) -> np.ndarray:
    """A checkerboard of light and colored squares, whose hue encodes the position.  (size, size,
    3) uint8

    >>> checkerboard(2, 4)[:, :, 0].tolist()
    [[45, 45, 235, 235], [45, 45, 235, 235], [235, 235, 210, 210], [235, 235, 210, 210]]
    """
    cell = np.arange(size) * squares // size
    row, column = np.meshgrid(cell, cell, indexing="ij")
    share = cell / max(1, squares - 1)
    across, down = np.meshgrid(share, share)
    hue = np.stack([45 + 165 * across, 60 + 130 * (1 - down), 200 - 120 * across], -1)
    return np.where(((row + column) % 2 == 0)[..., None], hue, 235).round().astype(np.uint8)


def atlas(images: list[np.ndarray], uv: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Several images side by side as one, and the texture coordinates of their faces, (F_i, 3,
    2) each, in it.

    Faces outside of their image are shifted by whole images; what still reaches beyond it (a
    repeated image) is clipped.
    """
    if not all(np.isfinite(place).all() for place in uv):
        raise ValueError("it has texture coordinates that are NaN or infinite")
    height, widths = max(len(image) for image in images), [image.shape[1] for image in images]
    if 3 * height * sum(widths) > 8 * sum(image.size for image in images) + IMAGE_ROOM:
        raise ValueError(f"its images would take {sum(widths)} x {height} pixels side by side: give them similar sizes")
    joined = np.zeros((height, sum(widths), 3), np.uint8)
    places, left = [], 0
    for image, width, place in zip(images, widths, uv, strict=True):
        joined[height - len(image) :, left : left + width] = image
        inside = (place - np.floor(place.min(1, keepdims=True) + 1e-6)).clip(0, 1)
        half = 0.5 / np.array([width, len(image)])  # half a pixel away from the neighboring image
        inside = inside.clip(half, 1 - half)
        places.append((inside * [width, len(image)] + [left, 0]) / [sum(widths), height])
        left += width
    return joined, np.concatenate(places)


def with_texture(mesh: Mesh, projection: Literal["planar", "spherical"] = "planar", texture: Any = None) -> Mesh:
    """The mesh with a texture, by default a checkerboard, mapped onto it by a projection.

    "planar": along the shortest side of the bounding box, so front and back look the same, without
    a seam. "spherical": longitude and latitude around the longest side; u exceeds 1 in the faces on
    the seam, where it repeats; faces around a pole are distorted.

    >>> with_texture(Mesh(np.eye(3), np.array([[0, 1, 2]])))
    Mesh(3 vertices, 1 faces, uv, texture)
    """
    if projection not in ("planar", "spherical"):
        raise ValueError(f"projection is 'planar' or 'spherical', got {projection!r}.")
    if not len(mesh.faces):
        raise ValueError("a cloud has no faces to put a texture on: use colors.")
    points = mesh.vertices.astype(np.float64)
    low, sides = points.min(0), np.ptp(points, axis=0)
    if projection == "planar":
        axes = np.sort(np.argsort(-sides, kind="stable")[:2])
        uv = ((points - low)[:, axes] / max(sides.max(), np.finfo(np.float64).tiny))[mesh.faces]
    else:
        up = int(sides.argmax())
        x, y, z = np.moveaxis(points - (low + sides / 2), 1, 0)[[(up + 2) % 3, up, (up + 1) % 3]]
        u = np.arctan2(x, z) / (2 * np.pi) + 0.5
        v = np.arctan2(y, np.hypot(x, z)) / np.pi + 0.5
        uv = np.stack([u, v], 1)[mesh.faces]
        uv[..., 0] += (np.ptp(uv[..., 0], axis=1) > 0.5)[:, None] & (uv[..., 0] < 0.5)
    return replace(mesh, uv=uv, texture=checkerboard() if texture is None else np.asarray(texture, np.uint8))


def split(mesh: Mesh) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One vertex for each vertex and uv that occur together: the old vertex of each, (N',), the
    faces, and uv, (N', 2).

    The first N are the old vertices; copies follow.

    >>> uv = np.array([[[0, 0], [1, 0], [1, 1]], [[0, 0.5], [1, 1], [0, 1]]])
    >>> split(Mesh(np.zeros((4, 3)), np.array([[0, 1, 2], [0, 2, 3]]), uv=uv))[0].tolist()
    [0, 1, 2, 3, 0]
    """
    assert mesh.uv is not None
    n, corner, place = len(mesh.vertices), mesh.faces.reshape(-1), mesh.uv.reshape(-1, 2)
    wedges, first, index = np.unique(np.column_stack([corner, place]), axis=0, return_index=True, return_inverse=True)
    owner = wedges[:, 0].astype(np.int64)
    leads = np.r_[True, owner[1:] != owner[:-1]]  # the first wedge of each vertex keeps its number
    number = np.where(leads, owner, n + np.cumsum(~leads) - 1)
    original = np.concatenate([np.arange(n), owner[~leads]])
    uv = np.zeros((len(original), 2))
    uv[number] = place[first]
    return original, number[index].reshape(-1, 3), uv

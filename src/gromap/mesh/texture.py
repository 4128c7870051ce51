"""Textures as (H, W, 3) arrays: reading and writing images, a checkerboard, and several images as one."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np


def load_image(source: Path | bytes) -> np.ndarray:
    """An image file, or what it holds, as rgb.  (H, W, 3) uint8, the upper row first"""
    image_module = _pillow()
    try:
        with image_module.open(source if isinstance(source, Path) else io.BytesIO(source)) as image:
            return np.asarray(image.convert("RGB"))
    except FileNotFoundError as error:
        raise ValueError(f"its texture {error.filename} is not there: put the image beside it") from error
    except (OSError, SyntaxError, image_module.DecompressionBombError) as error:
        raise ValueError(f"its texture cannot be read ({error})") from error


def png(texture: np.ndarray) -> bytes:
    """The image as a PNG file."""
    out = io.BytesIO()
    _pillow().fromarray(np.asarray(texture, np.uint8)).save(out, "png")
    return out.getvalue()


def checkerboard(squares: int = 16, size: int = 512) -> np.ndarray:
    """A board of white squares and coloured ones, whose hue tells where one is.  (size, size, 3) uint8

    >>> checkerboard(2, 4)[:, :, 0].tolist()
    [[45, 45, 255, 255], [45, 45, 255, 255], [255, 255, 210, 210], [255, 255, 210, 210]]
    """
    cell = np.arange(size) * squares // size
    row, column = np.meshgrid(cell, cell, indexing="ij")
    share = cell / max(1, squares - 1)
    across, down = np.meshgrid(share, share)
    hue = np.stack([45 + 165 * across, 60 + 130 * (1 - down), 200 - 120 * across], -1)
    return np.where(((row + column) % 2 == 0)[..., None], hue, 255).round().astype(np.uint8)


def atlas(images: list[np.ndarray], uv: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Several images side by side as one, and where the corners of their faces, (F_i, 3, 2) each, lie in it.

    Faces that leave their image are moved back by whole images; what still hangs over (a repeated image) is cut off.
    """
    height, widths = max(len(image) for image in images), [image.shape[1] for image in images]
    joined = np.zeros((height, sum(widths), 3), np.uint8)
    places, left = [], 0
    for image, width, place in zip(images, widths, uv, strict=True):
        joined[height - len(image) :, left : left + width] = image
        inside = (place - np.floor(place.min(1, keepdims=True) + 1e-6)).clip(0, 1)
        half = 0.5 / np.array([width, len(image)])  # stay half a pixel away from the neighbour
        inside = inside.clip(half, 1 - half)
        places.append((inside * [width, len(image)] + [left, 0]) / [sum(widths), height])
        left += width
    return joined, np.concatenate(places)


def _pillow():
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"textures need pillow ({error}): pip install 'gromap[mesh]'") from error
    return Image

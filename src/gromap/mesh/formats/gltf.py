"""GLB and glTF, through trimesh: all meshes of the scene as one, each with its transform
applied."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from gromap import _check
from gromap.mesh.formats.gltf_check import check_scene
from gromap.mesh.formats.polygons import bytes_of, rgb
from gromap.mesh.mesh import Mesh
from gromap.mesh.texture import atlas, check_images, pixels, split


def read(path: Path) -> Mesh:
    """Vertices in the order of the file; glTF repeats a vertex for each of its texture
    coordinates."""
    _check.extra("PIL.Image", "mesh", "pillow")  # by which trimesh reads textures
    trimesh = _check.extra("trimesh", "mesh")
    size = check_scene(path)
    try:
        scene = trimesh.load_scene(path, process=False)
        return _joined(scene, size)
    except ValueError:
        raise
    except Exception as error:  # trimesh and Pillow pass on errors of every kind
        raise ValueError(f"trimesh cannot read it ({type(error).__name__}: {error})") from error


def _joined(scene: Any, size: int) -> Mesh:
    """All meshes of a scene as one.  size: bytes of its files"""
    trimesh = _check.extra("trimesh", "mesh")
    parts, order = [], list(scene.geometry)
    # trimesh walks from the last to the first
    placed = [scene.graph[node] for node in reversed(scene.graph.nodes_geometry)]
    for transform, name in sorted(placed, key=lambda one: order.index(one[1])):
        geometry = scene.geometry[name]
        if isinstance(geometry, trimesh.Trimesh | trimesh.PointCloud):
            parts.append(_placed(geometry, transform))
    if not parts:
        raise ValueError("it has no triangles and no points")
    starts = np.cumsum([0, *(len(vertices) for vertices, *_ in parts)])
    vertices = np.concatenate([vertices for vertices, *_ in parts])
    faces = np.concatenate([faces + start for (_, faces, _), start in zip(parts, starts, strict=False)])
    opened = {id(image): image for _, _, visual in parts if (image := _image(visual)) is not None}
    check_images(opened.values(), size)
    read_images = {key: pixels(image) for key, image in opened.items()}
    looks = [_appearance(visual, faces, read_images) for _, faces, visual in parts]
    if any(isinstance(image, np.ndarray) for _, image, _ in looks):
        images = [np.full((4, 4, 3), image, np.uint8) if isinstance(image, tuple) else image for _, image, _ in looks]
        corners = [uv for uv, *_ in looks]
        same = all(image is images[0] or np.array_equal(image, images[0]) for image in images)
        texture, uv = (images[0], np.concatenate(corners)) if same else atlas(images, corners)
        return Mesh(vertices, faces, None, uv, texture)
    if all(plain == (255, 255, 255) and colors is None for _, plain, colors in looks):
        return Mesh(vertices, faces)
    colors = [
        np.full((len(part[0]), 3), np.array(plain) / 255) if colors is None else colors
        for part, (_, plain, colors) in zip(parts, looks, strict=True)
    ]
    return Mesh(vertices, faces, np.concatenate(colors))


def _placed(geometry: Any, transform: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
    """Transformed vertices, in the precision of glTF, and faces, flipped where the transform
    mirrors."""
    vertices = np.asarray(geometry.vertices) @ transform[:3, :3].T + transform[:3, 3]
    faces = np.asarray(getattr(geometry, "faces", np.zeros((0, 3))), np.int64).reshape(-1, 3)
    mirrored = np.linalg.det(transform[:3, :3]) < 0
    return vertices.astype(np.float32), faces[:, ::-1] if mirrored else faces, geometry.visual


def _image(visual: Any) -> Any:
    """The texture of a part, as Pillow opened it."""
    material = getattr(visual, "material", None)
    return getattr(material, "baseColorTexture", None) or getattr(material, "image", None)


def _appearance(
    visual: Any, faces: np.ndarray, images: dict[int, np.ndarray]
) -> tuple[np.ndarray, np.ndarray | tuple, np.ndarray | None]:
    """Of one part: texture coordinates of its corners, its image or plain color, and the colors
    of its vertices."""
    uv = getattr(visual, "uv", None)
    material = getattr(visual, "material", None)
    plain = _plain(material)
    if visual.kind == "vertex":
        return np.zeros((len(faces), 3, 2)), plain, rgb(np.asarray(visual.vertex_colors))
    image = _image(visual)
    if uv is None or image is None or not len(faces):
        return np.zeros((len(faces), 3, 2)), plain, None
    return np.asarray(uv, np.float64)[faces], images[id(image)], None


def _plain(material: Any) -> tuple[int, int, int]:
    factor = getattr(material, "baseColorFactor", None)
    if factor is None:
        return 255, 255, 255
    red, green, blue = bytes_of(rgb(np.asarray(factor)[None]))[0].tolist()
    return red, green, blue


def write(mesh: Mesh, path: Path) -> None:
    """With the image embedded. Vertices on a texture seam are repeated after all others, which
    keep their order."""
    image_module, trimesh = _check.extra("PIL.Image", "mesh", "pillow"), _check.extra("trimesh", "mesh")
    vertices, faces, visual = mesh.vertices, mesh.faces, None
    if mesh.uv is not None and mesh.texture is not None and len(faces):
        original, faces, uv = split(mesh)
        vertices = vertices[original]
        material = trimesh.visual.material.PBRMaterial(
            baseColorTexture=image_module.fromarray(mesh.texture), metallicFactor=0.0, roughnessFactor=1.0
        )
        visual = trimesh.visual.TextureVisuals(uv=uv, material=material)
    elif mesh.colors is not None:
        visual = trimesh.visual.ColorVisuals(vertex_colors=bytes_of(mesh.colors))
    if len(faces):
        shape = trimesh.Trimesh(vertices, faces, process=False, visual=visual)
    else:
        shape = trimesh.PointCloud(vertices, colors=None if mesh.colors is None else bytes_of(mesh.colors))
    out = io.BytesIO()
    trimesh.Scene(shape).export(out, file_type="glb")
    path.write_bytes(out.getvalue())

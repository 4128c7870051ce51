"""GLB and glTF, through trimesh: all meshes of the scene as one, each where its transform puts it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from gromap.mesh.formats.polygons import bytes_of, rgb
from gromap.mesh.mesh import Mesh
from gromap.mesh.texture import atlas, split


def read(path: Path) -> Mesh:
    """In the order of the file; glTF itself stores a vertex once for each of its places in the texture."""
    trimesh = _trimesh()
    try:
        scene = trimesh.load_scene(path, process=False)
    except Exception as error:  # trimesh lets whatever went wrong through
        raise ValueError(f"trimesh cannot read it ({type(error).__name__}: {error})") from error
    parts, order = [], list(scene.geometry)
    placed = [scene.graph[node] for node in reversed(scene.graph.nodes_geometry)]  # trimesh walks from the last to the first
    for transform, name in sorted(placed, key=lambda one: order.index(one[1])):
        geometry = scene.geometry[name]
        if isinstance(geometry, trimesh.Trimesh | trimesh.PointCloud):
            parts.append(_placed(geometry, transform))
    if not parts:
        raise ValueError("it has no triangles and no points")
    starts = np.cumsum([0, *(len(vertices) for vertices, *_ in parts)])
    vertices = np.concatenate([vertices for vertices, *_ in parts])
    faces = np.concatenate([faces + start for (_, faces, _), start in zip(parts, starts, strict=False)])
    looks = [_look(visual, faces) for _, faces, visual in parts]
    if any(isinstance(image, np.ndarray) for _, image, _ in looks):
        images = [np.full((4, 4, 3), image, np.uint8) if isinstance(image, tuple) else image for _, image, _ in looks]
        places = [uv for uv, *_ in looks]
        same = all(image is images[0] or np.array_equal(image, images[0]) for image in images)
        texture, uv = (images[0], np.concatenate(places)) if same else atlas(images, places)
        return Mesh(vertices, faces, None, uv, texture)
    if all(plain == (255, 255, 255) and colours is None for _, plain, colours in looks):
        return Mesh(vertices, faces)
    colours = [
        np.full((len(part[0]), 3), np.array(plain) / 255) if colours is None else colours
        for part, (_, plain, colours) in zip(parts, looks, strict=True)
    ]
    return Mesh(vertices, faces, np.concatenate(colours))


def _placed(geometry: Any, transform: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
    """Vertices where the scene has them, in the precision of glTF; faces turned round where the transform mirrors."""
    vertices = np.asarray(geometry.vertices) @ transform[:3, :3].T + transform[:3, 3]
    faces = np.asarray(getattr(geometry, "faces", np.zeros((0, 3))), np.int64).reshape(-1, 3)
    mirrored = np.linalg.det(transform[:3, :3]) < 0
    return vertices.astype(np.float32), faces[:, ::-1] if mirrored else faces, geometry.visual


def _look(look: Any, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray | tuple, np.ndarray | None]:
    """Of one part: the corners' places in its image, the image or plain colour, and the colours of its vertices."""
    uv = getattr(look, "uv", None)
    material = getattr(look, "material", None)
    plain = _plain(material)
    if look.kind == "vertex":
        return np.zeros((len(faces), 3, 2)), plain, rgb(np.asarray(look.vertex_colors))
    image = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
    if uv is None or image is None or not len(faces):
        return np.zeros((len(faces), 3, 2)), plain, None
    return np.asarray(uv, np.float64)[faces], np.asarray(image.convert("RGB")), None


def _plain(material: Any) -> tuple[int, int, int]:
    factor = getattr(material, "baseColorFactor", None)
    if factor is None:
        return 255, 255, 255
    red, green, blue = bytes_of(rgb(np.asarray(factor)[None]))[0].tolist()
    return red, green, blue


def write(mesh: Mesh, path: Path) -> None:
    """The image inside. Vertices on a seam of the texture are repeated, after all others, which keep their order."""
    trimesh = _trimesh()
    vertices, faces, visual = mesh.vertices, mesh.faces, None
    if mesh.uv is not None and mesh.texture is not None and len(faces):
        from PIL import Image

        original, faces, uv = split(mesh)
        vertices = vertices[original]
        material = trimesh.visual.material.PBRMaterial(
            baseColorTexture=Image.fromarray(mesh.texture), metallicFactor=0.0, roughnessFactor=1.0
        )
        visual = trimesh.visual.TextureVisuals(uv=uv, material=material)
    elif mesh.colours is not None:
        visual = trimesh.visual.ColorVisuals(vertex_colors=bytes_of(mesh.colours))
    if len(faces):
        shape = trimesh.Trimesh(vertices, faces, process=False, visual=visual)
    else:
        shape = trimesh.PointCloud(vertices, colors=None if mesh.colours is None else bytes_of(mesh.colours))
    out = io.BytesIO()
    trimesh.Scene(shape).export(out, file_type="glb")
    path.write_bytes(out.getvalue())


def _trimesh() -> Any:
    try:
        import PIL.Image  # noqa: F401
        import trimesh
    except ImportError as error:
        raise ImportError(f"GLB and glTF files need trimesh and pillow ({error}): pip install 'gromap[mesh]'") from error
    return trimesh

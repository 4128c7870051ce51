"""Pairs of shapes, and points on them.

The pair "human" ships with gromap. The others are read from the folder that the environment
variable GROMAP_DATA names.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gromap.datasets import humans
from gromap.mesh import Mesh, read_mesh
from gromap.mesh.cache import cached_embedding

PAIRS = {  # files of both shapes, in the data folder
    "human": None,
    "dog": ("poses/dog_0.ply", "poses/dog_1.ply"),
    "man": ("poses/mh_man_0.ply", "poses/mh_man_1.ply"),
    "man53k": ("poses/mh_man53k_0.ply", "poses/mh_man53k_1.ply"),
    "hand": ("poses/mh_hand_0.ply", "poses/mh_hand_1.ply"),
    "femurs": ("anatomy/femur_R.ply", "anatomy/femur_L.ply"),
    "hips": ("anatomy/hip_R.ply", "anatomy/hip_L.ply"),
    "vessels": ("anatomy/pulmonary_vein.ply", "anatomy/pulmonary_vein.ply"),
    "dog 0-2": ("poses/dog_0.ply", "poses/dog_2.ply"),
    "man 0-2": ("poses/mh_man_0.ply", "poses/mh_man_2.ply"),
    "man-child": ("poses/mh_man_0.ply", "poses/mh_child_1.ply"),
    "woman": ("poses/mh_woman_0.ply", "poses/mh_woman_1.ply"),
    "vertebrae": ("anatomy/T1_vertebra.ply", "anatomy/T7_vertebra.ply"),
}
CREDIT = (
    "Femurs, hips and vessels: BodyParts3D, (c) The Database Center for Life Science licensed under "
    "CC Attribution-Share Alike 2.1 Japan."
)


def data_folder() -> Path:
    """The folder that holds `poses/`, or an error that says how to set it."""
    folder = Path(os.environ.get("GROMAP_DATA", ""))
    if not (folder / "poses").is_dir():
        raise FileNotFoundError(
            f"no shapes in {os.environ.get('GROMAP_DATA') or 'GROMAP_DATA, which is not set'}: set GROMAP_DATA to "
            "the folder that holds poses/mh_man_0.ply and its neighbors."
        )
    return folder


def mesh_pair(name: str) -> tuple[Mesh, Mesh]:
    """Both meshes of one of PAIRS."""
    files = PAIRS[name]
    if files is None:
        return humans().source, humans().target
    first, second = (_mesh(data_folder() / file) for file in files)
    return first, second


def _mesh(path: Path) -> Mesh:
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: set GROMAP_DATA to a folder that has it.")
    return read_mesh(path)


def surface_points(mesh: Mesh, n: int, seed: int, device: torch.device, places: np.ndarray | None = None) -> Tensor:
    """n points drawn uniformly on a surface, on the device itself; the seed means other points
    on another device.  (n, 3)

    places: coordinates of the vertices to return the points in, as of an embedding in R^8; the draw
    stays that of the surface.
    """
    generator = torch.Generator(device).manual_seed(seed)
    vertices = torch.as_tensor(mesh.vertices if places is None else places, device=device)
    faces = torch.as_tensor(mesh.faces, device=device)
    areas = torch.as_tensor(np.linalg.norm(mesh.face_normals(), axis=1), device=device).cumsum(0)
    where = torch.rand(n, dtype=torch.float64, device=device, generator=generator) * areas[-1]
    face = faces[torch.searchsorted(areas, where).clamp_(max=len(areas) - 1)]
    s, t = torch.rand(2, n, 1, device=device, generator=generator)
    s, t = torch.where(s + t > 1, 1 - s, s), torch.where(s + t > 1, 1 - t, t)
    p, q, r = vertices.float()[face].unbind(1)
    return p + s * (q - p) + t * (r - p)


def surface_pair(name: str, n: int, seed: int, device: torch.device, geodesic: bool = False) -> tuple[Tensor, Tensor]:
    """n points on each surface of one of PAIRS, drawn independently.  (n, 3) float32 each

    geodesic: as points of R^8 instead, whose straight distances follow the surfaces.  (n, 8)
    """
    meshes = mesh_pair(name)
    places = [cached_embedding(mesh, "geodesic", device=device).points if geodesic else None for mesh in meshes]
    first, second = (surface_points(m, n, 2 * seed + k, device, places[k]) for k, m in enumerate(meshes))
    return first, second


def planar_shape(folder: Path, name: str, n: int, seed: int) -> np.ndarray:
    """n points drawn inside one of the flat shapes of a data folder.  (n, 2)"""
    path = folder / "shapes2d" / f"{name}.npy"
    if not path.is_file():
        raise FileNotFoundError(f"no shape {path}: set GROMAP_DATA to the folder that holds shapes2d/{name}.npy.")
    points = np.load(path).astype(np.float64)
    return points[np.random.default_rng(seed).choice(len(points), n, replace=False)]

"""What the points of a surface look like, to be matched beside their distances: signatures from the
Laplacian of the mesh, normals, colors.

"wks"      wave kernel signatures (Aubry, Schlickewei & Cremers 2011), of 100 energies e
               s(x, e) = A Σ_k w_k(e) φ_k(x)²,   w_k(e) ~ exp(-(e - log λ_k)² / 2σ²),   Σ_k w_k = 1
           as s / (1 + s): differences of similar values are relative ones, as in the paper
"hks"      heat kernel signatures (Sun, Ovsjanikov & Guibas 2009), log s, of 100 times t
               s(x, t) = A Σ_k w_k(t) φ_k(x)²,   w_k(t) ~ exp(-λ_k t),   Σ_k w_k = 1
"normals"  unit normals: they turn with the shape
"color"    rgb

∫ φ² = 1 and A is the area of the mesh, so that each signature is one on average, whatever the size.
Eigenvalues are in units of one over an area: by Weyl's law λ_k is about 4πk in them. Energies and
times are those of the same k on all meshes. The area is that of the mesh, or, for a part and a
whole, one for both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from gromap import _check, _options
from gromap.mesh.clean import components
from gromap.mesh.embedding import MANY_PIECES, eigenpairs
from gromap.mesh.io import read_mesh
from gromap.mesh.mesh import Mesh

KINDS = ("wks", "hks", "normals", "color")
MODES = 120  # eigenpairs; 100 and 150 tell points as well
PER_MODE = 5  # vertices of a mesh for each eigenpair, which is no more than noise on a coarser one
SAMPLES = 100  # energies or times
HIGHEST = 2 / 3  # of the modes: up to here the next ones are known
WIDTH = 7  # of an energy, in steps from one to the next
TAIL = 4 * np.log(10)  # exp(-TAIL) is the share of a mode that counts no more


def descriptors(
    mesh: Mesh | str | Path, kind: str = "wks", *, modes: int | None = None, area: float | None = None, seed: int = 0
) -> np.ndarray:
    """One row for each vertex, to be given to `gromap.solve` or `gromap.mesh.match` as one of its
    `features`.  (N, K) float64

    kind: "wks" or "hks", which no pose, no reflection and no size changes; "normals", which turn
    with the shape; "color".  modes: eigenpairs of the Laplacian; None: 120, and at most one for
    five vertices. Two meshes compare if this is the same for both.  area: what eigenvalues are in
    units of; None: that of the mesh. A part and a whole compare if it is the same for both.

    >>> from gromap.datasets import humans
    >>> descriptors(humans().source, "wks").shape
    (4000, 100)
    """
    _check.choice(kind, KINDS, "kind of descriptors")
    mesh = mesh if isinstance(mesh, Mesh) else read_mesh(mesh)
    name = mesh.name or "the mesh"
    if kind == "color":
        if mesh.colors is None:
            raise ValueError(f"{name} has no colors to compare: give it some, or use 'wks'.")
        return np.asarray(mesh.colors, np.float64)
    if not len(mesh.faces):
        raise ValueError(f"{kind} are those of a surface, and {name} has no faces: pass arrays as features.")
    if kind == "normals":
        return mesh.vertex_normals()
    used = np.unique(mesh.faces)
    if len(used) < len(mesh.vertices):  # those without faces are like the nearest other one
        part = Mesh(mesh.vertices[used], np.searchsorted(used, mesh.faces), name=mesh.name)
        nearest = KDTree(part.vertices).query(mesh.vertices)[1]
        return descriptors(part, kind, modes=modes, area=area, seed=seed)[nearest]
    count = most_modes(mesh) if modes is None else _options.whole(modes, "modes")
    unit = mesh.area if area is None else _check.positive(area, "area")
    return _signatures(mesh, kind, count, unit, _options.seed(seed))


def pair_of_descriptors(
    source: Mesh, target: Mesh, kind: str, one_unit: bool = False, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Of two meshes that are matched, of as many modes.  one_unit: in units of the larger area."""
    given: dict[str, Any] = {"modes": min(most_modes(source), most_modes(target)), "seed": seed}
    if one_unit:
        given["area"] = max(source.area, target.area)
    left, right = (descriptors(mesh, kind, **given) for mesh in (source, target))
    return left, right


def most_modes(mesh: Mesh) -> int:
    """How many eigenpairs a mesh of this size has that are worth anything."""
    return max(1, min(MODES, len(np.unique(mesh.faces)) // PER_MODE))


def _signatures(mesh: Mesh, kind: str, modes: int, unit: float, seed: int) -> np.ndarray:
    pieces, _ = components(mesh)
    if pieces > MANY_PIECES:
        raise ValueError(
            f"{mesh.name or 'the mesh'} has {pieces} separate pieces, which vibrate by themselves: merge its duplicate "
            "vertices, or keep its large pieces."
        )
    theta, phi, area = eigenpairs(mesh, min(modes + pieces, len(mesh.vertices) - 1), seed)
    theta = unit * theta.clip(1e-9 * theta[-1])
    low, high = np.log(4 * np.pi), np.log(4 * np.pi * max(2.0, HIGHEST * modes))
    steps = np.linspace(low, high, SAMPLES)
    if kind == "wks":
        theta, phi = theta[pieces:], phi[:, pieces:]  # without the constants
        width = WIDTH * (steps[1] - steps[0])
        nats = -((steps - np.log(theta[:, None])) ** 2) / (2 * width**2)
    else:
        nats = -theta[:, None] * TAIL * np.exp(-steps)
    share = np.exp(nats - nats.max(0))
    density = area.sum() * phi**2 @ (share / share.sum(0))
    return density / (1 + density) if kind == "wks" else np.log(density.clip(np.finfo(np.float64).tiny))

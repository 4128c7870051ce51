"""Between two vertebrae: barycenters of T1 and T7 for several weights, as points or as surfaces.

    python examples/vertebrae.py --out vertebrae.png

Points are drawn on both surfaces; each barycenter starts from the one before it. Shapes are read
from the folder that the environment variable GROMAP_DATA names. Any picture needs this credit:
"BodyParts3D, (c) The Database Center for Life Science licensed under CC Attribution-Share Alike 2.1
Japan".
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from planar import add_data

import gromap
from gromap.mesh import read_mesh
from gromap.mesh.poisson import normals_at, poisson_surface
from gromap.mesh.sampling import spread_sample

CREDIT = "BodyParts3D, (c) The Database Center for Life Science licensed under CC Attribution-Share Alike 2.1 Japan"


def surface_points(path: Path, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """n points drawn evenly on a surface, centered, in units of 10 mm, and its normals there.
    (n, 3) twice"""
    if not path.exists():
        sys.exit(f"No mesh {path}: set GROMAP_DATA, or --data, to the folder that holds anatomy/.")
    mesh = read_mesh(path)
    points = spread_sample(mesh, n, seed)
    return (points - points.mean(0)) / 10, normals_at(mesh, points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("vertebrae.png"))
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--batch", type=int, help="points of a part; None = all points in each step")
    parser.add_argument(
        "--surface", action="store_true", help="draw surfaces: needs pymeshlab, and 1500 points or more"
    )
    parser.add_argument("--quick", action="store_true", help="few points and steps")
    add_data(parser)
    args = parser.parse_args()
    n, steps = (150, 8) if args.quick else (args.points, args.steps)
    (first, sides), (last, other) = (
        surface_points(args.data / "anatomy" / f"{name}_vertebra.ply", n, 0) for name in ("T1", "T7")
    )
    clouds = [first]
    for t in (0.25, 0.5, 0.75):
        middle = gromap.barycenter(
            [first, last],
            [1 - t, t],
            init=clouds[-1],
            match="nearest",
            steps=steps,
            epsilon=0.1,
            batch=args.batch,
            tol=1e-3,
        )
        print(f"t = {t}: {middle.losses[0]:.3e} to {middle.losses[-1]:.3e}. {middle.status.value}", flush=True)
        clouds.append(middle.points)
    figure = Figure(figsize=(14, 3.4), layout="constrained")
    names = ["T1", "¼", "½", "¾", "T7"]
    for k, (cloud, name) in enumerate(zip([*clouds, last], names, strict=True)):
        axes = figure.add_subplot(1, 5, k + 1, projection="3d")
        draw(axes, cloud, (other if cloud is last else sides) if args.surface else None)
        axes.set_title(name, fontsize=11)
    figure.supxlabel(CREDIT, fontsize=7)
    figure.savefig(args.out, dpi=110)
    print(f"wrote {args.out}")


def draw(axes, cloud: np.ndarray, sides: np.ndarray | None) -> None:
    """As points; or as a surface, which needs to know its outer side."""
    if sides is not None:
        mesh = poisson_surface(cloud, 6, 8, sides)
        axes.plot_trisurf(*mesh.vertices.T, triangles=mesh.faces, color="#e8dcc8", linewidth=0, antialiased=False)
    else:
        axes.scatter(*cloud.T, c=cloud[:, 2], cmap="turbo", s=3, linewidths=0)
    axes.set_box_aspect(np.ptp(cloud, axis=0), zoom=1.45)
    axes.view_init(elev=60, azim=-90)
    axes.set_axis_off()


if __name__ == "__main__":
    main()

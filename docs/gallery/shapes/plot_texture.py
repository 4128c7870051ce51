"""
A texture, carried over
=======================

A checkerboard is painted on a standing man and follows the map to a running one. Where squares stay
squares the map keeps angles and areas.
"""

import matplotlib.pyplot as plt
import numpy as np

import gromap
from gromap.datasets import humans
from gromap.mesh.texture import checkerboard, with_texture
from gromap.mesh.transfer import textured
from gromap.report.figures import add_triangles, camera_at, render

pair = humans()
sol = gromap.mesh.match(pair.source, pair.target)
source = with_texture(pair.source, texture=checkerboard(32))
target = textured(pair.target, source, sol.plan, sol.inverse_map())

# %%
# ``gromap.mesh.write_mesh(target, "running.glb")`` writes a file with the image inside. Here each
# triangle is cut in 64, which take their colors from the image.


def divided(corners):
    """Each triangle in four.  (F, 3, k) -> (4 F, 3, k)"""
    a, b, c = np.moveaxis(corners, 1, 0)
    ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
    return np.concatenate([np.stack(t, 1) for t in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))])


def fine(mesh):
    """A mesh of small triangles, each in one color of the texture."""
    corners = np.concatenate([mesh.vertices[mesh.faces], mesh.uv], axis=2)
    for _ in range(3):
        corners = divided(corners)
    u, v = (corners[:, :, 3:].mean(1) % 1).T
    height, width, _ = mesh.texture.shape
    colors = mesh.texture[((1 - v) * height).astype(int) % height, (u * width).astype(int) % width] / 255
    small = gromap.mesh.Mesh(corners[:, :, :3].reshape(-1, 3), np.arange(3 * len(corners)).reshape(-1, 3))
    return small, np.repeat(colors, 3, axis=0)


figure, axes = plt.subplots(figsize=(9, 7), layout="constrained")
place = 0.0
for mesh in (source, target):
    for azimuth in (35, 215):
        triangles, colors = render(*fine(mesh), camera_at(azimuth))
        triangles = triangles - triangles.min((0, 1)) + (place, 0)
        place = triangles[:, :, 0].max() + 0.1
        add_triangles(axes, triangles, colors)
axes.autoscale()
axes.set_aspect("equal")
axes.axis("off")
plt.show()

"""
Left and right
==============

Distances are the same in a mirror. Among the matches of two bodies there is one that exchanges left
and right, at about the same energy; meshes know their outer side, which tells both apart.
"""

import matplotlib.pyplot as plt
import numpy as np

import gromap
from gromap.datasets import humans
from gromap.report.figures import add_triangles, camera_at, render

pair = humans()
source, target = pair.source, pair.target
spaces = [gromap.Space.from_mesh(mesh) for mesh in (source, target)]  # embedded once
kept = gromap.mesh.match(*spaces)
mirrored = gromap.mesh.match(*spaces, allow_mirror=True)  # any hand
for name, sol in (("default", kept), ("allow_mirror=True", mirrored)):
    print(f"{name}: value {sol.value:.4f}, hand {sol.stats.hand:+.2f}")

# %%
# ``sol.stats.hand`` is 1 where left and right are kept, -1 where they are exchanged. The left
# half of the source is red; each point of the target has the color of the point that it is
# matched to.
halves = np.where(source.vertices[:, :1] > 0, [0.86, 0.30, 0.34], [0.27, 0.48, 0.62])
panels = {
    "source": (source, halves),
    "default": (target, halves[kept.inverse_map()]),
    "allow_mirror=True": (target, halves[mirrored.inverse_map()]),
}
figure, axes = plt.subplots(1, 3, figsize=(9, 4.6), layout="constrained", sharey=True)
for axis, (title, (mesh, colors)) in zip(axes, panels.items(), strict=True):
    add_triangles(axis, *render(mesh, colors, camera_at(35)))
    axis.autoscale()
    axis.set(title=title, aspect="equal")
    axis.axis("off")
plt.show()

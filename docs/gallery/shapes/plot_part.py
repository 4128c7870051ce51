"""
A part and the whole
====================

A man who lacks a leg is matched to a whole one in another pose. With fixed weights all of the part
must be spread over all of the whole; ``reach`` leaves unmatched what does not fit.
"""

import matplotlib.pyplot as plt
import numpy as np

import gromap
from gromap.datasets import humans
from gromap.report.figures import add_triangles, camera_at, color_field, render

pair = humans()
whole, vertices = pair.target, pair.source.vertices
keep = (vertices[:, 1] > np.quantile(vertices[:, 1], 0.45)) | (vertices[:, 0] > 0)
faces = np.cumsum(keep)[pair.source.faces[keep[pair.source.faces].all(1)]] - 1
part = gromap.mesh.Mesh(vertices[keep], faces)

spaces = gromap.Space.from_mesh(part), gromap.Space.from_mesh(whole)
forced = gromap.mesh.match(*spaces, scale="joint", epsilon=1e-3, refine=False)
sol = gromap.mesh.match(*spaces, reach=0.1, epsilon=1e-3)
print(f"{sol.kept_X.mean():.0%} of the part is matched, to {(sol.kept_Y > 0.5).mean():.0%} of the whole")

# %%
# Each point of the whole has the color of what it receives; it is gray where less than half of it
# is matched. ``gromap match part.ply whole.ply --partial`` does this for two files. Look at the
# arms: this match exchanges left and right, which distances alone do not tell.
colors = color_field(vertices)[keep]
matched = np.where(sol.kept_Y[:, None] > 0.5, sol.push(colors), 0.82)

figure, axes = plt.subplots(1, 3, figsize=(9, 4.6), layout="constrained", sharey=True)
panels = {"the part": (part, colors), "fixed weights": (whole, forced.push(colors)), "reach=0.1": (whole, matched)}
for axis, (title, (mesh, paint)) in zip(axes, panels.items(), strict=True):
    add_triangles(axis, *render(mesh, paint.clip(0, 1), camera_at(35)))
    axis.autoscale()
    axis.set(title=title, aspect="equal")
    axis.axis("off")
plt.show()

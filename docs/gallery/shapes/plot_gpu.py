"""
Many points, on a GPU if there is one
=====================================

Points on the surfaces of two bodies: 200,000 a side on a GPU, 5,000 on a CPU. The call is the same,
and no array of all pairs is ever stored.
"""

import matplotlib.pyplot as plt
import torch

import gromap
from gromap.datasets import humans
from gromap.mesh import sample
from gromap.report.figures import color_field

on_gpu = torch.cuda.is_available()
n = 200_000 if on_gpu else 5_000
pair = humans()
x, y = (sample(mesh, n, seed=0).points.astype("float32") for mesh in (pair.source, pair.target))
sol = gromap.solve(x, y, device="cuda" if on_gpu else "cpu")
print(f"{n:,} points a side on {'a GPU' if on_gpu else 'a CPU, since this machine has no GPU'}")
print(sol)

# %%
# The first kernel of its kind is compiled; the second call shows what a match takes.
if on_gpu:
    print(gromap.solve(x, y, device="cuda"))

colors = color_field(x)
figure, axes = plt.subplots(1, 2, figsize=(7, 5.4), layout="constrained", sharey=True)
for axis, title, points, paint in zip(axes, ("source", "target"), (x, y), (colors, sol.push(colors)), strict=True):
    order = points[:, 2].argsort()
    axis.scatter(*points[order, :2].T, c=paint[order].clip(0, 1), s=4 if n < 10_000 else 0.2, linewidths=0)
    axis.set(title=f"{title}, {n:,} points", aspect="equal")
    axis.axis("off")
plt.show()

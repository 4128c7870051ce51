"""
A Swiss roll, unrolled
======================

Distances along a roll, from a graph of nearest neighbors, are matched to the Euclidean distances of
a plane rectangle: other data, another number of points, another cost on each side.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse.csgraph import shortest_path
from sklearn.neighbors import kneighbors_graph

import gromap

rng = np.random.default_rng(0)
angle, depth = 1.5 * np.pi * (1 + 2 * rng.random(900)), 12 * rng.random(900)
roll = np.stack([angle * np.cos(angle), depth, angle * np.sin(angle)], 1)
paths = shortest_path(kneighbors_graph(roll, 8, mode="distance"), directed=False)

length = 90.0  # of the unrolled strip, about
plane = rng.random((700, 2)) * [length, 12]

sol = gromap.solve(gromap.Space.from_costs(paths), gromap.Space(plane))
print(sol)

# %%
# The two ends of a strip may trade places: both ways round are isometries, up to where the points
# are.
figure = plt.figure(figsize=(10, 4), layout="constrained")
axis = figure.add_subplot(1, 2, 1, projection="3d")
axis.scatter(*roll.T, c=angle, cmap="turbo", s=8)
axis.view_init(elev=12, azim=-75)
axis.set_box_aspect(np.ptp(roll, axis=0), zoom=1.3)
axis.set_axis_off()
axis = figure.add_subplot(1, 2, 2)
axis.scatter(*plane.T, c=sol.push(angle), cmap="turbo", s=8)
axis.set(aspect=3, xticks=[], yticks=[], title="the plane, colors carried over")
plt.show()

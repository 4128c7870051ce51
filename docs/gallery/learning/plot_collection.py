"""
A collection and its tree
=========================

All distances between fifteen clouds of three families, each in a pose and a sampling of its own,
and the tree that they make.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.cluster.hierarchy import dendrogram, linkage
from scipy.spatial.distance import squareform

import gromap

rng = np.random.default_rng(0)


def helix(n, s):
    t = rng.random(n)
    return np.stack([np.cos(9 * t), np.sin(9 * t), (2 + s) * t], 1)


def table(n, s):
    top = np.c_[rng.uniform(-1, 1, (n // 2, 2)), np.zeros(n // 2)]
    legs = np.sign(rng.normal(size=(n - n // 2, 2))) * 0.9
    return np.r_[top, np.c_[legs, -(1.2 + s) * rng.random(len(legs))]]


def torus(n, s):
    u, v = 2 * np.pi * rng.random((2, n))
    ring = 1 + (0.35 + 0.2 * s) * np.cos(v)
    return np.stack([ring * np.cos(u), ring * np.sin(u), 0.4 * np.sin(v)], 1)


names, shapes = [], []
for family in (helix, table, torus):
    for s in rng.random(5):
        points = family(60 + int(30 * s), s) @ np.linalg.qr(rng.normal(size=(3, 3)))[0]  # some mirrored
        names.append(f"{family.__name__} {len(names) % 5}")
        shapes.append(points)

values = gromap.pairwise(shapes, epsilon=1e-2, init=gromap.Search(starts=0))
distances = np.sqrt(values.clip(min=0))  # values are squared, and 0 for equal shapes

# %%
# ``gromap pairwise FOLDER`` does this for a folder of meshes or clouds, in several processes.
tree = linkage(squareform(distances, checks=False), "average")
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
drawn = dendrogram(tree, ax=left, labels=names, orientation="left", color_threshold=0.8 * tree[-1, 2])
left.set_xlabel("distance")
order = drawn["leaves"][::-1]
picture = right.imshow(distances[np.ix_(order, order)], cmap="magma_r")
right.set(xticks=[], yticks=[], title="all distances, in the order of the tree")
figure.colorbar(picture, ax=right, shrink=0.8)
plt.show()

"""
What a base cost sees
=====================

The letter "C" is matched to an "S" under three base costs. Squared distances weigh far points most,
and align axes; local costs keep neighbors together and unroll one letter along the other.
"""

import matplotlib.pyplot as plt
import numpy as np

import gromap

rng = np.random.default_rng(0)


def stroke(centers, radii, begin, end, n):
    """Points on arcs one after another, and how far along they lie.  (n, 2), (n,)"""
    t = rng.random(n)
    arc = (t * len(centers)).astype(int)
    angle = np.radians(np.asarray(begin)[arc] + (t * len(centers) - arc) * (np.subtract(end, begin))[arc])
    points = np.asarray(centers)[arc] + np.asarray(radii)[arc, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return points + 0.05 * rng.normal(size=(n, 2)), t


letter_c, along = stroke([(0, 0)], [1.0], [45], [315], 600)
letter_s, _ = stroke([(0, 0.5), (0, -0.5)], [0.5, 0.5], [20, 90], [270, -160], 550)

# %%
# One call for each cost; ``push`` carries the place along the "C" to the points of the "S".
costs = {"|x - x'|²": "sqeuclidean", "|x - x'|": "euclidean", "2 - 2 exp(-|x - x'| / 0.3)": gromap.Exponential(0.3)}
figure, axes = plt.subplots(1, 4, figsize=(11, 3.4), layout="constrained")
axes[0].scatter(*letter_c.T, c=along, cmap="turbo", s=8)
axes[0].set_title("source")
for axis, (name, cost) in zip(axes[1:], costs.items(), strict=True):
    sol = gromap.solve(letter_c, letter_s, cost=cost)
    axis.scatter(*letter_s.T, c=sol.push(along), cmap="turbo", s=8, vmin=0, vmax=1)
    axis.set_title(name)
for axis in axes:
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()

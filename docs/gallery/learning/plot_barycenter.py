"""
Between two shapes
==================

A barycenter minimizes a weighted sum of SGW to several shapes. Between a straight bar and a
horseshoe lie bent bars: distances within the shape change gradually, where an average of positions
would be torn.
"""

import matplotlib.pyplot as plt
import numpy as np

import gromap

rng = np.random.default_rng(0)
along, across = rng.random(160), 0.24 * (rng.random(160) - 0.5)
bar = np.stack([np.pi * (along - 0.5), across], 1)
angle = np.pi * (1.55 * rng.random(150) - 0.275)
horseshoe = (0.65 + 0.24 * (rng.random(150) - 0.5))[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)

clouds, shares = [bar], (0.25, 0.5, 0.75)
for t in shares:
    middle = gromap.barycenter([bar, horseshoe], [1 - t, t], init=clouds[-1], steps=40, epsilon=5e-3)
    print(f"{t:.0%} horseshoe: {middle.losses[0]:.1e} to {middle.losses[-1]:.1e}. {middle.status.value}")
    clouds.append(middle.points)

# %%
# Each barycenter starts from the one before it, so that points keep their color.
figure, axes = plt.subplots(1, 5, figsize=(11, 2.6), layout="constrained")
for axis, title, cloud in zip(axes, ["bar", *(f"{t:.0%} horseshoe" for t in shares)], clouds, strict=False):
    axis.scatter(*(cloud - cloud.mean(0)).T, c=along, cmap="turbo", s=9)
    axis.set_title(title)
axes[-1].scatter(*horseshoe.T, c="0.4", s=9)
axes[-1].set_title("horseshoe")
for axis in axes:
    axis.set(aspect="equal", xlim=(-1.7, 1.7), ylim=(-1.3, 1.3))
    axis.axis("off")
plt.show()

"""
Digits in two views
===================

Some handwritten digits are given as pixels, with labels; others as the outputs of a random network,
without. No image is in both, and the coordinates have nothing in common: only distances carry the
labels over.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import gromap

rng = np.random.default_rng(0)
images, shown = load_digits(return_X_y=True)
order = rng.permutation(len(images))
known, others = order[:900], order[900:]
hidden = np.maximum(images[others] @ rng.normal(size=(64, 100)), 0)  # a layer with random weights

sol = gromap.solve(images[known], hidden, cost="sqeuclidean", epsilon=1e-3)
carried = sol.push(shown[known], labels=True)
print(sol)
print(f"{(carried == shown[others]).mean():.0%} of the labels are right, where chance is 10 %")

# %%
# Some images of the second view, and below each the one of the first view that it is matched to.
back = sol.inverse_map()
figure, axes = plt.subplots(2, 12, figsize=(10, 2), layout="constrained")
for k, (above, below) in enumerate(axes.T):
    above.imshow(images[others[k]].reshape(8, 8), cmap="Blues")
    below.imshow(images[known[back[k]]].reshape(8, 8), cmap="Oranges")
    for axis in (above, below):
        axis.set(xticks=[], yticks=[])
plt.show()

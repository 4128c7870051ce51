"""
Two modalities of the same cells
================================

Expression and accessibility are measured in different cells, and share no features. The clouds have
the same shape, which Gromov-Wasserstein matches; labels of one modality are then carried to the
other. The data are drawn: three branches, each seen through a random nonlinear map.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

import gromap

rng = np.random.default_rng(0)


def cells(n):
    """Cells on a tree of three branches of different length, and the branch of each."""
    branch = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    along = rng.random(n) ** 0.8 * np.array([3.0, 2.0, 1.2])[branch]
    ends = np.array([[1.0, 0.0, 0.2], [-0.6, 0.8, 0.0], [-0.3, -0.9, 0.4]])
    return along[:, None] * ends[branch] + 0.1 * rng.normal(size=(n, 3)), branch


def modality(latent, genes, noise):
    """What is measured: nonnegative, of high dimension, with noise."""
    hidden = np.tanh(0.35 * latent @ rng.normal(size=(3, 60)) + 0.3 * rng.normal(size=60))
    counts = np.maximum(hidden @ rng.normal(size=(60, genes)) / 60**0.5, 0)
    return counts + noise * rng.random(counts.shape)


(latent_x, branch_x), (latent_y, branch_y) = cells(700), cells(600)
rna = PCA(20).fit_transform(modality(latent_x, 300, 0.2))
atac = PCA(20).fit_transform(modality(latent_y, 900, 0.4))

# %%
# Nothing is known of the second modality but its points. ``push(..., labels=True)`` takes a vote.
sol = gromap.solve(rna, atac)
carried = sol.push(branch_x, labels=True)
print(f"{(carried == branch_y).mean():.1%} of the cells get their own branch")

colors = np.array(["#2a6f97", "#e07a5f", "#81b29a"])
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
panels = [("expression, labelled", rna, branch_x), ("accessibility, labels carried over", atac, carried)]
for axis, (title, cloud, branch) in zip(axes, [*panels, ("accessibility, the truth", atac, branch_y)], strict=True):
    axis.scatter(*cloud[:, :2].T, c=colors[branch], s=7)
    axis.set(title=title, xticks=[], yticks=[], aspect="equal")
plt.show()

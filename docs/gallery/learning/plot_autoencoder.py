"""
Gromov-Wasserstein as a training loss
=====================================

A small network sends handwritten digits to the plane. Its loss is SGW, the debiased divergence
between the digits, in 64 dimensions, and their images: distances should be kept.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import gromap

torch.manual_seed(0)
images, shown = load_digits(n_class=6, return_X_y=True)
x = torch.tensor(images[:250], dtype=torch.float32)
x = (x - x.mean(0)) / (x - x.mean(0)).square().sum(1).mean().sqrt()

network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
loss = gromap.GromovLoss(epsilon=0.05)  # remembers the last coupling, so that a step is cheap
target = gromap.Space(x, dim=50)  # fixed: embedded once, its self term solved once
optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
values = []
for _ in range(80):
    optimizer.zero_grad()
    value = loss(network(x), target)
    value.backward()
    optimizer.step()
    values.append(value.item())
print(f"SGW falls from {values[0]:.3f} to {values[-1]:.4f}")

# %%
# The images of the digits, colored by what they show. The network has seen no labels.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.semilogy(values, color="#d1495b")
left.set(xlabel="step", ylabel="SGW")
points = right.scatter(*network(x).detach().numpy().T, c=shown[:250], cmap="tab10", s=14, vmax=9)
right.legend(*points.legend_elements(), loc="center left", bbox_to_anchor=(1, 0.5))
right.set(aspect="equal", xticks=[], yticks=[])
plt.show()

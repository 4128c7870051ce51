"""
From a cross to a heart
=======================

A cloud flows down the gradient of SGW to a heart. It keeps a pose of its own: distances do not know
rotations.
"""

import numpy as np

import gromap

rng = np.random.default_rng(0)


def inside(test, n):
    """n points, drawn evenly where the test holds, in a square 1.2 wide."""
    points = rng.uniform(-0.6, 0.6, size=(40 * n, 2))
    return points[test(*points.T)][:n]


cross = inside(lambda x, y: ((abs(x) < 0.15) & (abs(y) < 0.55)) | ((abs(y) < 0.15) & (abs(x) < 0.55)), 300)
heart = inside(lambda x, y: (4 * x**2 + 4 * y**2 - 0.6) ** 3 < 32 * x**2 * y**3, 280)

flow = gromap.gradient_flow(cross, heart, steps=50, epsilon=1e-3)
print(f"SGW from {flow.losses[0]:.1e} to {flow.losses[-1]:.1e} in {len(flow.losses) - 1} steps. {flow.status.value}")

# %%
# Some frames, and the target. ``flow.animate("flow.gif")`` shows all of them.
figure = flow.plot(frames=5)

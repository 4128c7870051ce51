"""
All the ways to match two bodies
================================

Gromov-Wasserstein is not convex. Its local minima are the near-symmetries of the shapes: left and
right exchanged, head down, or the arms of one and the legs of the other.
"""

import gromap
from gromap.datasets import humans

pair = humans()
land = gromap.landscape(pair.source.vertices, pair.target.vertices, starts=200, points=150)
print(land)

# %%
# A minimum is a small matrix Γ, so all of them lie in one space, and the plane through most of
# them shows the objective between them. Each match is drawn in the colors that it carries over,
# with its energy and the share of the starts that it attracts.
figure = land.plot()

# %%
# ``land.refine(3)`` takes the three lowest to all points. Both of the lowest are right: distances
# do not tell a body from its mirror image.
for sol in land.refine(2):
    direct, mirrored = pair.errors(sol.map())
    print(f"value {sol.value:.5f}: error {direct:.1%} as it is, {mirrored:.1%} as a mirror image")

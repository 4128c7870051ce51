"""
On a sphere, and in the hyperbolic plane
========================================

Geodesic distances of spheres and of hyperbolic spaces are conditionally of negative type, so both
are matched as any other cloud: by name, in linear memory.
"""

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np

import gromap

rng = np.random.default_rng(0)

# %%
# Two samples of a curve that winds from a pole past the equator. The second one is turned before
# it is matched, and drawn as it was.


def winding(n):
    """Points along the curve, and how far along they lie.  (n, 3), (n,)"""
    t = rng.random(n) ** 0.5
    points = np.stack(
        [np.sin(1.7 * t) * np.cos(11 * t**2), np.sin(1.7 * t) * np.sin(11 * t**2), np.cos(1.7 * t)], 1
    ) + 0.03 * rng.normal(size=(n, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True), t


(x, along), (y, truth) = winding(500), winding(400)
sol = gromap.solve(x, y @ np.linalg.qr(rng.normal(size=(3, 3)))[0], cost="spherical")
carried = sol.push(along)
print(f"mean error {abs(carried - truth).mean():.3f}, of a curve of length 1")

figure = plt.figure(figsize=(9, 4.4), layout="constrained")
u, v = np.mgrid[0 : 2 * np.pi : 25j, 0 : np.pi : 13j]
for k, (title, points, paint) in enumerate((("source", x, along), ("target, colors carried over", y, carried))):
    axis = figure.add_subplot(1, 2, k + 1, projection="3d")
    axis.plot_wireframe(np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v), color="0.9", linewidth=0.5)
    axis.scatter(*points.T, c=paint, cmap="turbo", s=10)
    axis.view_init(elev=50)
    axis.set_title(title)
    axis.set_box_aspect((1, 1, 1), zoom=1.35)
    axis.set_axis_off()
plt.show()

# %%
# A tree in the Poincaré disk, and the same one moved by an isometry of the disk, in another
# order.
z, edges, leaves = [0j], [], [(0, 0.0, 2 * np.pi)]
for radius in (0.45, 0.74, 0.89, 0.95):
    grown = []
    for parent, low, high in leaves:
        for part in np.linspace(low, high, 4)[:-1]:
            edges.append((parent, len(z)))
            grown.append((len(z), part, part + (high - low) / 3))
            z.append(radius * np.exp(1j * (part + (high - low) * (1 / 6 + 0.08 * rng.normal()))))
    leaves = grown
z = np.array(z)
order = rng.permutation(len(z))
moved = ((z - 0.5j) / (1 + 0.5j * z))[order]  # an isometry
disk, other = (np.stack([w.real, w.imag], 1) for w in (z, moved))
sol = gromap.solve(disk, other, cost="hyperbolic")
print(f"{(order[sol.map()] == np.arange(len(z))).mean():.0%} of {len(z)} nodes find themselves")

hue = (np.angle(z) / (2 * np.pi)) % 1
hue_moved = np.empty_like(hue)
hue_moved[order] = hue[sol.inverse_map()]  # in the order of the tree, for its edges
figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
for axis, nodes, paint, title in (
    (axes[0], z, hue, "a tree in the Poincaré disk"),
    (axes[1], (z - 0.5j) / (1 + 0.5j * z), hue_moved, "moved, colors carried over"),
):
    axis.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.6"))
    ends = nodes[np.array(edges)].T  # (2, edges)
    axis.plot(ends.real, ends.imag, color="0.8", linewidth=0.8)
    axis.scatter(nodes.real, nodes.imag, c=paint, cmap="hsv", s=18, vmin=0, vmax=1, zorder=2)
    axis.set(title=title, aspect="equal", xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    axis.axis("off")
plt.show()

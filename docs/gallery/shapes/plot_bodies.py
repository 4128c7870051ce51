"""
Two poses of a body
===================

A standing and a running man, meshed independently, are matched by their geodesic distances alone.
Colors of one are carried to the other along the map.
"""

import gromap
from gromap.datasets import humans
from gromap.report.figures import color_field, correspondence_figure

pair = humans()  # ships with gromap: two meshes, and where each vertex truly goes
source, target = pair.source, pair.target
sol = gromap.mesh.match(source, target)
print(sol)

# %%
# ``sol.map()`` holds, for each vertex of the source, a vertex of the target;
# ``sol.inverse_map()`` goes back. Its mean error is given over the diagonal of the target's
# bounding box.
direct, mirrored = pair.errors(sol.map())
print(f"error {direct:.2%}; as a mirror image {mirrored:.2%}")

colors = color_field(source.vertices)
figure = correspondence_figure(source, target, colors, colors[sol.inverse_map()])

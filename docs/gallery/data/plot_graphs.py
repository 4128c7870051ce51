"""
Two graphs
==========

A graph and a copy whose nodes are in another order, and which lacks some edges. The cost between
two nodes is the length of the shortest path between them; no node has a name.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import gromap

rng = np.random.default_rng(2)
graph = nx.random_geometric_graph(80, 0.2, seed=4)
graph = graph.subgraph(max(nx.connected_components(graph), key=len)).copy()
graph = nx.convert_node_labels_to_integers(graph)
other = graph.copy()
for k in rng.permutation(graph.number_of_edges())[:15]:
    edge = list(graph.edges)[k]
    other.remove_edge(*edge)
    if not nx.is_connected(other):
        other.add_edge(*edge)
order = rng.permutation(len(other)).tolist()

paths = [nx.floyd_warshall_numpy(graph), nx.floyd_warshall_numpy(other, nodelist=order)]
sol = gromap.solve(*(np.asarray(c, dtype=float) for c in paths), cost="precomputed")
match = np.array(order)[sol.map()]
hops = paths[0][np.arange(len(match)), match]
print(f"{(hops == 0).mean():.0%} of the {len(match)} nodes find themselves, {(hops <= 1).mean():.0%} within one edge")

# %%
# Both graphs in the same place. Each node of the second has the color of the node that is sent
# there.
place = nx.get_node_attributes(graph, "pos")
at = np.array([place[k] for k in range(len(graph))])
colors = np.stack([at[:, 0], 0.35 + 0.4 * at[:, 1], 1 - at[:, 0]], 1).clip(0, 1)
back = np.empty_like(order)
back[np.array(order)] = sol.inverse_map()
figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
for axis, title, shown, paint in zip(
    axes, ("a graph", "without 15 edges, colors carried over"), (graph, other), (colors, colors[back]), strict=True
):
    nx.draw_networkx_edges(shown, place, ax=axis, edge_color="0.75")
    nx.draw_networkx_nodes(shown, place, ax=axis, node_color=paint, node_size=70)
    axis.set(title=title, aspect="equal")
    axis.axis("off")
plt.show()

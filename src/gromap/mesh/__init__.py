"""Triangle meshes: reading and writing, geodesic spaces, transfer and quality of a map."""

from gromap.mesh.mesh import Mesh

__all__ = ["Mesh"]

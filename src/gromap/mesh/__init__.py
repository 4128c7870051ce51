"""Triangle meshes and point clouds: reading and writing, cleaning and sampling, descriptors,
matching.

`gromap.mesh.transfer` carries colors, labels and textures along a plan; `gromap.mesh.quality`
measures a map.
"""

from gromap.mesh.clean import Cleaned, clean
from gromap.mesh.descriptors import descriptors
from gromap.mesh.io import MeshError, read_mesh, write_mesh
from gromap.mesh.match import match
from gromap.mesh.mesh import Mesh
from gromap.mesh.sampling import Sample, sample

__all__ = [
    "Cleaned",
    "Mesh",
    "MeshError",
    "Sample",
    "clean",
    "descriptors",
    "match",
    "read_mesh",
    "sample",
    "write_mesh",
]

"""One file per family of formats: `read(path)` gives the mesh as it is in the file, `write(mesh,
path)` the reverse.

Whatever is wrong with a file is a ValueError that says why; `gromap.mesh.io` adds the name and the
remedy.
"""

"""Files that are damaged, absent, full or forbidden: one line that names the file, and nothing
lost."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gromap.mesh import Mesh, MeshError, read_mesh, write_mesh
from tests.mesh.test_io import SQUARE, ragged, seamed

FACE = "ply\nformat ascii 1.0\nelement vertex {n}\nproperty float x\nproperty float y\nproperty float z\n"
FACE += "element face {f}\nproperty list uchar int vertex_indices\nend_header\n"
BINARY = FACE.replace("ascii", "binary_little_endian")
TRIANGLE = "0 0 0\n1 0 0\n0 1 0\n"
NPY = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
NPY += b"{'descr': '<f8', 'fortran_order': False, 'shape': (50000000, 3), }".ljust(117) + b"\n"
VTK = "# vtk DataFile Version 3.0\ntitle\n{0}\nDATASET POLYDATA\nPOINTS {1} float\n"
VTP = '<VTKFile type="PolyData"{0}><PolyData><Piece NumberOfPoints="{1}"><Points>'
VTP += '<DataArray type="Float32" NumberOfComponents="3" format="{2}">{3}</DataArray></Points>'
VTP += "</Piece></PolyData></VTKFile>"

BAD = {
    "empty.ply": (b"", "is empty: export or copy it again"),
    "garbage.ply": (bytes(range(256)) * 8, "does not start with 'ply'"),
    "garbage.off": (bytes(range(256)) * 8, "does not start with 'OFF'"),
    "garbage.obj": (bytes(range(256)) * 8, "no line that an OBJ file would have"),
    "garbage.stl": (bytes(range(256)) * 8, "announces .* triangles"),
    "garbage.glb": (bytes(range(256)) * 8, "trimesh cannot read it"),
    "garbage.vtk": (bytes(range(256)) * 8, "does not start with '# vtk DataFile'"),
    "garbage.vtp": (bytes(range(256)) * 8, "its XML is broken"),
    "garbage.npy": (bytes(range(256)) * 8, "cannot be read as .npy"),
    "garbage.xyz": (bytes(range(256)) * 8, "cannot be read as .xyz"),
    "mesh.off": (FACE.format(n=3, f=0) + TRIANGLE, "it looks like a .ply file, rename it"),
    "mesh.ply": (b"solid cube\nfacet", "it looks like a .stl file, rename it"),
    "mesh.blend": (b"BLENDER", "ends in '.blend', which is not read: use one of .ply, .obj"),
    "mesh": (b"ply", "ends in 'nothing', which is not read"),
    "short.ply": (FACE.format(n=3, f=1) + "0 0 0\n1 0 0\n", "announces 3 times 'vertex', the file holds less"),
    "shorter.ply": (FACE.format(n=3, f=2) + TRIANGLE + "3 0 1 2\n3 0", "ends inside 'face'"),
    "binary.ply": (BINARY.format(n=3, f=1).encode() + bytes(36) + b"\x03" + bytes(4), "cannot be read as .ply"),
    "header.ply": (b"ply\nformat ascii 1.0\nelement vertex 3", "its header has no end"),
    "huge.ply": (BINARY.format(n=80_000_000, f=0).encode() + bytes(24), "announces 80000000 times 'vertex'"),
    "lists.ply": (BINARY.format(n=1, f=80_000_000).encode() + bytes(24), "announces 80000000 times 'face'"),
    "ascii.ply": (FACE.format(n=80_000_000, f=0) + TRIANGLE, "announces 80000000 times 'vertex'"),
    "negative.ply": (FACE.format(n=-3, f=0) + TRIANGLE, "negative number"),
    "type.ply": (FACE.format(n=3, f=0).replace("float x", "flaot x") + TRIANGLE, "flaot"),
    "huge.off": ("OFF\n80000000 80000000 0\n0 0 0\n", "announces 80000000 vertices"),
    "huge.stl": (b"x" * 80 + (20_000_000).to_bytes(4, "little") + bytes(50), "announces 20000000 triangles"),
    "huge.npy": (NPY + bytes(24), "cannot be read as .npy"),
    "huge.vtk": (VTK.format("BINARY", 90_000_000).encode() + bytes(12), "announces 270000000 numbers"),
    "asciihuge.vtk": (VTK.format("ASCII", 90_000_000) + "0 0 0\n", "announces 270000000 numbers"),
    "grid.vtk": (VTK.format("ASCII", 1).replace("POLYDATA", "STRUCTURED_GRID"), "only POLYDATA, surfaces, are read"),
    "huge.vtp": (VTP.format("", 9, "binary", "AAAAQAAAAAA="), "announces 1073741824 bytes"),
    "count.vtp": (VTP.format("", 9, "ascii", "0 0 0"), "announces 9 points and has 1"),
    "bomb.vtp": ('<!DOCTYPE x [<!ENTITY a "aaaa">]>' + VTP.format("", 9, "ascii", "&a;"), "declares entities"),
    "nan.ply": (
        FACE.format(n=3, f=0) + "0 0 0\nnan 0 0\n0 inf 0\n",
        "2 vertices with NaN or infinite .* vertex 1: repair",
    ),
    "range.ply": (FACE.format(n=3, f=1) + TRIANGLE + "3 0 1 3\n", "corner 3, and its vertices are 0 to 2"),
    "range.obj": ("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", "corner 8, and its vertices are 0 to 2"),
    "zero.obj": ("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 0 1 2\n", "OBJ counts from 1"),
    "back.obj": ("v 0 0 0\nv 1 0 0\nv 0 1 0\nf -4 1 2\n", "only 3 came before it"),
    "negative.off": ("OFF\n3 1 0\n" + TRIANGLE + "3 0 1 -1\n", "corner -1"),
    "words.off": ("OFF\n3 1 0\n0 0 zero\n1 0 0\n0 1 0\n3 0 1 2\n", "zero"),
    "flat.off": ("OFF\n3 1 0\n0 0\n1 0\n0 1\n3 0 1 2\n", "fewer than three coordinates"),
    "none.ply": (FACE.format(n=0, f=0), "has no vertices"),
    "rows.csv": ("1,2,3\n4,5\n", "row 2 has 2 numbers where the first has 3"),
    "words.csv": ("x,y\na,b\n", "cannot be read as .csv"),
    "cube.npy": (None, r"an \(N, d\) array of numbers, it holds float64 of shape \(2, 2, 2\)"),
    "image.obj": (
        "mtllib m.mtl\nusemtl m\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nf 1/1 2/1 3/1\n",
        "texture .*gone.png is not there",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_get_one_line_with_their_name(tmp_path, name):
    content, message = BAD[name]
    path = tmp_path / name
    if content is None:
        np.save(path, np.zeros((2, 2, 2)))
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "m.mtl").write_text("newmtl m\nmap_Kd gone.png\n")
    with pytest.raises(MeshError, match=message) as caught:
        read_mesh(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert text.endswith(".")
    assert len(text) - len(str(path)) < 300


@pytest.mark.parametrize("cut", [1, 10, 50])
@pytest.mark.parametrize("kind", ["ply", "obj", "off", "stl", "glb", "npy"])
def test_truncated_files_are_refused(tmp_path, kind, cut):
    mesh = ragged() if kind != "npy" else replace(ragged(), faces=np.zeros((0, 3), int))
    path = write_mesh(mesh, tmp_path / f"mesh.{kind}")
    data = path.read_bytes()
    path.write_bytes(data[:-cut] if kind in ("ply", "stl", "glb", "npy") else data[: len(data) // (1 + cut)])
    if kind == "obj":  # any beginning of an OBJ file is an OBJ file: what can be seen is that faces miss vertices
        path.write_bytes(data[len(data) // 2 :])
    with pytest.raises(MeshError, match=r"cannot be read|corner"):
        read_mesh(path)


@pytest.mark.parametrize("kind", ["ply", "obj", "off", "stl", "glb", "npy", "csv"])
def test_damaged_files_are_read_or_refused(tmp_path, kind):
    """Bytes changed, lost or added anywhere: a mesh, or one line that names the file; nothing
    else."""
    mesh = ragged() if kind not in ("npy", "csv") else Mesh(ragged().vertices, np.zeros((0, 3), int))
    path, rng = tmp_path / f"mesh.{kind}", np.random.default_rng(0)
    whole = write_mesh(mesh, path).read_bytes()
    refused = 0
    for _ in range(60):
        at, some = int(rng.integers(min(len(whole), 500))), rng.integers(0, 256, 6, dtype=np.uint8).tobytes()
        swap = [whole[at + 6 :], whole[at:], b""][rng.integers(3)]
        path.write_bytes(whole[:at] + (some if rng.random() < 0.7 else b"99999999") + swap)
        try:
            read_mesh(path)
        except MeshError as error:
            assert str(error).startswith(str(path))  # noqa: PT017
            refused += 1
    assert refused > 10


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.ply: check its name"):
        read_mesh(tmp_path / "nothing.ply")
    with pytest.raises(IsADirectoryError, match="is a folder: name a file in it"):
        read_mesh(tmp_path)


def test_nothing_is_overwritten_unless_forced(tmp_path):
    mesh, other = seamed(), ragged()
    path = write_mesh(mesh, tmp_path / "mesh.ply")
    with pytest.raises(FileExistsError, match=r"mesh\.ply exists: choose another name, or force=True"):
        write_mesh(other, path)
    assert len(read_mesh(path).vertices) == 4
    assert len(read_mesh(write_mesh(other, path, force=True)).vertices) == 30
    (tmp_path / "mesh.png").write_bytes(b"a picture of mine")
    with pytest.raises(FileExistsError, match=r"mesh\.png exists"):
        write_mesh(mesh, tmp_path / "mesh.obj")
    assert not (tmp_path / "mesh.obj").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_mesh(ragged(), tmp_path / "mesh.off")
    before = path.read_bytes()

    def full(self, *args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_mesh(ragged("float64"), path, force=True)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["mesh.off"]


def test_folders_that_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(
        FileNotFoundError, match=r"cannot write in the folder .*nowhere \(No such file or directory\): create it"
    ):
        write_mesh(ragged(), tmp_path / "nowhere" / "mesh.ply")
    (tmp_path / "folder.ply").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder: choose another name"):
        write_mesh(ragged(), tmp_path / "folder.ply", force=True)

    def refuse(*args):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)  # root may write anywhere
    with pytest.raises(PermissionError, match=r"cannot write in the folder .*Permission denied.*choose another one"):
        write_mesh(ragged(), tmp_path / "mesh.ply")


@pytest.mark.parametrize(
    ("mesh", "name", "message"),
    [
        (ragged(), "mesh.vtk", "'.vtk', which is not written: use one of .obj, .ply"),
        (ragged(), "mesh.npy", "points alone, and the mesh has 40 faces"),
        (Mesh(np.zeros((4, 2)), np.zeros((0, 3), int)), "cloud.ply", "points in 2-D"),
        (Mesh(np.zeros((4, 3)), np.zeros((0, 3), int)), "cloud.stl", "triangles alone"),
        (Mesh(np.full((4, 3), np.nan), np.zeros((0, 3), int)), "cloud.ply", "the mesh has 4 vertices with NaN"),
        (Mesh(SQUARE, np.array([[0, 1, 4]])), "mesh.ply", "corner 4"),
        (
            Mesh(SQUARE, np.array([[0, 1, 2]]), colors=np.zeros((3, 3))),
            "mesh.ply",
            r"one rgb for each vertex, \(4, 3\)",
        ),
        (
            Mesh(SQUARE, np.array([[0, 1, 2]]), uv=np.zeros((4, 2))),
            "mesh.ply",
            r"one pair for each corner, \(1, 3, 2\)",
        ),
        (Mesh(SQUARE, np.zeros((0, 4), int)), "mesh.ply", r"expected \(N, 3\) and \(F, 3\)"),
    ],
)
def test_meshes_that_cannot_be_written(tmp_path, mesh, name, message):
    with pytest.raises(MeshError, match=message):
        write_mesh(mesh, tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    path = write_mesh(ragged(), tmp_path / "mesh.glb")
    monkeypatch.setitem(sys.modules, "trimesh", None)
    with pytest.raises(ImportError, match=r"pip install 'gromap\[mesh\]'"):
        read_mesh(path)
    for kind in ("ply", "obj", "off", "stl"):  # need nothing
        read_mesh(write_mesh(ragged(), tmp_path / f"mesh.{kind}"))

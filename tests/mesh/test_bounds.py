"""Files that ask for what they should not: memory and time out of proportion to their bytes, other
folders, numbers that are none."""

from __future__ import annotations

import base64
import json
import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest

from gromap.mesh import MeshError, read_mesh, write_mesh
from gromap.mesh.bounds import RATIO, ROOM
from gromap.mesh.texture import atlas
from tests.mesh.test_io import seamed

VTP = (
    '<VTKFile type="PolyData"><PolyData><Piece NumberOfPoints="3"><Points><DataArray type="Float32" '
    'NumberOfComponents="3" format="ascii">0 0 0 1 0 0 0 1 0</DataArray></Points><Polys>'
    '<DataArray type="Int64" Name="connectivity" format="ascii">0 1 2</DataArray>'
    '<DataArray type="Int64" Name="offsets" format="ascii">{}</DataArray></Polys></Piece></PolyData></VTKFile>'
)
VTK5 = (
    "# vtk DataFile Version 5.1\nt\nASCII\nDATASET POLYDATA\nPOINTS 3 float\n0 0 0 1 0 0 0 1 0\nPOLYGONS {} 3\n"
    "OFFSETS vtktypeint64\n{}\nCONNECTIVITY vtktypeint64\n0 1 2\n"
)
PLY = "ply\nformat {0} 1.0\n{1}element vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
UV_PLY = (
    PLY + "property float s\nproperty float t\nelement face 1\nproperty list uchar int vertex_indices\nend_header\n"
    "0 0 0 0 0\n1 0 0 1 0\n0 1 0 0 {2}\n3 0 1 2\n"
)
CORNERS = "v 0 0 0\nv 1 0 0\nv 0 1 0\n"
OFF = "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n"


def npy(shape: str, descr: str = "<f8") -> bytes:
    head = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(24)


BROKEN = {
    "back.vtp": (VTP.format("3 0 3"), "offsets of its faces do not increase"),
    "negative.vtp": (VTP.format("-3"), "offsets of its faces do not increase"),
    "short.vtp": (VTP.format("2"), "faces have 2 corners, and 3 are listed"),
    "large.vtp": (VTP.format("200000000"), "a face of 200000000 corners, and 3 corners in all"),
    "huge.vtp": (VTP.format("4000000000000"), "a face of 4000000000000 corners"),
    "back.vtk": (VTK5.format(3, "0 -3 3"), "offsets of its faces do not increase"),
    "late.vtk": (VTK5.format(2, "1 3"), "start at 1, and not at 0"),
    "large.vtk": (VTK5.format(2, "0 200000000"), "a face of 200000000 corners"),
    "digits.off": (
        OFF + "3 0 1 99999999999999999999\n",
        "a number of 20 digits where the index of a vertex is expected",
    ),
    "digits.obj": (
        CORNERS + "f 1 2 99999999999999999999\n",
        "a number of 20 digits where the index of a vertex is expected",
    ),
    "digits-400.off": (OFF + f"3 0 1 {'9' * 400}\n", "a number of 400 digits where the index"),
    "half.off": (OFF.replace("3 1 0", "3"), "does not say how many vertices and faces"),
    "zip.npy": (b"PK\x03\x04" + bytes(60), "its header is broken"),
    "header.npy": (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{'descr': '<f8'", "announces 2147483647 bytes, and the file has"),
    "true.npy": (npy("(True, 3)"), r"announces the shape \(True, 3\)"),
    "digits.npy": (npy("(99999999999999999999, 3)"), "24 bytes follow"),
    "product.npy": (npy("(4611686018427387904, 4)"), "24 bytes follow"),
    "text.npy": (npy("(1, 3)", "<U2"), "must hold numbers, and holds <U2"),
    "pickle.npy": (npy("(1, 3)", "|O"), "must hold numbers, and holds object"),
    "nan-colors.obj": ("v 0 0 0 nan 0 0\nv 1 0 0 1 0 0\n", "colors that are NaN or infinite"),
    "nan-colors.off": ("COFF\n1 0 0\n0 0 0 nan 0.5 0.5\n", "colors that are NaN or infinite"),
    "nan-uv.obj": (CORNERS + "vt nan 0\nf 1/1 2/1 3/1\n", "texture coordinates that are NaN or infinite"),
    "nan-uv.ply": (UV_PLY.format("ascii", "", "nan"), "texture coordinates that are NaN or infinite"),
    "uv.obj": (CORNERS + "vt 0 0\nf 1/1 2/1 3/9\n", "uses texture coordinates 9, and 1 are given"),
    "lists.ply": (
        PLY.format("ascii", "").replace("float x", "list uchar float x") + "end_header\n" + "1 0 0 0\n" * 3,
        "vertices with lists of numbers",
    ),
    "half.ply": (
        PLY.format("ascii", "") + "element face 1\nproperty list uchar float vertex_indices\nend_header\n"
        "0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n",
        "corners are not whole numbers",
    ),
    "nothing.ply": (
        PLY.format("binary_little_endian", "element nothing 99999999999\n") + "end_header\n",
        "announces 99999999999 times 'nothing'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_is_refused(tmp_path, name):
    content, message = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(MeshError, match=message):
        read_mesh(path)


def test_colors_of_obj_files_are_colors(tmp_path):
    path = tmp_path / "bright.obj"
    path.write_text("v 0 0 0 5 0 0\nv 1 0 0 1000 51 0\nv 0 1 0 0 -3 0\n")
    colors = read_mesh(path).colors
    assert colors is not None
    np.testing.assert_allclose(colors, [[5 / 255, 0, 0], [1, 0.2, 0], [0, 0, 0]])


def glb(scene: dict, body: bytes = b"") -> bytes:
    head = json.dumps({"asset": {"version": "2.0"}} | scene).encode()
    chunks = [(head + b" " * (-len(head) % 4), b"JSON"), (body + bytes(-len(body) % 4), b"BIN\0")]
    data = b"".join(struct.pack("<I4s", len(chunk), kind) + chunk for chunk, kind in chunks)
    return b"glTF" + struct.pack("<II", 2, 12 + len(data)) + data


def scene(count: int, meshes: int = 1, nodes: int = 1, **accessor) -> dict:
    points = {"componentType": 5126, "count": count, "type": "VEC3"} | accessor
    return {
        "buffers": [{"byteLength": 36}],
        "bufferViews": [{"buffer": 0, "byteLength": 36}],
        "accessors": [points],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}] * meshes,
        "nodes": [{"mesh": k % meshes} for k in range(nodes)],
        "scenes": [{"nodes": list(range(nodes))}],
    }


def test_scenes_are_bounded(tmp_path):
    """Accessors without bytes, and beyond theirs; files of other folders; broken headers."""
    path, plain = tmp_path / "scene.glb", scene(3, bufferView=0)
    path.write_bytes(glb(plain, np.eye(3, dtype="<f4").tobytes()))
    assert len(read_mesh(path).vertices) == 3
    for broken, message in (
        (scene(10**9), "would take .* MiB, out of all proportion"),
        (scene(10**9, bufferView=0), "announces 1000000000 entries where 36 bytes are left"),
        (scene(-1, bufferView=0), "-1 where a whole number >= 0 is expected"),
        (scene(30000, 500, 500), "out of all proportion"),
        (plain | {"images": [{"uri": "../../secret.png"}]}, "secret.png', outside of its folder"),
        (plain | {"nodes": [{"children": [1]}, {"children": [2]}, {"children": [1]}]}, "a node with two parents"),
        (plain | {"accessors": [{"count": 3}]}, "its header is broken"),
    ):
        path.write_bytes(glb(broken, np.eye(3, dtype="<f4").tobytes()))
        with pytest.raises(MeshError, match=message):
            read_mesh(path)


def test_a_broken_image_of_a_scene(tmp_path):
    path = write_mesh(seamed(), tmp_path / "mesh.glb")
    data = bytearray(path.read_bytes())
    at = data.index(b"IDAT") + 10
    data[at : at + 20] = bytes(20)
    path.write_bytes(data)
    with pytest.raises(MeshError, match=r"mesh\.glb cannot be read as \.glb, its texture cannot be read"):
        read_mesh(path)


def png(width: int, height: int, packed: bytes = b"") -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def textured(folder, *images: str) -> str:
    """An OBJ file, and its materials, one for each image."""
    (folder / "m.mtl").write_text("".join(f"newmtl m{k}\nmap_Kd {name}\n" for k, name in enumerate(images)))
    faces = "".join(f"usemtl m{k}\nf 1/1 2/1 3/1\n" for k in range(len(images)))
    (folder / "mesh.obj").write_text(f"mtllib m.mtl\n{CORNERS}vt 0 0\n{faces}")
    return str(folder / "mesh.obj")


def test_images_are_bounded(tmp_path):
    """By their own bytes, and side by side; one image of many materials is there once."""
    (tmp_path / "large.png").write_bytes(png(9000, 9000))
    with pytest.raises(MeshError, match="images of its texture would take 309 MiB"):
        read_mesh(textured(tmp_path, "large.png"))
    for name, width, height in (("flat.png", 60000, 1), ("tall.png", 1, 60000)):
        rows = zlib.compress((b"\0" + bytes(3 * width)) * height)
        (tmp_path / name).write_bytes(png(width, height, rows))
    with pytest.raises(MeshError, match="60001 x 60000 pixels side by side"):
        read_mesh(textured(tmp_path, "flat.png", "tall.png"))
    texture = read_mesh(textured(tmp_path, *["tall.png"] * 300)).texture
    assert texture is not None
    assert texture.shape == (60000, 1, 3)


@pytest.mark.parametrize("way", ["../secret.png", "ABSOLUTE", "link.png", "below/../../secret.png"])
def test_textures_stay_in_the_folder_of_the_mesh(tmp_path, way):
    folder = tmp_path / "mesh"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(png(1, 1, zlib.compress(bytes(4))))
    way = str(tmp_path / "secret.png") if way == "ABSOLUTE" else way
    if way == "link.png":
        os.symlink(tmp_path / "secret.png", folder / "link.png")
    with pytest.raises(MeshError, match="is outside of its folder: put the image beside it"):
        read_mesh(textured(folder, way))
    (folder / "mesh.ply").write_text(UV_PLY.format("ascii", f"comment TextureFile {way}\n", 1))
    with pytest.raises(MeshError, match="is outside of its folder: put the image beside it"):
        read_mesh(folder / "mesh.ply")


def test_textures_below_the_folder_of_the_mesh(tmp_path):
    (tmp_path / "skins").mkdir()
    (tmp_path / "skins" / "a skin.png").write_bytes(png(1, 1, zlib.compress(bytes(4))))
    assert read_mesh(textured(tmp_path, "skins/a skin.png")).texture is not None
    (tmp_path / "skins" / "m.mtl").write_text("newmtl m0\nmap_Kd a skin.png\n")
    (tmp_path / "mesh.obj").write_text(f"mtllib skins/m.mtl\nusemtl m0\n{CORNERS}vt 0 0\nf 1/1 2/1 3/1\n")
    assert read_mesh(tmp_path / "mesh.obj").texture is not None


@pytest.mark.parametrize("name", ["../m.mtl", "m" * 300 + ".mtl", "m\0.mtl"])
def test_materials_stay_in_the_folder_of_the_mesh(tmp_path, name):
    """They are not needed for the shape: the mesh is read without, and says so."""
    folder = tmp_path / "mesh"
    folder.mkdir()
    (tmp_path / "m.mtl").write_text("newmtl m\nmap_Kd skin.png\n")
    (folder / "mesh.obj").write_text(f"mtllib {name}\nusemtl m\n{CORNERS}vt 0 0\nf 1/1 2/1 3/1\n")
    with pytest.warns(UserWarning, match="outside of its folder, which is not read"):
        mesh = read_mesh(folder / "mesh.obj")
    assert mesh.texture is None


def repeated() -> dict[str, bytes]:
    """Files that ask for as much as they can, most of some 100 kB."""
    n = 50_000
    binary = PLY.format("binary_little_endian", "").encode() + f"element face {n}\n".encode()
    uneven = b"property list uchar uchar vertex_indices\nend_header\n" + bytes(36)
    squeezed = [zlib.compress(bytes(32768)) for _ in range(3000)]
    head = np.array([len(squeezed), 32768, 0, *map(len, squeezed)], "<u4").tobytes()
    packed = base64.b64encode(head).decode() + base64.b64encode(b"".join(squeezed)).decode()
    return {
        "zeros.off": b"OFF\n1 %d 0\n0 0 0\n" % n + b"0\n" * n,
        "points.off": b"OFF\n%d 0 0\n" % n + b"0 0 0\n" * n,
        "polygon.off": b"OFF\n1 1 0\n0 0 0\n%d" % n + b" 0" * n,
        "empty.obj": b"v 0 0 0\n" + b"f\n" * n,
        "points.obj": b"v 0 0 0\n" * n,
        "wide.obj": b"v" + b" 10" * n + b"\n",
        "named.obj": CORNERS.encode() + b"vt 0 0\nusemtl " + b"m" * n + b"\n" + b"f 1/1 2/1 3/1\n" * 5000,
        "libraries.obj": CORNERS.encode() + b"mtllib m.mtl\n" * n + b"vt 0 0\nf 1/1 2/1 3/1\n",
        "polygon.obj": b"v 0 0 0\nf" + b" 1" * n,
        "empty.ply": binary + uneven + bytes(n),
        "uneven.ply": binary.replace(b"%d" % n, b"%d" % (n // 4)) + uneven + b"\1\0\2\0\0" * (n // 8),
        "polygon.ply": binary.replace(b"%d" % n, b"1") + uneven.replace(b"uchar", b"uint", 1)
        + n.to_bytes(4, "little") + bytes(n),
        "ascii.ply": binary.replace(b"binary_little_endian", b"ascii") + uneven[:-36] + b"0 " * 9 + b"0 " * n,
        "appended.vtp": b"<AppendedData" * 20_000,
        "elements.vtp": b"<VTKFile>" + b"<a/>" * n + b"</VTKFile>",
        "nested.vtp": b"<a>" * n,
        "nested.gltf": b"[" * n,
        "packed.vtp": VTP.format("3").replace('type="PolyData"', 'type="PolyData" compressor="vtkZLibDataCompressor"')
        .replace('format="ascii">0 1 2', f'format="binary">{packed}').encode(),
        "cells.vtk": VTK5.split("POLYGONS")[0].encode() + b"POLYGONS %d %d\n" % (n, n) + b"0 " * n,
        "facets.stl": b"solid facet" + b" vertex 0 0 0" * n + b" endsolid",
        "spaces.stl": b"solid facet " + b"vertex" + b" " * n + b"endsolid",
        "lines.xyz": b"0\n" * n,
        "wide.xyz": b"0 " * n,
        "chunk.glb": glb(scene(3, bufferView=0), bytes(36))[:-44] + b"\xff\xff\xff\x7fBIN\0" + bytes(36),
        "header.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f",
        "deep.npy": npy("(" * 100 + ")" * 100) + bytes(n),
    }  # fmt: skip


def peak_of_reading(path: Path) -> int:
    """Bytes that were taken, whether or not there is a mesh."""
    tracemalloc.start()
    try:
        read_mesh(path)
    except MeshError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("name", repeated())
def test_reading_ends_in_memory_in_proportion_to_the_file(tmp_path, name):
    path, content = tmp_path / name, repeated()[name]
    path.write_bytes(content)
    (tmp_path / "m.mtl").write_text("newmtl m\n" * 2000)
    assert peak_of_reading(path) < RATIO * len(content) + ROOM


def test_images_take_no_more_than_their_bytes(tmp_path):
    """Whatever a part of them announces."""
    image = png(1, 1, zlib.compress(bytes(4)))
    at = image.index(b"IDAT") - 4
    (tmp_path / "skin.png").write_bytes(image[:at] + b"\x7f\xff\xff\xfftEXt" + image[at:])
    assert peak_of_reading(Path(textured(tmp_path, "skin.png"))) < ROOM


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_places_that_are_no_numbers_have_no_part_of_an_atlas(bad):
    images = [np.zeros((2, 2, 3), np.uint8)] * 2
    with pytest.raises(ValueError, match="texture coordinates that are NaN or infinite"):
        atlas(images, [np.zeros((1, 3, 2)), np.full((1, 3, 2), bad)])

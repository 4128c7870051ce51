"""VTK files as VTK writes them: legacy ones in both encodings and both layouts of cells, VTP in
every encoding."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest

from gromap.mesh import MeshError, read_mesh

POINTS = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.5]], np.float32)
COLORS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [51, 102, 153]], np.uint8)
UV = POINTS[:, :2] / 2
FACES = [[0, 1, 2], [0, 2, 3]]


def check(mesh):
    assert np.array_equal(mesh.vertices, POINTS)
    assert mesh.faces.tolist() == FACES
    assert mesh.colors == pytest.approx(COLORS / 255)
    assert mesh.uv == pytest.approx(UV[np.array(FACES)])


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("layout", ["old", "new"])
def test_legacy(tmp_path, binary, layout):
    def block(array, kind):
        if binary:
            return np.asarray(array).astype(">" + kind).tobytes() + b"\n"
        return " ".join(map(str, np.asarray(array).reshape(-1).tolist())).encode() + b"\n"

    parts = [b"# vtk DataFile Version 4.2\nsquare\n", b"BINARY\n" if binary else b"ASCII\n", b"DATASET POLYDATA\n"]
    parts += [
        b"POINTS 4 float\n",
        block(POINTS, "f4"),
        b"METADATA\nINFORMATION 0\n\n",
        b"LINES 1 3\n" if layout == "old" else b"",
    ]
    if layout == "old":
        parts += [block([2, 0, 1], "i4"), b"POLYGONS 1 5\n", block([4, 0, 1, 2, 3], "i4")]
    else:
        parts += [b"POLYGONS 2 4\n", b"OFFSETS vtktypeint64\n", block([0, 4], "i8")]
        parts += [b"CONNECTIVITY vtktypeint64\n", block([0, 1, 2, 3], "i8")]
    parts += [b"POINT_DATA 4\nSCALARS height float 1\nLOOKUP_TABLE default\n", block(POINTS[:, 2], "f4")]
    parts += [b"NORMALS n float\n", block(POINTS, "f4"), b"COLOR_SCALARS skin 3\n"]
    parts += [block(COLORS, "u1") if binary else block(COLORS / 255, "f4")]
    parts += [
        b"TEXTURE_COORDINATES uv 2 float\n",
        block(UV, "f4"),
        b"FIELD more 1\nid 1 4 int\n",
        block([1, 2, 3, 4], "i4"),
    ]
    path = tmp_path / "square.vtk"
    path.write_bytes(b"".join(parts))
    check(read_mesh(path))
    path.write_bytes(b"".join(parts[: parts.index(b"TEXTURE_COORDINATES uv 2 float\n") + 1]))
    with pytest.raises(MeshError, match=r"cannot be read as \.vtk"):
        read_mesh(path)


ARRAYS = {
    "points": (POINTS, "Float32", 'NumberOfComponents="3"'),
    "connectivity": (np.arange(4), "Int64", 'Name="connectivity"'),
    "offsets": (np.array([4]), "Int64", 'Name="offsets"'),
    "skin": (COLORS, "UInt8", 'Name="skin" NumberOfComponents="3"'),
    "uv": (UV, "Float32", 'Name="uv" NumberOfComponents="2"'),
}


@pytest.mark.parametrize("header", ["UInt32", "UInt64"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("encoding", ["ascii", "binary", "raw", "base64"])
def test_vtp(tmp_path, encoding, packed, header):
    word = np.dtype("<u4" if header == "UInt32" else "<u8")

    def binary(content: bytes, encode) -> bytes:
        if not packed:
            return encode(np.array([len(content)], word).tobytes() + content)
        blocks = [content[:40], content[40:]] if len(content) > 40 else [content]
        squeezed = [zlib.compress(b) for b in blocks]
        last = len(blocks[-1]) if len(blocks) > 1 else 0
        sizes = [len(blocks), 40 if len(blocks) > 1 else len(content), last, *map(len, squeezed)]
        return encode(np.array(sizes, word).tobytes()) + encode(b"".join(squeezed))

    appended, found = b"", {}
    for name, (array, kind, attributes) in ARRAYS.items():
        content = array.tobytes()
        if encoding == "ascii":
            inside, form = " ".join(map(str, array.reshape(-1).tolist())), 'format="ascii"'
        elif encoding == "binary":
            inside, form = binary(content, base64.b64encode).decode(), 'format="binary"'
        else:
            inside, form = "", f'format="appended" offset="{len(appended)}"'
            appended += binary(content, base64.b64encode if encoding == "base64" else bytes)
        found[name] = f'<DataArray type="{kind}" {attributes} {form}>{inside}</DataArray>'
    squeeze = ' compressor="vtkZLibDataCompressor"' if packed else ""
    text = '<?xml version="1.0"?><!-- a square --><VTKFile type="PolyData" byte_order="LittleEndian" '
    text += f'header_type="{header}"{squeeze}><PolyData><Piece NumberOfPoints="4" NumberOfPolys="1">'
    text += f'<PointData TCoords="uv">{found["skin"]}{found["uv"]}</PointData>'
    text += (
        f"<Points>{found['points']}</Points><Polys>{found['connectivity']}{found['offsets']}</Polys></Piece></PolyData>"
    )
    tail = f'<AppendedData encoding="{encoding}">_'.encode() + appended + b"</AppendedData>" if appended else b""
    path = tmp_path / "square.vtp"
    path.write_bytes(text.encode() + tail + b"</VTKFile>")
    check(read_mesh(path))


def test_points_of_whole_numbers(tmp_path):
    path = tmp_path / "grid.vtk"
    path.write_text("# vtk DataFile Version 3.0\nt\nASCII\nDATASET POLYDATA\nPOINTS 2 int\n0 0 0 1 2 3\n")
    assert read_mesh(path).vertices.dtype == np.float64


def test_a_small_vtp_cannot_announce_a_large_array(tmp_path):
    squeezed = zlib.compress(b"\0" * 100)
    head = np.array([1, 2**30, 0, len(squeezed)], "<u4").tobytes()
    array = base64.b64encode(head).decode() + base64.b64encode(squeezed).decode()
    path = tmp_path / "bomb.vtp"
    path.write_text(
        '<VTKFile type="PolyData" compressor="vtkZLibDataCompressor"><PolyData><Piece NumberOfPoints="4"><Points>'
        f'<DataArray type="Float32" format="binary">{array}</DataArray></Points></Piece></PolyData></VTKFile>'
    )
    with pytest.raises(MeshError, match="would take 20480 MiB, out of all proportion to its"):
        read_mesh(path)

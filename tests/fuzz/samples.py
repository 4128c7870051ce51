"""Small valid files of each mesh format, in the ways that programs write them."""

from __future__ import annotations

import base64
import json
import tempfile
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from gromap.mesh import Mesh, write_mesh

Files = dict[str, bytes]  # by name; the first is the mesh, others stand beside it
SQUARE = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.5]], np.float32)
FACES = np.array([[0, 1, 2], [0, 2, 3]])
COLORS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [51, 102, 153]], np.uint8)
UV = SQUARE[:, :2] / 2


def _words(array: np.ndarray) -> str:
    return " ".join(map(str, np.asarray(array).reshape(-1).tolist()))


def _legacy(binary: bool, new: bool) -> bytes:
    def block(array: np.ndarray, kind: str) -> bytes:
        return (np.asarray(array).astype(f">{kind}").tobytes() if binary else _words(array).encode()) + b"\n"

    parts = [b"# vtk DataFile Version 4.2\nsquare\n", b"BINARY\n" if binary else b"ASCII\n", b"DATASET POLYDATA\n"]
    parts += [b"POINTS 4 float\n", block(SQUARE, "f4"), b"METADATA\nINFORMATION 0\n\n"]
    if new:
        parts += [b"POLYGONS 3 6\nOFFSETS vtktypeint64\n", block(np.array([0, 3, 6]), "i8")]
        parts += [b"CONNECTIVITY vtktypeint64\n", block(FACES, "i8")]
    else:
        parts += [b"LINES 1 3\n", block(np.array([2, 0, 1]), "i4")]
        parts += [b"POLYGONS 2 8\n", block(np.column_stack([[3, 3], FACES]), "i4")]
    parts += [b"POINT_DATA 4\nSCALARS height float 1\nLOOKUP_TABLE default\n", block(SQUARE[:, 2], "f4")]
    parts += [b"COLOR_SCALARS skin 3\n", block(COLORS, "u1") if binary else block(COLORS / 255, "f4")]
    return b"".join([*parts, b"TEXTURE_COORDINATES uv 2 float\n", block(UV, "f4")])


def _vtp(encoding: str, packed: bool) -> bytes:
    def content(array: np.ndarray) -> bytes:
        data, encode = array.tobytes(), bytes if encoding == "raw" else base64.b64encode
        if not packed:
            return encode(np.array([len(data)], "<u4").tobytes() + data)
        blocks = [zlib.compress(data[:16]), zlib.compress(data[16:])] if len(data) > 16 else [zlib.compress(data)]
        sizes = [len(blocks), 16 if len(blocks) > 1 else len(data), max(len(data) - 16, 0), *map(len, blocks)]
        return encode(np.array(sizes, "<u4").tobytes()) + encode(b"".join(blocks))

    appended = b""

    def array(values: np.ndarray, kind: str, more: str) -> str:
        nonlocal appended
        inside, form = _words(values), 'format="ascii"'
        if encoding == "binary":
            inside, form = content(values).decode(), 'format="binary"'
        elif encoding != "ascii":
            inside, form = "", f'format="appended" offset="{len(appended)}"'
            appended += content(values)
        return f'<DataArray type="{kind}" {more} {form}>{inside}</DataArray>'

    points = array(SQUARE, "Float32", 'NumberOfComponents="3"')
    polygons = array(FACES, "Int64", 'Name="connectivity"') + array(np.array([3, 6]), "Int64", 'Name="offsets"')
    skin = array(COLORS, "UInt8", 'Name="skin" NumberOfComponents="3"')
    skin += array(UV, "Float32", 'Name="uv" NumberOfComponents="2"')
    text = '<?xml version="1.0"?><VTKFile type="PolyData" byte_order="LittleEndian" header_type="UInt32"'
    text += ' compressor="vtkZLibDataCompressor">' if packed else ">"
    text += f'<PolyData><Piece NumberOfPoints="4" NumberOfPolys="2"><PointData TCoords="uv">{skin}</PointData>'
    text += f"<Points>{points}</Points><Polys>{polygons}</Polys></Piece></PolyData>"
    tail = f'<AppendedData encoding="{encoding}">_'.encode() + appended + b"</AppendedData>" if appended else b""
    return text.encode() + tail + b"</VTKFile>"


def _ply(order: str, image: bool) -> bytes:
    head = ["ply", f"format {order} 1.0", *(["comment TextureFile skin.png"] if image else []), "element vertex 4"]
    head += [f"property float {name}" for name in ("x", "y", "z", "s", "t")]
    head += ["property uchar red", "property uchar green", "property uchar blue", "element face 2"]
    head += ["property list uchar int vertex_indices", "end_header\n"]
    polygons = [[0, 1, 2, 3], [0, 2, 3]]  # uneven
    if order == "ascii":
        lines = [_words(np.array([*p, *uv])) + " " + _words(c) for p, uv, c in zip(SQUARE, UV, COLORS, strict=True)]
        lines += [_words(np.array([len(p), *p])) for p in polygons]
        return ("\n".join(head + lines) + "\n").encode()
    sign = "<" if "little" in order else ">"
    rows = [
        np.array([*p, *uv], f"{sign}f4").tobytes() + c.tobytes() for p, uv, c in zip(SQUARE, UV, COLORS, strict=True)
    ]
    rows += [bytes([len(p)]) + np.array(p, f"{sign}i4").tobytes() for p in polygons]
    return "\n".join(head).encode() + b"".join(rows)


def _gltf() -> tuple[bytes, bytes]:
    corners = FACES.astype("<u2").tobytes()
    body = SQUARE.tobytes() + corners + UV.tobytes()
    views = [{"buffer": 0, "byteOffset": at, "byteLength": n} for at, n in ((0, 48), (48, 12), (60, 32))]
    kinds = [(5126, 4, "VEC3"), (5123, 6, "SCALAR"), (5126, 4, "VEC2")]
    scene = {
        "asset": {"version": "2.0"},
        "buffers": [{"byteLength": len(body), "uri": "body.bin"}],
        "bufferViews": views,
        "accessors": [
            {"bufferView": k, "componentType": kind, "count": n, "type": shape}
            for k, (kind, n, shape) in enumerate(kinds)
        ],
        "images": [{"uri": "skin.png"}],
        "textures": [{"source": 0}],
        "materials": [{"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0, "TEXCOORD_0": 2}, "indices": 1, "material": 0}]}],
        "nodes": [{"mesh": 0, "translation": [0, 0, 1]}, {"mesh": 0, "rotation": [0, 0, 0, 1]}],
        "scenes": [{"nodes": [0, 1]}],
        "scene": 0,
    }
    return json.dumps(scene).encode(), body


STL = "solid s\n" + "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 1 1 0\nendloop\nendfacet\n" * 2
OBJ = "mtllib m.mtl\nv 0 0 0 1 0 0\nv 1 0 0 0 1 0\nv 1 1 0 0 0 1\nv 0 1 0.5 1 1 1\nvt 0 0\nvt 1 0\nvt 1 1\nvn 0 0 1\n"
OBJ += "usemtl a\nf 1/1/1 2/2/1 3/3/1 4/1/1\nusemtl b\nf -4/-3 -3/-2 -2/-1\n"


@cache
def samples() -> dict[str, Files]:
    """All of them, by a name for each."""
    whole = _written()
    image = whole["textured.obj"]["textured.png"]
    scene, body = _gltf()
    found = {
        "ascii.ply": {"ascii.ply": _ply("ascii", True), "skin.png": image},
        "little.ply": {"little.ply": _ply("binary_little_endian", True), "skin.png": image},
        "big.ply": {"big.ply": _ply("binary_big_endian", False)},
        "materials.obj": {
            "materials.obj": OBJ.encode(),
            "m.mtl": b"newmtl a\nKd 1 0.5 0\nnewmtl b\nKd 1 1 1\nmap_Kd -s 1 1 1 skin.png\n",
            "skin.png": image,
        },
        "ascii.stl": {"ascii.stl": STL.encode() + b"endsolid s\n"},
        "scene.gltf": {"scene.gltf": scene, "body.bin": body, "skin.png": image},
        "names.csv": {"names.csv": b"x;y;z # names\n" + b"\n".join(b"%g,%g,%g" % tuple(p) for p in SQUARE)},
    }
    found |= {
        f"{b}{n}.vtk": {f"{b}{n}.vtk": _legacy(b == "binary", n == 5)} for b in ("ascii", "binary") for n in (4, 5)
    }
    for encoding in ("ascii", "binary", "raw", "base64"):
        for packed in (False, True) if encoding != "ascii" else (False,):
            name = f"{encoding}{'-packed' * packed}.vtp"
            found[name] = {name: _vtp(encoding, packed)}
    return whole | found


def _written() -> dict[str, Files]:
    """By gromap itself."""
    colored = Mesh(SQUARE, FACES, colors=COLORS / 255)
    texture = np.random.default_rng(1).integers(0, 256, (8, 6, 3), dtype=np.uint8)
    textured = Mesh(SQUARE.astype(np.float64), FACES, uv=UV[FACES].astype(np.float64), texture=texture)
    cloud = Mesh(SQUARE, np.zeros((0, 3), np.int64))
    meshes = {f"colored.{kind}": colored for kind in ("ply", "obj", "off", "glb")} | {"textured.obj": textured}
    meshes |= {"textured.glb": textured, "plain.stl": replace(colored, colors=None)}
    meshes |= {f"cloud.{kind}": cloud for kind in ("npy", "xyz", "csv", "ply")}
    found: dict[str, Files] = {}
    for name, mesh in meshes.items():
        with tempfile.TemporaryDirectory() as folder:
            path = write_mesh(mesh, Path(folder) / name)
            others = sorted(p for p in Path(folder).iterdir() if p != path)
            found[name] = {p.name: p.read_bytes() for p in (path, *others)}
    return found

"""Files give back what is in them: order, coordinates, colors, uv and texture."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gromap.mesh import Mesh, read_mesh, write_mesh
from gromap.mesh.texture import split

SQUARE = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], np.float32)


def ragged(dtype: str = "float32") -> Mesh:
    """A random order, two vertices at one place, one without a face: all that a tidy loader
    would change."""
    rng = np.random.default_rng(0)
    vertices = rng.normal(size=(30, 3)).astype(dtype)
    vertices[17] = vertices[3]
    faces = rng.permuted(np.tile(np.arange(29), (40, 1)), axis=1)[:, :3]
    return Mesh(vertices, faces, colors=rng.integers(0, 256, (30, 3)) / 255)


def seamed() -> Mesh:
    """A square whose two triangles lie apart in the texture."""
    uv = np.array([[[0, 0], [0.5, 0], [0.5, 0.5]], [[0.5, 0.5], [1, 1], [0.5, 1]]])
    texture = np.random.default_rng(1).integers(0, 256, (8, 6, 3), dtype=np.uint8)
    return Mesh(SQUARE, np.array([[0, 1, 2], [0, 2, 3]]), uv=uv, texture=texture)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["ply", "obj", "off", "glb"])
def test_what_was_written_is_read_in_the_same_order(tmp_path, kind, dtype):
    mesh = ragged(dtype)
    again = read_mesh(write_mesh(mesh, tmp_path / f"mesh.{kind}"))
    precision = "float32" if kind == "glb" else dtype  # all that glTF knows
    assert np.array_equal(again.vertices.astype(precision), mesh.vertices.astype(precision))
    assert np.array_equal(again.faces, mesh.faces)
    assert again.colors == pytest.approx(mesh.colors, abs=1e-4)
    assert again.name == "mesh"
    assert again.vertices.dtype == {"ply": dtype, "glb": "float32"}.get(kind, "float64")


@pytest.mark.parametrize("kind", ["npy", "xyz", "txt", "csv"])
@pytest.mark.parametrize("d", [1, 2, 3, 7])
def test_clouds_of_any_dimension(tmp_path, kind, d):
    cloud = Mesh(np.random.default_rng(0).normal(size=(11, d)), np.zeros((0, 3), int))
    again = read_mesh(write_mesh(cloud, tmp_path / f"cloud.{kind}"))
    assert np.array_equal(again.vertices, cloud.vertices)
    assert again.faces.shape == (0, 3)
    assert again.area == 0


@pytest.mark.parametrize("kind", ["ply", "off", "glb"])
def test_clouds_in_mesh_files(tmp_path, kind):
    cloud = replace(ragged(), faces=np.zeros((0, 3), int))
    again = read_mesh(write_mesh(cloud, tmp_path / f"cloud.{kind}"))
    assert np.array_equal(again.vertices.astype("float32"), cloud.vertices)
    assert again.faces.shape == (0, 3)


def test_a_table_with_names_comments_and_semicolons(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x;y\n# measured twice\n1;2.5\n\n-3e1;4\n")
    assert read_mesh(path).vertices.tolist() == [[1, 2.5], [-30, 4]]


def test_stl_merges_corners_at_the_same_place(tmp_path):
    mesh = ragged()
    again = read_mesh(write_mesh(mesh, tmp_path / "mesh.stl"))
    assert np.array_equal(again.vertices[again.faces], mesh.vertices[mesh.faces])
    used = np.unique(mesh.vertices[np.unique(mesh.faces)], axis=0)
    assert len(again.vertices) == len(used)
    assert np.array_equal(again.faces[0], [0, 1, 2])  # in order of appearance


def test_ascii_stl(tmp_path):
    lines = [f"vertex {x:g} {y:g} {z:g}" for face in ([0, 1, 2], [0, 2, 3]) for x, y, z in SQUARE[face]]
    facets = ["\n".join(["facet normal 0 0 1", "outer loop", *lines[k : k + 3], "endloop", "endfacet"]) for k in (0, 3)]
    path = tmp_path / "square.stl"
    path.write_text("\n".join(["solid square", *facets, "endsolid square"]))
    again = read_mesh(path)
    assert np.array_equal(again.vertices, SQUARE)
    assert again.faces.tolist() == [[0, 1, 2], [0, 2, 3]]


def test_obj_keeps_the_vertices_across_a_seam(tmp_path):
    mesh = seamed()
    again = read_mesh(write_mesh(mesh, tmp_path / "mesh.obj"))
    assert np.array_equal(again.vertices, mesh.vertices)
    assert np.array_equal(again.uv, mesh.uv)
    assert np.array_equal(again.texture, mesh.texture)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mesh.mtl", "mesh.obj", "mesh.png"]


def test_glb_repeats_vertices_on_seams_behind_the_others(tmp_path):
    mesh = seamed()
    again = read_mesh(write_mesh(mesh, tmp_path / "mesh.glb"))
    original, faces, _ = split(mesh)
    assert np.array_equal(again.vertices, mesh.vertices[original])
    assert np.array_equal(original[:4], np.arange(4))
    assert np.array_equal(again.faces, faces)
    assert np.array_equal(original[faces], mesh.faces)
    assert again.uv == pytest.approx(mesh.uv, abs=1e-6)
    assert np.array_equal(again.texture, mesh.texture)
    assert [p.name for p in tmp_path.iterdir()] == ["mesh.glb"]  # the image is inside


def test_obj_polygons_negative_indices_and_normals(tmp_path):
    path = tmp_path / "house.obj"
    path.write_text(
        "# five corners\no house\nv 0 0 0\nv 2 0 0\nv 2 2 0\nv 1 3 0\nv 0 2 0\nvn 0 0 1\n"
        "f 1//1 2//1 3//1 4//1 5//1\nf -5 -4 \\\n-3\n"
    )
    mesh = read_mesh(path)
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 1, 2]]
    assert mesh.uv is None


def test_obj_with_two_images_and_a_plain_color(tmp_path):
    """Each face finds its own color in the joined texture."""
    from PIL import Image

    colors = {"red": (250, 10, 10), "green": (10, 200, 10)}
    for name, color in colors.items():
        Image.new("RGB", (5 if name == "red" else 9, 4), color).save(tmp_path / f"{name} one.png")
    images = "".join(f"newmtl {name}\nmap_Kd {name} one.png\n" for name in colors)
    (tmp_path / "a.mtl").write_text(images + "newmtl plain\nKd 0 0 1\n")
    faces = "".join(f"usemtl {name}\nf 1/1 2/2 3/3\n" for name in ("green", "red", "plain"))
    (tmp_path / "a.obj").write_text("mtllib a.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 0 1\n" + faces)
    mesh = read_mesh(tmp_path / "a.obj")
    assert mesh.uv is not None
    assert mesh.texture is not None
    h, w = mesh.texture.shape[:2]
    for corners, expected in zip(mesh.uv, [colors["green"], colors["red"], (0, 0, 255)], strict=True):
        for u, v in [*corners, corners.mean(0)]:
            assert tuple(mesh.texture[min(int((1 - v) * h), h - 1), min(int(u * w), w - 1)]) == expected


HEADER = """ply
format {0} 1.0
comment made by hand
element vertex 4
property double x
property double y
property double z
property uchar red
property uchar green
property uchar blue
property float s
property float t
element face 2
property list uchar int vertex_indices
property uchar flag
element edge 1
property int vertex1
property int vertex2
end_header
"""


@pytest.mark.parametrize("order", ["ascii", "<", ">"])
@pytest.mark.parametrize("even", [True, False])
def test_ply_of_every_kind(tmp_path, order, even):
    polygons = [[0, 1, 2], [0, 2, 3]] if even else [[0, 1, 2, 3], [0, 1, 2]]
    colors, uv = [[255, 0, 51]] * 4, SQUARE[:, :2] / 2
    if order == "ascii":
        rows = [f"{x} {y} {z} 255 0 51 {s} {t}" for (x, y, z), (s, t) in zip(SQUARE, uv, strict=True)]
        rows += [f"{len(p)} {' '.join(map(str, p))} 7" for p in polygons] + ["0 1"]
        body = "\n".join(rows).encode()
    else:
        kind = np.dtype([("p", order + "f8", 3), ("c", "u1", 3), ("uv", order + "f4", 2)])
        body = np.array([(p, c, t) for p, c, t in zip(SQUARE, colors, uv, strict=True)], kind).tobytes()
        for polygon in polygons:
            body += bytes([len(polygon)]) + np.array(polygon, order + "i4").tobytes() + bytes([7])
        body += np.array([0, 1], order + "i4").tobytes()
    names = {"ascii": "ascii", "<": "binary_little_endian", ">": "binary_big_endian"}
    path = tmp_path / "mesh.ply"
    path.write_bytes(HEADER.format(names[order]).encode() + body)
    mesh = read_mesh(path)
    assert np.array_equal(mesh.vertices, SQUARE)
    assert mesh.vertices.dtype == np.float64
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3]] + ([] if even else [[0, 1, 2]])
    assert mesh.colors == pytest.approx(np.array([[1, 0, 0.2]] * 4))
    assert mesh.uv == pytest.approx(uv[mesh.faces])


def test_ply_with_uv_at_the_corners(tmp_path):
    from PIL import Image

    Image.new("RGB", (2, 2), (1, 2, 3)).save(tmp_path / "skin.png")
    head = "ply\nformat ascii 1.0\ncomment TextureFile skin.png\nelement vertex 3\nproperty float x\nproperty float y\n"
    head += (
        "property float z\nelement face 1\nproperty list uchar int vertex_index\nproperty list uchar float texcoord\n"
    )
    path = tmp_path / "mesh.ply"
    path.write_text(head + "end_header\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2 6 0 0 1 0 0.5 1\n")
    mesh = read_mesh(path)
    assert mesh.uv is not None
    assert mesh.uv.tolist() == [[[0, 0], [1, 0], [0.5, 1]]]
    assert mesh.texture is not None
    assert mesh.texture[0, 0].tolist() == [1, 2, 3]


def test_off_with_comments_double_spaces_and_quads(tmp_path):
    path = tmp_path / "square.off"
    path.write_text(
        "# made by hand\nOFF  4 2 0   # counts\n\n0  0 0\n1 0  0\n# between\n1 1 0\n0 1 0\n4  0 1 2 3\n3 0 1 2  255 "
        "0 0\n"
    )
    mesh = read_mesh(path)
    assert np.array_equal(mesh.vertices, SQUARE)
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3], [0, 1, 2]]


def test_gltf_scenes_are_put_together_where_their_transforms_say(tmp_path):
    """One buffer, two nodes: one is moved, one is mirrored and below a scaled parent."""
    corners = SQUARE[:3].tobytes()
    (tmp_path / "data.bin").write_bytes(corners + np.array([0, 1, 2], "<u2").tobytes())
    mirror = np.diag([-1.0, 1, 1, 1]).T.reshape(-1).tolist()
    scene = {
        "asset": {"version": "2.0"},
        "buffers": [{"uri": "data.bin", "byteLength": 42}],
        "bufferViews": [{"buffer": 0, "byteLength": 36}, {"buffer": 0, "byteOffset": 36, "byteLength": 6}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3", "min": [0, 0, 0], "max": [1, 1, 0]},
            {"bufferView": 1, "componentType": 5123, "count": 3, "type": "SCALAR"},
        ],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "nodes": [
            {"mesh": 0, "translation": [5, 0, 0]},
            {"children": [2], "scale": [2, 2, 2]},
            {"mesh": 0, "matrix": mirror},
        ],
        "scenes": [{"nodes": [0, 1]}],
        "scene": 0,
    }
    path = tmp_path / "two.gltf"
    path.write_text(json.dumps(scene))
    mesh = read_mesh(path)
    assert np.array_equal(
        mesh.vertices, np.concatenate([SQUARE[:3] + np.array([5, 0, 0]), 2 * SQUARE[:3] * [-1, 1, 1]])
    )
    assert np.sign(mesh.face_normals()[:, 2]).tolist() == [1, 1]  # the mirrored one still faces outwards


@pytest.mark.parametrize("name", ["dog_0", "mh_man_0"])
def test_real_files_of_another_program(name):
    folder = Path(os.environ.get("GROMAP_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data") / "poses"
    if not folder.is_dir():
        pytest.skip("the folder of real shapes is not there")
    mesh, sym = read_mesh(folder / f"{name}.ply"), np.load(folder / f"{name[:-2]}.sym.npy")
    assert len(mesh.vertices) == len(sym)
    mirrored = (
        mesh.vertices[sym] * np.array([-1, 1, 1]) if name != "dog_0" else mesh.vertices[sym] * np.array([1, -1, 1])
    )
    offset = mesh.vertices - mirrored
    assert np.abs(offset - offset.mean(0)).max() < 0.02 * np.ptp(mesh.vertices)  # the order of the file is untouched

"""Damaged mesh files: a valid mesh, or a MeshError of one sentence; memory in proportion to the
bytes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gromap.mesh import Mesh, MeshError, read_mesh
from gromap.mesh.bounds import IMAGE_ROOM, RATIO, ROOM
from tests.fuzz.effort import ending, tally, tries
from tests.fuzz.mutations import Edit, damages
from tests.fuzz.samples import samples

pytest.importorskip("trimesh")  # samples are written when the tests are collected

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning"),
]


def check_mesh(mesh: Mesh) -> None:
    n, f = len(mesh.vertices), len(mesh.faces)
    assert n
    assert mesh.vertices.dtype in (np.float32, np.float64)
    assert np.isfinite(mesh.vertices).all()
    assert mesh.faces.dtype == np.int64
    assert mesh.faces.shape == (f, 3)
    assert not f or 0 <= mesh.faces.min() <= mesh.faces.max() < n
    if mesh.colors is not None:
        assert mesh.colors.shape == (n, 3)
        assert ((mesh.colors >= 0) & (mesh.colors <= 1)).all()
    if mesh.uv is not None:
        assert mesh.uv.shape == (f, 3, 2)
        assert np.isfinite(mesh.uv).all()
    if mesh.texture is not None:
        assert mesh.texture.dtype == np.uint8
        assert mesh.texture.ndim == 3


def read(path: Path) -> bool:
    """Whether the file holds a mesh; anything but a mesh or a sentence fails."""
    tally["mesh files"] += 1
    size = sum(p.stat().st_size for p in path.parent.iterdir())
    room = ROOM + IMAGE_ROOM * any(p.suffix in (".png", ".glb", ".gltf") for p in path.parent.iterdir())
    tracemalloc.start()
    try:
        with ending():
            mesh = read_mesh(path)
    except MeshError as error:
        message = str(error)
        assert message.startswith(str(path))
        assert message.endswith(".")
        assert "\n" not in message
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < RATIO * size + room
    check_mesh(mesh)
    return True


@pytest.mark.parametrize("name", samples())
def test_samples_are_valid(tmp_path, name):
    for file, data in samples()[name].items():
        (tmp_path / file).write_bytes(data)
    assert read(tmp_path / name)


@pytest.mark.parametrize("name", samples())
@given(which=st.integers(0, 3), damage=damages())
@tries(100)
def test_damaged_mesh_files(tmp_path_factory, name, which, damage: Edit):
    files = samples()[name]
    damaged = list(files)[which % len(files)] if which else name
    folder = tmp_path_factory.getbasetemp() / f"fuzz-{name}"
    folder.mkdir(exist_ok=True)
    for file, data in files.items():
        (folder / file).write_bytes(damage(data) if file == damaged else data)
    read(folder / name)


@given(name=st.sampled_from(sorted(samples())), data=st.binary(max_size=400))
@tries(100)
def test_mesh_files_of_any_bytes(tmp_path_factory, name, data):
    """Behind the first bytes of a format, so that it is taken for one."""
    folder = tmp_path_factory.getbasetemp() / "fuzz-bytes"
    folder.mkdir(exist_ok=True)
    path = folder / f"any{Path(name).suffix}"
    path.write_bytes(samples()[name][name][:6] + data)
    read(path)
    path.unlink()

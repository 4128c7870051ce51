"""Rooms import rooms below them only, and `import gromap` needs torch, numpy and scipy alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gromap

ROOT = Path(gromap.__file__).parent
ROOMS = [  # from the ground up; rooms of one line do not know each other
    ["_options", "_stored", "_torch"],
    ["_check", "_files", "_group", "_progress", "_stats", "_threads"],
    ["_cells"],
    ["transport"],
    ["geometry"],
    ["_plan", "_space"],
    ["_features"],
    ["_pair", "_solution"],
    ["solvers"],
    ["search"],
    ["_solve"],
    ["learn"],
    ["mesh"],
    ["datasets", "report", "pot", "sklearn", "anndata"],
    ["gromap"],  # the package itself: what `import gromap` gives
    ["demo", "bench"],
    ["cli"],
]
HEIGHT = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
DOORS = {  # imports inside a function that lead upwards, for convenience
    ("_space", "mesh"): "Space.from_mesh reads a mesh",
    ("learn", "mesh"): "Flow.surface makes a mesh",
    ("learn", "report"): "Flow.plot and Flow.animate draw",
    ("search", "report"): "Landscape.plot draws",
}


def room_of(name: str) -> str:
    """The room of a module, "solvers" of gromap.solvers.cnt; the package itself is the room
    "gromap"."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "gromap"


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """The modules of gromap that a file imports, and whether it does so inside a function; not
    those for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    types = {
        id(n)
        for f in ast.walk(tree)
        if isinstance(f, ast.If) and "TYPE_CHECKING" in ast.unparse(f.test)
        for n in ast.walk(f)
    }
    for node in ast.walk(tree):
        if id(node) in types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gromap":
            names = [f"gromap.{a.name}" if f"{a.name}" in HEIGHT else "gromap" for a in node.names]
            for name in names if node.module == "gromap" else [node.module]:
                yield name, id(node) in inside
        elif isinstance(node, ast.Import):
            yield from ((a.name, id(node) in inside) for a in node.names if a.name.split(".")[0] == "gromap")


def test_rooms_import_rooms_below_them_only():
    broken = []
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(["gromap", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
        mine = room_of(name)
        for target, lazy in imports(path):
            theirs = room_of(target)
            if theirs == mine or (lazy and (mine, theirs) in DOORS):
                continue
            if HEIGHT[theirs] >= HEIGHT[mine]:
                broken.append(
                    f"{name} imports {target}: the room {theirs!r} is not below {mine!r}. Move what is shared down."
                )
    assert not broken, "\n" + "\n".join(broken)


def test_import_needs_torch_numpy_and_scipy_alone():
    code = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        walled = "matplotlib safetensors sklearn joblib trimesh typer rich pandas ot anndata igraph pyvista"
        if name.split(".")[0] in walled.split():
            raise ImportError(f"gromap imported {name}")
sys.meta_path.insert(0, Wall())
import torch
before = set(sys.modules)
import gromap
new = {n.split(".")[0] for n in set(sys.modules) - before}
print(sorted(new & {"matplotlib", "safetensors"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_public_names_exist_and_are_documented():
    for name in gromap.__all__:
        assert getattr(gromap, name).__doc__, f"{name} has no docstring"

"""Imports point downwards only, and `import gromap` needs torch, numpy and scipy alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import gromap

ROOT = Path(gromap.__file__).parent
ROOMS = [  # from the ground up; a file may import from rooms below its own
    ["engine.kernels", "engine.descent", "engine.move"],
    ["costs", "engine.score", "files", "mesh.mesh", "mesh.exact", "mesh.formats"],
    ["engine.tiles", "engine.mixture", "engine.triton", "engine.truncation", "mesh.texture", "mesh.formats.polygons"],
    ["engine.backend", "engine.kept", "mesh.poisson"],
    ["engine.replay"],
    ["engine", "_check", "mesh.formats.gltf", "mesh.formats.obj", "mesh.formats.plain", "mesh.formats.ply", "mesh.formats.vtk"],
    ["measure", "eigen", "mesh.io", "mesh.clean", "mesh.geodesic"],
    ["mesh"],
    ["datasets", "mesh.embedding"],
    ["embedding", "sinkhorn", "objective", "plan", "mesh.cache"],
    ["space", "solution", "report", "report.figures", "report.pose", "report.payload"],
    ["solvers.loop", "report.landscape", "report.paint", "report.flow", "report.barycenter", "mesh.transfer", "mesh.quality"],
    ["solvers.cnt", "report.charts"],
    ["solvers.kernel", "solvers.multiscale", "solvers.dual", "solvers.lowrank_cost", "report.panel"],
    ["solvers.entropic", "solvers.proximal", "solvers.sampled", "solvers.lowrank", "solvers.conditional_gradient"],
    ["solvers", "search", "chirality", "envelope", "report.page"],
    ["progress", "prepare", "start"],
    ["solve", "losses"],
    ["landscape", "pairwise", "flows"],
    [""],
    ["demo", "bench", "bench.machine", "bench.shapes", "bench.scores", "bench.parts", "bench.jobs", "bench.settings"],
    ["bench.match", "bench.matches", "bench.curves", "bench.plans", "bench.trajectories", "bench.tables"],
    ["bench.figures"],
    ["bench.report"],
    ["bench.paper"],
    ["cli.folder", "cli.inputs", "cli.show"],
    ["cli.match", "cli.bench"],
    ["cli.collection", "cli.barycenter"],
    ["cli.app"],
    ["cli"],
    ["cli.__main__"],
]
FLOOR = {name: level for level, room in enumerate(ROOMS) for name in room}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def test_imports_point_downwards():
    for path in ROOT.rglob("*.py"):
        mine = name_of(path)
        assert mine in FLOOR, f"give {mine} a room in ROOMS"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gromap":
                below = node.module.removeprefix("gromap").removeprefix(".")
                for alias in node.names:
                    full = f"{below}.{alias.name}".removeprefix(".")
                    target = full if full in FLOOR else below
                    assert FLOOR[target] < FLOOR[mine], f"{mine} imports {target}, which is not below it"


def test_import_needs_torch_numpy_and_scipy_alone():
    code = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"matplotlib", "safetensors", "sklearn", "joblib", "trimesh", "typer", "rich", "pandas", "ot"}:
            raise ImportError(f"gromap imported {name}")
sys.meta_path.insert(0, Wall())
import torch
before = set(sys.modules)
import gromap
print(sorted({n.split(".")[0] for n in set(sys.modules) - before if not n.startswith("_")} & {"matplotlib", "safetensors"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_public_names_exist_and_are_documented():
    for name in gromap.__all__:
        assert getattr(gromap, name).__doc__, f"{name} has no docstring"

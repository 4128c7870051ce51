"""The pages: links lead somewhere, code blocks run, the gallery can be imported, every public name
is in the reference.

A block that is not to be run stands below a comment that says why: <!-- not run: needs ray -->. The
blocks of a page share their names, as they would in a notebook.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest
import torch

import gromap
from gromap.mesh import Mesh, write_mesh
from tests.conftest import cloud, rotation

ROOT = Path(__file__).parents[1]
MADE = ("docs/auto_gallery", "docs/reference/api")  # by `make docs`, out of git
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks/RESULTS.md"]
    if not any(folder in path.as_posix() for folder in MADE)
)
GALLERY = sorted(ROOT.glob("docs/gallery/*/plot_*.py"))
LINK = re.compile(r"(?:\]\(|src=\")([^)\"\s]+)[)\"]")
BLOCK = re.compile(r"(?:^<!-- not run: ([^>]+) -->\n+)?^```python\n(.*?)^```", re.M | re.S)
pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="the pages are not beside these tests")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def headings(text: str) -> set[str]:
    """The anchors of a page."""
    found = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if any(folder in target.as_posix() for folder in MADE):
            source = re.sub(r"images/sphx_glr_(.*)_\d+\.png|(plot_.*)\.rst", r"\1\2.py", target.as_posix())
            target = Path(source.replace("auto_gallery", "gallery").replace("index.rst", "GALLERY_HEADER.rst"))
        assert target.exists(), f"{name(page)} links to {link}, which is not there."
        if anchor:
            assert anchor in headings(target.read_text(encoding="utf-8")), f"{name(page)}: no heading for {link}."


def names_of(page: Path, folder: Path) -> dict[str, Any]:
    """What the pages call their data; the files that they read are written to a folder."""
    (x, a), (y, b) = cloud(60, 3, 0), cloud(50, 3, 0)
    y = y @ rotation(3)
    costs = np.linalg.norm(x[:, None] - x, axis=2), np.linalg.norm(y[:, None] - y, axis=2)
    rng = np.random.default_rng(0)
    for file in ("standing", "running", "dog_0", "dog_1", "part", "whole"):
        write_mesh(sheet(), folder / f"{file}.ply")
    if page.name == "losses.md":
        x, y, a, b = (torch.tensor(z[:30], requires_grad=True) for z in (x, y, a, b))
    return {
        "gromap": gromap, "np": np, "torch": torch, "X": x, "Y": y, "a": a, "b": b, "C": costs[0],
        "colors": rng.random((60, 3)), "W": rng.random((50, 2)), "F": rng.random((60, 2)), "G": rng.random((50, 2)),
        "areas_x": a, "areas_y": b, "match": rng.integers(50, size=60),
        "shapes": [rng.random((10, 2)) for _ in range(6)],
        "paths": costs[0], "other_paths": costs[1], "rna": x, "atac": y, "types": rng.integers(3, size=60),
        "english": x, "french": y, "source": sheet(), "target": sheet(),
    }  # fmt: skip


def sheet() -> Mesh:
    """A bent sheet, large enough for maps to be refined.  450 vertices"""
    u, v = np.meshgrid(np.linspace(0, 1, 15), np.linspace(0, 2, 30), indexing="ij")
    at = np.arange(450).reshape(15, 30)
    p, q, r, s = (z.ravel() for z in (at[:-1, :-1], at[1:, :-1], at[:-1, 1:], at[1:, 1:]))
    faces = np.concatenate([np.stack([p, q, r], 1), np.stack([q, s, r], 1)])
    return Mesh(np.stack([u, v, np.sin(2 * u * v)], 2).reshape(-1, 3), faces)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))], ids=name)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROMAP_CACHE", "off")
    space = names_of(page, tmp_path)
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        reason, code = found.groups()
        begin = text[: found.start(2)].count("\n")
        tree = compile("\n" * begin + code, str(page), "exec")
        if reason is None:
            run(tree, space)


def run(code: CodeType, names: dict[str, Any]) -> None:
    """Run a block; where another library is not installed, the rest of the page is skipped."""
    try:
        exec(code, names)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("gromap"):
            raise
        pytest.skip(f"{error.name} is not installed")


def test_every_block_of_code_names_its_language():
    for page in PAGES:
        fences = re.findall(r"^ *```(.*)$", page.read_text(encoding="utf-8"), re.M)
        assert all(fences[::2]), f"{name(page)} has a block without a language: say ```python, ```sh or ```text."


@pytest.mark.parametrize("script", GALLERY, ids=name)
def test_gallery_imports_what_exists(script):
    tree = ast.parse(script.read_text(encoding="utf-8"))
    compile(tree, str(script), "exec")
    assert ast.get_docstring(tree), "the docstring is the title and the text of the page"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                pytest.importorskip(alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.module
            module = pytest.importorskip(node.module) if not node.module.startswith("gromap") else None
            module = module or importlib.import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert not missing, f"{node.module} has no {missing}"


def test_reference_has_every_public_name():
    listed = set(re.findall(r"^   ([\w.]+)$", (ROOT / "docs/reference/index.rst").read_text(encoding="utf-8"), re.M))
    public = set(gromap.__all__) - {"mesh"} | {f"mesh.{each}" for each in gromap.mesh.__all__}
    assert not public - listed, "add these to docs/reference/index.rst"
    for each in listed:
        module, _, last = f"gromap.{each}".rpartition(".")
        try:
            there = importlib.import_module(module)
        except ModuleNotFoundError:
            pytest.fail(f"docs/reference/index.rst lists {each}, which is not there.")
        assert hasattr(there, last), f"docs/reference/index.rst lists {each}, which is not there."


def test_docstrings_of_the_house_become_restructured_text(monkeypatch):
    pytest.importorskip("sphinx_gallery", reason="pip install -e '.[docs]'")
    monkeypatch.syspath_prepend(ROOT / "docs")
    site = importlib.import_module("sphinx_gromap")
    given = """Minimize |x|, as `Space`s do.

    Σ |x - x'|²

a, b: weights,
    or None.  tol: a number.

>>> 2 * |x|"""
    expected = """Minimize \\|x\\|, as `Space`\\ s do.
::
    Σ |x - x'|²
:param a: weights, or None.
:param b: weights, or None.
:param tol: a number.
>>> 2 * |x|"""
    found = [line for line in site.rewritten(given.split("\n"), {"a", "b", "tol"}) if line]
    assert found == expected.split("\n")

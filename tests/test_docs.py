"""The blocks of Python of a page run, one after another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "docs"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_blocks_of_bridges_run():
    for package in ("ot", "sklearn", "anndata", "networkx", "trimesh"):
        pytest.importorskip(package)
    page, names = (PAGES / "bridges.md").read_text(encoding="utf-8"), {}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 6
    for block in blocks:
        exec(compile(block, "docs/bridges.md", "exec"), names)
    assert (names["aligner"].solution_.map() == range(59, -1, -1)).mean() > 0.9
    assert names["nearest"].predict(names["clouds"][2:]).tolist() == [1, 1]

"""Damaged result files: the result that was saved, or one sentence that names the file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gromap
from gromap._files import read, write
from tests.fuzz.effort import ending, tally, tries
from tests.fuzz.mutations import Edit, damages

X, Y = (np.random.default_rng(k).normal(size=(n, d)) for k, n, d in ((0, 14, 3), (1, 11, 2)))
READ = {"solution": gromap.load, "landscape": gromap.Landscape.load}


@cache
def saved(folder: Path) -> dict[str, bytes]:
    paths = {
        "solution": gromap.solve(X, Y, epsilon=0.05).save(folder / "solution"),
        "landscape": gromap.landscape(X, Y, starts=6, epsilon=0.05).save(folder / "landscape"),
    }
    return {kind: path.read_bytes() for kind, path in paths.items()}


def try_to_read(kind: str, path: Path) -> str | None:
    """How it shows, or None where it is refused."""
    tally["result files"] += 1
    try:
        with ending():
            found = READ[kind](path)
            if isinstance(found, gromap.Solution) and found.status is not gromap.Status.NOT_FINITE:
                assert np.isfinite(found.plan.dense()).all()
                found.map()
            return repr(found)
    except ValueError as error:
        message = str(error)
        assert message.startswith(str(path))
        assert "\n" not in message
        return None


@pytest.mark.parametrize("kind", READ)
@given(damage=damages())
@tries(150)
def test_damaged_result_files(tmp_path_factory, kind, damage: Edit):
    folder = tmp_path_factory.getbasetemp()
    whole = saved(folder)[kind]
    path = folder / f"damaged-{kind}"
    path.write_bytes(whole)
    expected = repr(READ[kind](path))
    path.write_bytes(damage(whole))
    assert try_to_read(kind, path) in (None, expected)


FACTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**20),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.floats(), max_size=3),
)


@pytest.mark.parametrize("kind", READ)
@given(data=st.data())
@tries(60)
def test_result_files_that_were_edited(tmp_path_factory, kind, data):
    """With a checksum that fits: what is read is used without fault, or refused."""
    folder = tmp_path_factory.getbasetemp()
    path = folder / f"edited-{kind}"
    path.write_bytes(saved(folder)[kind])
    tensors, facts = read(path, kind, "cpu", lambda tensors, facts: (tensors, facts))
    name = data.draw(st.sampled_from([*tensors, *facts]))
    if name in facts:
        facts[name] = data.draw(FACTS)
    else:
        t = tensors[name].clone().reshape(-1)
        if len(t) and t.is_floating_point():
            t[data.draw(st.integers(0, len(t) - 1))] = data.draw(st.sampled_from([np.nan, np.inf, -1.0, 0.0]))
        shape = data.draw(st.sampled_from([tensors[name].shape, t.shape, (0,)]))
        tensors[name] = t.reshape(shape) if shape != (0,) else t[:0]
    write(path, kind, tensors, facts)
    try_to_read(kind, path)

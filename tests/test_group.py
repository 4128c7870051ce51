"""One solve by several processes gives what one process gives, and ends in all of them alike.

The processes are started once (group_checks.py), and each test looks at what they wrote down.
"""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

import gromap
from tests import group_checks
from tests.group_checks import CUTS, N, data

pytestmark = pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="torch without gloo")
PROCESSES = 3
SAME = ["cnt", "multiscale", "standard", "annealed", "symmetric", "cold, from zero", "two processes"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each process found, by the name of the part of the work."""
    folder = str(tmp_path_factory.mktemp("group"))
    spawn = multiprocessing.get_context("spawn")
    run = [spawn.Process(target=group_checks.main, args=(k, PROCESSES, folder)) for k in range(PROCESSES)]
    for process in run:
        process.start()
    for process in run:
        process.join(300)
        process.kill()
    names = "checks", "dtensors", "errors", "killed"
    return {name: [pickle.loads(file.read_bytes()) for file in sorted(Path(folder).glob(f"{name}?"))] for name in names}


@pytest.mark.parametrize("name", SAME)
def test_the_same_as_one_process(found, name):
    each = [process[name] for process in found["checks"] if name in process]
    one, cuts = found["checks"][0][f"{name}, one process"], CUTS[len(each)][0]
    close = {"rtol": 1e-10, "atol": 1e-10}
    for k, own in enumerate(each):
        rows = slice(cuts[k], cuts[k + 1])
        assert own["shape"] == (cuts[k + 1] - cuts[k], one["shape"][1])
        assert own["status"] == one["status"]
        np.testing.assert_array_equal(own["inner_steps"], one["inner_steps"])
        for what in ("value", "value_gw", "gamma", "energy", "error", "kl"):
            np.testing.assert_allclose(own[what], one[what], **close, err_msg=what)
        np.testing.assert_allclose(own["potentials"][0], one["potentials"][0][rows], **close)
        np.testing.assert_allclose(own["potentials"][1], one["potentials"][1], **close)
        np.testing.assert_allclose(own["kept"][0], one["kept"][0][rows], **close)
        np.testing.assert_allclose(own["kept"][1], one["kept"][1], **close)
        np.testing.assert_array_equal(own["map"], one["map"][rows])
        np.testing.assert_array_equal(own["argmax"], one["argmax"][rows])
        assert own["stats"]["method"] == one["stats"]["method"]
        assert own["stats"].get("levels") == one["stats"].get("levels")
        assert own["stats"].get("minima") == one["stats"].get("minima")


@pytest.mark.parametrize("name", SAME)
def test_processes_agree_to_the_last_bit(found, name):
    first, *others = [process[name] for process in found["checks"] if name in process]
    for other in others:
        assert (other["value"], other["value_gw"], other["error"]) == (
            first["value"],
            first["value_gw"],
            first["error"],
        )
        np.testing.assert_array_equal(other["gamma"], first["gamma"])
        np.testing.assert_array_equal(other["potentials"][1], first["potentials"][1])
        np.testing.assert_array_equal(other["energy"], first["energy"])
        assert other["stats"] == first["stats"]


def test_one_message_per_step(found):
    """M + 2 numbers per Sinkhorn step, D E + 1 per outer step; beside these, a few per solve."""
    for process in found["checks"]:
        sizes = [size for kind, size in process["sent"] if kind == "all_reduce"]
        m, (d, e) = data()[1].shape[0], group_checks.OPTIONS["dim"]
        assert process["inner"] == 60
        assert sizes.count(8 * (m + 2)) == 60
        assert sizes.count(8 * (d * e + 1)) == 3 + 1  # and Γ of the plan that is returned
        assert len(sizes) - 64 <= 12
        broadcasts = sum(size for kind, size in process["sent"] if kind == "broadcast")
        assert broadcasts < 8 * (N * 6 + m * 8 + d * e) + 20_000  # points, columns, Γ, and objects


def test_what_is_summed_over_all_rows(found):
    first = found["checks"][0]
    for k, process in enumerate(found["checks"]):
        rows = slice(*CUTS[3][0][k : k + 2])
        np.testing.assert_allclose(process["push"], first["push, one process"], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(process["pull"], first["pull, one process"][rows], rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(process["votes"], first["votes, one process"])


def test_goes_on_from_where_it_ended(found):
    for process in found["checks"]:
        steps, value, before = process["again"]
        assert steps == 1
        assert value == pytest.approx(before, rel=1e-3)


def test_what_takes_all_rows_is_refused(found):
    for process in found["checks"]:
        assert "save() takes all rows of the plan" in process["save"]
        assert "inverse_map() takes all points of X" in process["inverse"][0]
        assert "takes all rows of the plan" in process["inverse"][1]


def test_a_group_of_one_is_one_process(found):
    sol = gromap.solve(*data(), **group_checks.OPTIONS)
    for process in found["checks"]:
        value, shape, inverse = process["alone"]
        assert (value, shape, inverse) == (sol.value, sol.plan.shape, "nothing")


def test_tensors_in_tensors_out(found):
    for process in found["checks"]:
        assert type(process["torch"]).__name__ == "Tensor"
        np.testing.assert_array_equal(process["torch"].numpy(), process["cnt"]["map"])


def test_dtensors_bring_their_group(found):
    assert [process["dtensor"][1][0] for process in found["dtensors"]] == [47, 47, 46]
    for process in found["dtensors"]:
        assert process["dtensor"][0] == pytest.approx(found["checks"][0]["cnt, one process"]["value"], rel=1e-10)
        assert "sharded along its first axis" in process["replicated"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("epsilon", "ValueError: epsilon is 0.005 in process 0 of the group and 0.01 in process 2"),
        ("cost", "cost is 'euclidean' in process 0 of the group and Power(p=1.5) in process 1"),
        ("init", "init is array (4, 3) float64"),
        ("nan", "the first is row 73"),
        ("shape", "X must have shape (n, d) with group="),
        ("width", "the width of X is 3 in process 0 of the group and 2 in process 2"),
        ("weights", "a must have one weight per row of X, shape (5,)"),
        ("no weights", "a is given in process 0 of the group and None in process 1"),
        ("precision", "the type of X is torch.float64 in process 0 of the group and torch.float32 in process 1"),
        ("empty", "process 1 of the group has no rows of X, of which there are 135"),
        ("method", "method 'kernel' does not run in a group: pass method='cnt' or 'multiscale'"),
        ("unknown", "unknown method 'nothing'"),
        ("exact norms", "exact_norms"),
        ("features", "features= does not work with group= yet"),
        ("reach", "reach= does not work with group= yet"),
        ("sharpen", "sharpen=True takes the whole plan in one process"),
        ("precomputed", "cost='precomputed' takes whole matrices"),
        ("space", "X is a Space, which has all of its points"),
        ("not a group", "group must be a process group"),
        ("callback", "the disk of the callback is full"),
        ("midst", "MemoryError: no memory left for the tiles"),
    ],
)
def test_an_error_of_one_is_that_of_all(found, name, sentence):
    sentences = [process[name] for process in found["errors"]]
    assert len(sentences) == PROCESSES
    assert len({text.split(": ", 1)[1] for text in sentences}) == 1
    assert sentence in sentences[0]


def test_nobody_waits_for_one_that_failed(found):
    assert all(process["midst, seconds"] < 30 for process in found["errors"])
    values = [process["afterwards"] for process in found["errors"]]  # the group serves as before
    assert values == [found["checks"][0]["cnt"]["value"]] * PROCESSES


def test_the_first_process_is_called_back(found):
    assert [process["stopped"] for process in found["errors"]] == [("STOPPED", 2)] * PROCESSES


def test_a_process_that_is_killed_ends_the_others(found):
    assert len(found["killed"]) == PROCESSES - 1
    for process in found["killed"]:
        sentence, seconds = process["killed"]
        assert sentence.startswith("LostProcessError: a process of the group ended")
        assert seconds < 20


def test_without_processes_a_group_is_refused():
    x, y, *_ = data()
    with pytest.raises(ValueError, match="start the script by torchrun"):
        gromap.solve(x, y, group="world")

"""What each process of a group gives: its rows of X and of Y, as arrays or as DTensors, and options
that are the same in all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gromap import _check, _options
from gromap._group import Group, check_agreement, described
from gromap._solution import Solution, State
from gromap._space import Space
from gromap.geometry.indexed_costs import Precomputed

ALONE = ("features", "reach", "mass")  # options that one process alone can follow
ROWS = "each process gives its own rows"


class Own(NamedTuple):
    """What this process has of one side."""

    points: Tensor  # (n, d)
    weights: Tensor | None  # (n,)
    numpy: bool


def own_rows(points: Any, weights: Any, name: str, weights_name: str) -> Own:
    """Own rows, of which the whole is checked later."""
    if isinstance(points, Space):
        raise TypeError(f"{name} is a Space, which has all of its points: with group= pass own rows, as an array.")
    numpy = _check.is_numpy(points)
    x = _check.as_tensor(local(points, name), name).detach()
    if x.ndim != 2:
        raise ValueError(f"{name} must have shape (n, d) with group=: {ROWS}. Got {tuple(x.shape)}.")
    if weights is None:
        return Own(x, None, numpy)
    w = _check.as_tensor(local(weights, weights_name), weights_name).detach().to(x.device)
    if w.shape != x.shape[:1]:
        raise ValueError(
            f"{weights_name} must have one weight per row of {name}, shape ({len(x)},): {ROWS}. Got {tuple(w.shape)}."
        )
    return Own(x, w, numpy)


def is_sharded(x: Any) -> bool:
    """Whether this is a DTensor, which holds rows of several processes."""
    return isinstance(x, Tensor) and hasattr(x, "placements") and hasattr(x, "device_mesh")


def local(x: Any, name: str) -> Any:
    """Own rows of a DTensor; anything else is own rows already."""
    if not is_sharded(x):
        return x
    placements = x.placements
    if len(placements) != 1 or not placements[0].is_shard(0):
        raise ValueError(
            f"{name} is a DTensor placed as {placements}: {ROWS}, so that it must be sharded along its first axis over "
            f"a mesh of one dimension; {name}.redistribute(placements=[Shard(0)]) does so."
        )
    return x.to_local()


def processes_of(group: Any, X: Any) -> Group | None:
    """Who solves together; None where a process is alone. DTensors bring the group of their
    mesh."""
    if group is None and is_sharded(X) and X.device_mesh.ndim == 1:
        group = X.device_mesh.get_group()
    found = None if group is None else Group(group)
    return None if found is None or found.size == 1 else found


def check_options(options: dict[str, Any]) -> None:
    for name in ALONE:
        if options[name] is not None:
            raise ValueError(f"{name}= does not work with group= yet: leave out one of them.")
    if options["sharpen"]:
        raise ValueError("sharpen=True takes the whole plan in one process: leave it out, or leave out group=.")
    if any(isinstance(cost, Precomputed) or str(cost) == "precomputed" for cost in _check.pair(options["cost"])):
        raise ValueError("cost='precomputed' takes whole matrices: leave out group= and match in one process.")


def agreed(group: Group, x: Own, y: Own, options: dict[str, Any], device: torch.device) -> tuple[list[int], list[int]]:
    """How many rows each process has of X and of Y, if all agree on the rest."""
    facts = {name: described(value) for name, value in options.items() if name != "device"}
    if isinstance(options["init"], Solution | State):  # of which each process has its rows
        facts["init"] = f"a {type(options['init']).__name__}"
    for name, weights_name, side in (("X", "a", x), ("Y", "b", y)):
        kind = "numpy" if side.numpy else "torch"
        facts[f"the width of {name}"], facts[f"the type of {name}"] = str(side.points.shape[1]), str(side.points.dtype)
        facts[f"the library of {name}"], facts[weights_name] = kind, "given" if side.weights is not None else "None"
    facts["torch.__version__"] = torch.__version__
    facts["the kind of device"] = device.type
    facts["the processor"] = _processor(device)
    known = group.told((facts, len(x.points), len(y.points)))
    check_agreement([told[0] for told in known])
    counts = [told[1] for told in known], [told[2] for told in known]
    for rank, count in enumerate(counts[0]):
        if count == 0:
            raise ValueError(
                f"process {rank} of the group has no rows of X, of which there are {sum(counts[0])}: give each process "
                "one at least, or form a smaller group."
            )
    return counts


def _processor(device: torch.device) -> str:
    """Processes compute what they share each for itself, so that their last digits must agree."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return torch.backends.cpu.get_cpu_capability()  # pyright: ignore


def device_of(group: Group, asked: Any, x: Tensor) -> torch.device:
    """Where this process computes: as asked, where its rows are, or where its group can send
    from."""
    asked = _options.device(asked)
    if asked is not None:
        return asked
    return x.device if "cpu" in group.backends or x.device.type in group.backends else torch.device("cuda")


def joined(group: Group, side: Own, counts: list[int], device: torch.device) -> tuple[Any, Any]:
    """All points and weights of one side, as they were given."""
    parts = (None if z is None else group.joined(z.to(device), counts) for z in side[:2])
    points, weights = (z.cpu().numpy() if side.numpy and z is not None and device.type == "cpu" else z for z in parts)
    return points, weights


def whole_start(group: Group, init: Any, counts: list[int], device: torch.device) -> Any:
    """A start that knows the potentials of own rows alone, with those of all."""
    state = init.state if isinstance(init, Solution) else init
    f = state.f if isinstance(state, State) else None
    if not all(group.told(f is not None and len(f) == counts[group.rank])):
        return init
    assert f is not None
    return replace(state, f=group.joined(f.to(device), counts))

"""What each process of a group does for test_group.py: solves, and writes down what it got."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import gromap
from tests.conftest import cloud

N, M = 140, 90
CUTS = {2: ([0, 30, N], [0, 55, M]), 3: ([0, 70, 75, N], [0, 40, 40, M])}  # uneven; one process has no rows of Y
OPTIONS = {"epsilon": 5e-3, "dim": (4, 3), "seed": 3}
SENT: list[tuple[str, int]] = []  # collectives of this process: their kind and their bytes


def data(seed: int = 0):
    (x, a), (y, b) = cloud(N, 3, seed), cloud(M, 2, seed + 1)
    return x, y, a, b


def part(group, whole):
    rank, (rows, cols) = dist.get_rank(group), CUTS[dist.get_world_size(group)]
    mine = slice(rows[rank], rows[rank + 1]), slice(cols[rank], cols[rank + 1])
    return [z[mine[k % 2]] for k, z in enumerate(whole)]


def record(sol) -> dict:
    found = {name: getattr(sol, name) for name in ("value", "value_gw", "gamma", "potentials")}
    stats = {name: z for name, z in sol.stats.facts().items() if name != "seconds"}
    return found | {
        "error": sol.plan.marginal_error,
        "map": np.asarray(sol.map()),
        "argmax": np.asarray(sol.map("argmax")),
        "status": sol.status.name,
        "energy": sol.history["energy"],
        "inner_steps": sol.history["inner_steps"],
        "stats": stats,
        "kept": (sol.kept_X, sol.kept_Y),
        "shape": sol.plan.shape,
        "kl": sol.plan.kl(0.0),
    }


def count_messages() -> None:
    def counted(name):
        plain = getattr(dist, name)

        def call(x, *given, **options):
            SENT.append((name, x.numel() * x.element_size()))
            return plain(x, *given, **options)

        return call

    dist.all_reduce, dist.broadcast = counted("all_reduce"), counted("broadcast")


def raised(work) -> str:
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def checks(rank: int, world, two) -> dict:
    whole, found = data(), {}
    mine = part(world, whole)

    def same(name: str, group=world, given=mine, **options):
        if group is None:
            return
        found[name] = record(gromap.solve(*given, group=group, **{**OPTIONS, **options}))
        if rank == 0:
            plain = gromap.solve(*whole, **{**OPTIONS, **options})
            found[f"{name}, one process"] = record(plain)

    same("cnt")
    pyramid = gromap.Multiscale(levels=2, ratio=0.3)
    same("multiscale", method=pyramid)
    same("standard", method=gromap.CntGW(gromap.Loop(gromap.Sinkhorn(20, update="standard"), max_iter=6)), init="zero")
    same("annealed", method=gromap.CntGW(gromap.Loop(gromap.Sinkhorn(50, annealing=gromap.Annealing(8, 5)))))
    same("symmetric", method=gromap.CntGW(gromap.Loop(gromap.Sinkhorn(60, update="symmetric"))), epsilon=0.05)
    same("cold, from zero", init="zero", epsilon=1e-3, max_iter=4)  # overflows, and is rescued
    same("two processes", two, None if two is None else part(two, whole))

    SENT.clear()
    loop = gromap.Loop(gromap.Sinkhorn(20), adaptive=False, max_iter=3, tol=1e-300)
    count_messages()
    sol = gromap.solve(*mine, group=world, method=gromap.CntGW(loop), **(OPTIONS | {"init": "zero", "epsilon": 0.05}))
    found["sent"], found["inner"] = list(SENT), int(sol.history["inner_steps"].sum())

    sol = gromap.solve(*mine, group=world, **OPTIONS)
    names = np.array(["left", "right"])[(mine[0][:, 0] > 0).astype(int)]
    found["push"], found["pull"] = sol.push(mine[0]), sol.pull(whole[1])
    found["votes"] = sol.push(names, labels=True)
    again = gromap.solve(*mine, group=world, **(OPTIONS | {"init": sol}))
    found["again"] = len(again.history["energy"]), again.value, sol.value
    if rank == 0:
        plain = gromap.solve(*whole, **OPTIONS)
        names = np.array(["left", "right"])[(whole[0][:, 0] > 0).astype(int)]
        found["push, one process"], found["pull, one process"] = plain.push(whole[0]), plain.pull(whole[1])
        found["votes, one process"] = plain.push(names, labels=True)
    found["save"] = raised(lambda: sol.save("never.safetensors"))
    found["inverse"] = raised(sol.inverse_map), raised(lambda: sol.inverse_map("argmax"))

    alone = dist.new_group([rank], use_local_synchronization=True)
    one = gromap.solve(*whole, group=alone, **OPTIONS)
    found["alone"] = one.value, one.plan.shape, raised(one.inverse_map)

    tensors = [torch.from_numpy(z) for z in mine]
    found["torch"] = gromap.solve(*tensors, group=world, **OPTIONS).map()
    return found


def dtensors(rank: int, world) -> dict:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = [torch.from_numpy(z) for z in data()]
    sharded = [distribute_tensor(z, mesh, [Shard(0)]) for z in whole]
    sol = gromap.solve(*sharded, **OPTIONS)
    copies = distribute_tensor(whole[0], mesh, [Replicate()])
    wrong = raised(lambda: gromap.solve(copies, *sharded[1:], **OPTIONS))
    return {"dtensor": (sol.value, sol.plan.shape), "replicated": wrong}


def errors(rank: int, world) -> dict:
    """Every one of these ends in all processes, and leaves the group as it was."""
    mine, found = part(world, data()), {}

    def ends(name: str, given=mine, **options) -> None:
        found[name] = raised(lambda: gromap.solve(*given, group=world, **(OPTIONS | options)))

    ends("epsilon", epsilon=1e-2 if rank == 2 else 5e-3)
    ends("cost", cost=gromap.Power(1.5) if rank == 1 else "euclidean")
    ends("init", init=np.eye(4, 3) * (1 + (rank == 1)))
    ends("nan", [np.where(np.arange(len(mine[0]))[:, None] == 3, np.nan, mine[0]) if rank == 1 else mine[0], *mine[1:]])
    ends("shape", [mine[0][:, 0] if rank == 1 else mine[0], *mine[1:]])
    ends("width", [mine[0][:, :2] if rank == 2 else mine[0], *mine[1:]])
    ends("weights", [*mine[:2], mine[2][:-1] if rank == 1 else mine[2], mine[3]])
    ends("no weights", [*mine[:2], None if rank == 1 else mine[2], mine[3]])
    ends("precision", [mine[0].astype("float32") if rank == 1 else mine[0], *mine[1:]])
    ends("empty", [mine[0][:0] if rank == 1 else mine[0], mine[1], mine[2][:0] if rank == 1 else mine[2], mine[3]])
    ends("method", method="kernel")
    ends("unknown", method="nothing")
    ends("exact norms", method=gromap.CntGW(exact_norms=True))
    ends("features", features=(mine[0], mine[1]))
    ends("reach", reach=0.1)
    ends("sharpen", sharpen=True)
    ends("precomputed", cost="precomputed")
    ends("space", [gromap.Space(np.eye(4)), *mine[1:]])
    found["not a group"] = raised(lambda: gromap.solve(*mine, group="world", **OPTIONS))

    def callback(event):
        raise OSError("the disk of the callback is full")

    if rank == 0:
        found["callback"] = raised(lambda: gromap.solve(*mine, group=world, callback=callback, **OPTIONS))
    else:
        found["callback"] = raised(lambda: gromap.solve(*mine, group=world, **OPTIONS))
    stopped = gromap.solve(*mine, group=world, callback=lambda event: event.step == 2, **(OPTIONS | {"tol": 1e-12}))
    found["stopped"] = stopped.status.name, len(stopped.history["energy"])

    from gromap.transport import lowrank

    plain, calls, began = lowrank.LowRank.sums, [0], time.perf_counter()

    def fails(self, u, v):  # in the midst of Sinkhorn, in one process
        calls[0] += 1
        if calls[0] == 3:
            raise MemoryError("no memory left for the tiles")
        return plain(self, u, v)

    gromap.transport.sinkhorn.cached, kept = (lambda score: score), gromap.transport.sinkhorn.cached
    if rank == 1:
        lowrank.LowRank.sums = fails
    ends("midst", init="zero")
    found["midst, seconds"] = time.perf_counter() - began
    lowrank.LowRank.sums, gromap.transport.sinkhorn.cached = plain, kept
    found["afterwards"] = gromap.solve(*mine, group=world, **OPTIONS).value
    return found


def killed(rank: int, world) -> dict:
    """One process dies in the midst; must come last."""
    mine, began = part(world, data()), [0.0]

    def callback(event):
        began[0] = time.perf_counter()

    from gromap.solvers import together

    plain = together.alternate

    def dies(problem, begin, loop, watch):
        if rank == 2:
            os.kill(os.getpid(), 9)
        began[0] = time.perf_counter()
        return plain(problem, begin, loop, watch)

    together.alternate = dies
    return {"killed": (raised(lambda: gromap.solve(*mine, group=world, **OPTIONS)), time.perf_counter() - began[0])}


def main(rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    world = dist.group.WORLD
    two = dist.new_group([0, 1])
    parts = {
        "checks": lambda: checks(rank, world, two if rank < 2 else None),
        "dtensors": lambda: dtensors(rank, world),
        "errors": lambda: errors(rank, world),
        "killed": lambda: killed(rank, world),
    }
    for name, work in parts.items():
        Path(folder, f"{name}{rank}").write_bytes(pickle.dumps(work()))

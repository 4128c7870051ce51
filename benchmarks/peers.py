"""Match the man pair with gromap and with the peers that are installed: time, peak memory, loss,
matching error.

    python benchmarks/peers.py --sizes 1000 2000 --power 0.5
    python benchmarks/peers.py --geodesic --even --power 0.5 --epsilon 3e-4

Everyone gets the same weighted clouds of radius 1, the same cost |x - x'|^p and the same
temperature, runs alone in a fresh process, on the CPU, and is charged for its cost matrices, its
embedding, its compilation and the row argmax of its plan; imports are free, and so are the points
of R^8 that --geodesic gives to everyone in place of the vertices, whose distances follow the
surface. torchgw is left out of --even: it is called with equal weights.

    L         Σ (cx_ik - cy_jl)² π_ij π_kl in the exact costs, after π is rounded to exact marginals
    error     mean straight distance of the matched point to the true one, in % of the diameter
    marginal  misplaced mass before the rounding, rows plus columns
    peak      growth of the resident set from the end of the imports to the end of the match

The authors' code takes part with --authors FOLDER, for the Euclidean cost. The folder must hold a
module `authors_adapter.py` with one function, `solve(x, y, epsilon) -> plan`: (n, 3) float64 arrays
of radius 1, gromap's temperature, an (n, n) array.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from man import ManPair, man_pair

from gromap.bench.machine import Meter, add_cores, describe, table, use_cores, version
from gromap.bench.scores import Array, Index, dense_objective, feasible, marginal_error, pairwise_distances

CPU = torch.device("cpu")


class Answer(NamedTuple):
    """What a solver hands back while the clock runs; its plan is made dense once the clock has
    stopped."""

    match: Index
    plan: Callable[[], Array]
    extra: dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A function of a pair, of ε and of p, the package to name, and the modules to import before
    the clock starts."""

    run: Callable[[ManPair, float, float], Answer]
    package: str | None
    modules: tuple[str, ...]

    @property
    def installed(self) -> bool:
        return find_spec(self.modules[0]) is not None


def gromap_in(dtype: type) -> Callable[[ManPair, float, float], Answer]:
    """gromap with its defaults, in one precision."""

    def run(pair: ManPair, epsilon: float, p: float) -> Answer:
        gromap = import_module("gromap")
        clouds = pair.source.astype(dtype), pair.target.astype(dtype)
        solution = gromap.solve(*clouds, a=pair.a, b=pair.b, cost=gromap.Power(p), epsilon=epsilon)
        extra = {
            "status": solution.status.name,
            "phases": solution.stats.seconds,
            "outer": len(solution.history["energy"]),
        }
        extra["inner"] = int(solution.history["inner_steps"].sum())
        return Answer(solution.map("argmax"), lambda: solution.plan.dense().astype(np.float64), extra)

    return run


def costs(pair: ManPair, p: float) -> tuple[Array, Array]:
    return pairwise_distances(pair.source, pair.source) ** p, pairwise_distances(pair.target, pair.target) ** p


def pot_cg(pair: ManPair, _: float, p: float) -> Answer:
    """POT's conditional gradient with its defaults: no temperature."""
    ot = import_module("ot")
    cx, cy = costs(pair, p)
    plan, log = ot.gromov.gromov_wasserstein(cx, cy, pair.a, pair.b, loss_fun="square_loss", symmetric=True, log=True)
    return Answer(plan.argmax(1), lambda: plan, {"outer": len(log["loss"])})


def pot_entropic(pair: ManPair, epsilon: float, p: float) -> Answer:
    """POT's entropic solver with its defaults: its ε means the same as gromap's."""
    ot = import_module("ot")
    cx, cy = costs(pair, p)
    plan = ot.gromov.entropic_gromov_wasserstein(
        cx, cy, pair.a, pair.b, loss_fun="square_loss", epsilon=epsilon, symmetric=True
    )
    return Answer(plan.argmax(1), lambda: plan, {})


def ott_entropic(pair: ManPair, epsilon: float, p: float) -> Answer:
    """OTT-JAX with its defaults (float32) and a warm start, compiled: it linearizes L(π), hence
    half of gromap's ε."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    geometry = import_module("ott.geometry.geometry").Geometry
    problem = import_module("ott.problems.quadratic.quadratic_problem").QuadraticProblem
    sinkhorn = import_module("ott.solvers.linear.sinkhorn").Sinkhorn
    solver = import_module("ott.solvers.quadratic.gromov_wasserstein").GromovWasserstein
    prob = problem(*(geometry(jnp.asarray(c)) for c in costs(pair, p)), a=jnp.asarray(pair.a), b=jnp.asarray(pair.b))
    begin = time.perf_counter()
    compiled = jax.jit(solver(sinkhorn(), epsilon=epsilon / 2, warm_start=True)).lower(prob).compile()
    seconds = time.perf_counter() - begin
    out = compiled(prob)
    plan = np.asarray(out.matrix)
    extra = {"compile_seconds": seconds, "outer": int((out.costs != -1).sum()), "inner_converged": bool(out.converged)}
    return Answer(plan.argmax(1), lambda: plan.astype(np.float64), extra)


def torchgw(pair: ManPair, epsilon: float, p: float) -> Answer:
    """torchgw's sampled solver with its defaults, on these costs in place of its graph distances.

    It linearizes L(π) as OTT-JAX does, and divides both costs by their largest value.
    """
    cx, cy = costs(pair, p)
    torch.manual_seed(0)  # it samples pairs of points
    scaled = epsilon / 2 / float(cx.max() * cy.max())
    plan, log = import_module("torchgw").sampled_gw(
        dist_source=cx, dist_target=cy, distance_mode="precomputed", epsilon=scaled, device=CPU, log=True
    )
    return Answer(plan.argmax(1).numpy(), plan.numpy, {"outer": log["n_iter"]})


def authors(pair: ManPair, epsilon: float, _: float) -> Answer:
    plan = np.asarray(import_module("authors_adapter").solve(pair.source, pair.target, epsilon), np.float64)
    return Answer(plan.argmax(1), lambda: plan, {})


OTT_MODULES = ("ott", "jax", "jax.numpy", "ott.geometry.geometry", "ott.solvers.quadratic.gromov_wasserstein")
SOLVERS = {
    "gromap-f32": Peer(gromap_in(np.float32), "gromap", ("gromap",)),
    "gromap-f64": Peer(gromap_in(np.float64), "gromap", ("gromap",)),
    "pot-cg": Peer(pot_cg, "pot", ("ot",)),
    "pot-entropic": Peer(pot_entropic, "pot", ("ot",)),
    "ott": Peer(ott_entropic, "ott-jax", OTT_MODULES),
    "torchgw": Peer(torchgw, "torchgw", ("torchgw",)),
    "authors": Peer(authors, None, ("authors_adapter",)),
}
REFERENCE = "gromap-f32"


def work(name: str, n: int, args: argparse.Namespace, answer: Connection) -> None:
    """Run one solver in this fresh process and send its scores; the alarm ends the process."""
    for module in SOLVERS[name].modules:
        import_module(module)
    pair = man_pair(n, args.seed, args.geodesic, args.even)
    meter, cpu = Meter.start(CPU), time.process_time()
    signal.alarm(args.timeout)
    match, plan, extra = SOLVERS[name].run(pair, args.epsilon, args.power)
    (seconds, peak), cpu_seconds = meter.read(), time.process_time() - cpu
    signal.alarm(0)
    pi, (cx, cy), weights = plan(), costs(pair, args.power), (pair.a, pair.b)
    scores = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_mb": peak / 1e6,
        "loss": dense_objective(cx, cy, feasible(pi, *weights)),
        "loss_before_rounding": dense_objective(cx, cy, pi),
        "error_percent": 100 * pair.error(match),
        "marginal_error": marginal_error(pi, *weights),
    }
    answer.send(scores | extra)


def measure(name: str, n: int, args: argparse.Namespace) -> dict[str, Any]:
    """One record: the scores of one solver at one size, or why there are none."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    child = spawn.Process(target=work, args=(name, n, args, there))
    child.start()
    there.close()
    try:
        scores = here.recv()
    except EOFError:
        scores = None
    child.join()
    if scores is None:
        late = child.exitcode == -signal.SIGALRM
        scores = {"stopped": f"> {args.timeout} s" if late else f"failed, exit code {child.exitcode}"}
    return {"n": n, "solver": name, "load": os.getloadavg()[0]} | scores


def row(record: dict[str, Any], reference: float | None) -> dict[str, str]:
    """A record as cells of a table; the ratio is the time over that of the reference at the same
    size."""
    start = {"solver": record["solver"], "n": str(record["n"])}
    if "stopped" in record:
        return start | {"time s": record["stopped"]}
    return start | {
        "time s": f"{record['seconds']:.2f}",
        "cpu s": f"{record['cpu_seconds']:.2f}",
        "ratio": f"{record['seconds'] / reference:.2f}" if reference else "",
        "peak MB": f"{record['peak_mb']:.0f}",
        "L": f"{record['loss']:.5f}",
        "error %": f"{record['error_percent']:.2f}",
        "marginal": f"{record['marginal_error']:.1e}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 2000, 4000], help="points drawn from each shape")
    parser.add_argument(
        "--peers", nargs="+", choices=SOLVERS, default=list(SOLVERS), help="solvers to run, if installed"
    )
    parser.add_argument("--timeout", type=int, default=300, help="seconds that one match may take")
    parser.add_argument("--epsilon", type=float, default=1e-3, help="temperature, in gromap's convention")
    parser.add_argument("--power", type=float, default=1.0, help="p of the base cost |x - x'|^p")
    parser.add_argument("--geodesic", action="store_true", help="geodesic distances instead of straight ones")
    parser.add_argument(
        "--even", action="store_true", help="farthest points with areas as weights instead of random points"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random subsets")
    parser.add_argument("--authors", type=Path, metavar="FOLDER", help="where authors_adapter.py is, see above")
    add_cores(parser)
    args = parser.parse_args()
    use_cores(args.cores)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # for the processes to come
    if args.authors:
        if args.power != 1 or args.geodesic or args.even:
            parser.error(
                "--authors is for the Euclidean cost and equal weights: leave out --power, --geodesic and --even"
            )
        if not (args.authors / "authors_adapter.py").is_file():
            parser.error(
                f"there is no authors_adapter.py in {args.authors}: write one with solve(x, y, epsilon) -> plan"
            )
        sys.path.insert(0, str(args.authors.resolve()))  # handed on to the processes to come
    names = [name for name in args.peers if SOLVERS[name].installed and not (args.even and name == "torchgw")]
    packages = {"numpy", *(SOLVERS[name].package for name in names)}
    machine = describe(CPU) | {
        "versions": {package: version(package) for package in sorted(filter(None, packages))},
        "epsilon": args.epsilon,
        "power": args.power,
        "geodesic": args.geodesic,
        "even": args.even,
        "floor_percent": {n: 100 * man_pair(n, args.seed, args.geodesic, args.even).floor for n in args.sizes},
    }
    print(json.dumps(machine), flush=True)
    records: list[dict[str, Any]] = []
    for n in sorted(args.sizes):
        for name in names:
            if any(r["solver"] == name and "stopped" in r for r in records):
                record = {"n": n, "solver": name, "stopped": "not tried"}
            else:
                print(f"{name}, {n} points ...", file=sys.stderr, flush=True)
                record = measure(name, n, args)
            print(json.dumps(record), flush=True)
            records.append(record)
    print(
        f"\n{machine['cores']} cores, epsilon {args.epsilon:g}, cost |x - x'|^{args.power:g}; ratio: time over "
        f"{REFERENCE}'s"
    )
    print(", ".join(f"{package} {number}" for package, number in machine["versions"].items()))
    print("not run: " + (", ".join(name for name in args.peers if name not in names) or "none"))
    print("lowest possible error: " + ", ".join(f"{e:.2f} % at {n}" for n, e in machine["floor_percent"].items()))
    reference = {r["n"]: r["seconds"] for r in records if r["solver"] == REFERENCE and "seconds" in r}
    print(table([row(record, reference.get(record["n"])) for record in records]))


if __name__ == "__main__":
    main()

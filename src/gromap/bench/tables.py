"""Tables of the paper's experiments, from their records."""

from __future__ import annotations

from typing import Any

import numpy as np

from gromap.bench.jobs import Records
from gromap.bench.parts import Table
from gromap.bench.settings import ORDER

# the others know the costs up to a rank of their own
FAMILY = {
    "Kernel-GW": "Entropic-GW",
    "ProximalKernel-GW": "Proximal-GW",
}
SAMPLES = 200  # times at which curves are averaged
SETTLED = 0.02  # misplaced mass up to which an energy may serve as a reference


def match_table(records: Records) -> Table:
    """One row for each pair and size: those that were run, then those of which the memory was
    predicted."""
    solvers = sorted({key[2] for key in records}, key=ORDER.index)
    cases = {key[:2]: r for key, r in records.items()}
    order = sorted(cases, key=lambda c: (not cases[c]["run"], c[0] != "human", int(c[1]), c[0]))
    rows = [["pair", "distances", "points", *solvers]]
    for pair, n in order:
        cells = [match_cell(records[pair, n, s]) if (pair, n, s) in records else "" for s in solvers]
        rows.append([pair, "geodesic" if cases[pair, n]["geodesic"] else "straight", f"{int(n):,}", *cells])
    note = (
        "Seconds, embedding and search included, of short runs the median; then GW_ε in features of 20 axes, after "
        "one step with Sinkhorn run to its end, since plans that miss their marginals look better than they are; in "
        "brackets the mass that the solver itself left misplaced. Mem.: predicted not to fit, not tried; a size in "
        "brackets: what a run would take, predicted; >: stopped before it had settled. All start from Γ = 0 but the "
        "last column, which is gromap.solve(x, y): a global search, then the solver that it chooses."
    )
    return Table(rows, note)


def match_cell(record: dict[str, Any]) -> str:
    """Time and objective, or what the memory would be.

    >>> match_cell({"fits": False, "memory": 3 * 2**40})
    'Mem. (3,072 GiB)'
    >>> record = {"fits": True, "memory": 1, "seconds": 61.0, "status": "STOPPED"}
    >>> match_cell(record | {"energy": 0.5, "marginal_error": 0.01})
    '> 61.0 s, 0.50000 (1e-02)'
    """
    if not record["fits"]:
        return f"Mem. ({_gib(record['memory'])})"
    if "seconds" not in record:
        return f"({_gib(record['memory'])})"
    more, digits = "> " if record["status"] == "STOPPED" else "", 1 if record["seconds"] >= 10 else 2
    return f"{more}{record['seconds']:.{digits}f} s, {record['energy']:.5f} ({record['marginal_error']:.0e})"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.{0 if size > 10 * 2**30 else 1}f} GiB"


def cost_table(records: Records) -> Table:
    rows = [["cost", "error of the match, of the diameter", "variance explained", "status"]]
    for (name,), r in records.items():
        rows.append([name, f"{r['error']:.1%}", ", ".join(f"{e:.0%}" for e in r["explained"]), _words(r["status"])])
    return Table(rows)


def _words(status: str) -> str:
    return status.lower().replace("_", " ")


def texture_table(records: Records) -> Table:
    rows = [["solver", "solve", "own objective", "status"]]
    for name in sorted((key[0] for key in records if key[0] in ORDER), key=ORDER.index):
        r = records[(name,)]
        rows.append([name, f"{r['seconds']:.1f} s", f"{r['value']:.4f}", _words(r["status"])])
    return Table(rows)


def reference(records: Records, solver: str, seed: str) -> float:
    """The lowest last energy, in the same costs and from the same seed, of a run whose plan is
    nearly a coupling."""
    mine = [r for key, r in records.items() if (family(key[0]), key[3]) == (family(solver), seed)]
    ends = [(r["energy"][-1], r["marginal_error"][-1]) for r in mine if np.isfinite(r["energy"][-1])]
    good = [energy for energy, error in ends if error <= SETTLED]
    return min(good) if good else float(np.median([energy for energy, _ in ends])) if ends else float("nan")


def family(solver: str) -> str:
    """Solvers whose energies compare."""
    return FAMILY.get(solver, solver)


def average(runs: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and energies, averaged over runs at equal times; a run that has ended stays where
    it ended.

    >>> runs = [{"seconds": [1, 4], "energy": [9, 3]}, {"seconds": [1, 2], "energy": [5, 1]}]
    >>> average(runs)[1][[0, -1]]
    array([7., 2.])
    """
    if len(runs) == 1:
        return np.array(runs[0]["seconds"]), np.array(runs[0]["energy"])
    begin, end = (max(r["seconds"][k] for r in runs) for k in (0, -1))
    at = np.geomspace(begin, end, SAMPLES)
    return at, np.mean([np.interp(at, r["seconds"], r["energy"]) for r in runs], 0)


def seeds(records: Records) -> list[str]:
    return sorted({key[3] for key in records})


def curve_table(records: Records) -> Table:
    """The last energy over the reference, and the mass that is misplaced then, averaged over
    seeds."""
    rows = [["solver", "updates", *budgets(records)]]
    for solver, update in panels(records):
        cells = []
        for budget in budgets(records):
            runs = {key[3]: r for key, r in records.items() if key[:3] == (solver, update, budget)}
            energy = [r["energy"][-1] / reference(records, solver, seed) for seed, r in runs.items()]
            error = [r["marginal_error"][-1] for r in runs.values()]
            cells.append(f"{np.mean(energy):.2f} ({np.mean(error):.0e})" if runs else "")
        rows.append([solver, update, *cells])
    note = (
        f"Last energy over the lowest of a run, in the same costs, that misplaces less than {SETTLED:.0%} of the mass"
    )
    return Table(rows, f"{note}; in brackets what it misplaces{_over(records)}.")


def _over(records: Records) -> str:
    count = len(seeds(records))
    return f"; averages over {count} draws of the points" if count > 1 else ""


def panels(records: Records) -> list[tuple[str, ...]]:
    """Solvers and their updates."""
    return sorted({key[:2] for key in records}, key=lambda p: (ORDER.index(p[0]), p[1]))


def budgets(records: Records) -> list[str]:
    """The budgets of inner steps, small ones first, "adaptive" last."""
    return sorted({key[2] for key in records}, key=lambda b: (b == "adaptive", 0.0 if b == "adaptive" else float(b)))


def time_table(seconds: dict[str, float], runs: dict[str, int]) -> Table:
    rows = [["experiment", "runs", "seconds"]]
    rows += [[name, str(runs[name]), f"{took:.0f}"] for name, took in seconds.items()]
    return Table([*rows, ["in all", str(sum(runs.values())), f"{sum(seconds.values()):.0f}"]])

"""The report of paper.py: tables and figures from the records on disk, as report.md and one PNG for each figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

Records = dict[tuple[str, ...], dict[str, Any]]  # by the parts of their keys
ROWS = (("Entropic-GW", "Kernel-GW"), ("Quadratic-LowRank-GW", "CNT-GW"))
UPDATES = ("standard", "symmetric")
FAMILY = {"Kernel-GW": "Entropic-GW", "ProximalKernel-GW": "Proximal-GW"}  # the others know the costs up to a rank of their own
SETTLED = 0.02  # misplaced mass up to which an energy may serve as a reference


def read(folder: Path, experiment: str) -> Records:
    records = (json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / experiment).glob("*.json")))
    return {tuple(r["key"].split("/")): r for r in records}


def write(folder: Path, out: Path) -> Path:
    """report.md beside its figures."""
    facts = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    parts = [
        "# The paper's experiments on solvers, again",
        f"Mode: {folder.name}. " + ", ".join(f"{name} {value}" for name, value in facts.items()) + ".",
        "Energies are those of the plans as they are, whose marginals may be off (by the dual, as the loop computes them), and "
        "for CNT-GW and Quadratic-LowRank-GW in their costs of rank 20. *Exact* objectives are L + ε KL of the coupling next "
        "to the plan, with the costs themselves.",
    ]
    matches, dims, costs = (read(folder, e) for e in ("matches", "dims", "costs"))
    if matches:
        parts += ["## Time and objective (Table benchmark, Fig. benchmark)", match_table(matches)]
        parts.append(_figure(run_times, matches, out, "run_times"))
    if dims:
        parts += ["## Error against the dimension (Fig. experiments_approxdim)", _figure(approximation, dims, out, "dims")]
    if costs:
        parts += ["## Base costs", cost_table(costs)]
    for experiment, title, legend in (
        ("curves", "Convergence", "Sinkhorn steps"),
        ("thresholds", "Convergence with marginal thresholds (Fig. cvg_stopThr)", "misplaced mass"),
        ("others", "Other solvers (Fig. other_solvers)", "Sinkhorn steps"),
    ):
        records = read(folder, experiment)
        for cloud in dict.fromkeys(key[0] for key in records):
            mine = {key[1:]: r for key, r in records.items() if key[0] == cloud}
            name = f"{experiment}_{cloud}".replace(" ", "_")
            parts += [f"## {title}: {cloud}", _figure(convergence, mine, out, name, legend), curve_table(mine)]
    if swings := read(folder, "oscillation"):
        parts += ["## A cost that is not CNT (Fig. gradientbias)", _figure(oscillation, swings, out, "oscillation")]
    path = out / "report.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def _figure(draw: Any, records: Records, out: Path, name: str, *more: Any) -> str:
    figure = draw(records, *more)
    figure.savefig(out / f"{name}.png", dpi=110, bbox_inches="tight")
    plt.close(figure)
    return f"![{name}]({name}.png)"


def _markdown(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def match_table(records: Records) -> str:
    solvers = list(dict.fromkeys(key[2] for key in records))
    sizes = sorted({int(key[1]) for key in records})
    rows = [["N, M", *solvers]]
    for n in sizes:
        rows.append([f"{n:,}", *(match_cell(records["human", str(n), s]) for s in solvers)])
    note = (
        "Time, embedding included; the exact objective, or in italics the solver's own. Mem.: predicted not to fit, not tried."
    )
    return _markdown(rows) + "\n\n" + note


def match_cell(record: dict[str, Any]) -> str:
    if not record["fits"]:
        return f"Mem. ({record['memory'] / 2**30:.0f} GiB)"
    if "seconds" not in record:
        return f"not run ({record['memory'] / 2**30:.1f} GiB)"
    value = f"{record['exact']:.4f}" if record["exact"] is not None else f"*{record['value']:.4f}*"
    return f"{record['seconds']:.1f} s, {value}"


def cost_table(records: Records) -> str:
    rows = [["cost", "error of the match, of the diameter", "variance explained", "status"]]
    for (name,), r in records.items():
        kept = ", ".join(f"{e:.0%}" for e in r["explained"])
        rows.append([name.replace("|", "\\|"), f"{r['error']:.1%}", kept, r["status"]])
    return _markdown(rows)


def reference(records: Records, solver: str) -> float:
    """The lowest last energy, in the same costs, of a run whose plan is nearly a coupling."""
    mine = [r for key, r in records.items() if _family(key[0]) == _family(solver)]
    ends = [(r["energy"][-1], r["marginal_error"][-1]) for r in mine if np.isfinite(r["energy"][-1])]
    good = [energy for energy, error in ends if error <= SETTLED]
    return min(good) if good else float(np.median([energy for energy, _ in ends]))


def _family(solver: str) -> str:
    return FAMILY.get(solver, solver)


def curve_table(records: Records) -> str:
    """The last energy over the reference, and the mass that is misplaced then, averaged over seeds."""
    budgets = list(dict.fromkeys(key[2] for key in sorted(records, key=lambda k: (k[2] == "adaptive", _number(k[2])))))
    rows = [["solver", "updates", *budgets]]
    for solver, update in dict.fromkeys(key[:2] for key in records):
        cells = []
        for budget in budgets:
            runs = [r for key, r in records.items() if key[:3] == (solver, update, budget)]
            energy = np.mean([r["energy"][-1] for r in runs]) / reference(records, solver)
            cells.append(f"{energy:.2f} ({np.mean([r['marginal_error'][-1] for r in runs]):.0e})")
        rows.append([solver, update, *cells])
    note = f"Last energy over the lowest of a run, in the same costs, that misplaces less than {SETTLED:.0%} of the mass"
    return _markdown(rows) + f"\n\n{note}; in brackets what it misplaces."


def _number(budget: str) -> float:
    return float(budget) if budget != "adaptive" else 0.0


def convergence(records: Records, legend: str) -> Any:
    """Energy against time: one panel for each solver and update, one colour for each budget."""
    solvers = list(dict.fromkeys(key[0] for key in records))
    rows = [r for r in ROWS if r[0] in solvers] or [tuple(solvers[k : k + 2]) for k in range(0, len(solvers), 2)]
    budgets = sorted({key[2] for key in records}, key=lambda b: (b == "adaptive", _number(b)))
    colours = dict(zip(budgets, plt.get_cmap("viridis")(np.linspace(0, 0.9, len(budgets))), strict=True))
    if "adaptive" in colours:
        colours["adaptive"] = np.array([0.85, 0.1, 0.1, 1.0])
    top = 2.2 * max(reference(records, solver) for solver in solvers)
    figure, axes = plt.subplots(len(rows), 4, figsize=(15, 3.1 * len(rows)), sharey=True, squeeze=False)
    for row, pair in zip(axes, rows, strict=True):
        for axis, (solver, update) in zip(row, ((s, u) for s in pair for u in UPDATES), strict=False):
            for budget in budgets:
                for key, record in records.items():
                    if key[:3] == (solver, update, budget):
                        axis.plot(record["seconds"], record["energy"], color=colours[budget], label=budget, lw=1.3, alpha=0.9)
            _dress(axis, f"{solver}, {update}", reference(records, solver), top)
    handles = dict(zip(*reversed(axes[0, 0].get_legend_handles_labels()), strict=True))
    axes[0, -1].legend(handles.values(), handles.keys(), title=legend, fontsize=8, loc="upper right")
    figure.tight_layout()
    return figure


def _dress(axis: Axes, title: str, best: float, top: float) -> None:
    axis.axhline(best, color="0.7", lw=0.8, zorder=0)
    axis.set(xscale="log", ylim=(0, top), title=title, xlabel="seconds")
    axis.title.set_fontsize(9)
    axis.xaxis.set_minor_formatter(NullFormatter())
    if axis.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        axis.set_ylabel("energy")


def _ticks(axis: Axes, at: list[int]) -> None:
    """Ticks at the values themselves, on a logarithmic axis."""
    values = sorted(set(at))
    axis.set_xticks(values, [f"{v:,}" for v in values])
    axis.minorticks_off()


def run_times(records: Records) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
    for solver in dict.fromkeys(key[2] for key in records):
        runs = sorted((int(key[1]), r) for key, r in records.items() if key[2] == solver and "seconds" in r)
        left.loglog([n for n, _ in runs], [r["seconds"] for _, r in runs], "o-", label=solver)
        right.semilogx([n for n, _ in runs], [r["exact"] or r["value"] for _, r in runs], "o-", label=solver)
    for axis in (left, right):
        _ticks(axis, [int(key[1]) for key, r in records.items() if "seconds" in r])
    left.set(xlabel="points of each cloud", ylabel="seconds, embedding included")
    right.set(xlabel="points of each cloud", ylabel="objective", ylim=(0, None))
    left.legend(fontsize=8)
    figure.tight_layout()
    return figure


def approximation(records: Records) -> Any:
    figure, axis = plt.subplots(figsize=(5.5, 3.6))
    for solver in dict.fromkeys(key[0] for key in records):
        runs = sorted((r["dim"], abs(r["exact"] / r["best"] - 1)) for key, r in records.items() if key[0] == solver)
        axis.loglog([d for d, _ in runs], [max(e, 1e-5) for _, e in runs], "o-", label=solver)
    axis.axhline(0.01, color="0.7", lw=0.8, zorder=0)
    _ticks(axis, [r["dim"] for r in records.values()])
    axis.set(xlabel="dimension D = E", ylabel="relative error of the exact objective")
    axis.legend(fontsize=8)
    figure.tight_layout()
    return figure


def oscillation(records: Records) -> Any:
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), gridspec_kw={"width_ratios": [1.6, 1, 1]})
    for (power,), record in records.items():
        axes[0].plot(range(1, len(record["moved"]) + 1), record["moved"], "o-", label=f"|x - x'|^{power}")
    axes[0].set(xlabel="step of Entropic-GW", ylabel="mass that moves, Σ |π' - π|")
    axes[0].legend(fontsize=8)
    for axis, plan, when in zip(axes[1:], records[("6",)]["plans"], ("before", "after"), strict=True):
        axis.imshow(np.array(plan), cmap="magma_r")
        axis.set(title=f"sixth power, {when} the last step", xticks=[], yticks=[])
        axis.title.set_fontsize(9)
    figure.tight_layout()
    return figure

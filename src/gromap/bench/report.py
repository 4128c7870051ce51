"""The report of the paper's experiments: report.md beside its figures, and report.html with the
figures inside.

Both are written from the records on disk alone, through the same parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gromap._files import replacing
from gromap.bench import figures
from gromap.bench.jobs import Records, read, seconds
from gromap.bench.parts import Part, Picture, Text, Title, markdown, page
from gromap.bench.plans import FLOW_METHODS
from gromap.bench.settings import COSTS, FLOW_COSTS
from gromap.bench.shapes import CREDIT
from gromap.bench.tables import cost_table, curve_table, match_table, texture_table, time_table

CURVES = (
    ("curves", "Convergence", "Sinkhorn steps", "Energy against time, one color for each number of Sinkhorn steps."),
    (
        "thresholds",
        "Sinkhorn until a marginal error (Fig. cvg_stopThr)",
        "misplaced mass",
        "So much mass may be misplaced.",
    ),
    (
        "others",
        "Other solvers (Fig. other_solvers)",
        "Sinkhorn steps",
        "For LowRank-GW the steps are those of its projection.",
    ),
)


def write(folder: Path, out: Path, left_out: list[str]) -> tuple[Path, Path]:
    """report.md and report.html, from the records in a folder."""
    parts = list(contents(folder, out, left_out))
    paths = out / "report.md", out / "report.html"
    for path, text in zip(paths, (markdown(parts), page(parts, out)), strict=True):
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return paths


def contents(folder: Path, out: Path, left_out: list[str]) -> Iterator[Part]:
    """All parts; figures are drawn into `out` on the way."""
    facts = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    yield Title("The paper's experiments on solvers, reproduced", 1)
    yield Text(f"Mode: {folder.name}. " + ", ".join(f"{name} {value}" for name, value in facts.items()) + ".")
    yield Text(
        "Energies are those of the plans as they are, whose marginals may be off (by the dual, as the loop computes "
        "them), and for CNT-GW and Quadratic-LowRank-GW in their costs of rank 20. *Exact* objectives are L + ε KL "
        "with the costs themselves, after further Sinkhorn steps that are not timed: a hundred may leave 1 to 2 % of "
        "the mass misplaced. Labels as Fig. ablation are those of the paper."
    )
    yield from (Text(line[0].upper() + line[1:]) for line in left_out)
    if records := read(folder, "matches"):
        yield Title("Time and objective (Table benchmark, Fig. benchmark)")
        yield match_table(records)
        yield draw(figures.run_times, records, out, "run_times", "Time and objective on the human pair, by size.")
        yield Text(f"Vessels are matched to themselves, other points of them. {CREDIT}")
    if records := read(folder, "textures"):
        yield Title("Textures, carried by each solver (Fig. horse_texture_comparisons)")
        caption = (
            "The source, and what each plan carries to the target. Couplings of low rank merge squares into bands: "
            "all points of a part get the same place. Left and right may be swapped, which distances cannot tell."
        )
        yield draw(figures.textures, records, out, "textures", caption)
        yield texture_table(records)
    if records := read(folder, "dims"):
        yield Title("Error against the dimension (Fig. experiments_approxdim)")
        caption = (
            "The exact objective of plans from D axes, against that of Kernel-GW from the same start; the line: 1 %."
        )
        yield draw(figures.approximation, records, out, "dims", caption)
    if records := read(folder, "costs"):
        yield Title("Base costs")
        yield cost_table({(name,): records[(name,)] for name in COSTS if (name,) in records})
    if records := read(folder, "flows"):
        yield Title("Base costs as flows (Fig. flows_S_C, flows_S_C_approx)")
        keys = [(cost, kind) for kind in FLOW_METHODS for cost in FLOW_COSTS]
        caption = 'A reversed "5" flows to a "C", by exact gradients and by those of a kernel PCA.'
        yield draw(figures.flows, {key: records[key] for key in keys if key in records}, out, "flows", caption)
    for experiment, title, legend, caption in CURVES:
        yield from _curves(read(folder, experiment), out, experiment, title, legend, caption)
    records = read(folder, "trajectories")
    if len(records) > 1 and ("energy",) in records:
        yield Title("Steps of the linear map (Fig. convergencebias)")
        caption = (
            "Γ after each outer step from π = α⊗β, over the energy that it should minimize; the star is the lowest "
            "minimum. With few Sinkhorn steps, standard ones hold Γ back, and here end in the other minimum; "
            "symmetrized ones go straight, but Entropic-GW then falls back towards the origin, where Kernel-GW stays "
            "about the minimum."
        )
        yield draw(figures.trajectories, records, out, "trajectories", caption)
    if records := read(folder, "oscillation"):
        yield Title("A cost that is not CNT (Fig. gradientbias)")
        caption = "Entropic-GW settles for squared norms, and swings between two plans for their third power."
        yield draw(figures.oscillation, records, out, "oscillation", caption)
    yield Title("How long it took")
    took = seconds(folder)
    yield time_table(took, {name: len(read(folder, name)) for name in took})


def _curves(records: Records, out: Path, experiment: str, title: str, legend: str, caption: str) -> Iterator[Part]:
    for cloud in dict.fromkeys(key[0] for key in records):
        mine = {key[1:]: r for key, r in records.items() if key[0] == cloud}
        yield Title(f"{title}: {cloud}")
        yield draw(figures.convergence, mine, out, f"{experiment}_{cloud}".replace(" ", "_"), caption, legend)
        yield curve_table(mine)


def draw(plot: Callable[..., Any], records: Records, out: Path, name: str, caption: str, *more: Any) -> Picture:
    """Draw a figure into a PNG file."""
    with replacing(out / f"{name}.png") as temporary:
        plot(records, *more).savefig(temporary, dpi=110, format="png")
    return Picture(f"{name}.png", caption)

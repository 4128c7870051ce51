"""The text beside the shapes: what the solver says of the match, and the minima of a landscape."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np

from gromap.report import charts
from gromap.report.landscape import Land
from gromap.solution import Solution

GRID = 30  # values along each side of the plane of the minima


def match_tab(solution: Solution, settings: Mapping[str, object] | None) -> str:
    """What the solver says: the values, how they were reached, and the settings."""
    info, history = solution.info, solution.history
    n, m = solution.plan.shape
    rows = [
        ("GW with entropy", f"{solution.value:.6g}"),
        ("GW", f"{solution.value_gw:.6g}"),
        ("Points", f"{n:,} × {m:,}"),
        ("Epsilon", f"{solution.epsilon:.3g}"),
        ("Marginal error", f"{solution.plan.marginal_error:.2e}"),
        ("Steps", f"{len(history['energy'])} outer, {int(np.sum(history['inner_steps']))} Sinkhorn"),
    ]
    if "method" in info:
        rows.append(
            ("Method", ", ".join(str(info[key]).removeprefix("torch.") for key in ("method", "dtype", "device") if key in info))
        )
    if "explained" in info:
        rows.append(("Variance embedded", " and ".join(f"{100 * share:.1f} %" for share in info["explained"])))
    if "runner_up" in info:
        rows.append(("Search", f"{info['minima']} minima, the next {100 * info['runner_up']:.2g} % higher"))
    mood = "good" if solution.converged else "bad"
    parts = [f'<p class="status {mood}">{escape(solution.status.value)}</p>', charts.table(rows)]
    if len(history["energy"]) > 1:
        parts.append(charts.chart("Energy at each outer step", {"energy": history["energy"]}))
        parts.append(charts.chart("Misplaced mass at each outer step", {"mass": history["marginal_error"]}, log=True))
    if len(history.get("minima", ())) > 1:
        parts.append(charts.chart("Energy of the minima that the search found", {"energy": history["minima"]}))
    if "seconds" in info:
        parts.append(charts.bars("Time of each phase", info["seconds"], "s"))
    if "spectrum" in info:
        names = ("source", "target")
        parts.append(charts.chart("Spectrum of the embeddings", dict(zip(names, info["spectrum"], strict=False)), log=True))
    if settings:
        parts.append("<h2>Settings</h2>" + charts.table((str(name), value) for name, value in settings.items()))
    return "\n".join(parts)


def landscape_tab(land: Land | None, painted: int) -> str:
    """The plane of the minima, and their list; the first `painted` ones can be shown on the target."""
    if land is None:
        return ""
    parts = [f"<p>{len(land)} minima. Choose one to see the colours that its match carries to the target.</p>"]
    if not painted:
        parts = [f"<p>{len(land)} minima. The landscape was read from a file, which holds no points to colour.</p>"]
    if len(land) > 1:
        plane = land.plane(GRID)
        parts.append(
            charts.plane_map(plane.s, plane.t, plane.values, plane.minima, land.energies.tolist(), land.basins.tolist())
        )
    rows = []
    for k, (energy, basin) in enumerate(zip(land.energies.tolist(), land.basins.tolist(), strict=True)):
        name = f'<button type="button" data-minimum="{k}" aria-pressed="false">{k + 1}</button>' if k < painted else str(k + 1)
        rows.append(f"<tr><td>{name}</td><td>{energy:.6g}</td><td>{100 * basin:.1f} %</td></tr>")
    head = '<tr><th scope="col">Minimum</th><th scope="col">Energy</th><th scope="col">Starts</th></tr>'
    parts.append(f'<table class="minima">{head}{"".join(rows)}</table>')
    return "\n".join(parts)

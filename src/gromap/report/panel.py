"""The text beside the shapes: what the solver says of the match, and the minima of a landscape."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np

from gromap._solution import Solution
from gromap._stats import Stats
from gromap.mesh.parts import Parts
from gromap.mesh.quality import Orientation, Quality
from gromap.report import charts
from gromap.search.landscape import Landscape

MIRRORED = (
    "Mirrored: left and right are exchanged, which Gromov-Wasserstein cannot see. The target is turned as if they were "
    "not."
)
LOWER = (
    "A match that exchanges left and right is {share} lower in energy: one shape may be a mirror image of the other. "
    "It is <code>sol.mirrored</code>, and <code>mirrored_map.txt</code> in the folder of <code>gromap match</code>."
)
GRID = 30  # values along each side of the plane of the minima


def match_tab(
    solution: Solution,
    settings: Mapping[str, object] | None,
    hand: Orientation | None,
    kept: Parts | None = None,
    measured: Quality | None = None,
) -> str:
    """What the solver reports: the values, how they were reached, and the settings.  hand: whether
    the match keeps left and right, where that is known.  kept: what a match of parts does.
    measured: against the truth."""
    stats, history = solution.stats, solution.history
    mood = "good" if solution.converged else "bad"
    parts = [f'<p class="status {mood}">{escape(solution.status.value)}</p>']
    if kept is not None:
        parts.append(f'<p class="status good">Matched: {kept}. What is gray has no counterpart.</p>')
    if hand is not None and hand.word == "mirrored":
        parts.append(f'<p class="status bad">{MIRRORED}</p>')
    if solution.mirrored is not None:
        share = f"{-100 * (stats.mirrored or 0.0):.0f} %"
        parts.append(f'<p class="status bad">{LOWER.format(share=share)}</p>')
    rows = [] if hand is None else [("Left and right", f"{hand.word} ({hand.hand:+.2f})")]
    parts.append(charts.table(_rows(solution, stats, kept is not None) + rows))
    if measured is not None:
        parts.append(_quality(measured))
    if len(history["energy"]) > 1:
        parts.append(charts.chart("Energy at each outer step", {"energy": history["energy"]}))
        parts.append(charts.chart("Misplaced mass at each outer step", {"mass": history["marginal_error"]}, log=True))
    if stats.minima is not None and len(stats.minima) > 1:
        parts.append(charts.chart("Energy of the minima that the search found", {"energy": stats.minima}))
    if stats.seconds:
        parts.append(charts.bars("Time of each phase", stats.seconds, "s"))
    if stats.spectrum is not None:
        spectra = {name: np.array(side) for name, side in zip(("source", "target"), stats.spectrum, strict=True)}
        parts.append(charts.chart("Spectrum of the embeddings", spectra, log=True))
    if settings:
        parts.append("<h2>Settings</h2>" + charts.table((str(name), value) for name, value in settings.items()))
    return "\n".join(parts)


def _quality(measured: Quality) -> str:
    """The map against the truth, and on its own."""
    rows = [("Coverage", f"{100 * measured.coverage:.1f} % of the target's area")]
    rows.append(("Smoothness", f"{measured.smoothness:.3g} (an isometry has 1)"))
    if measured.errors is None or measured.auc is None:
        return "<h2>Quality of the map</h2>" + charts.table(rows)
    mean, median, worst = (100 * f(measured.errors) for f in (np.mean, np.median, np.max))
    how = ", by the heat method" if measured.distances == "heat" else ""
    first = [
        ("Geodesic error, mean", f"{mean:.2f} % of √area{how}"),
        ("Median and worst", f"{median:.2f} % and {worst:.2f} % of √area"),
        ("Measured at", f"{len(measured.errors):,} vertices"),
        ("Area under the curve", f"{measured.auc:.3f} (a perfect map has 1)"),
    ]
    thresholds, share = measured.curve()
    ends = "0", f"{100 * thresholds[-1]:g} % of √area"
    curve = charts.chart("Share of vertices by their geodesic error", {"share": share}, ends=ends)
    return "<h2>Quality of the map</h2>" + charts.table(first + rows) + curve


def _rows(solution: Solution, stats: Stats, partly: bool) -> list[tuple[str, str]]:
    n, m = solution.plan.shape
    history, fused = solution.history, solution.alpha < 1
    rows = [
        ("All terms" if fused or partly else "GW with entropy", f"{solution.value:.6g}"),
        ("GW" + f", counts {solution.alpha:g}" * fused, f"{solution.value_gw:.6g}"),
        *([(f"Features, count {1 - solution.alpha:.3g}", f"{solution.value_features:.6g}")] if fused else []),
        *([("Marginals", f"{solution.value_marginals:.6g}")] if partly else []),
        ("Points", f"{n:,} × {m:,}"),
        ("Epsilon", f"{solution.epsilon:.3g}"),
        ("Marginal error", f"{solution.plan.marginal_error:.2e}"),
        ("Steps", f"{len(history['energy'])} outer, {int(np.sum(history['inner_steps']))} Sinkhorn"),
    ]
    known = [word for word in (stats.method, stats.dtype, stats.device) if word != "?"]
    if known:
        rows.append(("Method", ", ".join(known)))
    if stats.explained is not None:
        rows.append(("Variance embedded", " and ".join(f"{100 * share:.1f} %" for share in stats.explained)))
    if stats.minima is not None and stats.runner_up is not None:
        rows.append(("Search", f"{len(stats.minima)} minima, the next {100 * stats.runner_up:.2g} % higher"))
    return rows


def landscape_tab(land: Landscape | None, painted: int) -> str:
    """The plane of the minima, and their list; the first `painted` ones can be shown on the
    target."""
    if land is None:
        return ""
    parts = [f"<p>{len(land)} minima. Choose one to see the colors that its match carries to the target.</p>"]
    if not painted:
        parts = [f"<p>{len(land)} minima. The landscape was read from a file, which holds no points to color.</p>"]
    if len(land) > 1:
        plane = land.plane(GRID)
        parts.append(
            charts.plane_map(plane.s, plane.t, plane.values, plane.minima, land.energies.tolist(), land.basins.tolist())
        )
    rows = []
    for k, (energy, basin) in enumerate(zip(land.energies.tolist(), land.basins.tolist(), strict=True)):
        name = (
            f'<button type="button" data-minimum="{k}" aria-pressed="false">{k + 1}</button>'
            if k < painted
            else str(k + 1)
        )
        rows.append(f"<tr><td>{name}</td><td>{energy:.6g}</td><td>{100 * basin:.1f} %</td></tr>")
    head = '<tr><th scope="col">Minimum</th><th scope="col">Energy</th><th scope="col">Starts</th></tr>'
    parts.append(f'<table class="minima">{head}{"".join(rows)}</table>')
    return "\n".join(parts)

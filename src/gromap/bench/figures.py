"""Figures of the paper's experiments, from their records, by matplotlib without a display."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from gromap._check import extra
from gromap.bench.jobs import Records
from gromap.bench.settings import ORDER
from gromap.bench.tables import average, budgets, panels, reference, seeds
from gromap.mesh import Mesh
from gromap.mesh.texture import checkerboard
from gromap.report.figures import add_triangles, camera_at, new_figure, render
from gromap.report.flow import flow_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 4  # panels of convergence curves in a row
ADAPTIVE = (0.85, 0.1, 0.1, 1.0)
AZIMUTH = 20.0  # degrees from which the men are seen
FINE = 15_000  # faces at least, for the texture to show
SQUARES = 10  # of the texture, from head to foot


def new(**options: Any) -> Figure:
    """An empty figure."""
    return new_figure(layout="constrained", **options)


def convergence(records: Records, legend: str) -> Figure:
    """Energy against time, averaged over seeds: one panel for each solver and update, one color
    for each budget."""
    shown, names = panels(records), budgets(records)
    shades = extra("matplotlib", "plot").colormaps["viridis"](np.linspace(0, 0.9, len(names)))
    colors = dict(zip(names, shades, strict=True)) | {"adaptive": ADAPTIVE}
    lowest = {
        solver: float(np.mean([reference(records, solver, seed) for seed in seeds(records)])) for solver, _ in shown
    }
    best = max(lowest.values())
    ends = [r["energy"][-1] for r in records.values() if np.isfinite(r["energy"][-1])]
    # the ends of curves must be visible, not their beginnings
    top = max(2.2 * best, 1.1 * min(5 * best, max(ends, default=0.0)))
    down = -(-len(shown) // ACROSS)
    figure = new(figsize=(13, 2.9 * down + 0.5))
    axes = figure.subplots(down, ACROSS, sharex=True, sharey=True, squeeze=False).ravel()
    handles = {}
    for axis, (solver, update) in zip(axes, shown, strict=False):
        for budget in names:
            runs = [record for key, record in records.items() if key[:3] == (solver, update, budget)]
            if runs:
                handles[budget] = axis.plot(*average(runs), color=colors[budget], lw=1.3, alpha=0.9)[0]
        axis.axhline(lowest[solver], color="0.7", lw=0.8, zorder=0)
        axis.set(xscale="log", ylim=(0, top))
        axis.xaxis.set_minor_formatter(extra("matplotlib.ticker", "plot").NullFormatter())
        axis.set_title(f"{solver}, {update}", fontsize=9)
    for axis in axes[max(0, len(shown) - ACROSS) : len(shown)]:
        axis.tick_params(labelbottom=True)
    for axis in axes[len(shown) :]:
        axis.axis("off")
    figure.supxlabel("seconds", fontsize=10)
    figure.supylabel("energy, in units of the scaled costs, squared", fontsize=10)
    ordered = [name for name in names if name in handles]
    figure.legend([handles[n] for n in ordered], ordered, title=legend, loc="outside upper center", ncols=len(ordered))
    return figure


def run_times(records: Records) -> Figure:
    """Seconds and objectives of the human pair, for more and more points."""
    figure = new(figsize=(11, 3.6))
    left, right = figure.subplots(1, 2)
    human = {(int(key[1]), key[2]): r for key, r in records.items() if key[0] == "human" and "seconds" in r}
    lowest = {n: min(r["energy"] for key, r in human.items() if key[0] == n) for n, _ in human}
    for solver in sorted({key[1] for key in human}, key=ORDER.index):
        runs = sorted(
            (n, r["seconds"], 100 * (r["energy"] / lowest[n] - 1)) for (n, s), r in human.items() if s == solver
        )
        n, seconds, above = zip(*runs, strict=True)
        left.loglog(n, seconds, "o-", label=solver)
        right.semilogx(n, above, "o-", label=solver)
    for axis in (left, right):
        _ticks(axis, [n for n, _ in human])
        axis.set_xlabel("points of each cloud")
    left.set_ylabel("seconds, embedding and search included")
    ticker = extra("matplotlib.ticker", "plot")
    left.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter(ticker.NullFormatter())
    right.set_ylabel("GW_ε, % above the lowest")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def approximation(records: Records) -> Figure:
    figure = new(figsize=(5.5, 3.6))
    axis = figure.subplots()
    for solver in sorted({key[0] for key in records}, key=ORDER.index):
        runs = sorted((r["dim"], abs(r["exact"] / r["best"] - 1)) for key, r in records.items() if key[0] == solver)
        axis.loglog([d for d, _ in runs], [max(e, 1e-5) for _, e in runs], "o-", label=solver)
    axis.axhline(0.01, color="0.7", lw=0.8, zorder=0)
    _ticks(axis, [r["dim"] for r in records.values()])
    axis.set(xlabel="dimension D = E", ylabel="relative error of the objective")
    axis.legend(fontsize=8)
    return figure


def _ticks(axis: Axes, at: list[int]) -> None:
    """Ticks at the values themselves, on a logarithmic axis."""
    values = sorted(set(at))
    axis.set_xticks(values, [f"{v / 1000:g}k" if v >= 1000 else str(v) for v in values])
    axis.xaxis.set_minor_locator(extra("matplotlib.ticker", "plot").NullLocator())


def oscillation(records: Records) -> Figure:
    figure = new(figsize=(11, 3.2))
    axes = figure.subplots(1, 3, width_ratios=[1.6, 1, 1])
    for (power,), record in sorted(records.items()):
        axes[0].plot(range(2, len(record["moved"]) + 2), record["moved"], "o-", label=f"|x - x'|^{power}")
    steps = range(2, 2 + max(len(record["moved"]) for record in records.values()))
    axes[0].set(xlabel="step of Entropic-GW", ylabel="mass that moves, Σ |π' - π|", xticks=steps)
    axes[0].legend(fontsize=8)
    for axis, plan, when in zip(
        axes[1:], records.get(("6",), {"plans": []})["plans"], ("before", "after"), strict=False
    ):
        axis.imshow(np.array(plan), cmap="magma_r")
        axis.set(xticks=[], yticks=[])
        axis.set_title(f"sixth power, {when} the last step", fontsize=9)
    return figure


def trajectories(records: Records) -> Figure:
    """Both clouds, and the steps of each solver over the energy as a function of Γ."""
    ground, runs = records[("energy",)], {key: r for key, r in records.items() if len(key) == 3}
    shown = sorted({key[:2] for key in runs})
    figure = new(figsize=(13, 4.4))
    inputs, *axes = figure.subplots(1, 1 + len(shown))
    line, plane = np.array(ground["x"])[:, 0], np.array(ground["y"])
    inputs.plot(line, np.full_like(line, plane[:, 1].min() - 0.4), "|", ms=9, label="α, on a line")
    inputs.plot(*plane.T, ".", label="β, in a plane")
    inputs.set(aspect="equal", xticks=[], yticks=[])
    inputs.set_title("inputs", fontsize=9)
    inputs.legend(fontsize=8, loc="upper left")
    inner = sorted({int(key[2]) for key in runs})
    colors = extra("matplotlib", "plot").colormaps["plasma"](np.linspace(0.1, 0.85, len(inner)))
    energy, handles = np.array(ground["energy"]).T, {}
    for axis, (solver, update) in zip(axes, shown, strict=True):
        axis.contourf(ground["side"], ground["side"], energy, levels=24, cmap="Greys_r", alpha=0.6)
        for steps, color in zip(inner, colors, strict=True):
            if run := runs.get((solver, update, str(steps))):
                handles[steps] = axis.plot(*np.array(run["path"]).T, "o-", ms=2.5, lw=1.1, color=color)[0]
        axis.plot(*ground["best"], "k*", ms=11, zorder=1.9)
        axis.set(aspect="equal", xlim=(-0.3, 0.3), ylim=(-0.3, 0.3))
        axis.set_title(f"{solver}, {update}", fontsize=9)
        axis.set_xlabel("Γ₁")
        axis.set_ylabel("Γ₂" if axis is axes[0] else "")
    figure.legend(handles.values(), handles, title="Sinkhorn steps", loc="outside upper center", ncols=4, fontsize=8)
    return figure


def textures(records: Records) -> Figure:
    """The source, and the target in the texture that each solver carries there, to the same
    scale."""
    names = [name for name in ("source", *ORDER) if (name,) in records]
    down = -(-len(names) // ACROSS)
    figure = new(figsize=(12, 4.6 * down))
    for axis, name in zip(figure.subplots(down, ACROSS, squeeze=False).ravel(), names + [""] * ACROSS, strict=False):
        axis.axis("off")
        if name:
            triangles, colors = render(*painted(records[(name,)]), camera_at(AZIMUTH))
            add_triangles(axis, triangles, colors, 0.2)
            axis.set(aspect="equal")
            axis.autoscale_view()
            axis.set_title(name, fontsize=11)
    return figure


def painted(record: dict[str, Any]) -> tuple[Mesh, np.ndarray]:
    """A mesh with finer faces, and the color of the texture at each vertex."""
    mesh, uv = Mesh(np.array(record["vertices"]), np.array(record["faces"])), np.array(record["uv"])
    while len(mesh.faces) < FINE:
        mesh, uv = quartered(mesh, uv)
    board = checkerboard(SQUARES)
    column, row = (np.stack([uv[:, 0], 1 - uv[:, 1]]).clip(0, 1 - 1e-9) * len(board)).astype(int)
    return mesh, board[row, column] / 255


def quartered(mesh: Mesh, values: np.ndarray) -> tuple[Mesh, np.ndarray]:
    """Each face cut in four at the middles of its sides, and values at the vertices of the new
    mesh.

    >>> quartered(Mesh(np.eye(3), np.array([[0, 1, 2]])), np.eye(3))[0]
    Mesh(6 vertices, 4 faces)
    """
    n, (a, b, c) = len(mesh.vertices), mesh.faces.T
    sides = np.sort(np.concatenate([mesh.faces[:, [0, 1]], mesh.faces[:, [1, 2]], mesh.faces[:, [2, 0]]]), axis=1)
    ends, index = np.unique(sides, axis=0, return_inverse=True)
    ab, bc, ca = n + index.reshape(3, -1)
    faces = np.concatenate([np.stack(t, 1) for t in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))])
    between = lambda z: np.concatenate([z, z[ends].mean(1)])  # noqa: E731
    return Mesh(between(mesh.vertices), faces), between(values)


def flows(records: Records) -> Figure:
    """Frames of each flow in a row, and its target."""
    rows: list[Any] = [(f"{cost}\n{kind}", SimpleNamespace(**r)) for (cost, kind), r in records.items()]
    return flow_figure(rows)

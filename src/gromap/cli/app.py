"""The commands and their options."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

import gromap
from gromap import demo as shipped
from gromap.bench.paper import EXPERIMENTS
from gromap.cli import barycenter as averaging
from gromap.cli import bench as timing
from gromap.cli import collection
from gromap.cli import match as matching
from gromap.cli.arguments import (
    A,
    Alpha,
    B,
    BenchDevice,
    Cost,
    Device,
    Dim,
    Epsilon,
    Features,
    Force,
    Json,
    Mass,
    MatchEpsilon,
    Out,
    PaperOut,
    Partial,
    Quiet,
    Reach,
    Seed,
)
from gromap.cli.extras import Extras
from gromap.cli.show import Show

UsageError: Any = typer.BadParameter.__mro__[2]  # click's ClickException, wherever typer keeps click
app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

bench = typer.Typer(invoke_without_command=True, rich_markup_mode=None, context_settings=app.info.context_settings)
app.add_typer(bench, name="bench")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"gromap {gromap.__version__}")
        raise typer.Exit


@app.callback()
def gromap_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Match shapes and point clouds by Gromov-Wasserstein.

    \b
    gromap match dog_0.ply dog_1.ply          # maps, colored meshes and a page to look at
    gromap match a.obj b.ply --transfer texture --landmarks pairs.txt
    gromap landscape dog_0.ply dog_1.ply      # all the ways they match
    gromap pairwise bones/                    # a matrix of distances
    gromap barycenter T1.ply T7.ply           # a shape between them
    gromap bench                              # how fast this machine is
    gromap bench paper                        # the paper's experiments
    """


@app.command()
def match(
    a: A,
    b: B,
    cost: Cost = None,
    epsilon: MatchEpsilon = None,
    dim: Dim = None,
    landmarks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Pairs that belong together, two indices per line, from 0.")
    ] = None,
    starts: Annotated[int, typer.Option(min=0, help="Random starts of a round of the global search.")] = 16,
    chirality: Annotated[
        bool, typer.Option("--chirality", help="Of nearly equal matches prefer one that keeps left and right apart.")
    ] = False,
    allow_mirror: Annotated[
        bool,
        typer.Option("--allow-mirror", help="Two meshes may match as mirror images, as right and left bones do."),
    ] = False,
    partial: Partial = False,
    reach: Reach = None,
    mass: Mass = None,
    features: Features = None,
    alpha: Alpha = None,
    transfer: Annotated[
        str,
        typer.Option(
            help="What to carry over: colors, texture, or a .npy file, floats or labels, one per vertex of A."
        ),
    ] = "colors",
    out: Out = None,
    truth: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="The true map, one index per line; give a second one if B is symmetric."),
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Match A to B, and show what goes where.

    \b
    gromap match dog_0.ply dog_1.ply
    gromap match dog_0.ply dog_1.ply --cost power:0.5 --epsilon 3e-4 --out dogs
    gromap match a.obj b.ply --transfer texture --landmarks pairs.txt
    gromap match arm.ply body.ply --partial
    gromap match a.ply b.ply --features wks --alpha 0.8
    gromap match a.off b.off --truth map.txt --truth mirrored.txt --json

    \b
    map.txt, map_21.txt      for each vertex of A one of B, and back; one index per line, from 0
    source.*, target.*       both shapes in matching colors (PLY) or texture (GLB)
    report.html              both shapes to turn around, and how the match was found
    report.json              all numbers
    result.safetensors       everything, for gromap.load
    mirrored*                the match that exchanges left and right, where it is clearly lower
    """
    extras = Extras.read(partial, reach, mass, features, alpha)
    options = matching.Options(
        cost,
        epsilon,
        dim,
        landmarks,
        starts,
        chirality,
        allow_mirror,
        extras,
        transfer,
        tuple(truth or ()),
        seed,
        device,
        force,
    )
    _print(matching.match((a, b), out, options, Show(quiet)), as_json, quiet)


@app.command()
def landscape(
    a: A,
    b: B,
    cost: Cost = None,
    epsilon: Epsilon = 1e-3,
    dim: Dim = None,
    starts: Annotated[int, typer.Option(min=1, help="Random starts.")] = 500,
    out: Out = None,
    seed: Seed = 0,
    device: Device = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find all the ways in which A matches B: the minima, and how many starts end at each.

    \b
    gromap landscape dog_0.ply dog_1.ply --starts 200
    """
    options = collection.LandscapeOptions(cost, epsilon, dim, starts, seed, device, force)
    _print(collection.landscape((a, b), out, options, Show(quiet)), as_json, quiet)


@app.command()
def pairwise(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="All shapes in it are compared, in the order of their names.")
    ],
    cost: Cost = None,
    epsilon: Epsilon = 1e-3,
    dim: Dim = None,
    debias: Annotated[bool, typer.Option(help="Take the self terms away, so that equal shapes are at 0.")] = True,
    nearest: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Only the K nearest of each shape: most pairs are then not solved."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; -1 is one per core.")] = None,
    out: Out = None,
    seed: Seed = 0,
    device: Device = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare all shapes of a folder: a symmetric matrix of distances, the roots of debiased GW
    values.

    If interrupted or killed, call it again to go on. What cannot be read or matched is left out,
    and named.

    \b
    gromap pairwise bones/ --jobs -1
    gromap pairwise cells/ --nearest 5

    \b
    report.html              the matrix in the order of a tree, and a map of the shapes
    distances.csv, .npy      the matrix; with --nearest, neighbors.csv instead
    values.csv, .npy         the same before the root
    report.json              all numbers
    """
    options = collection.PairwiseOptions(cost, epsilon, dim, debias, nearest, jobs, seed, device, force)
    _print(collection.pairwise(folder, out, options, Show(quiet)), as_json, quiet)


@app.command()
def barycenter(
    shapes: Annotated[
        list[Path],
        typer.Argument(metavar="A B [C ...]", help="Meshes or clouds, in any of the formats of `gromap match`."),
    ],
    weights: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="Of the shapes, with commas between; by default all are equal."),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(min=4, help="Of the barycenter, and at most of each shape; by default 500, with --surface 1500."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Of the flow.")] = 30,
    cost: Annotated[
        str,
        typer.Option(
            help="euclidean, sqeuclidean, power:0.5, gaussian:0.3, ...; a free cloud has no surface, and so no "
            "geodesic cost."
        ),
    ] = "euclidean",
    epsilon: Annotated[
        float, typer.Option(help="Blur, in units of the shapes, squared; smaller is sharper and slower.")
    ] = 1e-2,
    aligned: Annotated[
        bool,
        typer.Option(
            "--aligned", help="The shapes lie in one pose: match them from nearest points, and not by a search."
        ),
    ] = False,
    surface: Annotated[
        bool, typer.Option("--surface", help="Write a closed surface through the points; needs gromap[poisson].")
    ] = False,
    out: Out = None,
    seed: Annotated[int, typer.Option(help="For the points drawn on the shapes, and the random starts.")] = 0,
    device: Device = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find a shape between others: a free cloud of points that is as close as can be to all of
    them, in GW distance.

    Points are drawn evenly on each shape. The cloud starts from those of the shape of the largest
    weight, in its pose, and flows down the weighted sum of the debiased GW losses. Ctrl-C keeps the
    best points so far.

    GW sees no pose, and its lowest match may turn a bone: use --aligned where the files share their
    axes.

    \b
    gromap barycenter T1_vertebra.ply T7_vertebra.ply --aligned
    gromap barycenter a.ply b.ply c.ply --weights 0.5,0.25,0.25 --points 300 --out abc
    gromap barycenter a.ply b.ply --surface --points 2000 --steps 50

    \b
    barycenter.ply           the points, or the surface through them
    barycenter.png           shapes and barycenter in matching colors, the loss; needs gromap[plot]
    report.json              all numbers
    """
    options = averaging.Options(weights, points, steps, cost, epsilon, aligned, surface, seed, device, force)
    _print(averaging.barycenter(shapes, out, options, Show(quiet)), as_json, quiet)


@app.command()
def view(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="The folder of a match, or a file in it.")],
    browser: Annotated[bool, typer.Option(help="Open it, or only print where it is.")] = True,
) -> None:
    """Open the report of a match in a browser.

    \b
    gromap view dog_0-dog_1
    """
    if not result.exists():
        raise FileNotFoundError(f"there is no {result}: check its name.")
    page = result if result.suffix == ".html" else (result if result.is_dir() else result.parent) / "report.html"
    if not page.is_file():
        raise FileNotFoundError(f"there is no report {page}: run `gromap match` again.")
    typer.echo(str(page.resolve()))
    if browser and not webbrowser.open(page.resolve().as_uri()):
        raise OSError(f"no browser could be opened: open {page.resolve()} by hand.")


@app.command()
def demo(
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="The PNG file to write.")] = Path("demo.png"),
) -> None:
    """Match a standing man to a running one, who come with gromap, and draw the result."""
    raise typer.Exit(shipped.main([str(picture)]))


@bench.callback()
def time_matches(
    context: typer.Context,
    sizes: Annotated[
        list[int] | None, typer.Option("--sizes", help="Points of each cloud, one or more times; by default a few.")
    ] = None,
    epsilon: Epsilon = 1e-3,
    seed: Seed = 0,
    device: BenchDevice = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Time whole matches of the shipped pair on this machine.

    \b
    gromap bench
    gromap bench --sizes 4000 --sizes 20000 --device cuda
    gromap bench paper                        # the paper's experiments, as a report
    """
    if context.invoked_subcommand is None:
        _print(timing.match(sizes or (), epsilon, seed, device, Show(quiet)), as_json, quiet)


@bench.command()
def paper(
    full: Annotated[bool, typer.Option("--full", help="The sizes of the paper: for a GPU, hours.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help=f"Some experiments, with commas: {', '.join(EXPERIMENTS)}."),
    ] = None,
    out: PaperOut = None,
    device: BenchDevice = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the paper's experiments on solvers, and write report.md and report.html.

    If interrupted, call it again to go on; a file of raw/ that is removed is computed again. Shapes
    other than the shipped pair are read from $GROMAP_DATA, and left out where they are not.

    \b
    gromap bench paper --out build/paper
    gromap bench paper --only matches,textures
    gromap bench paper --full --device cuda
    """
    _print(timing.paper(out, full, only or (), device, Show(quiet)), as_json, quiet)


def _print(facts: dict[str, Any], as_json: bool, quiet: bool) -> None:
    text = facts.pop("text")
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    elif not quiet:
        typer.echo(text)

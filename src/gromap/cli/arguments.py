"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

A = Annotated[Path, typer.Argument(metavar="A", help="The source: .ply .obj .off .stl .glb .vtk .vtp .npy .xyz .csv")]
B = Annotated[Path, typer.Argument(metavar="B", help="The target, in any of these formats.")]
Cost = Annotated[
    str | None,
    typer.Option(
        help="geodesic, heat, exact, diffusion, biharmonic, euclidean, sqeuclidean, power:0.5, gaussian:0.3, ...; two "
        "with a comma are for A and for B. "
        "By default geodesic for two meshes, else euclidean."
    ),
]
Epsilon = Annotated[
    float, typer.Option(help="Blur of the coupling, in units of the shapes, squared; smaller is sharper and slower.")
]
MatchEpsilon = Annotated[
    float | None,
    typer.Option(
        help="Blur of the coupling, in units of the shapes, squared; smaller is sharper and slower. By default 1e-3 "
        "for two meshes, whose maps are sharpened by their eigenfunctions, else 3e-4."
    ),
]
Dim = Annotated[int | None, typer.Option(min=1, help="Axes of the embedding; by default 20.")]
Partial = Annotated[
    bool, typer.Option("--partial", help="For a part and a whole: match what can be. Short for --reach 0.1.")
]
Reach = Annotated[
    str | None,
    typer.Option(
        metavar="R",
        help="For parts: the distance, in units of the shapes, from which vertices need not be matched; two with a "
        "comma are for A and for B, and none keeps all of a side.",
    ),
]
Mass = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="For parts: how much of the smaller area to match, up to 1."),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="What vertices look like, to match it too: wks, hks, normals, color, or two .npy files with a comma, one "
        "row for each vertex of A and of B.",
    ),
]
Alpha = Annotated[float | None, typer.Option(help="What distances count beside features, from 0 to 1; by default 0.5.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the results; by default named after the shapes."),
]
PaperOut = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Folder of records and report; by default paper.")
]
Seed = Annotated[int, typer.Option(help="For the random starts.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default a GPU for large shapes, if there is one.")]
BenchDevice = Annotated[str, typer.Option("--device", help="cpu, cuda or cuda:1.")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing results.")]
Json = Annotated[bool, typer.Option("--json", help="Print report.json, and nothing else, to stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

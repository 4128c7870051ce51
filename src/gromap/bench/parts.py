"""The parts of a report, and its two formats: Markdown beside the pictures, and one HTML file
that contains them."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --faint: #667; --line: #d9dce1; --head: #f3f4f6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6ea; --paper: #16181b; --faint: #9aa; --line: #34383e; --head: #212429; }
}
body { max-width: 76rem; margin: 2.5rem auto; padding: 0 1.2rem; font: 15px/1.55 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.7rem; margin-bottom: .4rem } h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem }
figure { margin: 1.2rem 0 }
img { max-width: 100%; background: #fff; border-radius: 6px; padding: 8px; box-sizing: border-box }
figcaption, .note { color: var(--faint); font-size: .9rem }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; white-space: nowrap }
th { background: var(--head); font-weight: 600 }
"""
MANY = 8  # columns beyond which cells are broken at their commas, to fit the page


@dataclass(frozen=True)
class Title:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph; *stars* mark emphasis."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of cells, the names of the columns first, and what they mean."""

    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A PNG file in the folder of the report."""

    file: str
    caption: str


Part = Title | Text | Table | Picture


def markdown(parts: Sequence[Part]) -> str:
    """The parts as Markdown.

    >>> print(markdown([Title("A", 1), Table([["x", "|y|"], ["1", "*2*"]])]))
    # A
    <BLANKLINE>
    | x | \\|y\\| |
    |---|---|
    | 1 | *2* |
    <BLANKLINE>
    """
    return "\n\n".join(_markdown(part) for part in parts) + "\n"


def _markdown(part: Part) -> str:
    match part:
        case Title(text, level):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Picture(file, caption):
            return f"![{caption}]({file})\n\n{caption}"
        case Table(rows, note):
            lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
            text = "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
            return f"{text}\n\n{note}" if note else text


def page(parts: Sequence[Part], folder: Path) -> str:
    """The parts as one web page, the pictures of the folder inside."""
    title = next(part.text for part in parts if isinstance(part, Title))
    body = "\n".join(_html(part, folder) for part in parts)
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _html(part: Part, folder: Path) -> str:
    match part:
        case Title(text, level):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Text(text):
            return f"<p>{_inline(text)}</p>"
        case Picture(file, caption):
            data = base64.b64encode((folder / file).read_bytes()).decode("ascii")
            image = f'<img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
            return f"<figure>{image}<figcaption>{_inline(caption)}</figcaption></figure>"
        case Table(rows, note):
            broken = len(rows[0]) > MANY
            lines = [_row(row, "td" if number else "th", broken) for number, row in enumerate(rows)]
            below = f'<p class="note">{_inline(note)}</p>' if note else ""
            return f'<div class="wide"><table>{"".join(lines)}</table></div>{below}'


def _row(cells: Sequence[str], tag: str, broken: bool) -> str:
    comma = ",<br>" if broken else ", "
    return "<tr>" + "".join(f"<{tag}>{_inline(cell).replace(', ', comma)}</{tag}>" for cell in cells) + "</tr>"


def _inline(text: str) -> str:
    """Text as HTML.

    >>> _inline("a < *b*")
    'a &lt; <em>b</em>'
    """
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", html.escape(text))

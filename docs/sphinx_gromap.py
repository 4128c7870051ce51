"""What the site adds to Sphinx: docstrings of the house, MathML, links out of docs/, figures of
gromap in the gallery."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from matplotlib.figure import Figure
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx_gallery.scrapers import figure_rst

PAGES = {"../benchmarks/RESULTS.md": "results.md", "../CHANGELOG.md": "whats_new.md"}  # files that pages include


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", link_pages)
    app.connect("autodoc-process-docstring", process_docstring)
    app.add_html_math_renderer("mathml", (inline_math, None), (display_math, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def link_pages(app: Any, name: str, source: list[str]) -> None:
    """Links to files beside docs/ go to the pages that include them."""
    depth = name.count("/")
    for file, page in PAGES.items():
        source[0] = source[0].replace(f"({'../' * depth}{file}", f"({'../' * depth}{page}")


def inline_math(writer: Any, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def display_math(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math-block">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def process_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings of the house as reStructuredText: "name: text" of a parameter is a field, indented
    formulas are literal blocks, bars are bars, and sections are those of numpydoc."""
    lines[:] = list(rewritten(lines, parameters(obj)))
    if what not in ("attribute", "property"):  # where napoleon takes all before a colon for a type
        lines[:] = NumpyDocstring(lines, Config(napoleon_use_rtype=False), app, what, name, obj, options).lines()


def parameters(obj: Any) -> set[str]:
    try:
        return set(inspect.signature(obj).parameters)
    except (TypeError, ValueError):
        return set()


def rewritten(lines: list[str], names: set[str]) -> Iterator[str]:
    """One paragraph after the other."""
    last = ""  # line before this paragraph
    for paragraph in paragraphs(lines):
        indent, before = (len(line) - len(line.lstrip()) for line in (paragraph[0], last))
        last = paragraph[-1]
        code = next((k for k, line in enumerate(paragraph) if line.lstrip().startswith(">>>")), len(paragraph))
        if code < len(paragraph):
            yield from [*map(escaped, paragraph[:code]), *paragraph[code:]]
        elif indent > before:  # a formula
            yield from ("::", "", *paragraph)
            last = " " * before
        elif (items := fields([escaped(line) for line in paragraph], names)) is not None:
            yield from items
        else:
            yield from map(escaped, paragraph)
        yield ""


def paragraphs(lines: list[str]) -> Iterator[list[str]]:
    found: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            found.append(line)
        elif found:
            yield found
            found = []


def fields(paragraph: list[str], names: set[str]) -> list[str] | None:
    """A paragraph of "name, name: text", of which several may stand in one line, as a field list;
    None if it has no such item."""
    if not names or paragraph[0].startswith(" ") or set(paragraph[min(1, len(paragraph) - 1)]) == {"-"}:
        return None
    name = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    item = re.compile(rf"(?:\A|\n|(?<=[.;)])\s+)((?:{name})(?:, (?:{name}))*): ")
    intro, *parts = item.split("\n".join(line.strip() for line in paragraph))
    if not parts:
        return None
    items = [(name, text) for some, text in zip(parts[::2], parts[1::2], strict=True) for name in some.split(", ")]
    return [*intro.split("\n"), "", *(f":param {name}: {' '.join(text.split())}" for name, text in items)]


def escaped(line: str) -> str:
    """Bars and stars are no markup outside of code, and what follows code need not be a blank."""
    text, *rest = re.split(r"(`+[^`]+`+)", line)
    done = [re.sub(r"([|*])", r"\\\1", text)]
    for code, text in zip(rest[::2], rest[1::2], strict=True):
        done += [code, "\\ " if text[:1].isalnum() else "", re.sub(r"([|*])", r"\\\1", text)]
    return "".join(done)


def figures(block: Any, variables: dict[str, Any], conf: dict[str, Any]) -> str:
    """Save the `figure` that a block of a gallery page got from gromap, which pyplot does not
    know."""
    figure = variables["example_globals"].get("figure")
    if not isinstance(figure, Figure) or hasattr(figure, "seen"):
        return ""
    figure.seen = True
    if figure.canvas.manager is not None:  # of pyplot, whose scraper comes next
        return ""
    path = next(variables["image_path_iterator"])
    figure.savefig(path, dpi=150)
    return figure_rst([path], conf["src_dir"])

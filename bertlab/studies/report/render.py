"""A study's report as files: one HTML page that needs nothing else, Markdown, LaTeX, pictures.

The files in ``templates/`` hold the layout. Every value that they print is escaped for its format,
so that names with markup in them are shown as they are.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import indent

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from bertlab.config.yaml_files import yaml_inline
from bertlab.files import explain_failed_write, write_text
from bertlab.studies.report.cells import (
    DIFFERENCES_LEGEND,
    Grid,
    Report,
    grid_of,
    runs_of,
    settings_of,
)
from bertlab.studies.report.plot_axes import INK
from bertlab.studies.report.plots import Picture, pictures

_MARKDOWN = re.compile(r"[\\`*{}\[\]<>|~$&#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    '"': r"\symbol{34}",  # German babel gives it a meaning
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # at the start of a row it would be an option of \\
    "]": "{]}",
    "*": "{*}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "↓": r"$\downarrow$",
    "†": r"$\dagger$",
    "–": "--",
    "…": r"$\ldots$",
    **{char: f"\\{char}" for char in "{}$&#%_"},
}
# the first of two characters that LaTeX would draw as one: "--" is a dash, "''" a quotation mark
_LATEX_SPECIAL = re.compile(f"[{re.escape(''.join(_LATEX))}]|([-',])(?=\\1)")


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write ``report.html``, ``report.md``, ``report.tex`` and the pictures as SVG.

    Returns:
        The files; the page comes first.

    Raises:
        OutputError: if one cannot be written; each is then whole, as it was before, or not there.
    """
    drawn = draw(report)
    texts = {
        "report.html": html(report, drawn),
        "report.md": markdown(report, drawn),
        "report.tex": latex(report),
        **{f"{picture.name}.svg": _on_white(picture.svg) for picture in drawn},
    }
    for name, text in texts.items():
        with explain_failed_write(f"{folder / name}: cannot be written"):
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / name, text)
    return [folder / name for name in texts]


def draw(report: Report) -> list[Picture]:
    """Return the pictures of all studies; with several studies, names begin with a number."""
    both = list(zip(report.studies, report.comparisons, strict=True))
    if len(both) == 1:
        return pictures(*both[0])
    return [
        replace(each, name=f"{number}_{each.name}", caption=f"{study.name}: {each.caption}")
        for number, (study, comparisons) in enumerate(both, 1)
        for each in pictures(study, comparisons)
    ]


def html(report: Report, drawn: Sequence[Picture] = ()) -> str:
    """Return the page, with the pictures in it."""
    return _HTML.get_template("report.html").render(report=report, pictures=drawn)


def markdown(report: Report, drawn: Sequence[Picture] = ()) -> str:
    """Return the report in GitHub's Markdown, with links to the pictures' files."""
    text = _MARKDOWN_FILES.get_template("report.md").render(report=report, pictures=drawn)
    return text.rstrip("\n") + "\n"


def latex(report: Report) -> str:
    r"""Return tables, findings and warnings as LaTeX to ``\input``.

    The document needs the packages ``booktabs`` and ``graphicx``.
    """
    return _LATEX_FILES.get_template("report.tex").render(report=report).rstrip("\n") + "\n"


def table_html(grid: Grid) -> str:
    """Return a table of HTML."""
    return str(_HTML.get_template("table.html").module.table(grid))  # type: ignore[attr-defined]


def table_markdown(grid: Grid) -> str:
    """Return a table of GitHub's Markdown."""
    module = _MARKDOWN_FILES.get_template("table.md").module
    return str(module.table(grid))  # type: ignore[attr-defined]


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return _MARKDOWN.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))


def latex_text(text: str) -> str:
    """Return text that LaTeX shows as it is, on one line."""
    return _LATEX_SPECIAL.sub(
        lambda found: _LATEX.get(found[0], found[0] + "{}"), " ".join(text.split())
    )


def _heading_lines(grid: Grid) -> list[list[str]]:
    """Return the headings of a table line by line; a heading of one line stands in the last one.

    ``(("variant",), ("qnli", "accuracy"))`` -> ``[["", "qnli"], ["variant", "accuracy"]]``
    """
    depth = max(map(len, grid.headings))
    padded = [(*[""] * (depth - len(heading)), *heading) for heading in grid.headings]
    return [list(line) for line in zip(*padded, strict=True)]


def _code_block(text: object) -> Markup:
    return Markup(indent(str(text), "    ", lambda line: True))  # noqa: S704  nothing has a meaning in it


def _inline_svg(picture: Picture) -> Markup:
    """Return a picture in the page's own ink, with names that no other picture of it has."""

    def adapt(tag: re.Match[str]) -> str:
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{picture.name}-", tag[0])
        return text.replace(INK, "currentColor")

    svg = re.sub(r"<[^>]+>", adapt, picture.svg[picture.svg.index("<svg") :])
    attributes = f'<svg role="img" aria-label="{escape(picture.caption)}"'
    return Markup(svg.replace("<svg", attributes, 1))  # noqa: S704  matplotlib escaped its names


def _on_white(svg: str) -> str:
    """Return a picture that can be read where the viewer's own ground is dark."""
    return svg.replace("<svg", '<svg style="background: white"', 1)


def _environment(finalize: Callable[[str], str] | None = None, **delimiters: str) -> Environment:
    """Return the templates, each value that they print escaped.

    Args:
        finalize: escapes text; HTML's escaping if None. Like ``autoescape``, and unlike a filter
            in the template, it cannot be forgotten. What is ``Markup`` is escaped already.
        delimiters: of the template language.
    """

    def escaped(value: object) -> object:
        if finalize is None or isinstance(value, Markup):
            return value
        return Markup(finalize(str(value)))  # noqa: S704  escaped here

    environment = Environment(
        loader=PackageLoader("bertlab.studies.report"),
        autoescape=True,
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **delimiters,  # type: ignore[arg-type]
    )
    environment.globals["differences_legend"] = DIFFERENCES_LEGEND
    environment.filters |= {
        "code_block": _code_block,
        "grid_of": grid_of,
        "heading_lines": _heading_lines,
        "inline_svg": _inline_svg,
        "runs_of": runs_of,
        "settings_of": settings_of,
        "yaml_inline": yaml_inline,
    }
    return environment


_HTML = _environment()
_MARKDOWN_FILES = _environment(markdown_text)
# {{ and {% are LaTeX's own
_LATEX_FILES = _environment(
    latex_text,
    variable_start_string="<<",
    variable_end_string=">>",
    block_start_string="<%",
    block_end_string="%>",
)

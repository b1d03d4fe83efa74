"""The tables of a report in the terminal, in Markdown and in LaTeX."""

import re
from collections.abc import Iterable, Sequence
from textwrap import fill, indent

from rich.console import Console

from bertlab.console import print_table
from bertlab.studies.report.cells import (
    DIFFERENCES_LEGEND,
    Grid,
    Report,
    grid_of,
    settings_of,
)

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
# the first of two that LaTeX would draw as one: a dash or a quotation mark
_LATEX_SPECIAL = re.compile(f"[{re.escape(''.join(_LATEX))}]|([-',])(?=\\1)")
_NOT_WIDER = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"


def print_report(report: Report) -> None:
    """Print means, findings and warnings; columns that the terminal has no room for come below.

    Differences are given by the findings only: a table of them is too wide for most terminals.
    """
    console = Console()
    _print_grid(report.title, report.scores, console.width)
    lines = [report.legend]
    for heading, sentences in _sentences(report):
        lines += ["", heading, *(f"- {sentence}" for sentence in sentences)]
    for line in lines:
        margin = "  " if line.startswith("- ") else ""
        text = fill(line, console.width, subsequent_indent=margin, break_on_hyphens=False)
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    for section in report.sections:
        for line in ("", section.title, *section.text[:-1]):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        last = section.text[-1] if section.text else ""
        print_table(last, section.rows, section.headings)


def markdown(report: Report) -> str:
    """Return tables, findings, warnings, settings and commands as GitHub's Markdown."""
    parts = [
        f"# {markdown_text(report.title)}",
        markdown_table(report.scores),
        markdown_text(report.legend),
    ]
    if report.differences.rows:
        parts += [
            "## Differences to the baseline",
            markdown_table(report.differences),
            markdown_text(DIFFERENCES_LEGEND),
        ]
    for heading, lines in _sentences(report):
        parts += [f"## {heading}", "\n".join(f"- {markdown_text(line)}" for line in lines)]
    for section in report.sections:
        parts += [f"## {markdown_text(section.title)}", *map(markdown_text, section.text)]
        parts += [markdown_table(grid_of(section))] if section.rows else []
    for study in report.studies:
        settings = settings_of(study)
        if settings.rows:
            parts += [f"## Variants of {markdown_text(study.name)}", markdown_table(settings)]
        if "command" in study.manifest:
            command = indent(str(study.manifest["command"]), "    ", lambda line: True)
            parts += [f"## To repeat {markdown_text(study.name)}", command]
    return "\n\n".join(parts) + "\n"


def latex(report: Report) -> str:
    r"""Return tables, findings and warnings as LaTeX to ``\input``.

    The document needs the packages ``booktabs`` and ``graphicx``.
    """
    parts = [
        "% needs \\usepackage{booktabs,graphicx}, and LuaLaTeX for names beyond Latin letters",
        _latex_table(report.scores, f"{report.title}. {report.legend}"),
    ]
    if report.differences.rows:
        caption = f"{report.title}: differences to the baseline. {DIFFERENCES_LEGEND}"
        parts.append(_latex_table(report.differences, caption))
    for heading, lines in _sentences(report):
        items = [f"  \\item {latex_text(line)}" for line in lines]
        parts += [
            "\n".join([f"\\paragraph{{{heading}}}", "\\begin{itemize}", *items, "\\end{itemize}"])
        ]
    for section in report.sections:
        parts += [f"\\paragraph{{{latex_text(section.title)}}}", *map(latex_text, section.text)]
        parts += [_latex_table(grid_of(section), section.title)] if section.rows else []
    return "\n\n".join(parts) + "\n"


def markdown_table(grid: Grid) -> str:
    """Return a table of GitHub's Markdown."""
    names = len(grid.headings) - grid.figures
    lines = [[" ".join(heading) for heading in grid.headings], *grid.rows]
    text = [f"| {' | '.join(map(markdown_text, line))} |" for line in lines]
    rule = ["---"] * names + ["---:"] * grid.figures
    return "\n".join([text[0], f"| {' | '.join(rule)} |", *text[1:]])


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return _MARKDOWN.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))


def latex_text(text: str) -> str:
    """Return text that LaTeX shows as it is, on one line."""
    return _LATEX_SPECIAL.sub(
        lambda found: _LATEX.get(found[0], found[0] + "{}"), " ".join(text.split())
    )


def _latex_table(grid: Grid, caption: str) -> str:
    columns = "l" * (len(grid.headings) - grid.figures) + "r" * grid.figures
    depth = max(map(len, grid.headings))
    headings = [
        # a heading of one line stands in the last
        [("", *heading)[max(0, line - depth + len(heading) + 1)] for heading in grid.headings]
        for line in range(depth)
    ]
    return "\n".join(
        [
            "\\begin{table}",
            "  \\centering\\small",
            f"  \\caption{{{latex_text(caption)}}}\\medskip",
            f"  {_NOT_WIDER}{{\\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
            "    \\toprule",
            *map(_latex_row, headings),
            "    \\midrule",
            *map(_latex_row, grid.rows),
            "    \\bottomrule",
            "  \\end{tabular}}",
            "\\end{table}",
        ]
    )


def _latex_row(cells: Iterable[str]) -> str:
    return f"    {' & '.join(map(latex_text, cells))} \\\\"


def _sentences(report: Report) -> Iterable[tuple[str, Sequence[str]]]:
    for heading, lines in (("Findings", report.findings), ("Warnings", report.warnings)):
        if lines:
            yield heading, lines


def _print_grid(title: str, grid: Grid, width: int) -> None:
    """Print a table; figures that do not fit beside the names come in tables below it."""
    names = len(grid.headings) - grid.figures
    widths = [
        3 + max(len(line) for line in (*heading, *cells))
        for heading, *cells in zip(grid.headings, *grid.rows, strict=True)
    ]
    first = names
    while first < len(widths):
        room = width - 1 - sum(widths[:names]) - widths[first]
        last = first + 1
        while last < len(widths) and widths[last] <= room:
            room -= widths[last]
            last += 1
        shown = [*range(names), *range(first, last)]
        rows = [[row[column] for column in shown] for row in grid.rows]
        headings = ["\n".join(grid.headings[column]) for column in shown]
        print_table(title, rows, headings, figures=last - first)
        title = f"{title.removesuffix(' (continued)')} (continued)"
        first = last

"""A study's report in the terminal."""

from textwrap import fill

from rich.console import Console

from bertlab.console import print_table
from bertlab.studies.report.report import Grid, Report


def print_report(report: Report) -> None:
    """Print means, findings and warnings; columns that the terminal has no room for come below.

    Differences are given by the findings only: a table of them is too wide for most terminals.
    """
    console = Console()
    _print_grid(report.title, report.scores, console.width)
    lines = [report.legend]
    for heading, sentences in report.sentences:
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


def _print_grid(title: str, grid: Grid, width: int) -> None:
    """Print a table; figures that do not fit beside the names come in tables below it."""
    # a cell has a space on each side and a line after it; the first line is the table's own
    widths = [
        3 + max(len(line) for line in (*heading, *cells))
        for heading, *cells in zip(grid.headings, *grid.rows, strict=True)
    ]
    names = grid.names
    first = names
    while first < len(widths):
        room = width - 1 - sum(widths[:names]) - widths[first]
        last = first + 1
        while last < len(widths) and widths[last] <= room:
            room -= widths[last]
            last += 1
        # names 1, widths [9, 20, 20, 20], width 60 -> columns [0, 1, 2], then [0, 3]
        shown = [*range(names), *range(first, last)]
        rows = [[row[column] for column in shown] for row in grid.rows]
        headings = ["\n".join(grid.headings[column]) for column in shown]
        print_table(title, rows, headings, figures=last - first)
        title = f"{title.removesuffix(' (continued)')} (continued)"
        first = last

"""A study's report in each form: in the terminal, as one HTML page, Markdown, LaTeX, pictures."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill

from rich.console import Console

from bertlab.extend import explain_failed_write, make_folder, print_table, replacing, utf8, visible
from bertlab_pages.escaping import latex_templates, markdown_templates
from bertlab_pages.pictures import Picture, inline_svg, on_white
from bertlab_pages.tables import Grid
from bertlab_studies.report.group_report import group_csv_files
from bertlab_studies.report.plots import pictures
from bertlab_studies.report.report import HTML, Report
from bertlab_studies.report.tuning_report import tuning_csv_files
from bertlab_studies.report.values import report_json, values_csv

MARKDOWN = markdown_templates("bertlab_studies.report")
LATEX = latex_templates("bertlab_studies.report")


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write the report as HTML, Markdown and LaTeX, its pictures, and its values as CSV and JSON.

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
        "values.csv": values_csv(report.studies),
        "report.json": report_json(report),
        **{f"{picture.name}.svg": on_white(picture.svg) for picture in drawn},
        **_csv_files(report),
    }
    files = {name: utf8(text) for name, text in texts.items()}
    files |= {f"{picture.name}.pdf": picture.pdf for picture in drawn}
    of_sections = enumerate(report.sections, 1)
    files |= {f"section_{number}.png": each.picture for number, each in of_sections if each.picture}
    for name, content in files.items():
        with explain_failed_write(f"{folder / name}: cannot be written"):
            make_folder(folder)
            with replacing(folder / name) as file:
                file.write(content)
    return [folder / name for name in files]


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


def _csv_files(report: Report) -> dict[str, str]:
    """Return the text of each CSV file; with several studies, names begin with a number."""
    several = len(report.studies) > 1
    return {
        f"{number}_{name}" if several else name: text
        for number, study in enumerate(report.studies, 1)
        for name, text in (group_csv_files(study) | tuning_csv_files(study)).items()
    }


def html(report: Report, drawn: Sequence[Picture] = ()) -> str:
    """Return the page, with the pictures in it."""
    figures = [(picture, inline_svg(picture)) for picture in drawn]
    return HTML.get_template("report.html").render(
        title=report.title, report=report, figures=figures
    )


def markdown(report: Report, drawn: Sequence[Picture] = ()) -> str:
    """Return the report in GitHub's Markdown, with links to the pictures' files."""
    text = MARKDOWN.get_template("report.md").render(report=report, pictures=drawn)
    return text.rstrip("\n") + "\n"


def latex(report: Report) -> str:
    r"""Return tables, findings and warnings as LaTeX to ``\input``.

    The document needs the packages ``booktabs`` and ``graphicx``.
    """
    return LATEX.get_template("report.tex").render(report=report).rstrip("\n") + "\n"


def table_markdown(grid: Grid) -> str:
    """Return a table of GitHub's Markdown."""
    module = MARKDOWN.get_template("table.md").module
    return str(module.table(grid))  # type: ignore[attr-defined]


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
        text = fill(visible(line), console.width, subsequent_indent=margin, break_on_hyphens=False)
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    for section in report.sections:
        for line in ("", section.title, *section.text[:-1]):
            console.print(visible(line), markup=False, highlight=False, soft_wrap=True)
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

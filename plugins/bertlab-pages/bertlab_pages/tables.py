"""Tables of plain text, for pages, notebooks and files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import escape

from bertlab_pages.escaping import html_templates

PAGES = html_templates("bertlab_pages")


@dataclass(frozen=True)
class Grid:
    """A table in plain text.

    Attributes:
        headings: of the columns, each in one or two lines.
        rows: cells, one for each column.
        figures: how many columns, counted from the last, hold figures; the others hold names.
    """

    headings: tuple[tuple[str, ...], ...]
    rows: tuple[tuple[str, ...], ...]
    figures: int = 0

    @property
    def names(self) -> int:
        """How many columns hold names: the first ones."""
        return len(self.headings) - self.figures


@dataclass(frozen=True)
class TitledGrid:
    """A table of a report, with its title and explanation.

    Attributes:
        title: ``blimp by phenomenon``.
        grid: the table.
        legend: what the cells are.
    """

    title: str
    grid: Grid
    legend: str


def plain_grid(headings: Iterable[str], rows: Iterable[Sequence[str]], figures: int = 0) -> Grid:
    """Return a table whose headings have one line each; arguments as those of `Grid`."""
    return Grid(tuple((each,) for each in headings), tuple(map(tuple, rows)), figures)


def table_html(grid: Grid) -> str:
    """Return a table of HTML."""
    return str(PAGES.get_template("table.html").module.table(grid))  # type: ignore[attr-defined]


def titled_table(
    title: str, headings: Iterable[str], rows: Iterable[tuple[str, ...]], figures: int, note: str
) -> str:
    """Return a table of HTML with a title above and a note below it, for a notebook."""
    grid = plain_grid(headings, rows, figures)
    return f"<h4>{escape(title)}</h4>{table_html(grid)}<p>{escape(note)}</p>"

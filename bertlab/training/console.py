"""Tables, on the screen."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bertlab.errors import visible


def print_table(
    title: str,
    rows: Iterable[Sequence[str]],
    headings: Sequence[str] = (),
    figures: int = 0,
) -> None:
    """Print a title, which is never wrapped: a path in it can be copied; and rows of text below.

    Args:
        title: a line of its own.
        rows: the cells of each; square brackets are ordinary characters.
        headings: of the columns, if they have any.
        figures: how many columns, counted from the last, are aligned on the right.
    """
    cells = [[escape(visible(cell)) for cell in row] for row in rows]
    columns = max([len(headings), *map(len, cells)])
    table = Table(show_header=bool(headings))
    for number in range(columns):
        heading = visible(headings[number]) if headings else ""
        right = number >= columns - figures
        # what names a row stays whole; its figures or text may take several lines
        table.add_column(
            escape(heading),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=number == 0,
            min_width=max(map(len, heading.split("\n"))),
        )
    for row in cells:
        table.add_row(*row)
    console = Console()
    console.print(visible(title), soft_wrap=True, markup=False, highlight=False)
    console.print(table)

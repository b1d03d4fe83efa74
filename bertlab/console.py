"""Tables on the screen: a title that is never wrapped, so that a path in it can be copied."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_table(
    title: str,
    rows: Iterable[Sequence[str]],
    headings: Sequence[str] = (),
    figures: int = 0,
) -> None:
    """Print a title, and rows of text below it.

    Args:
        title: a line of its own.
        rows: the cells of each; square brackets are ordinary characters.
        headings: of the columns, if they have any.
        figures: how many columns, counted from the last, are aligned on the right.
    """
    cells = [[escape(cell) for cell in row] for row in rows]
    columns = max([len(headings), *map(len, cells)])
    table = Table(show_header=bool(headings))
    for number in range(columns):
        heading = headings[number] if headings else ""
        right = number >= columns - figures
        # what names a row stays whole; its figures or text may take several lines
        table.add_column(
            heading,
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=number == 0,
            min_width=max(map(len, heading.split("\n"))),
        )
    for row in cells:
        table.add_row(*row)
    console = Console()
    console.print(title, soft_wrap=True, markup=False, highlight=False)
    console.print(table)

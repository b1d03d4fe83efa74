"""Tables, on the screen and in notebooks, and lengths of time."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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


def as_table(rows: Sequence[Mapping[str, object]]) -> Any:  # noqa: ANN401  pandas may be absent
    """Return rows as a ``pandas.DataFrame``; without pandas as a list that notebooks show so."""
    try:
        import pandas  # noqa: PLC0415
    except ImportError:
        return Rows(rows)
    return pandas.DataFrame([dict(row) for row in rows])


class Rows(list[Mapping[str, object]]):
    """Rows by column name, shown as a table in a notebook."""

    def _repr_html_(self) -> str:
        columns = list(dict.fromkeys(name for row in self for name in row))
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        body = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(str(row.get(name, '')))}</td>" for name in columns)
            + "</tr>"
            for row in self
        )
        return f"<table><tr>{head}</tr>{body}</table>"


def duration(seconds: float) -> str:
    """Return a number of seconds as people read it: ``4:05``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

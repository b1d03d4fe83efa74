"""Tables as CSV files, in which no spreadsheet takes a text for a formula."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from bertlab.extend import check_memory, explain_damage, read_text

# some spreadsheets take the wide forms too; "'" itself, so that the text can be told from its mark
_FORMULA = tuple("=+-@\t\r\n'＝＋－＠")


def spreadsheet_csv(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as the text of a CSV file in which no spreadsheet takes a text for a formula.

    Numbers are written so that they read back as they are; None is an empty cell. Texts that begin
    as a formula does get ``'`` before them, as OWASP advises on CSV injection; so do those that
    begin with ``'``, so that taking one away gives back each text.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(map(_inert, headings))
    writer.writerows(map(_inert, row) for row in rows)
    return text.getvalue()


def spreadsheet_rows(path: Path) -> list[dict[str, str]]:
    """Return the lines of a file that :func:`spreadsheet_csv` wrote, by heading."""
    with explain_damage(path):
        try:
            text = read_text(path)
            taken = 200 * (text.count(",") + text.count("\n"))
            check_memory(path, "what its rows hold", taken, len(text))
            lines = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            return [{key: cell.removeprefix("'") for key, cell in line.items()} for line in lines]
        except csv.Error as error:
            raise ValueError(str(error)) from None


def _inert(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell

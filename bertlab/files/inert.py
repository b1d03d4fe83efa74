"""Lines of CSV and JSON that programs read exactly, and that nothing runs.

Names of variants, groups and labels, and texts, come from files of others. A spreadsheet takes a
cell that begins with ``=`` for a formula, which may start programs or send the table elsewhere. A
terminal takes control characters for commands.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bertlab.files.reading import explain_damage, read_text

# some spreadsheets take the wide forms too; "'" itself, so that the text can be told from its mark
_FORMULA = tuple("=+-@\t\r\n'＝＋－＠")
# JSON itself escapes those below 32; the last two end a line for some readers
_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029]")


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
            lines = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
            return [{key: cell.removeprefix("'") for key, cell in line.items()} for line in lines]
        except csv.Error as error:
            raise ValueError(str(error)) from None


def json_line(content: object) -> str:
    """Return one line of JSON; what JSON does not have, such as a date, is a text."""
    text = json.dumps(content, ensure_ascii=False, default=str)
    # "\x9b" begins a terminal's commands as "\x1b[" does
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _inert(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell

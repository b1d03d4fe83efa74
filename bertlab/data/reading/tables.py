"""Tables as raw rows: TSV, CSV, JSON lines and JSON.

In TSV tabs separate columns and quotes are ordinary characters, as in GLUE's files. CSV is that of
RFC 4180: quoted cells may hold commas, quotes and line breaks.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from bertlab.api.examples import RawExamples, holds_no_examples
from bertlab.data.reading.lines import input_name, numbered, read_lines
from bertlab.errors import ConfigError, DataError
from bertlab.files import reading

Cells = Iterator[tuple[int, list[str]]]
HasHeader = Callable[[list[str]], bool]


def read_tsv(path: str, has_header: HasHeader, skip_ragged: bool = False) -> RawExamples:
    """Read tab-separated columns."""
    cells = ((number, line.split("\t")) for number, line in numbered(read_lines(path)))
    return _table(path, cells, has_header, "tab-separated", skip_ragged)


_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


@dataclass(frozen=True)
class RowReading:
    """How rows are read from files: the form of CSV, and what is done about empty cells.

    Attributes:
        delimiter: between cells. None: a comma; where the first line has none, whatever it has
            most of: semicolons, tabs or bars.
        quote: around cells that hold delimiters, quotes or line breaks; written twice inside. None
            for ``"``; empty if quotes are ordinary characters.
        skip_empty: leave out, and count, rows with an empty text or label. Else an empty text is an
            error, and a row without label is there without it.

    Raises:
        ConfigError: one of them is not a single character.
    """

    delimiter: str | None = None
    quote: str | None = None
    skip_empty: bool = False

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote"):
            found = getattr(self, name)
            if found and (len(found) > 1 or found in "\r\n"):
                raise ConfigError(f"data.{name}: found {found!r}, expected one character")

    def delimiter_in(self, first_line: str) -> str:
        """Return the delimiter of a file that begins with a line."""
        if self.delimiter:
            return self.delimiter
        # max() takes the first of equals: a comma where the line has no delimiter at all
        return "," if "," in first_line else max(_DELIMITERS, key=first_line.count)


PLAIN = RowReading()


def read_csv(path: str, has_header: HasHeader, form: RowReading = PLAIN) -> RawExamples:
    """Read cells with quotes as in RFC 4180; arguments and errors as above."""
    lines = read_lines(path)
    first = next(lines, None)
    delimiter = form.delimiter_in(first or "")
    separated = f"{_DELIMITERS.get(delimiter, repr(delimiter))}-separated"
    cells = _csv_cells(path, chain([] if first is None else [first], lines), delimiter, form.quote)
    return _table(path, cells, has_header, separated, skip_ragged=False)


def _csv_cells(path: str, lines: Iterable[str], delimiter: str, quote: str | None) -> Cells:
    # a cell may hold line breaks
    reader = csv.reader(
        (f"{line}\n" for line in lines),
        strict=True,
        delimiter=delimiter,
        quotechar='"' if quote is None else quote or None,
        quoting=csv.QUOTE_NONE if quote == "" else csv.QUOTE_MINIMAL,
    )
    start = 1
    try:
        for row in reader:
            if row:
                yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{input_name(path)}:{start}: malformed CSV in the row that begins here ({error}); "
            "a cell with quotes, commas or line breaks is written in double quotes, and a double "
            "quote in it twice; data.delimiter and data.quote tell another form, and a file "
            "separated by tabs, without quotes, is format tsv"
        ) from None


def _table(
    path: str, cells: Cells, has_header: HasHeader, separated: str, skip_ragged: bool
) -> RawExamples:
    name = input_name(path)
    first = next(cells, None)
    if first is None:
        raise holds_no_examples(name)
    width = len(first[1])
    if has_header(first[1]):
        columns = tuple(first[1])
        twice = [column for column, count in Counter(columns).items() if column and count > 1]
        if twice:
            raise DataError(f"{name}:{first[0]}: the header names column {twice[0]!r} twice")
        first_row = next(cells, None)
        if first_row is None:
            raise DataError(f"{name}: holds no rows but the header; leave it out or fill it")
    else:
        columns = tuple(map(str, range(width)))
        first_row = first
    cells = chain([first_row], cells)
    raw = RawExamples(name, columns, iter(()))  # before rows(), which counts in it

    def rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
        for number, row in cells:
            if len(row) == width:
                yield f"{name}:{number}", dict(zip(columns, row, strict=True))
            elif skip_ragged:
                raw.skipped["another number of columns than the header"] += 1
            else:
                raise DataError(
                    # 's'[:False] is ''
                    f"{name}:{number}: found {len(row)} {separated} column{'s'[: len(row) != 1]}, "
                    f"expected {width} as in line {first[0]}; mend the row"
                )

    raw.rows = rows()
    return raw


def read_json_lines(path: str) -> RawExamples:
    """Read a JSON object a line; lines that are blank are passed over."""
    name = input_name(path)
    return _objects(name, json_values(read_lines(path), name, arrays=False))


def read_json(path: str) -> RawExamples:
    """Read one JSON array of objects, or an object a line; errors as above."""
    name = input_name(path)
    return _objects(name, json_values(read_lines(path), name))


def json_values(
    lines: Iterable[str], name: str, arrays: bool = True, expected: str | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield JSON values, one a line or those of one array, each behind its place for messages."""
    numbered_lines = enumerate(lines, 1)
    texts = ((number, line) for number, line in numbered_lines if line and not line.isspace())
    first = next(texts, None)
    if first is None:
        return
    number, line = first
    if arrays and line.lstrip().startswith("["):
        text = "\n".join([line, *(rest for _, rest in numbered_lines)])
        values = parse_json(text, name, number, expected or "one array of objects")
        yield from ((f"{name}: row {row}", value) for row, value in enumerate(values, 1))
        return
    for number, line in chain([first], texts):
        value = parse_json(line, name, number, expected or "one object a line")
        yield f"{name}:{number}", value


def parse_json(text: str, name: str, first_line: int, expected: str) -> Any:  # noqa: ANN401
    """Parse JSON that begins in a line of a file; ``expected`` says what should be there."""
    try:
        return reading.parse_json(text)
    except json.JSONDecodeError as error:
        line, reason = first_line + error.lineno - 1, f"{error.msg}, column {error.colno}"
    except RecursionError:
        line, reason = first_line, "nested too deep"
    except ValueError as error:  # a number of thousands of digits
        line, reason = first_line, str(error).partition(";")[0]
    raise DataError(f"{name}:{line}: malformed JSON ({reason}); expected {expected}")


def _objects(name: str, found: Iterator[tuple[str, Any]]) -> RawExamples:
    def checked() -> Iterator[tuple[str, Mapping[str, Any]]]:
        for where, row in found:
            if not isinstance(row, dict):
                raise DataError(
                    f"{where}: found {type(row).__name__} {str(row)[:40]!r}, expected a JSON "
                    "object with the columns as keys"
                )
            yield where, row

    rows = checked()
    first = next(rows, None)
    if first is None:
        raise holds_no_examples(name)
    return RawExamples(name, tuple(first[1]), chain([first], rows), rows_vary=True)

"""Tables as raw rows: TSV, CSV, JSON lines and JSON.

In TSV tabs separate columns and quotes are ordinary characters, as in GLUE's files. CSV is that of
RFC 4180: quoted cells may hold commas, quotes and line breaks.
"""

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, Literal

from bertlab.api.examples import Labels, RawExamples, holds_no_examples
from bertlab.data.rows.lines import (
    BYTES_OF_ROW,
    COPIES,
    PIECE,
    STANDARD_INPUT,
    Errors,
    hold,
    in_pieces,
    input_name,
    is_packed,
    read_lines,
)
from bertlab.data.sources import File
from bertlab.errors import DataError, kind_of
from bertlab.files import DECODER, READING_MB, check_json, check_memory, parse_json, reading_budget

Cells = Iterator[tuple[int, list[str]]]
HasHeader = Callable[[list[str]], bool]

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_OTHER_FORM = "; data.delimiter and data.quote tell another form"
_KEY = re.compile(r"\bdata\.(\w+)")
_LOOKED_AT = 50  # lines in which a delimiter is sought
_LOOKED_AT_CHARACTERS = 2**18
_BYTES_OF_CELL, _BYTES_OF_QUOTED = 64, 30  # of memory: of a short text, by its delimiter or quote


@dataclass(frozen=True)
class RowReading:
    """How rows are read from files: the form of CSV, and what is done about odd ones.

    Attributes:
        delimiter: between cells. None: the one of comma, semicolon, tab and bar that parts the
            first lines into the same number of cells.
        quote: around cells that hold delimiters, quotes or line breaks; written twice inside. None
            for ``"``; empty if quotes are ordinary characters.
        header: whether the first line of a table names its columns; None to find it out.
        skip_empty: leave out, and count, rows with an empty text or label. Else an empty text is an
            error, and a row without label is there without it.
        label_separator: between the labels in a cell; None to find it out, once for a file.
        labels: of the training data, where they are known: a mark in one of them parts none.
        accepts_doubtful: rows are taken as they are, also where that can hardly be meant.
        errors: what a corpus does about bytes that are not UTF-8; None for labelled rows.
        keeps_unreadable: rows that cannot be read are there as :class:`Unreadable`.
        cluster: column that says which labelled rows belong together.
        keys: what errors call those of ``data`` that they can advise; None: all, ``data.columns``.
    """

    delimiter: str | None = None
    quote: str | None = None
    header: bool | None = None
    skip_empty: bool = False
    label_separator: str | None = None
    labels: Labels | None = None
    accepts_doubtful: bool = False
    errors: Errors | None = None
    keeps_unreadable: bool = False
    cluster: str | None = None
    keys: Mapping[str, str] | None = None

    def advise(self, advice: str, otherwise: str = "") -> str:
        """Return advice with its keys by their names here, or ``otherwise`` if one is not there."""
        keys = self.keys
        if keys is None:
            return advice
        is_there = keys.keys() >= {*_KEY.findall(advice)}
        return _KEY.sub(lambda key: keys[key[1]], advice) if is_there else otherwise


PLAIN = RowReading()


class Unreadable(dict[str, Any]):
    """A row that cannot be read, without values; ``error`` says why."""

    def __init__(self, error: DataError) -> None:
        super().__init__()
        self.error = error


def read_table(
    path: str | File,
    form: Literal["csv", "tsv"],
    has_header: HasHeader,
    reading: RowReading = PLAIN,
    skip_ragged: bool = False,
    names: Iterable[str] = (),
) -> RawExamples:
    """Read the rows of a table; ``skip_ragged`` leaves out, and counts, rows of another width.

    ``names`` of columns prefer a delimiter. ``reading`` overrules ``form`` and ``has_header``.
    """
    name = input_name(path)
    cells, separated = _open_cells(path, form, reading, set(names))
    first = next((each for each in cells if each[1]), None)  # behind blank lines
    if first is None:
        return _no_rows(holds_no_examples(name), reading)
    number, row = first
    is_header = has_header(row) if reading.header is None else reading.header
    columns = tuple(map(str, range(len(row))))
    if is_header:
        columns = _column_names(name, number, row)
        first = next(cells, None)
        if first is None:
            empty = DataError(f"{name}: holds no rows but the header; leave it out or fill it")
            return _no_rows(empty, reading)
    raw = RawExamples(name, columns, iter(()), has_header=is_header)
    raw.form = f"{form}, {separated}, " + (f"header in line {number}" if is_header else "no header")
    expected = f"expected {len(columns)} as in line {number}; mend the row"
    expected += reading.advise(_OTHER_FORM, "; write the file in another form")
    ragged = "keep" if reading.keeps_unreadable else "skip" if skip_ragged else "refuse"
    raw.rows = _rows(raw, chain([first], cells), separated, expected, ragged)
    return raw


def _rows(
    raw: RawExamples, cells: Cells, separated: str, expected: str, ragged: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a table, and count in it those that are left out."""
    # rows of another width are left out (ragged: skip), unreadable (keep), or refused
    name, columns, width = raw.name, raw.columns, len(raw.columns)
    for number, row in cells:
        if len(row) == width:
            yield f"{name}:{number}", dict(zip(columns, row, strict=False))  # as many
        elif not row and width == 1:
            yield f"{name}:{number}", {columns[0]: ""}
        elif not row or (len(row) == 1 and not row[0].strip()):
            raw.skipped["a blank line"] += 1
        elif ragged == "skip":
            raw.skipped["another number of columns than the header"] += 1
        else:
            columns_found = f"{len(row)} {separated} column{'s'[: len(row) != 1]}"  # [:False]: none
            error = DataError(f"{name}:{number}: found {columns_found}, {expected}")
            if ragged == "refuse":
                raise error
            yield f"{name}:{number}", Unreadable(error)


def _open_cells(
    path: str | File, form: str, reading: RowReading, names: set[str]
) -> tuple[Cells, str]:
    """Open a table as numbered rows of cells; also return what separates the cells, in words."""
    row, quote, start = _Row(path), reading.quote, 1
    lines = read_lines(path, reading.errors, on_block=row.grow)
    delimiter = reading.delimiter or ""
    if form == "tsv":
        delimiter, quote = delimiter or "\t", quote or ""  # quotes are ordinary characters
    else:
        # whoever types wants to see
        ahead = list(islice(_few(lines), 1 if path == STANDARD_INPUT else _LOOKED_AT))
        if ahead and (said := re.fullmatch(r"sep=(.)", ahead[0])):  # as Excel writes
            start, ahead, delimiter = 2, ahead[1:], delimiter or said[1]
        delimiter = delimiter or _delimiter_of(row.name, ahead, reading, names)
        lines = chain(ahead, lines)
    dialect, row.delimiter = _dialect(delimiter, quote), delimiter
    cells = _cells(row, lines, start, dialect, reading)
    return cells, f"{_DELIMITERS.get(delimiter, repr(delimiter))}-separated"


def _no_rows(error: DataError, reading: RowReading) -> RawExamples:
    """Refuse a file without rows; of a corpus another file may have some."""
    if reading.errors is None:
        raise error
    return RawExamples("", (), iter(()), rows_vary=True)


def _few(lines: Iterator[str]) -> Iterator[str]:
    """Yield lines as long as they are not many characters."""
    size = 0
    for line in lines:
        yield line
        size += len(line)
        if size > _LOOKED_AT_CHARACTERS:
            return


def _delimiter_of(name: str, lines: list[str], reading: RowReading, names: set[str]) -> str:
    """Return the delimiter that parts the lines as a table: all of them into as many cells."""

    def score(delimiter: str) -> tuple[bool, int, bool, int]:
        in_header = lines[0].count(delimiter) if lines else 0
        table: list[list[str]] = []
        try:  # += keeps the rows before an error
            table += filter(None, csv.reader(_ended(lines), **_dialect(delimiter, reading.quote)))
        except csv.Error as error:
            if "unexpected end" not in str(error):  # of a cell that goes on behind these lines
                return False, 0, False, in_header
        first, *rest = table or [[]]
        # of lines that were not all looked at, the last row may be half a row
        fitting = [len(row) == len(first) for row in rest[:-1] or rest]
        if len(first) > 1 and all(fitting):
            return True, 0, not names.isdisjoint(first), len(first)
        return False, sum(fitting) if len(first) > 1 else 0, False, in_header

    # "id;text, as typed" over "1;a": the comma parts one line, the semicolon both
    scores = {delimiter: score(delimiter) for delimiter in _DELIMITERS}
    best = max(scores.values())
    found = [delimiter for delimiter, each in scores.items() if each == best]
    if not best[0]:  # rows of several widths, which are refused by line
        return found[0]
    if len(found) > 1:  # "so, or not;good" in every line
        marks = " and ".join(_DELIMITERS[delimiter] for delimiter in found)
        told = f"{name}: {marks} part the first lines into {best[3]} cells each"
        raise DataError(told + reading.advise("; data.delimiter says which of them it is"))
    return found[0]


def _dialect(delimiter: str, quote: str | None) -> dict[str, Any]:
    csv.field_size_limit(reading_budget() // COPIES)
    return {
        "strict": True,
        "delimiter": delimiter,
        "quotechar": '"' if quote is None else quote or None,
        "quoting": csv.QUOTE_NONE if quote == "" else csv.QUOTE_MINIMAL,
    }


class _Row:
    """The row that is being read: cells may hold line breaks, so it goes on over any number."""

    def __init__(self, path: str | File) -> None:
        self.name, self.start, self.delimiter = input_name(path), 1, ","  # line of its beginning
        self._packed, self._seen, self._taken, self._stored = is_packed(path), 0, 0, 0

    def grow(self, block: str) -> None:
        """Take note of a block of the file, which is this row's if it is still being read."""
        if self.start != self._seen:
            self._seen, self._taken, self._stored = self.start, 0, 0
            return
        self._taken += COPIES * sys.getsizeof(block) + _BYTES_OF_CELL * block.count(self.delimiter)
        self._stored += 0 if self._packed else len(block)
        name = f"{self.name}:{self.start}"
        check_memory(name, "the row that begins here", self._taken, self._stored)


def _ended(lines: Iterable[str]) -> Iterator[str]:
    return map("{}\n".format, lines)  # a cell may hold line breaks


def _cells(
    held: _Row, lines: Iterable[str], start: int, dialect: Mapping[str, Any], reading: RowReading
) -> Cells:
    """Yield the cells of each row behind the number of its first line; none of a blank line."""
    # blank lines at the end of the file are no rows
    reader = csv.reader(_ended(lines), **dialect)
    first = filled = start
    try:
        for row in reader:
            if row:
                if filled < start:  # blank lines, and this row
                    yield from ((number, []) for number in range(filled, start))
                yield start, row
                start = filled = held.start = first + reader.line_num
            else:
                start = held.start = first + reader.line_num
    except csv.Error as error:
        advice = "a cell with quotes, commas or line breaks is written in double quotes, and a "
        advice += "double quote in it twice"
        if "field larger" in str(error):
            most = f"{csv.field_size_limit():,} characters, or more with {READING_MB}"
            advice = f"a cell has at most {most}; is a quote never closed?"
        advice += reading.advise(_OTHER_FORM, "; write the file in another form")
        advice += ", and a file separated by tabs, without quotes, is format tsv"
        found = f"malformed CSV in the row that begins here ({error})"
        raise DataError(f"{held.name}:{start}: {found}; {advice}") from None


def _column_names(name: str, number: int, cells: list[str]) -> tuple[str, ...]:
    twice = [column for column, count in Counter(cells).items() if column and count > 1]
    if twice:
        raise DataError(f"{name}:{number}: the header names column {twice[0]!r} twice")
    unnamed = cells.count("")
    if unnamed < 2:
        return tuple(cells)
    # as pandas calls them: a,, -> a, Unnamed: 1, Unnamed: 2
    return tuple(cell or f"Unnamed: {place}" for place, cell in enumerate(cells))


def read_json(path: str | File, reading: RowReading = PLAIN) -> RawExamples:
    """Read objects, one a line or those of one array; blank lines are passed over."""
    name = input_name(path)

    def checked() -> Iterator[tuple[str, Mapping[str, Any]]]:
        note = partial(_hold_json, name) if is_packed(path) else None
        lines = read_lines(path, reading.errors, on_block=note)
        for where, row in _json_values(lines, name):
            if isinstance(row, dict):
                yield where, row
                continue
            error = row
            if not isinstance(row, DataError):
                error = DataError(
                    f"{where}: found {kind_of(row)} {str(row)[:40]!r}, expected a JSON "
                    "object with the columns as keys"
                )
            if not reading.keeps_unreadable:
                raise error
            yield where, Unreadable(error)

    rows, ahead = checked(), list[tuple[str, Mapping[str, Any]]]()
    for each in rows:
        ahead.append(each)
        if not isinstance(each[1], Unreadable):
            break
    if not ahead:
        return _no_rows(holds_no_examples(name), reading)
    where, first = ahead[-1]
    if isinstance(first, Unreadable):  # all are
        raise first.error
    is_array = where.startswith(f"{name}: row ")
    form = "a JSON array of objects" if is_array else "a JSON object a line"
    return RawExamples(name, tuple(first), chain(ahead, rows), rows_vary=True, form=form)


def _hold_json(name: str, block: str) -> None:
    in_line = max(0, block.count("{") - block.count("\n"))  # rows that no line break has counted
    hold(name, BYTES_OF_ROW * in_line + _BYTES_OF_QUOTED * block.count('"'))


_EXPECTED = "one object a line, or one array of objects"


def _json_values(lines: Iterator[str], name: str) -> Iterator[tuple[str, Any]]:
    """Yield JSON values, or the DataError of a line, each behind its place for messages."""
    texts = ((number, line) for number, line in enumerate(lines, 1) if line and not line.isspace())
    first = next(texts, None)
    if first is None:
        return
    if first[1].lstrip().startswith("["):
        items = _Array(first[1], lines, name, first[0])
        yield from ((f"{name}: row {row}", value) for row, value in enumerate(items, 1))
        return
    for number, line in chain([first], texts):
        try:
            value = parse_row_json(line, name, number, _EXPECTED)
        except DataError as error:
            value = error
        yield f"{name}:{number}", value


class _Array:
    """The items of one JSON array, parsed as they are read; memory holds about one of them."""

    def __init__(self, first: str, lines: Iterator[str], name: str, number: int) -> None:
        self.pieces = in_pieces(chain([first], lines))
        self.text = next(self.pieces)
        self.name, self.number = name, number  # of the line with which the text begins
        self.at = self.before = 0  # of that line, the characters in front of the text
        self._sign()
        self.at += 1  # behind the bracket

    def __iter__(self) -> Iterator[Any]:
        if self._sign() != "]":
            yield self._value()
            while self._sign() == ",":
                self.at += 1
                yield self._value()
        if self._sign() != "]":
            raise self._malformed("Expecting ',' delimiter", self.at)
        self.at += 1
        if self._sign():
            raise self._malformed("Extra data", self.at)

    def _sign(self) -> str:
        """Return the next character that is no space; nothing at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at].isspace():
                self.at += 1
            if self.at < len(self.text) or not self._more():
                return self.text[self.at : self.at + 1]

    def _value(self) -> Any:  # noqa: ANN401
        self._sign()
        while True:
            start = self.at  # 0 after self._more(), which drops what is parsed
            try:
                value, end = DECODER.raw_decode(self.text, start)
                if end < len(self.text) or not self._more():  # "12" may go on: 123
                    self.at += end - start
                    return value
            except json.JSONDecodeError as error:
                if not self._more():
                    raise self._malformed(error.msg, self.at + error.pos - start) from None
            except RecursionError:
                raise self._malformed("nested too deep", self.at) from None
            except ValueError as error:  # a number of thousands of digits
                raise self._malformed(str(error).partition(";")[0], self.at) from None

    def _more(self) -> bool:
        """Read on, at least as much again as waits to be parsed; return whether there was more."""
        done, self.text = self.text[: self.at], self.text[self.at :]
        self.before = len(done) - 1 - done.rfind("\n") + ("\n" not in done) * self.before
        self.number, self.at = self.number + done.count("\n"), 0
        parts, size = [self.text], 0
        for piece in self.pieces:
            parts.append(piece)
            size += len(piece)
            if size >= max(PIECE, len(self.text)):
                break
        self.text = "".join(parts)
        try:
            check_json(self.text)
        except ValueError as error:
            raise self._malformed(str(error), 0) from None
        return len(parts) > 1

    def _malformed(self, reason: str, place: int) -> DataError:
        line = self.number + self.text.count("\n", 0, place)
        column = place - (end := self.text.rfind("\n", 0, place)) + (end < 0) * self.before
        found = f"malformed JSON ({reason}, column {column})"
        return DataError(f"{self.name}:{line}: {found}; expected {_EXPECTED}")


def parse_row_json(text: str, name: str, first_line: int, expected: str, stored: int = 0) -> Any:  # noqa: ANN401
    """Parse JSON that begins in a line of a file of so many bytes; ``expected`` is for messages."""
    try:
        return parse_json(text, stored)
    except ValueError as error:
        line, reason = first_line, str(error).partition(";")[0]  # a number of thousands of digits
        if isinstance(error, json.JSONDecodeError):
            line, reason = line + error.lineno - 1, f"{error.msg}, column {error.colno}"
    raise DataError(f"{name}:{line}: malformed JSON ({reason}); expected {expected}")

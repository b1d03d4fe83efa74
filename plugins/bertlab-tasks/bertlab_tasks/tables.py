"""Predictions as JSON lines or one table, CSV, TSV or Parquet, and a line of what there is."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab.api import DataError, hookimpl
from bertlab.extend import WholeFile, explain_failed_write, make_folder, replacing, say

if TYPE_CHECKING:
    # imported late: Arrow may start threads, which the process that runs are forked from must not
    import pyarrow as pa

_FORMS = ("csv", "tsv", "parquet")
_COUNTED = 12  # labels
_ROWS = 1000  # that become one block of the table
_BREAKS = str.maketrans("\t\n\r", "   ")  # TSV has no way to write them


@hookimpl
def bertlab_prediction_file(path: Path, form: str) -> "CountedFile | None":
    """Return a file in one of the forms, which says at its end what it has."""
    if form == "jsonl":
        return CountedFile(JsonFile(path), path)
    return CountedFile(TableFile(path, form), path) if form in _FORMS else None


class JsonFile:
    """Rows as JSON lines, in a file that is there when it is whole."""

    def __init__(self, output: Path) -> None:
        from bertlab.extend import json_line  # noqa: PLC0415  torch, not for other commands

        self.text = WholeFile(output)
        self.line = json_line

    def write(self, row: Mapping[str, Any]) -> None:
        """Write a row."""
        self.text.write(self.line(row))

    def close(self) -> None:
        """Put the file in its place."""
        self.text.close()

    def discard(self) -> None:
        """Leave no file."""
        self.text.discard()


class CountedFile:
    """A file of predictions that prints a line at its end: rows, labels with counts, left out."""

    def __init__(self, file: "JsonFile | TableFile", output: Path) -> None:
        self.file = file
        self.output = output
        self.rows = self.left_out = 0
        self.labels: Counter[str] = Counter()

    def write(self, row: Mapping[str, Any]) -> None:
        """Write a row, and count its label or labels, or the types of its entities."""
        self.rows += 1
        self.left_out += bool(row.get("error"))
        entities = row.get("entities")
        found = [each["type"] for each in entities] if isinstance(entities, list) else None
        for key in ("label", "labels", "tags"):
            found = row.get(key) if found is None else found
        self.labels.update(map(str, found if isinstance(found, list) else _some(found)))
        self.file.write(row)

    def close(self) -> None:
        """Finish the file, and print the line."""
        self.file.close()
        common = [f"{name} {count:,}" for name, count in self.labels.most_common(_COUNTED)]
        more = len(self.labels) - len(common)
        parts = [f"{self.rows:,} row{'s'[: self.rows != 1]}"]
        parts += [", ".join([*common, *[f"{more:,} more"][: more > 0]])] if common else []
        parts += [f"{self.left_out:,} without an answer (error)"] if self.left_out else []
        say(f"{self.output}: {'; '.join(parts)}")

    def discard(self) -> None:
        """Leave no file."""
        self.file.discard()


def _some(value: object) -> list[object]:
    return [] if value is None else [value]


class TableFile:
    """Collects rows and writes them as one table, which is there when it is whole.

    A key that a row lacks is an empty cell. In CSV and TSV a mapping becomes a column for each of
    its keys (``scores.good``), and a list is JSON. Columns are kept in memory until the end.
    """

    def __init__(self, output: Path, form: str) -> None:
        self.output = output
        self.form = form
        # text is opened now, so that a place that cannot be written is told before the work
        self.text = None if form == "parquet" else WholeFile(output)
        self.rows: list[Mapping[str, Any]] = []
        self.blocks: list[pa.Table] = []
        self.wide: set[str] = set()  # columns of whole numbers beyond 2^63, such as hashes

    def write(self, row: Mapping[str, Any]) -> None:
        """Take a row."""
        self.rows.append(row)
        if len(self.rows) >= _ROWS:
            self._end_block()

    def close(self) -> None:
        """Write the file and put it in its place."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        self._end_block()
        with _explained(self.output):
            for key in self.wide:
                self.blocks = _of_one_type(self.blocks, key)
            table = pa.concat_tables(self.blocks, promote_options="permissive")
        if self.text is not None:
            for line in _lines(table, self.form):
                self.text.write(line)
            self.text.close()
            return
        with explain_failed_write(f"{self.output}: cannot be written"):
            make_folder(self.output.parent)
            with replacing(self.output) as file, _explained(self.output, "values"):
                pq.write_table(_without_empty(table), file)

    def discard(self) -> None:
        """Leave no file."""
        if self.text is not None:
            self.text.discard()

    def _column(self, key: str, values: list[Any]) -> "pa.Array":
        import pyarrow as pa  # noqa: PLC0415

        try:
            return pa.array(values)
        except UnicodeEncodeError:  # half a surrogate pair, which JSON can escape
            return pa.array(_encodable(values))
        except OverflowError:  # of a whole number beyond 2^63
            self.wide.add(key)
            return pa.array([each if each is None else str(each) for each in values])

    def _end_block(self) -> None:
        """Turn the rows so far into columns, which take less memory."""
        import pyarrow as pa  # noqa: PLC0415

        keys = dict.fromkeys(key for row in self.rows for key in row)
        with _explained(self.output):
            columns = {
                _encodable(key): self._column(key, [row.get(key) for row in self.rows])
                for key in keys
            }
        self.blocks.append(pa.table(columns))
        self.rows = []


def _encodable(value: Any) -> Any:  # noqa: ANN401  any value of JSON
    r"""Return a value that can be encoded: half a surrogate pair as JSON has it, \ud800."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    return [*map(_encodable, value)] if isinstance(value, list) else value


def _of_one_type(blocks: "list[pa.Table]", key: str) -> "list[pa.Table]":
    """Return blocks in which a column is uint64 or, with what that cannot hold, text."""
    import pyarrow as pa  # noqa: PLC0415

    def cast(kind: "pa.DataType") -> "list[pa.Table]":
        return [
            block.set_column(block.column_names.index(key), key, block[key].cast(kind))
            if key in block.column_names
            else block
            for block in blocks
        ]

    try:
        return cast(pa.uint64())
    except pa.ArrowInvalid:  # -1, 2^64
        return cast(pa.string())


def _without_empty(table: "pa.Table") -> "pa.Table":
    """Return a table with null in place of objects without keys, which Parquet does not have."""
    import pyarrow as pa  # noqa: PLC0415

    for place, field in enumerate(table.schema):
        if _holds_empty(field.type):
            values = [_null_if_empty(each) for each in table[place].to_pylist()]
            table = table.set_column(place, field.name, pa.array(values))
    return table


def _holds_empty(kind: "pa.DataType") -> bool:
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_struct(kind):
        return not kind.num_fields or any(_holds_empty(field.type) for field in kind)
    return pa.types.is_list(kind) and _holds_empty(kind.value_type)


def _null_if_empty(value: Any) -> Any:  # noqa: ANN401  any value of JSON
    if isinstance(value, Mapping):
        return {key: _null_if_empty(each) for key, each in value.items()} or None
    return [*map(_null_if_empty, value)] if isinstance(value, list) else value


@contextmanager
def _explained(output: Path, what: str = "values of several kinds") -> Iterator[None]:
    """Re-raise Arrow's refusal of the values in a column as DataError."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{output}: a column has {what} ({reason}), which a table cannot hold; write JSON "
            "lines: --output NAME.jsonl"
        ) from None


def _lines(table: "pa.Table", form: str) -> Iterator[str]:
    """Yield the lines of a table as CSV or TSV, the header first."""
    import pyarrow as pa  # noqa: PLC0415

    while any(pa.types.is_struct(field.type) for field in table.schema):
        # a column scores of {good, bad} -> scores.good, scores.bad
        structs = [field.name for field in table.schema if pa.types.is_struct(field.type)]
        made = {*table.select(structs).flatten().column_names}
        taken = made | {*table.column_names}
        names = []
        for name in table.column_names:
            own = name
            while own in made or (own != name and own in taken):
                own = f"input_{own}"  # of the input, as that of a run before: scores.good
            names.append(own)
        table = table.rename_columns(names).flatten()
    yield _line(table.column_names, form)
    for batch in table.to_batches(max_chunksize=_ROWS):
        columns = [column.to_pylist() for column in batch.columns]
        for cells in zip(*columns, strict=True):
            yield _line([_cell(cell) for cell in cells], form)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _line(cells: list[str], form: str) -> str:
    if form == "tsv":  # quotes are ordinary characters, as bertlab reads it
        return "\t".join(cell.translate(_BREAKS) for cell in cells) + "\n"
    written = io.StringIO()
    # csv puts cells with a character of the line's end into quotes: here those with CR or LF
    csv.writer(written, lineterminator="\r\n").writerow(cells)
    return written.getvalue().removesuffix("\r\n") + "\n"

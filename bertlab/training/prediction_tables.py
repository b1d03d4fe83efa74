"""Predictions as a table: CSV, TSV or Parquet, by the ending of the output's name."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab.errors import DataError
from bertlab.files import WholeFile, explain_failed_write, replacing

if TYPE_CHECKING:
    # imported late: Arrow may start threads, which the process that runs are forked from must not
    import pyarrow as pa

TABLE_FORMS = ("csv", "tsv", "parquet")
_ROWS = 1000  # that become one block of the table
_BREAKS = str.maketrans("\t\n\r", "   ")  # TSV has no way to write them


class TableFile:
    """Collects rows and writes them as one table, which is there when it is whole.

    A key that a row lacks is an empty cell. In CSV and TSV a mapping becomes a column for each of
    its keys (``scores.good``), and a list is JSON. Columns are kept in memory until the end.

    Args:
        output: file to write.
        form: ``csv``, ``tsv`` or ``parquet``.

    Raises:
        OutputError: if the file cannot be written.
    """

    def __init__(self, output: Path, form: str) -> None:
        self.output = output
        self.form = form
        # text is opened now, so that a place that cannot be written is told before the work
        self.text = None if form == "parquet" else WholeFile(output)
        self.rows: list[Mapping[str, Any]] = []
        self.blocks: list[pa.Table] = []

    def write(self, row: Mapping[str, Any]) -> None:
        """Take a row.

        Raises:
            DataError: values of one column are of several kinds.
        """
        self.rows.append(row)
        if len(self.rows) >= _ROWS:
            self._end_block()

    def close(self) -> None:
        """Write the file and put it in its place.

        Raises:
            DataError: values of one column are of several kinds.
            OutputError: it cannot be written.
        """
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        self._end_block()
        with _explained(self.output):
            table = pa.concat_tables(self.blocks, promote_options="permissive")
        if self.text is not None:
            for line in _lines(table, self.form):
                self.text.write(line)
            self.text.close()
            return
        with explain_failed_write(f"{self.output}: cannot be written"):
            self.output.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.output) as file:
                pq.write_table(table, file)

    def discard(self) -> None:
        """Leave no file."""
        if self.text is not None:
            self.text.discard()

    def _end_block(self) -> None:
        """Turn the rows so far into columns, which take less memory."""
        import pyarrow as pa  # noqa: PLC0415

        keys = dict.fromkeys(key for row in self.rows for key in row)
        with _explained(self.output):
            columns = {key: pa.array([row.get(key) for row in self.rows]) for key in keys}
        self.blocks.append(pa.table(columns))
        self.rows = []


@contextmanager
def _explained(output: Path) -> Iterator[None]:
    """Re-raise Arrow's refusal of values of several kinds in one column as DataError."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{output}: a column has values of several kinds ({reason}), which a table cannot "
            "hold; write JSON lines: --output NAME.jsonl"
        ) from None


def _lines(table: "pa.Table", form: str) -> Iterator[str]:
    """Yield the lines of a table as CSV or TSV, the header first."""
    import pyarrow as pa  # noqa: PLC0415

    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()  # a column scores of {good, bad} -> scores.good, scores.bad
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
    csv.writer(written, lineterminator="\n").writerow(cells)
    return written.getvalue()

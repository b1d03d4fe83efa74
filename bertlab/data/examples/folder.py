"""Rows of a whole folder of files, such as BLiMP's with a file for each paradigm."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bertlab.api.examples import Column, Example
from bertlab.data.examples.source import read_rows
from bertlab.data.examples.source_files import ending_format
from bertlab.data.reading.data_sets import is_saved
from bertlab.errors import DataError


def read_all_rows(
    location: str,
    columns: Mapping[str, str | list[str]],
    wanted: Sequence[Column],
    format: str = "auto",
    split: str | None = None,
) -> list[Example]:
    """Read rows as :func:`read_rows` does, and of a folder without a split those of all its files.

    Args:
        location: a file, a folder, or a source such as ``hf:OWNER/NAME``.
        columns: the source's column by the wanted one, where the names differ.
        wanted: columns that are read.
        format: of the files; ``auto`` goes by their endings.
        split: of a folder or source.

    Raises:
        DataError: there is no such file, a column is missing, or a row is not usable.
    """
    folder = Path(location).expanduser()
    if split is not None or not folder.is_dir() or is_saved(folder):
        return read_rows(location, split, columns, format, wanted).rows
    named = format == "auto"  # then a README beside the files is none of them
    files = [
        file
        for file in sorted(folder.iterdir())
        if file.is_file()
        and not file.name.startswith(".")
        and (not named or ending_format(file.name) is not None)
    ]
    if not files:
        raise DataError(f"{location}: a folder without files of rows (.jsonl, .tsv, .csv, …)")
    return [
        row for file in files for row in read_rows(str(file), None, columns, format, wanted).rows
    ]

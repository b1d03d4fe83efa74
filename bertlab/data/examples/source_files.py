"""Finding the file of a split, and its format by its name."""

import fnmatch
import io
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import cast

from bertlab.api.examples import Column
from bertlab.data.reading.lines import (
    STANDARD_INPUT,
    explain_failed_read,
    input_name,
    read_lines,
)
from bertlab.errors import DataError, nearest
from bertlab.files.reading import RemoteFile, describe_missing, located, parse_json
from bertlab.plugins.index import installed, where_to_get

TABLES = {
    "auto": "by the ending of the file's name",
    "tsv": "a tab between columns, quotes are ordinary characters",
    "csv": "RFC 4180: commas, quotes, line breaks in quotes",
    "jsonl": "a JSON object a line",
    "json": "a JSON array of objects",
    "parquet": "Apache Parquet",
    "txt": "new text: a row a line, a tab between several texts",
    "words": "new text for a head that reads words: a row a line, spaces between words",
}
"""What ``format`` takes beside named formats, and what each is."""

_ENDINGS = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".txt": "txt",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
}
_DEV = ("dev", "validation", "valid", "val")


def unknown_format(form: str) -> str | None:
    """Return what is wrong with a ``format`` that is not there, and what to install; else None."""
    names = [*TABLES, *installed("format")]
    if form in names:
        return None
    get = where_to_get("format", form)
    return f"found {form!r}{get or nearest(form, names)} (there are: {', '.join(names)})"


def find_file(
    location: str, split: str | None, official: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return the file at a location, which may be a URL; in a folder, that of the split."""
    if location == STANDARD_INPUT:
        return location
    found = located(location)
    if isinstance(found, RemoteFile):
        return location
    path = found.expanduser()
    if path.is_file():
        return str(path)
    if path.is_dir():
        return _pick(path, split, official or {})
    raise no_such_file(location)


def no_such_file(location: str) -> DataError:
    """Return the error for a location where nothing is; names the nearest that is there."""
    expected = "a file, a folder, hf:OWNER/NAME or python-english:NAME"
    return DataError(describe_missing(location, (), expected))


def looks_like_path(name: str) -> bool:
    """Return whether a setting looks like the path of a file, and not like the name of a split."""
    has_folder = any(separator in name for separator in ("/", os.sep))
    return has_folder or name.endswith(".gz") or ending_format(name) is not None


def _pick(folder: Path, split: str | None, official: Mapping[str, Sequence[str]]) -> str:
    """Return the file of a split: ``dev.tsv``, ``validation.jsonl.gz``, or its official name."""
    there = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    listed = ", ".join(name for name in there if not name.startswith(".")) or "nothing"
    if split is None:
        raise DataError(f"{folder}: a folder; give a split, or one of its files: {listed}")
    first, under, rest = split.partition("_")  # dev_matched -> dev, _, matched
    same = _DEV if first in _DEV else (first,)
    splits = [f"{each}{under}{rest}" for each in same]
    patterns = [pattern for key in splits for pattern in official.get(key, ())]
    plain = {name: name.removesuffix(".gz") for name in there}
    found = [name for name in there if Path(plain[name]).stem in splits] or [
        name for name in there if any(fnmatch.fnmatch(plain[name], each) for each in patterns)
    ]
    if len(found) == 1:
        return str(folder / found[0])
    if found:
        raise DataError(
            f"{folder}: several files for split {split!r}: {', '.join(found)}; name one of them"
        )
    raise DataError(
        f"{folder}: no file for split {split!r}, expected for example {splits[0]}.tsv; "
        f"there is {listed}"
    )


SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
_ARCHIVES = (".zip", ".tar", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")


def detect_format(
    path: str, wanted: Sequence[Column], needs_truth: bool, columns: Collection[str] = ()
) -> str:
    """Return the format that a file's name stands for.

    Standard input is JSON lines if it begins with an object, else plain text. ``.txt`` is a TSV
    where truth is needed, as plain text has none and some of GLUE's tables have such names; where
    one text is all that is read, it is plain text unless columns are given or its first line names
    that column.
    """
    if path == STANDARD_INPUT:
        with explain_failed_read(input_name(path), DataError):
            ahead = cast("io.BufferedReader", sys.stdin.buffer).peek(1)  # leaves it to be read
        return "jsonl" if ahead.lstrip().startswith(b"{") else "txt"
    form = ending_format(path)
    if form is None:
        ending = Path(path.removesuffix(".gz")).suffix
        if ending.lower() in SPREADSHEETS:
            raise DataError(f"{path}: is a spreadsheet, expected a table as text; save it as CSV")
        if ending.lower() in _ARCHIVES:
            raise DataError(f"{path}: is an archive; unpack it, or pack the file alone as .gz")
        raise DataError(
            f"{path}: the ending {ending!r} does not tell the format; give one of "
            f"{', '.join([*TABLES, *installed('format')][1:])} as format"
        )
    if form == "json" and any(column.kind == "answers" for column in wanted):
        return "squad" if _is_squad(path) else "json"  # both end in .json
    if form == "txt" and needs_truth:
        is_text = len(wanted) == 1 and not wanted[0].is_truth and not columns
        return "txt" if is_text and not _names_column(path, wanted[0]) else "tsv"
    return form


def _names_column(path: str, column: Column) -> bool:
    """Return whether the first line of a table has a column's name."""
    first = next(read_lines(path), "").rstrip("\r\n").split("\t")
    return not {column.name, *column.aliases}.isdisjoint(first)


def _is_squad(path: str) -> bool:
    """Return whether a file is SQuAD's one object, and neither an array nor an object a line."""
    first = next((line for line in read_lines(path) if line.strip()), "")
    try:
        content = parse_json(first)
        return isinstance(content, dict) and "data" in content
    except ValueError:  # goes on in the next line
        return first.lstrip().startswith("{")


def ending_format(path: str) -> str | None:
    """Return the format that the ending of a name stands for, if any."""
    name = located(path).name  # of a URL: without what is asked of a server
    return _ENDINGS.get(Path(name.removesuffix(".gz")).suffix.lower())

"""Files of rows: found for a split, recognised by their names, opened one behind the other."""

import fnmatch
import glob
import io
import os
import re
import sys
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, cast

from bertlab.api.examples import Column, RawExamples
from bertlab.data.rows.lines import (
    PACKED,
    SPREADSHEETS,
    STANDARD_INPUT,
    content_ending,
    ending,
    explain_failed_read,
    input_name,
    read_lines,
    unreadable_kind,
)
from bertlab.data.rows.tables import PLAIN, HasHeader, RowReading, read_json, read_table
from bertlab.data.sources import File, RemoteFile, is_url, located, source_of
from bertlab.errors import BertlabError, ConfigError, DataError, OutputError, nearest
from bertlab.files import describe_missing, parse_json
from bertlab.plugins.index import entry_points_of, installed, of_package, told_origin, where_to_get

TABLES = {
    "auto": "by the ending of the file's name",
    "tsv": "a tab between columns, quotes are ordinary characters",
    "csv": "RFC 4180: commas, quotes, line breaks in quotes",
    "jsonl": "a JSON object a line",
    "json": "a JSON array of objects",
    "parquet": "Apache Parquet",
    "arrow": "Apache Arrow, Feather",
    "txt": "new text: a row a line, a tab between several texts",
    "words": "new text for a head that reads words: a row a line, spaces between words",
}
"""What ``format`` takes beside named formats, and what each is."""

ROW_ENDINGS = {
    **{".tsv": "tsv", ".tab": "tsv", ".csv": "csv"},
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"},
    **{".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"},
}
"""Formats of rows by the endings of files, in lower case, packed or not; of corpora as well."""

TABLE_FORMS = ("csv", "tsv", "parquet")  # in which bertlab-tasks writes predictions
_ENDINGS = {**ROW_ENDINGS, ".txt": "txt"}
_CLAIMED = "bertlab.endings"  # group: ".xlsx" = the class of a format
_DEV = ("dev", "validation", "valid", "val")


def unknown_format(form: str) -> str | None:
    """Return what is wrong with a ``format`` that is not there, and what to install; else None."""
    names = [*TABLES, *installed("format")]
    if form in names:
        return None
    get = told_origin("format", form) + where_to_get("format", form)
    return f"found {form!r}{get or nearest(form, names)} (there are: {', '.join(names)})"


def output_form(output: str | None) -> str:
    """Return the form of a file of predictions by its ending; OutputError of a spreadsheet's."""
    found = "" if output is None else PurePath(output).suffix.removeprefix(".").lower()
    if f".{found}" in (*SPREADSHEETS, *PACKED):
        raise OutputError(
            f"--output: {output}: spreadsheets and packed files are not written, expected a "
            f"name that ends in {', '.join(f'.{each}' for each in TABLE_FORMS)} or .jsonl"
        )
    return found if found in TABLE_FORMS else "jsonl"


def find_files(
    location: str, split: str | None, official: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Return the files at a location: one, those of a pattern, or of a folder those of a split.

    Locations may be URLs.
    """
    if location == STANDARD_INPUT:
        return [location]
    found = located(location)
    if isinstance(found, RemoteFile):
        if not glob.has_magic(location):
            return [location]
    else:
        path = found.expanduser()
        if path.is_file():
            return [str(path)]
        if path.is_dir():
            return _pick(path, split, official or {})
        if not glob.has_magic(location):
            raise no_such_file(location)
    matching = matching_files(location, DataError)
    _check_shards([each.name for each in matching], location)
    return [str(each) for each in matching]


def matching_files(pattern: str, error_class: type[BertlabError]) -> list[File]:
    """Return the files that a pattern stands for, here or behind a URL, in order."""
    place, matching = located(pattern), list[File]()
    if isinstance(place, RemoteFile):
        with explain_failed_read(pattern, error_class):
            matching += place.files() or []
    else:
        # Path.glob takes no absolute pattern
        names = sorted(glob.glob(str(place.expanduser()), recursive=True))  # noqa: PTH207
        matching += [Path(name) for name in names if Path(name).is_file()]
    if not matching:
        raise error_class(f"{pattern}: no file matches this pattern")
    return matching


def one_input(text: object, file: object) -> None:
    """Raise ConfigError unless one of ``data.text`` and ``data.input`` is given."""
    if (text is None) == (file is None):
        found = "none" if text is None else "both"
        told = f"data.text, data.input: found {found}, expected one of them"
        raise ConfigError(f"{told}: --text 'A text.', or --input FILE (- is standard input)")


def is_missing(location: str) -> bool:
    """Return whether a location is a path where nothing is; no URL, source or pattern is one."""
    other = ":" in location or source_of(location) or glob.has_magic(location)
    return not (other or location == STANDARD_INPUT or Path(location).expanduser().exists())


def no_such_file(location: str) -> DataError:
    """Return the error for a location where nothing is; names the nearest that is there."""
    expected = "a file, a folder, hf:OWNER/NAME or python-english:NAME"
    return DataError(describe_missing(location, (), expected))


def no_such_split(split: str, source: str, role: str) -> DataError:
    """Return the error for a file, beside ``data.source``, that ``data.ROLE`` names."""
    in_source = Path(source) / split
    hint = f"; did you mean {str(in_source)!r}?" if in_source.expanduser().is_file() else ""
    reason = f"{split}: no such file{hint}" if hint else no_such_file(split)
    return DataError(f"data.{role}: {reason}")


def looks_like_path(name: str) -> bool:
    """Return whether a setting looks like the path of a file, and not like the name of a split."""
    has_folder = any(separator in name for separator in ("/", os.sep))
    return has_folder or _without_packing(name) != name or ending_format(name) is not None


def evaluation_splits(
    source: str | None, train: str | None, given: str | dict[str, str] | None, default: str
) -> dict[str, str] | None:
    """Return splits by name, a single one under an empty name; None if there is no such split."""
    if isinstance(given, dict) and (not given or "train" in given):
        found = "train, the name of what is trained on; expected" if given else "none, expected"
        raise ConfigError(f"data.{default}: found {found} sets by names of their own")
    if given is not None:
        return given if isinstance(given, dict) else {"": given}
    has_splits = source is not None and train is None and not is_one_file(source)
    return {"": default} if has_splits else None


def no_test_rows() -> ConfigError:
    """Return the error for a test without rows."""
    return ConfigError("data.test: found none, expected a file or split: --data.test rows.csv")


def is_one_file(source: str) -> bool:
    """Return whether a source is a file, or the pattern of several, and so has no splits."""
    return is_url(source) or is_pattern(source) or Path(source).expanduser().is_file()


def is_pattern(location: str) -> bool:
    """Return whether a location stands for several files."""
    # hf:name and train[:10%] are none
    return glob.has_magic(location) and looks_like_path(location) and not source_of(location)


_SHARD = re.compile(r"(?P<name>.+?)-(?P<number>\d{5,})-of-(?P<count>\d{5,})")


def _stem(name: str) -> str:
    """Return a name without its endings, and without the number of a shard."""
    stem = PurePath(_without_packing(name)).stem
    shard = _SHARD.fullmatch(stem)
    return shard["name"] if shard else stem


def _without_packing(name: str) -> str:
    """Return a name without the ending of a packed file that is read: a.csv of a.csv.GZ."""
    packing = PurePath(name).suffix
    return name.removesuffix(packing) if packing.lower() in PACKED else name


def _check_shards(names: Sequence[str], place: str | Path) -> None:
    """Raise DataError if some shards of a file are not there."""
    there = [shard for name in names if (shard := _SHARD.match(name))]
    for name, count in {(shard["name"], shard["count"]) for shard in there}:
        numbers = {int(each["number"]) for each in there if each["name"] == name}
        # the first one, without a list of them all: a name may claim billions
        absent = next((each for each in range(int(count)) if each not in numbers), None)
        if absent is not None:
            raise DataError(
                f"{place}: {name}-{absent:05}-of-{count} is missing: found {len(numbers)} of "
                f"{int(count)} shards; fetch the others, or name the files that are meant"
            )


def _pick(folder: Path, split: str | None, official: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a split's files: ``dev.tsv``, ``train-00000-of-00002.parquet``, official names."""
    # in a folder without files of rows those of its folder data are meant, as on the hub
    there = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    listed = ", ".join(name for name in there if not name.startswith(".")) or "nothing"
    if split is None:
        raise DataError(f"{folder}: a folder; give a split, or one of its files: {listed}")
    first, under, rest = split.partition("_")  # dev_matched -> dev, _, matched
    same = _DEV if first in _DEV else (first,)
    splits = [f"{each}{under}{rest}" for each in same]
    patterns = [pattern for key in splits for pattern in official.get(key, ())]
    found = [name for name in there if _stem(name) in splits] or [
        name
        for name in there
        if any(fnmatch.fnmatch(_without_packing(name), each) for each in patterns)
    ]
    if len(found) == 1 or (found and all(_SHARD.match(name) for name in found)):
        endings = {(_stem(name), ending(name)) for name in found}
        if len(endings) == 1:
            _check_shards(found, folder)
            return [str(folder / name) for name in found]
    if found:
        told = f"{folder}: several files for split {split!r}: {', '.join(found)}"
        raise DataError(f"{told}; name one of them, or a pattern for all")
    if (folder / "data").is_dir() and not any(map(ending_format, there)):
        return _pick(folder / "data", split, official)
    raise DataError(
        f"{folder}: no file for split {split!r}, expected for example {splits[0]}.tsv (of one file "
        f"or pattern in place of the folder a share is held out); there is {listed}"
    )


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
        return "jsonl" if ahead.removeprefix(BOM_UTF8).lstrip().startswith(b"{") else "txt"
    forms = _ending_formats(path)
    if len(forms) > 1:
        raise DataError(f"{path}: several packages read it; give format, one of {', '.join(forms)}")
    if not forms:
        if (reason := unreadable_kind(path)) is not None:
            raise DataError(f"{path}: {reason}")
        known = sorted({*_ENDINGS, *(each.name for each in entry_points_of(_CLAIMED))})
        raise DataError(
            f"{path}: the ending {ending(path)!r} does not tell the format; give one of "
            f"{', '.join([*TABLES, *installed('format')][1:])} as format, or one of these endings: "
            f"{', '.join(known)}{where_to_get('ending', ending(path))}"
        )
    (form,) = forms
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
    return next(iter(_ending_formats(path)), None)


def _ending_formats(path: str) -> list[str]:
    """Return the formats that an ending stands for: more than one if packages disagree."""
    file = located(path)
    # of a URL: without what is asked of a server
    there = isinstance(file, Path) and file.is_file()
    found = content_ending(file) if there else ending(file.name)
    if found in _ENDINGS:
        return [_ENDINGS[found]]
    claims = [each.value for each in entry_points_of(_CLAIMED) if each.name == found]
    formats = [each for each in installed("format").values() if each.target in claims]
    return [each.name for each in formats if each.is_ours] or [each.full_name for each in formats]


def open_rows(
    path: str,
    form: str,
    has_header: HasHeader,
    reading: RowReading = PLAIN,
    skip_ragged: bool = False,
    names: Sequence[str] = (),
    only: Sequence[str] | None = None,
) -> RawExamples:
    """Open a file of rows, of labelled examples or of a corpus; ``form`` is of ``ROW_ENDINGS``.

    ``only`` these columns are read, where the format can leave others out. The other arguments are
    those of :func:`read_table`. What is not readable is a DataError, here or while rows are read.
    """
    match form:
        case "csv" | "tsv":
            return read_table(path, form, has_header, reading, skip_ragged, names)
        case "jsonl" | "json":
            return read_json(path, reading)
        case "parquet" | "arrow":
            read = of_package("data.read_arrow", DataError, f"{path}: cannot be read")
            return cast("RawExamples", read(path, form, only))
    raise ValueError(form)


def open_all(paths: Sequence[str], open_one: Callable[[str], RawExamples]) -> RawExamples:
    """Open files as one, their rows one behind the other; all have the columns of the first."""
    first = open_one(paths[0])
    if len(paths) == 1:
        return first
    name = f"{first.name} and {len(paths) - 1} more"
    joined = RawExamples(name, first.columns, iter(()), first.rows_vary, first.class_names)
    joined.form, joined.has_header = f"{first.form}, {len(paths)} files", first.has_header

    def rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
        skipped = Counter[str]()
        for path in paths:
            raw = first if path == paths[0] else open_one(path)
            if not raw.rows_vary and raw.columns != first.columns:
                raise DataError(
                    f"{raw.name}: has columns {', '.join(map(repr, raw.columns))}, expected those "
                    f"of {first.name}: {', '.join(map(repr, first.columns))}"
                )
            yield from raw.rows
            skipped += raw.skipped
            joined.skipped = skipped

    joined.rows = rows()
    return joined


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by ``save_to_disk`` of ``datasets``."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()

"""Labelled rows, or new text, from files, folders, the hub or Python's own English.

Usage::

    train = read_rows("glue/RTE", "train", {}, "rte", head.columns)
    for row in stream_rows("new.txt", {}, "auto", head.columns): ...
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertlab.api.examples import Column, Example, LabelledExamples, RawExamples
from bertlab.api.format import ColumnSources, LabelNames, NamedFormat
from bertlab.data.examples.checks import names_by_raw, ordered_names, read_value
from bertlab.data.examples.columns import (
    Mapped,
    has_place,
    is_place,
    map_columns,
    names_columns,
    read_mapping,
)
from bertlab.data.examples.source_files import (
    TABLES,
    detect_format,
    ending_format,
    find_file,
    unknown_format,
)
from bertlab.data.examples.task_files import read_text, words_of
from bertlab.data.reading.data_sets import is_saved, read_parquet, read_saved
from bertlab.data.reading.tables import (
    PLAIN,
    RowReading,
    read_csv,
    read_json,
    read_json_lines,
    read_tsv,
)
from bertlab.data.sources import is_source, open_source
from bertlab.errors import ConfigError, DataError, EmptyTextError, warn
from bertlab.plugins.index import load_class

logger = logging.getLogger(__name__)

_PLAIN_FORMATS = ("auto", "tsv", "csv", "jsonl", "json", "parquet")


@dataclass(frozen=True)
class _Opened:
    raw: RawExamples
    mapped: list[Mapped]
    label_names: tuple[str, ...] | None
    by_raw_label: Mapping[str, str] | None
    no_label: str | None
    skips_broken: bool
    is_labelled: bool
    splits: str | None  # column of new text whose texts are parted into words, where they are

    def read(self, where: str, raw: Mapping[str, Any]) -> Example:
        values = raw
        if self.splits and isinstance(values.get(self.splits), str):
            values = {**values, self.splits: words_of(values[self.splits])}
        found = (
            (
                mapped.column.name,
                read_value(
                    mapped, values, where, self.by_raw_label, self.no_label, self.is_labelled
                ),
            )
            for mapped in self.mapped
        )
        known = {name: value for name, value in found if value is not None}
        return Example(known, where, {} if self.is_labelled else self._row(raw))

    def _row(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a raw row without its truth; a column without a name of its own has the head's."""
        sources = {each.source: each.column for each in self.mapped if isinstance(each.source, str)}
        truth = {source for source, column in sources.items() if column.is_truth}
        # places 0 and 1, of which 0 is the text -> text, 1
        names = {source: each.name for source, each in sources.items() if is_place(source)}
        return {names.get(key, key): each for key, each in values.items() if key not in truth}


def read_rows(
    location: str,
    split: str | None,
    columns: Mapping[str, str | list[str]],
    format: str,
    wanted: Sequence[Column],
    label_names: LabelNames | None = None,
    reading: RowReading = PLAIN,
) -> LabelledExamples:
    """Read all labelled rows of a split.

    A row whose label or answers are empty is there without them. Left out, and counted, are rows of
    SNLI and MNLI without a gold label, the few rows of QQP, MNLI and SNLI whose published form is
    broken, ``-DOCSTART-`` lines, and empty lines of plain text.
    """
    opened = _open(location, split, columns, format, wanted, label_names, True, reading)
    truth = {column.name for column in wanted if column.is_truth and column.required}
    raw = opened.raw
    rows, skipped = [], Counter[str]()
    for where, values in raw.rows:
        try:
            row = opened.read(where, values)
        except EmptyTextError:
            if not (opened.skips_broken or reading.skip_empty):
                raise
            skipped["an empty text"] += 1
            continue
        if opened.no_label is not None and "label" not in row.values:
            skipped["no gold label"] += 1
            continue
        if reading.skip_empty and not truth <= row.values.keys():
            skipped["an empty label"] += 1
            continue
        rows.append(row)
    skipped += raw.skipped
    if not rows:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in skipped.items())
        raise DataError(f"{raw.name}: no row is left; left out: {reasons}")
    return LabelledExamples(rows, opened.label_names, dict(skipped))


def read_all_rows(
    location: str,
    columns: Mapping[str, str | list[str]],
    wanted: Sequence[Column],
    format: str = "auto",
    split: str | None = None,
) -> list[Example]:
    """Read rows as :func:`read_rows`; of a folder without a split, those of all its files."""
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


def stream_rows(
    path: str,
    columns: Mapping[str, str | list[str]],
    format: str,
    wanted: Sequence[Column],
    split: str | None = None,
    label_names: LabelNames | None = None,
    reading: RowReading = PLAIN,
) -> Iterator[Example]:
    """Open new text at once, and yield its rows in order while it is read.

    Truth may lack; it is kept where it is there.
    """
    opened = _open(path, split, columns, format, wanted, label_names, False, reading)
    return _stream(opened, reading.skip_empty)


def _stream(opened: _Opened, skip_empty: bool) -> Iterator[Example]:
    skipped = 0
    for where, values in opened.raw.rows:
        try:
            yield opened.read(where, values)
        except EmptyTextError:
            if not skip_empty:
                raise
            skipped += 1
    if skipped:
        warn(f"{opened.raw.name}: left out {skipped:,} row{'s'[: skipped != 1]} with an empty text")


def _open(
    location: str,
    split: str | None,
    columns: Mapping[str, str | list[str]],
    form: str,
    wanted: Sequence[Column],
    label_names: LabelNames | None,
    needs_truth: bool,
    reading: RowReading,
) -> _Opened:
    if (reason := unknown_format(form)) is not None:
        raise DataError(f"{location}: format: {reason}")
    named = _named_format(form)
    raw = _open_data_set(location, split)
    path = ""
    if raw is None:
        path = find_file(location, split, named.files if named else None)
        if form == "auto":
            form = detect_format(path, wanted, needs_truth, columns)
            named = _named_format(form)
            logger.info("%s: read as format %s (%s)", path, form, TABLES.get(form, named.__doc__))
    if named is None:
        # the texts of plain text are the head's, in its order
        given = {} if form in ("txt", "words") else columns
        candidates: ColumnSources = read_mapping(given, wanted, location)
    else:
        candidates = _own_columns(named, form, columns, wanted, location)
    skips_broken = named.skips_broken if named is not None else form == "txt"
    skips_broken = skips_broken and needs_truth  # each row of new text has its prediction
    if raw is None:
        raw = _read_file(path, form, named, wanted, candidates, skips_broken, reading)
    mapped = map_columns(raw, wanted, candidates, needs_truth)
    if label_names is None and named is not None:
        label_names = named.label_names
    if label_names is None:
        declared = [
            each.class_names for each in mapped if each.column.kind in ("label", "labels", "tags")
        ]
        names, by_raw = next(filter(None, declared), None), None
    else:
        names, by_raw = ordered_names(label_names), names_by_raw(label_names)
    no_label = None if named is None else named.no_label
    needed = [each for each in mapped if each.column.required and not each.column.is_truth]
    reads_words = len(needed) == 1 and needed[0].column.kind == "texts"
    source = needed[0].source if reads_words and not needs_truth else None
    splits = source if isinstance(source, str) else None
    return _Opened(raw, mapped, names, by_raw, no_label, skips_broken, needs_truth, splits)


def _named_format(form: str) -> NamedFormat | None:
    """Return the format that has a name of its own; None for a kind of table or text."""
    found: NamedFormat | None
    found = None if form in TABLES else load_class("format", form, NamedFormat)()
    return found


def _own_columns(
    named: NamedFormat,
    form: str,
    columns: Mapping[str, str | list[str]],
    wanted: Sequence[Column],
    location: str,
) -> ColumnSources:
    """Return the columns of a named format; those of ``conll`` may be told by number."""
    missing = [each.name for each in wanted if each.required and each.name not in named.columns]
    if missing:
        raise DataError(
            f"{location}: format {form} has {', '.join(named.columns)}, but the head reads "
            f"{', '.join(missing)}; choose another head or format"
        )
    mapping = read_mapping(columns, wanted, location)
    given = {name: mapping[name] for name in columns}
    if named.takes_columns:
        return {**named.columns, **given}
    for name, (source, *_) in given.items():
        if source not in named.columns.get(name, ()):
            raise ConfigError(
                f"data.columns: found {name}: {columns[name]}, but format {form} has columns of "
                "its own; leave data.columns out (--data.columns null), or in place of "
                f"{form} give {', '.join(_PLAIN_FORMATS)}, which take the columns that you name"
            )
    return named.columns


def _open_data_set(location: str, split: str | None) -> RawExamples | None:
    """Open a source that is installed, or what ``datasets`` saved; None for other files."""
    if is_source(location):
        return open_source(location).raw_examples(split)
    folder = Path(location).expanduser()
    return read_saved(folder, split) if is_saved(folder) else None


def _read_file(
    path: str,
    form: str,
    named: NamedFormat | None,
    wanted: Sequence[Column],
    candidates: ColumnSources,
    skip_ragged: bool,
    reading: RowReading,
) -> RawExamples:
    kind: str | None = form
    if named is not None:
        by_name = ending_format(path)
        kind = by_name if by_name in ("jsonl", "parquet") else named.table
    if kind is None:
        assert named is not None
        return named.read(path)

    def has_header(cells: list[str]) -> bool:
        is_named = named is not None and names_columns(cells, candidates)
        return is_named or not has_place(candidates)

    readers: dict[str, Callable[[], RawExamples]] = {
        "tsv": lambda: read_tsv(path, has_header, skip_ragged),
        "csv": lambda: read_csv(path, has_header, reading),
        "jsonl": lambda: read_json_lines(path),
        "json": lambda: read_json(path),
        "parquet": lambda: read_parquet(path),
        "txt": lambda: read_text(path, wanted),
        "words": lambda: read_text(path, wanted, is_parted=True),
    }
    return readers[kind]()

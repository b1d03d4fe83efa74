"""Labelled rows, or new text, from files, folders, the hub or Python's own English.

Usage::

    train = read_rows("glue/RTE", "train", {}, "rte", head.columns)
    for row in stream_rows("new.txt", {}, "auto", head.columns): ...
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from bertlab.api.examples import Column, Example, LabelledExamples, RawExamples
from bertlab.api.format import ColumnSources, LabelNames, NamedFormat
from bertlab.data.examples.columns import (
    is_header,
    is_place,
    map_columns,
    name_places,
    read_mapping,
)
from bertlab.data.examples.values import (
    ColumnReader,
    check_header,
    check_meaning,
    column_reader,
    names_by_raw,
    ordered_names,
)
from bertlab.data.rows.files import (
    TABLES,
    detect_format,
    ending_format,
    find_files,
    is_saved,
    open_all,
    open_rows,
    unknown_format,
)
from bertlab.data.rows.lines import holding, read_text
from bertlab.data.rows.tables import PLAIN, RowReading, Unreadable
from bertlab.data.sources import open_source, source_of
from bertlab.errors import ConfigError, DataError, EmptyTextError
from bertlab.plugins.index import make_alone, of_package

logger = logging.getLogger(__name__)

_PLAIN_FORMATS = ("auto", "tsv", "csv", "jsonl", "json", "parquet")
LEFT_OUT = "left out: an empty text"
_SHOWN_PLACES = 3
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class UnreadableRow(Example):
    """A row of new text that is left as it is, and why it cannot be predicted on."""

    reason: str = ""


@dataclass
class _Opened:
    raw: RawExamples
    readers: list[ColumnReader]
    label_names: tuple[str, ...] | None
    no_label: str | None
    skips_broken: bool
    is_labelled: bool

    def read(self, where: str, raw: Mapping[str, Any], cluster: str | None = None) -> Example:
        known = {}
        for reader in self.readers:
            value = reader.read(raw, where)
            if value is not None:
                known[reader.mapped.column.name] = value
        for reader in self.readers:
            if reader.mapped.column.of:
                reader.settle(known, where)
        if not self.is_labelled:
            return Example(known, where, self.row_of(raw))
        found = {**known, **raw}.get(cluster or "#document")
        if cluster and found is None:
            there = ", ".join(map(repr, raw))
            raise DataError(f"{where}: cluster: found no value of {cluster!r}; there are {there}")
        name = "" if found is None else f"{cluster or 'document'}:{found}"
        return Example(known, where, cluster=name)

    @cached_property
    def _named(self) -> tuple[set[str], dict[str, str]]:
        """The columns of the truth, and the names of those that have none of their own."""
        mapped = [each.mapped for each in self.readers]
        sources = {each.source: each.column for each in mapped if isinstance(each.source, str)}
        truth = {source for source, column in sources.items() if column.is_truth} | {"#document"}
        # places 0 and 1, of which 0 is the text -> text, 1
        return truth, {each: column.name for each, column in sources.items() if is_place(each)}

    def row_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a raw row without its truth; a column without a name of its own has the head's."""
        truth, names = self._named
        return {names.get(key, key): each for key, each in values.items() if key not in truth}

    def describe(self, rows: Sequence[Example]) -> dict[str, str]:
        """Return what was understood of the source, for the data report."""
        columns = []
        for mapped in (reader.mapped for reader in self.readers):
            source = mapped.source if isinstance(mapped.source, str) else ", ".join(mapped.source)
            name = mapped.column.name
            columns.append(name if source == name else f"{name}: {source}")
        found = {"read as": self.raw.form, "columns": "; ".join(columns)}
        found["labels of a row"] = next((each.form for each in self.readers if each.form), "")
        shown = (f"{name}: {_shown(value)}" for name, value in rows[0].values.items())
        found["first row"] = "; ".join(shown)
        return {name: value for name, value in found.items() if value}


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split(maxsplit=_SHOWN_CHARACTERS))  # of a text of any length
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


@holding()
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
    raw, names = opened.raw, opened.label_names
    for reader in opened.readers:
        names = reader.look_ahead(raw, names)
    truth = {column.name for column in wanted if column.is_truth and column.required}
    rows, skipped = list[Example](), Counter[str]()
    empty: list[EmptyTextError] = []
    skips_empty = opened.skips_broken or reading.skip_empty
    for where, values in raw.rows:
        try:
            row = opened.read(where, values, reading.cluster)
        except EmptyTextError as error:
            empty.append(error)
            continue
        if opened.no_label is not None and "label" not in row.values:
            skipped["no gold label"] += 1
        elif reading.skip_empty and not truth <= row.values.keys():
            skipped["an empty label"] += 1
        else:
            rows.append(row)
    if empty and not skips_empty:
        unlabelled = [row.where for row in rows if not truth <= row.values.keys()]
        raise _empty_rows(empty, unlabelled, reading)
    skipped += Counter({"an empty text": len(empty)}) + raw.skipped
    if not rows:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in skipped.items())
        raise DataError(f"{raw.name}: no row is left; left out: {reasons}")
    if not reading.accepts_doubtful:
        mapped = [each.mapped for each in opened.readers]
        check_meaning(raw, rows, mapped, reading)
        if reading.header is None:
            check_header(raw, rows, mapped, reading)
    understood = opened.describe(rows)
    return LabelledExamples(rows, names, dict(skipped), understood)


def _empty_rows(
    empty: Sequence[EmptyTextError], unlabelled: Sequence[str], reading: RowReading
) -> EmptyTextError:
    """Return one error for all rows without text; the first stands in front."""
    found = []
    if len(empty) > 1 or unlabelled:
        places = places_of([str(error).partition(": column")[0] for error in empty])
        found.append(f"{len(empty):,} row{'s'[: len(empty) > 1]} with an empty text ({places})")
    if unlabelled:
        found.append(f"{len(unlabelled):,} with an empty label ({places_of(unlabelled)})")
    rows = f"; {' and '.join(found)}" if found else ""
    advice = reading.advise("; data.empty: skip leaves empty rows out")
    return EmptyTextError(f"{empty[0]}{rows}{advice}")


def places_of(places: Sequence[str]) -> str:
    """Return the first of some places, for a message; of one file, their lines or rows alone."""
    # a.csv:7, a.csv:9 -> 7, 9
    if len({place.rpartition(":")[0] for place in places}) == 1:
        places = [place.rpartition(":")[2].strip() for place in places]
    return ", ".join(places[:_SHOWN_PLACES]) + (", …" if len(places) > _SHOWN_PLACES else "")


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

    Truth may lack; it is kept where it is there. A row that cannot be read is an error, or, where
    ``reading`` keeps such rows, an :class:`UnreadableRow`.
    """
    opened = _open(path, split, columns, format, wanted, label_names, False, reading)
    return _stream(opened, reading)


def _stream(opened: _Opened, reading: RowReading) -> Iterator[Example]:
    for where, values in opened.raw.rows:
        try:
            if isinstance(values, Unreadable):
                raise values.error
            yield opened.read(where, values)
        except DataError as error:
            if isinstance(error, EmptyTextError) and reading.skip_empty:
                yield UnreadableRow({}, where, opened.row_of(values), reason=LEFT_OUT)
            elif reading.keeps_unreadable:
                yield UnreadableRow({}, where, opened.row_of(values), reason=str(error))
            elif isinstance(error, EmptyTextError):
                raise _empty_rows([error], [], reading) from None
            else:
                raise


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
    paths: list[str] = []
    if raw is None:
        paths = find_files(location, split, named.files if named else None)
        if form == "auto":
            form = detect_format(paths[0], wanted, needs_truth, columns)
            named = _named_format(form)
            kind = TABLES.get(form, named.__doc__)
            logger.info("%s: read as format %s (%s)", paths[0], form, kind)
    if named is None or not named.columns:
        # the texts of plain text are the head's, in its order
        given = {} if form in ("txt", "words") else columns
        candidates: ColumnSources = read_mapping(given, wanted, location)
    else:
        candidates = _own_columns(named, form, columns, wanted, location, reading)
    skips_broken = named.skips_broken if named is not None else form == "txt"
    skips_broken = skips_broken and needs_truth  # each row of new text has its prediction
    if raw is None:
        raw = open_all(
            paths,
            lambda path: _read_file(path, form, named, wanted, candidates, skips_broken, reading),
        )
        if named is None and raw.has_header and form in ("csv", "tsv"):
            candidates = name_places(candidates, raw.columns)
    mapped = map_columns(raw, wanted, candidates, needs_truth, reading)
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
    hub = named is not None or not needs_truth  # rows may be those of the hub's test splits
    readers = [column_reader(each, by_raw, no_label, needs_truth, reading, hub) for each in mapped]
    if len(needed) == 1 and not needs_truth:
        readers[mapped.index(needed[0])].parts_texts = True
    return _Opened(raw, readers, names, no_label, skips_broken, needs_truth)


def _named_format(form: str) -> NamedFormat | None:
    """Return the format that has a name of its own; None for a kind of table or text."""
    return None if form in TABLES else make_alone("format", form, NamedFormat)


def _own_columns(
    named: NamedFormat,
    form: str,
    columns: Mapping[str, str | list[str]],
    wanted: Sequence[Column],
    location: str,
    reading: RowReading,
) -> ColumnSources:
    """Return the columns of a named format; those of ``conll`` may be told by number."""
    missing = [each.name for each in wanted if each.required and each.name not in named.columns]
    if missing:
        raise DataError(
            f"{location}: format {form} has {', '.join(named.columns)}, but the head reads "
            f"{', '.join(missing)}; choose another head or format"
        )
    mapping = read_mapping(columns, wanted, location)
    given, key = {name: mapping[name] for name in columns}, reading.advise("data.columns")
    if named.takes_columns:
        return {**named.columns, **given}
    for name, (source, *_) in given.items():
        if source not in named.columns.get(name, ()):
            raise ConfigError(
                f"{key}: found {name}: {columns[name]}, but format {form} has columns of "
                f"its own; leave {key} out (--{key} null), or in place of "
                f"{form} give {', '.join(_PLAIN_FORMATS)}, which take the columns that you name"
            )
    return named.columns


def _open_data_set(location: str, split: str | None) -> RawExamples | None:
    """Open a source that is installed, or what ``datasets`` saved; None for other files."""
    if source_of(location):
        return open_source(location).raw_examples(split)
    folder = Path(location).expanduser()
    if not is_saved(folder):
        return None
    read = of_package("data.read_saved", DataError, f"{location}: cannot be read")
    return cast("RawExamples", read(folder, split))


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
        kind = by_name if by_name in ("jsonl", "parquet", "arrow") else named.table
    if kind is None:
        assert named is not None
        return named.read(path)
    if kind in ("txt", "words"):
        return read_text(path, wanted, is_parted=kind == "words")

    def has_header(cells: list[str]) -> bool:
        return is_header(cells, wanted, candidates, named is not None)

    options = [option for options in candidates.values() for option in options]
    names = [option for option in options if isinstance(option, str)]
    return open_rows(path, kind, has_header, reading, skip_ragged, names)

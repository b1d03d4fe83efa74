"""Rows with a text column as documents: JSON, JSON lines, CSV, Parquet and hub data sets."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertlab.data.reading.data_sets import HUB_PREFIX, ParquetFile, first_line, load_hub
from bertlab.data.reading.lines import Errors, read_long_lines
from bertlab.data.reading.tables import PLAIN, json_values
from bertlab.errors import CorpusError, DataError, nearest
from bertlab.files.reading import RemoteFile

ROW_SUFFIXES = (".json", ".jsonl", ".csv", ".parquet")
_BATCH = 1000  # rows


def is_row_file(path: Path | RemoteFile) -> bool:
    """Return whether a file holds rows, by its name without ``.gz``."""
    return Path(path.name.removesuffix(".gz")).suffix in ROW_SUFFIXES


def read_row_file(
    path: Path | RemoteFile, column: str, errors: Errors
) -> Iterator[tuple[str, str]]:
    """Yield ``(source, text)`` for each row of a file."""
    suffix = Path(path.name.removesuffix(".gz")).suffix
    with _as_corpus_error():
        if suffix in (".json", ".jsonl"):
            yield from _read_json(path, column, errors)
        elif suffix == ".parquet":
            file = ParquetFile(str(path))
            if column not in file.columns:
                raise _no_column(str(path), column, file.columns)
            yield from _texts(file.batches([column]), str(path), column)
        else:
            yield from _read_csv(path, column, errors)


@contextmanager
def _as_corpus_error() -> Iterator[None]:
    """Re-raise what the readers of labelled examples refuse."""
    try:
        yield
    except DataError as error:
        raise CorpusError(str(error)) from None


def _read_json(path: Path | RemoteFile, column: str, errors: Errors) -> Iterator[tuple[str, str]]:
    lines = read_long_lines(path, errors, max_line=None)  # half a line is no JSON
    expected = "one object a line, or one array of objects"
    for place, row in json_values(lines, str(path), expected=expected):
        if not isinstance(row, dict):
            raise CorpusError(
                f"{place}: found {type(row).__name__}, expected a JSON object with a "
                f"{column!r} key (one object a line, or one array of objects)"
            )
        if column not in row:
            raise _no_column(place, column, list(row))
        text = _text(row[column], place, column)
        try:
            text.encode()
        except UnicodeEncodeError as error:  # an escaped half of a surrogate pair
            if errors == "strict":
                raise CorpusError(
                    f"{place}: column {column!r} holds a lone surrogate "
                    f"\\u{ord(text[error.start]):04x}, which is no character; mend it, or go on "
                    "with '?' in its place: --errors replace, or data.errors: replace"
                ) from None
            text = text.encode(errors="replace").decode()
        yield place, text


def _read_csv(path: Path | RemoteFile, column: str, errors: Errors) -> Iterator[tuple[str, str]]:
    """Read CSV by ``datasets``, not by ``reading.tables`` as labelled examples.

    It refuses a column of numbers, which cannot be the text, and takes cells of any length.
    """
    import datasets  # noqa: PLC0415

    first = next((line for line in read_long_lines(path, errors) if line.strip()), None)
    if first is None:  # pandas refuses such a file
        return
    # the text "NA" stays a text
    settings = {
        "keep_default_na": False,
        "encoding_errors": errors,
        "sep": PLAIN.delimiter_in(first),
    }
    try:
        with _quiet_datasets():
            rows = datasets.load_dataset(
                "csv", data_files=str(path), split="train", streaming=True, **settings
            )
            yield from _texts(rows.iter(_BATCH), str(path), column)
    except CorpusError:
        raise
    except Exception as error:
        for _ in read_long_lines(path, errors):  # says where a byte is bad, which pandas does not
            pass
        raise CorpusError(f"{path}: not a readable csv file: {first_line(error)}") from error


@contextmanager
def _quiet_datasets() -> Iterator[None]:
    """Keep ``datasets`` from logging an error that is raised with our own message."""
    log = logging.getLogger("datasets")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def load_hub_dataset(source: str) -> Any:  # noqa: ANN401
    """Load ``hf:NAME[:CONFIG][:SPLIT]`` (downloaded once) as a memory-mapped ``datasets.Dataset``.

    Two parts are NAME and CONFIG; ``hf:NAME::SPLIT`` leaves CONFIG out. SPLIT is ``train`` unless
    given.
    """
    # hf:a:b -> ["a", "b", "", ""]: name a, config b, no split, and nothing too many
    name, config, split, *rest = [*source.removeprefix(HUB_PREFIX).split(":"), "", ""]
    if not name or any(rest):
        raise CorpusError(f"source {source!r}: expected hf:NAME[:CONFIG][:SPLIT]")
    with _as_corpus_error():
        return load_hub(name, config, split or "train", f"source {source!r}: data set")


def read_hub_dataset(source: str, column: str) -> Iterator[tuple[str, str]]:
    """Yield ``(source, text)`` for each row of a hub data set; arguments and errors as above."""
    # Python's values, whatever format it was saved with
    dataset = load_hub_dataset(source).with_format(None)
    yield from _texts(dataset.iter(_BATCH), source, column)


def _texts(
    batches: Iterable[Mapping[str, list[Any]]], name: str, column: str
) -> Iterator[tuple[str, str]]:
    number = 0
    for batch in batches:
        if column not in batch:
            raise _no_column(name, column, list(batch))
        for value in batch[column]:
            number += 1
            place = f"{name}: row {number}"
            yield place, _text(value, place, column)


def _text(value: object, place: str, column: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise CorpusError(
            f"{place}: column {column!r} holds {type(value).__name__} {str(value)[:40]!r}, "
            "expected a text; name another column with text_column"
        )
    return value


def _no_column(place: str, column: str, columns: list[str]) -> CorpusError:
    return CorpusError(
        f"{place}: no column {column!r}; there are {', '.join(map(repr, columns)) or 'none'}"
        f"{nearest(column, columns)} (set text_column)"
    )

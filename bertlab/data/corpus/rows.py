"""Rows with a text column as documents: JSON, JSON lines, CSV, Parquet and hub data sets.

CSV, Parquet and the hub are read by ``datasets``, which is imported when first needed (1.4 s).
JSON is not: the JSON reader of ``datasets`` 5 names no line and knows no way past bad UTF-8.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from bertlab.data.corpus.formats import Errors, read_lines
from bertlab.errors import BertlabError, CorpusError, nearest

ROW_SUFFIXES = (".json", ".jsonl", ".csv", ".parquet")
HUB_PREFIX = "hf:"
_BATCH = 1000


def is_row_file(path: Path) -> bool:
    """Tell whether the name, without ``.gz``, is that of a file of rows."""
    return Path(path.name.removesuffix(".gz")).suffix in ROW_SUFFIXES


def read_row_file(path: Path, column: str, errors: Errors) -> Iterator[tuple[str, str]]:
    """Yield ``(source, text)`` for each row of a file.

    Args:
        path: the file, see ``ROW_SUFFIXES``, perhaps with ``.gz``.
        column: name of the column that holds the text.
        errors: as in :func:`bertlab.data.corpus.formats.read_lines`.

    Raises:
        CorpusError: damaged file, no such column, or a value that is not a text.
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix in (".json", ".jsonl"):
        yield from _read_json(path, column, errors)
    else:
        yield from _read_with_datasets(path, suffix.removeprefix("."), column, errors)


def _read_json(path: Path, column: str, errors: Errors) -> Iterator[tuple[str, str]]:
    for place, row in _json_rows(path, errors):
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


def _json_rows(path: Path, errors: Errors) -> Iterator[tuple[str, Any]]:
    lines = enumerate(read_lines(path, errors, max_line=None), 1)
    filled = ((number, line) for number, line in lines if line and not line.isspace())
    first = next(filled, None)
    if first is None:
        return
    if first[1].lstrip().startswith("["):
        text = "\n".join([first[1], *(line for _, line in lines)])
        for row, value in enumerate(_parse_json(text, path, first[0]), 1):
            yield f"{path}: row {row}", value
        return
    for number, line in chain([first], filled):
        yield f"{path}:{number}", _parse_json(line, path, number)


def _parse_json(text: str, path: Path, first_line: int) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line, reason = first_line, "nested too deep"
        if isinstance(error, json.JSONDecodeError):
            line, reason = first_line + error.lineno - 1, f"{error.msg}, column {error.colno}"
        raise CorpusError(
            f"{path}:{line}: malformed JSON ({reason}); "
            "expected one object a line, or one array of objects"
        ) from None


def _read_with_datasets(
    path: Path, builder: str, column: str, errors: Errors
) -> Iterator[tuple[str, str]]:
    import datasets  # noqa: PLC0415

    settings: dict[str, Any] = {}
    if builder == "csv":
        settings = {"keep_default_na": False, "encoding_errors": errors}
        if not any(line.strip() for line in read_lines(path, errors)):
            return
    try:
        with _quiet_datasets():
            rows = datasets.load_dataset(
                builder, data_files=str(path), split="train", streaming=True, **settings
            )
            yield from _texts(rows, str(path), column)
    except BertlabError:
        raise
    except Exception as error:
        if builder == "csv":  # pandas does not say where the bad byte is, our own reader does
            for _ in read_lines(path, errors):
                pass
        raise CorpusError(f"{path}: not a readable {builder} file: {_first_line(error)}") from error


@contextmanager
def _quiet_datasets() -> Iterator[None]:
    """Keep ``datasets`` from logging an error that we raise with our own words."""
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

    Raises:
        CorpusError: unknown name, configuration or split, or no network.
    """
    import datasets  # noqa: PLC0415

    name, config, split, *rest = [*source.removeprefix(HUB_PREFIX).split(":"), "", ""]
    if not name or any(rest):
        raise CorpusError(f"source {source!r}: expected hf:NAME[:CONFIG][:SPLIT]")
    try:
        return datasets.load_dataset(name, config or None, split=split or "train")
    except Exception as error:
        raise CorpusError(
            f"source {source!r}: data set cannot be loaded: {_first_line(error)}; check the name, "
            "configuration and split, and the network, or give local files"
        ) from error


def read_hub_dataset(source: str, column: str) -> Iterator[tuple[str, str]]:
    """Yield ``(source, text)`` for each row of a hub data set; arguments and errors as above."""
    yield from _texts(load_hub_dataset(source).with_format(None), source, column)


def _texts(rows: Any, name: str, column: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    number = 0
    for batch in rows.iter(batch_size=_BATCH):
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


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

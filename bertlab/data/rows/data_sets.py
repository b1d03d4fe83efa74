"""Data sets by ``datasets``: of the hub and saved folders; bertlab-tasks has Parquet and Arrow.

``datasets`` is imported when first needed (1.4 s). No code of a data set is ever run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertlab.api.examples import DataSource, RawDocument, RawExamples, holds_no_examples
from bertlab.data.rows.lines import Errors
from bertlab.errors import CorpusError, DataError, nearest

_LOOKED_AT = 20  # rows, by which a column of numbers is known
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")


def looks_like_names(texts: Sequence[object]) -> bool:
    """Return whether all texts are numbers, as in a column of ids; False of none."""
    return bool(texts) and all(
        isinstance(text, str) and _NUMBER.fullmatch(text.strip()) for text in texts
    )


def texts_of_rows(
    raw: RawExamples, column: str, errors: Errors = "strict"
) -> Iterator[tuple[str, str]]:
    """Yield place and text of each row; the text is empty where the row has none."""
    if column not in raw.columns and not raw.rows_vary:
        raise _no_column(raw.name, column, raw.columns)
    ahead = list(islice(raw.rows, _LOOKED_AT))
    found = [(place, text) for place, row in ahead if (text := row.get(column)) not in (None, "")]
    if looks_like_names([text for _, text in found]):
        raise CorpusError(
            f"{found[0][0]}: column {column!r} holds numbers ({found[0][1]!r}), expected a text; "
            "name another column with text_column"
        )
    for place, row in chain(ahead, raw.rows):
        if column not in row:
            raise _no_column(place, column, list(row))
        text = "" if row[column] is None else row[column]
        if not isinstance(text, str):
            raise CorpusError(
                f"{place}: column {column!r} holds {type(text).__name__} {str(text)[:40]!r}, "
                "expected a text; name another column with text_column"
            )
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


def _no_column(place: str, column: str, columns: Sequence[str]) -> CorpusError:
    return CorpusError(
        f"{place}: no column {column!r}; there are {', '.join(map(repr, columns)) or 'none'}"
        f"{nearest(column, columns)} (set text_column)"
    )


HUB_PREFIX = "hf:"
_BATCH = 1000


def read_hub(location: str, split: str | None) -> RawExamples:
    """Read a split of ``hf:NAME``, ``hf:OWNER/NAME`` or ``hf:OWNER/NAME/CONFIG``.

    ``hf:NAME:CONFIG`` is read as well. The split may be a slice: ``train[:10%]``.
    """
    name, _, config = location.removeprefix(HUB_PREFIX).partition(":")
    if name.count("/") == 2 and not config:  # OWNER/NAME/CONFIG
        name, _, config = name.rpartition("/")
    if not name or name.count("/") > 1:
        raise DataError(f"{location}: expected hf:OWNER/NAME or hf:OWNER/NAME/CONFIG")
    if split is None:
        raise DataError(f"{location}: which split is not said; give one, for example test")
    dataset = _load_hub(name, config, split, f"{location}: split {split!r}")
    return raw_rows(dataset, f"{location} {split}")


def load_hub_corpus(source: str) -> Any:  # noqa: ANN401
    """Load ``hf:NAME[:CONFIG][:SPLIT]`` as a memory-mapped ``datasets.Dataset``.

    Two parts are NAME and CONFIG; ``hf:NAME::SPLIT`` leaves CONFIG out. SPLIT is ``train`` unless
    given.
    """
    # hf:a:b -> ["a", "b", "", ""]: name a, config b, no split, and nothing too many
    name, config, split, *rest = [*source.removeprefix(HUB_PREFIX).split(":"), "", ""]
    if not name or any(rest):
        raise CorpusError(f"source {source!r}: expected hf:NAME[:CONFIG][:SPLIT]")
    return _load_hub(name, config, split or "train", f"source {source!r}: data set")


def _load_hub(name: str, config: str, split: str, called: str) -> Any:  # noqa: ANN401
    import datasets  # noqa: PLC0415

    try:
        return datasets.load_dataset(name, config or None, split=split)
    except Exception as error:
        raise DataError(
            f"{called} cannot be loaded: {first_line(error)}; check the name, configuration and "
            "split, and the network, or give local files"
        ) from None


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by ``save_to_disk`` of ``datasets``."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def raw_rows(dataset: Any, name: str) -> RawExamples:  # noqa: ANN401
    """Return the rows of a ``datasets.Dataset``."""
    if not len(dataset):
        raise holds_no_examples(name)
    dataset = dataset.with_format(None)  # Python's values, not tensors
    batches = (dict(batch) for batch in dataset.iter(batch_size=_BATCH))
    columns = tuple(dataset.column_names)
    names = class_names(dataset.features)
    return RawExamples(
        name, columns, rows_of_batches(batches, name), class_names=names, form="a data set"
    )


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or the error's name."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def rows_of_batches(
    batches: Iterator[Mapping[str, list[Any]]], name: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield place and values of each row of batches of columns."""
    number = 0
    for batch in batches:
        for values in zip(*batch.values(), strict=True):
            number += 1
            yield f"{name}: row {number}", dict(zip(batch, values, strict=True))


def class_names(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of columns that hold class ids, or lists of them."""
    names = {}
    for column, feature in features.items():
        # a list of classes has its ClassLabel in .feature
        declared = getattr(getattr(feature, "feature", feature), "names", None)
        if declared:
            names[column] = tuple(declared)
    return names


class HuggingFaceHub(DataSource):
    """Data sets of the Hugging Face hub, by ``datasets``; no code of a data set is run.

    ``hf:NAME[:CONFIG][:SPLIT]`` are documents, a row each; ``hf:NAME`` or ``hf:OWNER/NAME/CONFIG``
    are labelled rows.
    """

    def documents(self) -> Iterator[RawDocument]:
        """Yield the texts of ``text_column``, empty ones as well."""
        raw = raw_rows(load_hub_corpus(self.name), self.name)
        for source, text in texts_of_rows(raw, self.text_column):
            yield RawDocument(text, False, source)

    def fingerprint(self) -> str:
        """Return what ``datasets`` calls the fingerprint."""
        fingerprint: str = load_hub_corpus(self.name)._fingerprint
        return fingerprint

    def raw_examples(self, split: str | None) -> RawExamples:
        """Return the rows, with the class names that the data set declares."""
        return read_hub(self.name, split)

"""The contract of a data source: text or rows that are not files, as ``NAME:ARGUMENT``."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from bertlab.errors import CorpusError, DataError


@dataclass(frozen=True)
class RawDocument:
    """A document as it was read.

    Attributes:
        text: the text, lines parted by LF.
        presplit: each line is a sentence already.
        source: ``file:line`` where the document starts, or dataset and row, for messages.
    """

    text: str
    presplit: bool
    source: str


@dataclass
class RawExamples:
    """Rows as a source has them, read while they are iterated over.

    Attributes:
        name: of the source, for messages.
        columns: names of the source's columns; those of the first row where rows may differ. A
            table without a header has ``"0"``, ``"1"``, …
        rows: ``(where, values by column)``.
        rows_vary: other rows may have other columns.
        class_names: of the columns that hold ids of classes which the source itself declares.
        skipped: what was left out so far, by reason.
        form: how the rows were read, for the data report: "csv, comma-separated, no header".
        has_header: a table whose first line named the columns; True of all that is no table.
    """

    name: str
    columns: tuple[str, ...]
    rows: Iterator[tuple[str, Mapping[str, Any]]]
    rows_vary: bool = False
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    form: str = ""
    has_header: bool = True


def holds_no_examples(name: str) -> DataError:
    """Return the error for a source without rows."""
    return DataError(f"{name}: holds no rows; leave it out or fill it")


class DataSource:
    """Documents to pre-train on (``data.corpus``), labelled rows (``data.source``), or both.

    Attributes:
        name: of the source as the config gives it, for messages: ``hf:OWNER/NAME``.
        argument: what stands behind the colon; empty without one.
        text_column: ``data.text_column``: where a source has columns, the one with the text.
    """

    def __init__(self, name: str, argument: str) -> None:
        self.name = name
        self.argument = argument
        self.text_column = "text"

    def documents(self) -> Iterator[RawDocument]:
        """Yield documents, in an order that is always the same.

        Raises:
            CorpusError: the source cannot be read, or has no documents.
        """
        raise CorpusError(f"{self.name}: gives labelled rows (data.source), no documents")

    def fingerprint(self) -> str:
        """Return what differs when the documents do; by default they are read once for it."""
        digest = hashlib.sha256()
        for each in self.documents():
            # JSON shows where a text ends: the documents a, bc are not ab, c
            digest.update(json.dumps([each.text, each.presplit]).encode())
        return digest.hexdigest()

    def examples(self, split: str | None) -> Iterable[Mapping[str, Any]]:
        """Yield the rows of a split, each its values by column.

        Args:
            split: ``train``, ``validation``, ``test``, or what ``data.train`` … names.

        Raises:
            DataError: the source cannot be read, has no such split, or no rows.
        """
        raise DataError(f"{self.name}: gives documents (data.corpus), no labelled rows")

    def raw_examples(self, split: str | None) -> RawExamples:
        """Return the rows with what is known of them; by default the first row names the columns.

        Raises:
            DataError: as :meth:`examples`.
        """
        name = self.name if split is None else f"{self.name} {split}"
        rows = iter(self.examples(split))
        first = next(rows, None)
        if first is None:
            raise holds_no_examples(name)
        numbered = enumerate(chain([first], rows), 1)
        return RawExamples(
            name,
            tuple(first),
            ((f"{name}: row {number}", values) for number, values in numbered),
            rows_vary=True,
        )

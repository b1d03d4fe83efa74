"""The contract of a data source: text or rows that are not files, as ``NAME:ARGUMENT``."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from bertlab.data.documents import RawDocument
from bertlab.data.table_formats import RawRows, holds_no_rows
from bertlab.errors import CorpusError, DataError
from bertlab.plugins import installed, load_class


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
            digest.update(json.dumps([each.text, each.presplit]).encode())
        return digest.hexdigest()

    def rows(self, split: str | None) -> Iterable[Mapping[str, Any]]:
        """Yield the rows of a split, each its values by column.

        Args:
            split: ``train``, ``validation``, ``test``, or what ``data.train`` … names.

        Raises:
            DataError: the source cannot be read, has no such split, or no rows.
        """
        raise DataError(f"{self.name}: gives documents (data.corpus), no labelled rows")

    def raw_rows(self, split: str | None) -> RawRows:
        """Return the rows with what is known of them; by default the first row names the columns.

        Raises:
            DataError: as :meth:`rows`.
        """
        name = self.name if split is None else f"{self.name} {split}"
        rows = iter(self.rows(split))
        first = next(rows, None)
        if first is None:
            raise holds_no_rows(name)
        numbered = enumerate(chain([first], rows), 1)
        return RawRows(
            name,
            tuple(first),
            ((f"{name}: row {number}", values) for number, values in numbered),
            rows_vary=True,
        )


def is_source(location: str) -> bool:
    """Whether a location names an installed source, perhaps with an argument."""
    return location.partition(":")[0] in installed("source")


def open_source(location: str) -> DataSource:
    """Return the source that a location names.

    Raises:
        PluginError: it cannot be imported.
    """
    name, _, argument = location.partition(":")
    source: DataSource = load_class("source", name, DataSource)(location, argument)
    return source

"""What the tests of labelled sources share: files, columns of heads, and messages."""

import gzip
import re
from pathlib import Path

import pytest

from bertlab.api.examples import Column
from bertlab.data.examples.source import read_rows, stream_rows
from bertlab.data.rows.tables import RowReading
from bertlab.errors import DataError
from bertlab.heads.sentences import SentencePair, SingleSentence
from bertlab_tasks.span import Span

SINGLE = SingleSentence.columns
PAIR = SentencePair.columns
CHOICE = (
    Column("context"),
    Column("choices", "texts"),
    Column("label", "label", is_truth=True),
    Column("stem", required=False),
)
SPAN = Span.columns
TAGGING = (Column("words", "texts"), Column("tags", "tags", is_truth=True))


def write(path: Path, text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def read(location, wanted=SINGLE, *, split=None, columns=(), form="auto", names=None, **settings):
    reading = RowReading(**settings)
    return read_rows(str(location), split, dict(columns), form, wanted, names, reading)


def values(location, wanted=SINGLE, **options):
    return [dict(row.values) for row in read(location, wanted, **options).rows]


def streamed(location, wanted=SINGLE, *, columns=(), form="auto", **options):
    rows = stream_rows(str(location), dict(columns), form, wanted, **options)
    return [dict(row.values) for row in rows]


def fails(function, *arguments, matches, **options):
    """Check that the message is one line, and holds what is expected in this order."""
    with pytest.raises(DataError) as error:
        function(*arguments, **options)
    message = str(error.value)
    assert "\n" not in message
    parts = [matches] if isinstance(matches, str) else matches
    assert re.search(".*".join(map(re.escape, parts)), message), message

"""Files with a word a line, as CoNLL's shared tasks have them.

Columns are parted by spaces or tabs, an empty line ends a sentence. ``-DOCSTART-`` lines of
CoNLL-2003 stand between documents and are no sentences. There are no comments: W-NUT's tweets have
words that are ``#``.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from bertlab.data.table_formats import RawRows, holds_no_rows
from bertlab.data.text_lines import name_of, read_lines
from bertlab.errors import DataError

_DOCUMENT_START = "-DOCSTART-"
_GAP = re.compile(r"[ \t]+")  # words may hold other kinds of space
_BLANK = " \t\ufeff"  # W-NUT 2017's dev file ends in a byte order mark


def read_columns(path: str) -> RawRows:
    """Read sentences; each column ``"0"``, ``"1"``, … holds a list with a text for each word.

    ``where`` names the first line of a sentence.

    Raises:
        DataError: not readable, no sentences, or a line with another number of columns.
    """
    name = name_of(path)
    raw = RawRows(name, (), iter(()))
    sentences = _sentences(path, name, raw)
    first = next(sentences, None)
    if first is None:
        raise holds_no_rows(name)
    raw.columns = tuple(first[1])
    raw.rows = chain([first], sentences)
    return raw


def _sentences(path: str, name: str, raw: RawRows) -> Iterator[tuple[str, Mapping[str, Any]]]:
    width = 0
    where = ""
    sentence: list[list[str]] = []
    for number, line in enumerate(chain(read_lines(path), [""]), 1):
        cells = _GAP.split(stripped) if (stripped := line.strip(_BLANK)) else []
        if cells and cells[0] == _DOCUMENT_START:
            raw.skipped[f"{_DOCUMENT_START} lines"] += 1
            cells = []
        if not cells:
            if sentence:
                yield where, {str(place): list(column) for place, column in _columns(sentence)}
            sentence = []
            continue
        width = width or len(cells)
        if len(cells) != width:
            raise DataError(
                f"{name}:{number}: found {len(cells)} column{'s'[: len(cells) != 1]} "
                f"({line.strip()[:40]!r}), expected {width} as in the lines before; mend the "
                "line, or put an empty line where a sentence ends"
            )
        if not sentence:
            where = f"{name}:{number}"
        sentence.append(cells)


def _columns(sentence: list[list[str]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    return enumerate(zip(*sentence, strict=True))

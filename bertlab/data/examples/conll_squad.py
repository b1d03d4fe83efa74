"""Files with a word a line, as CoNLL's shared tasks have them.

Columns are parted by spaces or tabs, an empty line ends a sentence. ``-DOCSTART-`` lines of
CoNLL-2003 stand between documents and are no sentences. There are no comments: W-NUT's tweets have
words that are ``#``.

SQuAD's JSON, versions 1.1 and 2.0: articles with paragraphs with questions.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from bertlab.api.source import RawRows, holds_no_rows
from bertlab.data.examples.tables import parse_json
from bertlab.data.text_files import name_of, read_lines
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


_TYPES = {str: "a text", list: "a list", dict: "an object", int: "a whole number", bool: "a bool"}


def read_squad(path: str) -> RawRows:
    """Read questions in the file's order, with columns as in the ``datasets`` hub.

    Columns: ``id``, ``title``, ``context``, ``question`` and, unless the question has no
    ``answers`` key, ``answers`` ``{"text": [...], "answer_start": [...]}``, whose lists are empty
    where there is no answer. ``where`` is the path into the JSON.

    Raises:
        DataError: not readable, not JSON, or not of SQuAD's form; the path into the JSON is named.
    """
    name = name_of(path)
    document = parse_json("\n".join(read_lines(path)), name, 1, "one object, as SQuAD's files")
    if not isinstance(document, dict) or "data" not in document:
        raise DataError(
            f"{name}: not SQuAD's JSON, which is an object with the articles as a list under "
            "'data'; an array of objects is format json"
        )
    rows = list(_questions(name, document))
    if not rows:
        raise holds_no_rows(name)
    return RawRows(name, tuple(rows[0][1]), iter(rows), rows_vary=True)


def _questions(name: str, document: dict[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for at_article, article in _objects(document, "data", f"{name}:"):
        title = article.get("title", "")
        for at_paragraph, paragraph in _objects(article, "paragraphs", f"{at_article}."):
            context = _get(paragraph, "context", str, f"{at_paragraph}.")
            for where, question in _objects(paragraph, "qas", f"{at_paragraph}."):
                row = {
                    "id": _get(question, "id", str, f"{where}."),
                    "title": title,
                    "context": context,
                    "question": _get(question, "question", str, f"{where}."),
                }
                if "answers" in question:
                    row["answers"] = _answers(question, f"{where}.")
                yield where, row


def _answers(question: dict[str, Any], place: str) -> dict[str, list[Any]]:
    answers = list(_objects(question, "answers", place))
    impossible = "is_impossible" in question and _get(question, "is_impossible", bool, place)
    if impossible and answers:
        raise DataError(
            f"{place}is_impossible: found true beside {len(answers)} answers, expected one or the "
            "other (answers that only look right belong into 'plausible_answers')"
        )
    return {
        "text": [_get(answer, "text", str, f"{at}.") for at, answer in answers],
        "answer_start": [_get(answer, "answer_start", int, f"{at}.") for at, answer in answers],
    }


def _objects(parent: dict[str, Any], key: str, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, item in enumerate(_get(parent, key, list, place)):
        at = f"{place}{key}[{number}]"
        if not isinstance(item, dict):
            raise DataError(f"{at}: found {_show(item)}, expected an object")
        yield at, item


def _get(parent: dict[str, Any], key: str, kind: type, place: str) -> Any:  # noqa: ANN401
    if key not in parent:
        keys = ", ".join(map(repr, parent)) or "none"
        raise DataError(f"{place}{key}: is missing, expected {_TYPES[kind]}; there are {keys}")
    value = parent[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DataError(f"{place}{key}: found {_show(value)}, expected {_TYPES[kind]}")
    return value


def _show(value: object) -> str:
    return f"{type(value).__name__} {str(value)[:40]!r}"

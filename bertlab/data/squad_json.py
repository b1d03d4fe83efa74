"""SQuAD's JSON, versions 1.1 and 2.0: articles with paragraphs with questions."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertlab.data.table_formats import RawRows, holds_no_rows, parse_json
from bertlab.data.text_lines import name_of, read_lines
from bertlab.errors import DataError

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

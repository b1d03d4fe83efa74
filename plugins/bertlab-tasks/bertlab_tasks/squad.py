"""SQuAD 1.1 and 2.0: their JSON, and the submission that the official scorer reads."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from bertlab.api import DataError, Example, NamedFormat, RawExamples, Submission
from bertlab.extend import (
    explain_failed_write,
    holds_no_examples,
    input_name,
    kind_of,
    parse_row_json,
    read_lines,
    write_text,
)

_TYPES = {
    str: "a text",
    list: "a list",
    dict: "an object",
    int: "a whole number",
    bool: "true or false",
}


def read_squad(path: str) -> RawExamples:
    """Read the questions of SQuAD 1.1 or 2.0 in order, with columns as in the ``datasets`` hub.

    Columns: ``id``, ``title``, ``context``, ``question`` and, unless the question has no
    ``answers`` key, ``answers`` ``{"text": [...], "answer_start": [...]}``, whose lists are empty
    where there is no answer. ``where`` is the path into the JSON.
    """
    name = input_name(path)
    text, file = "\n".join(read_lines(path)), Path(path).expanduser()
    stored = file.stat().st_size if file.is_file() else 0
    document = parse_row_json(text, name, 1, "one object, as SQuAD's files", stored)
    if not isinstance(document, dict) or "data" not in document:
        raise DataError(
            f"{name}: not SQuAD's JSON, which is an object with the articles as a list under "
            "'data'; an array of objects is format json"
        )
    rows = list(_questions(name, document))
    if not rows:
        raise holds_no_examples(name)
    return RawExamples(name, tuple(rows[0][1]), iter(rows), rows_vary=True)


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
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):  # a bool is an int
        raise DataError(f"{place}{key}: found {_show(value)}, expected {_TYPES[kind]}")
    return value


def _show(value: object) -> str:
    return kind_of(value) + ("" if value is None else f" {str(value)[:40]!r}")


class _SquadSubmission(Submission):
    """``{id: answer}``, and ``{id: odds}`` of no answer beside it if they are predicted."""

    def __init__(self, path: Path, form: NamedFormat) -> None:
        super().__init__(path, form)
        self._answers: dict[str, str] = {}
        self._odds: dict[str, float] = {}

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        name = row.values.get("id")
        if name is None or name in self._answers:
            found = "no id" if name is None else f"id {name!r} for the second time"
            raise DataError(f"{row.where}: found {found}; {self.path} needs an id of each question")
        self._answers[name] = self.get(prediction, "answer", row) or ""
        if prediction.get("null_odds") is not None:
            self._odds[name] = prediction["null_odds"]

    def close(self) -> None:
        self.file.write(_json(self._answers))
        super().close()
        if self._odds:
            path = self.path.with_name(f"{self.path.stem}.null_odds.json")
            with explain_failed_write(f"{path}: cannot be written"):
                write_text(path, _json(self._odds))


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=0) + "\n"


class Squad(NamedFormat):
    """SQuAD 1.1 and 2.0 JSON."""

    columns: ClassVar = {name: (name,) for name in ("question", "context", "answers", "id")}
    table = None
    # train-v1.1.json, dev-v2.0.json
    files: ClassVar = {split: [f"{split}-v[12].[0-9].json"] for split in ("train", "dev")}
    submission = _SquadSubmission

    def read(self, path: str) -> RawExamples:
        """Return a row for each question."""
        return read_squad(path)

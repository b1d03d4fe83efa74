"""Labelled rows for the columns that a head declares."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bertlab.labelled_rows import Column, Row
from bertlab.testing.sample_language import SampleLanguage

_TAGS = ("O", "O", "B-PER", "I-PER", "B-ORG", "O")
_CHOICES = 3
WORDS = 8  # of the longest texts, where nothing else is asked for


def sample_rows(
    columns: Iterable[Column],
    language: SampleLanguage,
    count: int,
    words: int | Mapping[str, int] = WORDS,
    classes: int = 3,
) -> list[Row]:
    """Return rows with all columns, the same every time.

    Labels are numbers from 0, which are names of classes, scores and places of choices alike.

    Args:
        columns: what the head declares.
        language: of the texts.
        count: number of rows.
        words: of the longest texts, or of those of some columns.
        classes: number of labels, if rows have no list of choices.
    """
    declared = list(columns)
    return [_row(declared, language, number, words, classes) for number in range(count)]


def without_truth(columns: Iterable[Column], rows: Sequence[Row]) -> list[Row]:
    """Return rows as new text has them."""
    truth = {column.name for column in columns if column.is_truth}
    return [
        Row({key: value for key, value in row.values.items() if key not in truth}, row.where)
        for row in rows
    ]


def changed(row: Row, column: Column, value: object) -> Row:
    """Return a row with another value in one column."""
    return Row({**row.values, column.name: value}, row.where)


def _row(
    columns: list[Column],
    language: SampleLanguage,
    number: int,
    words: int | Mapping[str, int],
    classes: int,
) -> Row:
    kinds = {column.kind for column in columns}
    values: dict[str, Any] = {}
    for place, column in enumerate(columns):
        seed = (number, place)
        longest = words if isinstance(words, int) else words.get(column.name, WORDS)
        length = 1 + (longest - 1) * (1 + number % 4) // 4
        match column.kind:
            case "text":
                values[column.name] = language.text(length, *seed)
            case "texts":
                text = language.text(length if "tags" in kinds else longest, *seed)
                values[column.name] = text.split() if "tags" in kinds else _choices(text)
            case "label":
                values[column.name] = str(number % (_CHOICES if "texts" in kinds else classes))
    for column in columns:
        if column.kind == "tags":
            values[column.name] = _tags(_first(columns, values, "texts"), number, classes)
        if column.kind == "answers":
            values[column.name] = _answers(_context(columns, values), number)
    return Row(values, f"sample rows:{number + 1}")


def _choices(text: str) -> list[str]:
    words = text.split()
    size = max(1, len(words) // _CHOICES)
    return [
        " ".join(words[place * size : (place + 1) * size] or words) for place in range(_CHOICES)
    ]


def _first(columns: list[Column], values: dict[str, Any], kind: str) -> Any:  # noqa: ANN401
    return next((values[column.name] for column in columns if column.kind == kind), [])


def _context(columns: list[Column], values: dict[str, Any]) -> str:
    texts = [column.name for column in columns if column.kind == "text" and column.required]
    name = "context" if "context" in texts else texts[-1]
    context: str = values[name]
    return context


def _tags(words: Sequence[str], number: int, classes: int) -> list[str]:
    rng = np.random.default_rng(number)
    if classes > len(_TAGS):
        return [f"B-{kind}" for kind in rng.integers(0, classes, len(words))]
    tags = [_TAGS[(number + place) % len(_TAGS)] for place in range(len(words))]
    return ["B-PER" if tag == "I-PER" and place == 0 else tag for place, tag in enumerate(tags)]


def _answers(context: str, number: int) -> dict[str, list[Any]]:
    words = context.split()
    first = number % len(words)
    start = len(" ".join(words[:first])) + (first > 0)
    return {"text": [" ".join(words[first : first + 2])], "answer_start": [start]}

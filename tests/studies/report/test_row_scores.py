"""The score of each row from kept predictions, as far as its mean is the metric."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertlab.studies.report.row_scores import row_scores

Lines = Sequence[dict[str, Any]]


def scores_of(folder: Path, lines: Lines, metric: str, value: float) -> list[float] | None:
    path = folder / "predictions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    found = row_scores(path, metric, value)
    if found is None:
        return None
    assert found.dtype == np.float64
    return list(map(float, found))


def labelled(*pairs: tuple[object, object]) -> Lines:
    return [{"text": "t", "label": label, "gold": {"label": gold}} for label, gold in pairs]


def answered(*pairs: tuple[str, list[str]]) -> Lines:
    return [
        {"answer": answer, "gold": {"answers": {"text": gold, "answer_start": [0] * len(gold)}}}
        for answer, gold in pairs
    ]


@pytest.mark.parametrize(
    "lines",
    [
        labelled(("red", "red"), ("blue", "red"), ("red", "red")),
        labelled(("1", 1), ("0", 1), ("0", 0)),  # classes are texts, the data's are numbers
        labelled((1, "1"), (0, " 1"), (1, "1 ")),  # choices are numbers, the data's are texts
        labelled(("True", True), ("False", True), ("False", False)),
    ],
)
def test_right_classes(lines: Lines, tmp_path: Path) -> None:
    assert scores_of(tmp_path, lines, "accuracy", 2 / 3) == [1.0, 0.0, 1.0]


def test_float32_means_are_near_enough(tmp_path: Path) -> None:
    lines = labelled(*[("a", "a" if number % 3 else "b") for number in range(1000)])
    value = float(np.float32(666 / 1000))
    found = scores_of(tmp_path, lines, "accuracy", value)
    assert found is not None
    assert sum(found) == 666


def test_the_first_of_several_sets(tmp_path: Path) -> None:
    lines = labelled(("a", "a"), ("a", "b"))
    assert scores_of(tmp_path, lines, "matched/accuracy", 0.5) == [1.0, 0.0]
    assert scores_of(tmp_path, lines, "mismatched/accuracy", 0.7) is None  # other rows


def test_answers_of_squad_1(tmp_path: Path) -> None:
    lines = answered(("the Nile", ["Nile"]), ("a b", ["b c", "b d e"]), ("x", ["y"]))
    assert scores_of(tmp_path, lines, "exact_match", 1 / 3) == [1.0, 0.0, 0.0]
    f1 = scores_of(tmp_path, lines, "f1", (1 + 2 / 3) / 3)  # "a" is an article: b against b c
    assert f1 == pytest.approx([1.0, 2 / 3, 0.0])


def test_answers_of_squad_2(tmp_path: Path) -> None:
    lines = answered(("", []), ("x", []), ("y", ["y", "z"]), ("", ["q"]))
    assert scores_of(tmp_path, lines, "exact_match", 0.5) == [1.0, 0.0, 1.0, 0.0]
    assert scores_of(tmp_path, lines, "f1", 0.5) == [1.0, 0.0, 1.0, 0.0]


def test_questions_of_squad_2_that_all_have_an_answer(tmp_path: Path) -> None:
    lines = answered(("the", ["a", "an"]), ("y", ["y"]))  # no word is left of the first answers
    assert scores_of(tmp_path, lines, "f1", 1.0) == [1.0, 1.0]
    assert scores_of(tmp_path, lines, "f1", 0.5) == [0.0, 1.0]  # as version 1.1 counts


@pytest.mark.parametrize(
    ("lines", "metric", "value"),
    [
        (labelled(("a", "a"), ("b", "a")), "accuracy", 0.6),  # another mean
        (labelled(("a", "a"), ("b", "b")), "f1", 1.0),  # no mean over rows
        (labelled(("a", "a"), ("b", "b")), "matthews", 1.0),
        (labelled(("a", "a"), ("b", "b")), "accuracy", float("nan")),
        ([{"score": 0.5, "gold": {"label": 0.5}}], "pearson", 1.0),
        ([{"label": "a"}], "accuracy", 0.0),  # no truth
        ([{"tags": ["O"], "gold": {"tags": ["O"]}}], "accuracy", 1.0),
        ([{"tags": ["O"], "gold": {"tags": ["O"]}}], "f1/PER", 1.0),
        ([], "accuracy", 0.0),
        ([], "f1", 0.0),
    ],
)
def test_what_is_no_mean_over_rows(lines: Lines, metric: str, value: float, tmp_path: Path) -> None:
    assert scores_of(tmp_path, lines, metric, value) is None


def test_no_predictions(tmp_path: Path) -> None:
    assert row_scores(tmp_path / "predictions.jsonl", "accuracy", 1.0) is None

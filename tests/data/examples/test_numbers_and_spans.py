"""Columns of numbers and of spans: read by the readers, so that heads need not parse them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bertlab.api.examples import Column
from bertlab.errors import DataError, PluginError
from bertlab.heads.sentences import SingleSentence
from tests.data.examples.labelled_files import values, write

SCORED = (Column("text"), Column("age", "number", required=False), Column("y", "number", True))
MARKED = (Column("text"), Column("part", "span", of="text", is_truth=True))
LISTED = (Column("words", "texts"), Column("heads", "numbers", is_truth=True))
TEXT = "the cat sat on the mat"


def lines(path: Path, *rows: dict[str, Any]) -> str:
    return write(path, "".join(f"{json.dumps(each)}\n" for each in rows))


def test_numbers_are_floats_whatever_the_file_has(tmp_path: Path) -> None:
    table = write(tmp_path / "a.csv", "text,age,y\na b,3,0.5\nc d,,-1e2\n")
    found = [{"text": "a b", "age": 3.0, "y": 0.5}, {"text": "c d", "y": -100.0}]
    assert values(table, SCORED) == found
    given = lines(tmp_path / "a.jsonl", {**found[0], "age": " 3 "}, found[1])
    assert values(given, SCORED) == found
    assert all(type(row["y"]) is float for row in values(table, SCORED))


@pytest.mark.parametrize("wrong", ["high", "nan", "inf", True, [1.0], 1e300, "1,5"])
def test_no_number_is_refused_by_file_and_row(tmp_path: Path, wrong: object) -> None:
    given = lines(tmp_path / "a.jsonl", {"text": "a", "y": 1}, {"text": "b", "y": wrong})
    words = f"a.jsonl:2: column 'y': found {wrong!r}, expected a finite number"
    with pytest.raises(DataError, match=re.escape(words)):
        values(given, SCORED)


@pytest.mark.parametrize(("wrong", "told"), [("1,5", True), (" -1,5", True), ("1,5,2", False)])
def test_a_decimal_comma_is_told(tmp_path: Path, wrong: str, told: bool) -> None:
    given = lines(tmp_path / "a.jsonl", {"text": "a", "y": 1}, {"text": "b", "y": wrong})
    with pytest.raises(DataError) as refused:
        values(given, SCORED)
    assert str(refused.value).endswith("; write a decimal comma as a point") is told


def test_no_number_names_the_setting_that_asks_for_one(tmp_path: Path) -> None:
    table = write(tmp_path / "a.csv", "text,label\nfine,4.5\ndull,bad\n")
    words = "a.csv:3: column 'label': found 'bad', expected a finite number, as "
    with pytest.raises(DataError, match=f"{re.escape(words)}model.head.regression: true asks for"):
        values(table, SingleSentence(regression=True).columns)


@pytest.mark.parametrize(
    "part",
    [
        "cat",
        " cat ",
        [4, 7],
        "[4, 7]",
        ["4", 7],
        {"start": 4, "end": 7},
        {"text": "cat", "start": 4},
    ],
)
def test_a_span_may_be_given_in_several_ways(tmp_path: Path, part: object) -> None:
    given = lines(tmp_path / "a.jsonl", {"text": TEXT, "part": part})
    assert values(given, MARKED) == [{"text": TEXT, "part": (4, 7)}]


def test_a_span_may_stand_in_two_columns(tmp_path: Path) -> None:
    table = write(tmp_path / "a.csv", f"text,from,to\n{TEXT},19,22\n")
    found = values(table, MARKED, columns={"part": ["from", "to"]})
    assert found == [{"text": TEXT, "part": (19, 22)}]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("dog", "found 'dog', which is not in text (22 characters"),
        ([4, 30], "found [4, 30], which is not in text"),
        ([7, 4], "found [7, 4], which is not in text"),
        ([4.5, 7], "found 4.5, expected the number of a character, from 0"),
        ([-1, 7], "found -1, expected the number of a character"),
        ({"text": "cat", "start": 5}, "found 'cat' at 5, which is not in text"),
        (
            {"start": 4},
            "found mapping {'start': 4}, expected a text that occurs in the row, [start, end]",
        ),
        (4, "found number 4, expected a text that occurs in the row"),
    ],
)
def test_a_span_that_is_not_there_is_refused_by_file_and_row(
    tmp_path: Path, part: object, words: str
) -> None:
    given = lines(tmp_path / "a.jsonl", {"text": TEXT, "part": part})
    with pytest.raises(DataError, match=re.escape(f"a.jsonl:1: column 'part': {words}")):
        values(given, MARKED)


def test_lists_of_numbers(tmp_path: Path) -> None:
    given = lines(tmp_path / "a.jsonl", {"words": ["a", "b"], "heads": [1, "0"]})
    assert values(given, LISTED) == [{"words": ["a", "b"], "heads": [1.0, 0.0]}]
    given = lines(tmp_path / "b.jsonl", {"words": ["a", "b"], "heads": [1, "x"]})
    with pytest.raises(DataError, match=r"b.jsonl:1: column 'heads'\[1\]: found 'x'"):
        values(given, LISTED)


def test_regression_declares_its_number() -> None:
    kinds = {each.name: each.kind for each in SingleSentence(regression=True).columns}
    assert kinds == {"text": "text", "label": "number"}
    assert SingleSentence().columns[1].kind == "label"


def test_a_span_names_its_text_and_nothing_else_does() -> None:
    with pytest.raises(PluginError, match=r"Column\('part'\): of: found '' for kind span"):
        Column("part", "span")
    with pytest.raises(PluginError, match=r"of: found 'text' for kind number; a span has it"):
        Column("part", "number", of="text")

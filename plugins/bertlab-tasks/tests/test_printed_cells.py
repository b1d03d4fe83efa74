"""Lists and objects that were printed into cells."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertlab.data.examples.source import LEFT_OUT, UnreadableRow, stream_rows
from bertlab.data.rows.tables import RowReading
from bertlab.errors import EmptyTextError
from bertlab_tasks.printed_cells import parse_printed
from bertlab_tasks.text_of_words import word_places
from tests.data.examples.labelled_files import TAGGING, read

single = st.one_of(st.text(), st.integers(-(10**15), 10**15), st.booleans())
nested = st.recursive(single, lambda inner: st.lists(inner, max_size=4), max_leaves=8)


@pytest.mark.slow
@given(nested.map(lambda value: [value]))
def test_what_python_prints_is_read_back(value):
    try:
        assert parse_printed(repr(value)) == value
    except ValueError:  # deeper than cells are
        assert repr(value).startswith("[[[[")


@pytest.mark.parametrize("value", [["\N{GRINNING FACE}", "Rome"], [], {"a": ["\n", 1.5, None]}])
def test_what_json_prints_is_read_back(value):
    assert parse_printed(json.dumps(value)) == value
    assert parse_printed(r'["a\/b"]') == ["a/b"]


@pytest.mark.parametrize(
    "text",
    ["[__import__('os')]", "[1", "1", "[" * 9 + "]" * 9, "['a'", "{'a': }", "[" * 9999, "[a]"],
)
def test_nothing_else_is_read(text):
    with pytest.raises(ValueError):  # noqa: PT011  of any message
        parse_printed(text)


def test_words_that_were_printed_into_a_cell_are_new_rows_too(tmp_path: Path) -> None:
    """Not the words of their brackets and quotes; a text in brackets stays a text."""
    given = ["['In', 'Rome']", '["In"]', "In Rome", "[1] In", "[1, 2]"]
    file = tmp_path / "new.csv"
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([["id", "words"], *enumerate(given)])
    rows = list(stream_rows(str(file), {}, "auto", TAGGING))
    assert [row.values["words"] for row in rows] == [
        ["In", "Rome"],
        ["In"],
        ["In", "Rome"],
        ["[", "1", "]", "In"],
        ["[", "1", ",", "2", "]"],
    ]
    assert [row.row["words"] for row in rows] == given
    assert [word_places(row.values["words"], row.row) is None for row in rows] == [
        *[True, True],
        *[False, False, False],
    ]


@pytest.mark.parametrize(
    ("name", "empty"),
    [
        ("a.jsonl", '{"words": [], "tags": []}'),
        ("a.jsonl", '{"words": " ", "tags": []}'),
        ("a.csv", "[],\"['O']\""),
        ("a.csv", ",\"['O']\""),
    ],
)
def test_a_list_without_texts_is_an_empty_text(tmp_path: Path, name: str, empty: str) -> None:
    first = '{"words": ["a"], "tags": ["O"]}' if name.endswith("l") else "['a'],['O']"
    header = "" if name.endswith("l") else "words,tags\n"
    file = tmp_path / name
    file.write_text(f"{header}{first}\n{empty}\n")
    with pytest.raises(EmptyTextError, match=r"column 'words': is empty.*data\.empty: skip"):
        read(file, TAGGING)
    found = read(file, TAGGING, skip_empty=True)
    assert (len(found.rows), found.skipped) == (1, {"an empty text": 1})
    for keeps in (False, True):
        reading = RowReading(skip_empty=True, keeps_unreadable=keeps)
        _, row = stream_rows(str(file), {}, "auto", TAGGING, reading=reading)
        assert isinstance(row, UnreadableRow)
        assert row.reason == LEFT_OUT

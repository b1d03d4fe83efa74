"""Printed lists, headers, and what rows can hardly mean."""

import json

import pytest

from bertlab.api.examples import Column
from bertlab.data.examples.source import read_rows
from bertlab.data.rows.tables import RowReading
from bertlab.errors import DataError
from bertlab_tasks.span import Span

from .labelled_files import SINGLE, TAGGING, values, write

SEVERAL = (Column("text"), Column("labels", "labels", is_truth=True))


def read(path, wanted=SINGLE, columns=(), names=None, **settings):
    reading = RowReading(**settings)
    return read_rows(str(path), None, dict(columns), "auto", wanted, names, reading)


def refused(path, *words, wanted=SINGLE, **options):
    with pytest.raises(DataError) as error:
        read(path, wanted, **options)
    for word in words:
        assert word in str(error.value)


def test_several_labels_are_a_list(tmp_path):
    path = write(tmp_path / "a.csv", "text,labels\na,\"['x', 'y']\"\nb,[]\nc,\n")
    assert [row.values["labels"] for row in read(path, SEVERAL).rows] == [["x", "y"], [], []]
    path = write(tmp_path / "b.jsonl", '{"text": "a", "labels": 1}')
    refused(path, "found number 1", "expected a list of labels", wanted=SEVERAL)


ROWS = "".join(f"A text of number {n}.,{'good' if n % 2 else 'bad'}\n" for n in range(8))


@pytest.mark.parametrize("header", ["text,label", "sentence,Sentiment", "content,class"])
def test_a_header_above_columns_that_are_numbered(tmp_path, header):
    path = write(tmp_path / "a.csv", f"{header}\n{ROWS}")
    found = read(path, columns={"text": "0", "label": "1"})
    assert len(found.rows) == 8
    assert "header in line 1" in found.understood["read as"]


def test_a_row_that_looks_like_a_header(tmp_path):
    path = write(tmp_path / "a.csv", f"review,polarity\n{ROWS}")
    columns = {"text": "0", "label": "1"}
    refused(path, "a.csv:1", "looks like a header", "data.header", columns=columns)
    assert len(read(path, columns=columns, header=True).rows) == 8
    assert len(read(path, columns=columns, header=False).rows) == 9
    plain = write(tmp_path / "b.csv", ROWS)
    assert len(read(plain, columns=columns).rows) == 8


@pytest.mark.parametrize(
    "labels",
    [
        ("Yes", "yes"),
        ("1", "1.0"),
        ("01", "1"),
        ("1", "True"),
        ("false", "0"),
        ("café", "cafe\u0301"),
        ("a b", "a\u00a0b"),
    ],
)
def test_labels_that_are_one_written_twice(tmp_path, labels):
    one, other = labels
    rows = "".join(f"a text {n},{label}\n" for n, label in enumerate([one, other, "2", one]))
    path = write(tmp_path / "a.csv", f"text,label\n{rows}")
    refused(path, "a.csv:3", "written otherwise", "data.doubtful")
    assert len(read(path, accepts_doubtful=True).rows) == 4


def test_a_name_of_a_class_is_given_once(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\na,0\nb,1\nc,2\n")
    with pytest.raises(DataError, match="found bad, good, bad, expected each name once"):
        read_rows(str(path), None, {}, "auto", SINGLE, ["bad", "good", "bad"], RowReading())


@pytest.mark.parametrize("numbers", [[1e-05, *range(1, 25)], [0, 0.0, *range(1, 25)]])
def test_numbers_of_json_may_be_scores(tmp_path, numbers):
    rows = [{"text": f"a text {n}", "label": each} for n, each in enumerate(numbers)]
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    assert len(read(path).rows) == len(numbers)


def test_labels_in_lists_and_tags_are_checked_as_well(tmp_path):
    path = write(tmp_path / "a.csv", "text,labels\na,x;y\nb,X\nc,y\n")
    refused(path, "a.csv:3", "'X'", "written otherwise", wanted=SEVERAL)
    path = write(tmp_path / "b.csv", "text,labels\na,x;y\nb,nan\nc,y\n")
    refused(path, "b.csv:3", "printed", wanted=SEVERAL)
    path = write(tmp_path / "c.conll", "Ann B-PER\n\nBob B-Per\n")
    refused(path, "c.conll:3", "'B-Per'", wanted=TAGGING)


@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "{}.5",
        "#{}",
        "2024-05-1{} 10:00:00",
        "10.0.0.{}",
        "0f8fad5b-d9cb-469f-a165-7086772{:05}",
    ],
)
def test_ids_are_no_texts(tmp_path, form):
    rows = "".join(f"{form.format(n)},a text {n},{'ab'[n % 2]}\n" for n in range(6))
    path = write(tmp_path / "a.csv", f"id,text,label\n{rows}")
    refused(path, "ids or numbers", "data.columns", "data.doubtful", columns={"text": "id"})
    assert len(read(path, columns={"text": "id"}, accepts_doubtful=True).rows) == 6


def test_one_label_is_no_list_and_no_id(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\na,\"['x']\"\nb,\"['y', 'x']\"\n")
    refused(path, "printed list", "multi_label")
    rows = "".join(f"a text,a text of {n}\n" for n in range(30))
    refused(write(tmp_path / "b.csv", f"text,label\n{rows}"), "no two of 30 rows")


ANSWERS = [
    "{'text': ['cat'], 'answer_start': [2]}",
    "{'text': array(['cat'], dtype=object), 'answer_start': array([2], dtype=int32)}",
    '{"text": ["cat"], "answer_start": [2]}',
    "[{'text': 'cat', 'answer_start': 2}]",
]


@pytest.mark.parametrize("cell", ANSWERS)
def test_answers_that_were_printed_into_cells(tmp_path, cell):
    quoted = cell.replace('"', '""')
    path = write(tmp_path / "a.csv", f'question,context,answers\nWhat?,A cat.,"{quoted}"\n')
    assert values(path, Span.columns)[0]["answers"] == {"text": ["cat"], "answer_start": [2]}


def test_words_that_were_printed_into_cells(tmp_path):
    path = write(tmp_path / "a.csv", "words,tags\n\"['EU', 'it''s']\",\"['B-ORG' 'O']\"\n")
    assert values(path, TAGGING)[0]["tags"] == ["B-ORG", "O"]


def test_all_empty_rows_are_named(tmp_path):
    rows = "".join(f"{'' if n % 3 else 'a text'},{'x' if n % 2 else ''}\n" for n in range(12))
    path = write(tmp_path / "a.csv", f"text,label\n{rows}")
    words = ["8 rows with an empty text", "(3, 4, 6, …)", "2 with an empty label"]
    refused(path, *words, "data.empty: skip")


def test_the_report_says_what_was_understood(tmp_path):
    path = write(tmp_path / "a.csv", "id;review;stars\n1;It is good;5\n2;It is not;1\n")
    found = read(path, columns={"text": "review", "label": "stars"}).understood
    assert found == {
        "read as": "csv, semicolon-separated, header in line 1",
        "columns": "text: review; label: stars",
        "first row": "text: It is good; label: 5",
    }

"""CSV in other forms than RFC 4180's, and rows with empty cells."""

import pytest

from bertlab.data.examples.source import read_rows, stream_rows
from bertlab.data.fine_tuning import LabelledData
from bertlab.data.rows.tables import RowReading
from bertlab.errors import ConfigError, DataError, EmptyTextError

from .labelled_files import SINGLE, fails, read, values, write

FOUND = [{"text": "one, or 2", "label": "a"}, {"text": 'the "b"\nline', "label": "b"}]
QUOTED = {",": '"one, or 2"', ";": "one, or 2", "\t": "one, or 2", "|": "one, or 2"}


def read_with(path, columns=(), **settings):
    reading = RowReading(**settings)
    found = read_rows(str(path), None, dict(columns), "auto", SINGLE, None, reading)
    return [dict(row.values) for row in found.rows], found.skipped


@pytest.mark.parametrize("delimiter", QUOTED)
def test_the_delimiter_is_found(delimiter, tmp_path):
    header = delimiter.join(["id", "text", "label"])
    first = delimiter.join(["1", QUOTED[delimiter], "a"])
    second = delimiter.join(["2", '"the ""b""\nline"', "b"])
    path = write(tmp_path / "a.csv", f"{header}\n{first}\n{second}\n")
    assert values(path) == FOUND
    assert read_with(path, delimiter=delimiter)[0] == FOUND


def test_the_delimiter_that_parts_most_wins_and_can_be_overruled(tmp_path):
    path = write(tmp_path / "a.csv", "5;It is, so;a\n6;It is, not;b\n")
    assert values(path, columns={"text": 1, "label": 2})[0] == {"text": "It is, so", "label": "a"}
    rows, _ = read_with(path, {"text": "0", "label": "1"}, delimiter=",")
    assert rows[0] == {"text": "5;It is", "label": " so;a".strip()}
    rows, _ = read_with(path, {"text": "1", "label": "2"}, delimiter=";")
    assert rows == [{"text": "It is, so", "label": "a"}, {"text": "It is, not", "label": "b"}]


def test_one_column_has_no_delimiter(tmp_path):
    path = write(tmp_path / "a.csv", "text\nsome; text\n")
    (row,) = stream_rows(str(path), {}, "auto", SINGLE)
    assert row.values == {"text": "some; text"}


@pytest.mark.parametrize(
    ("quote", "cell", "expected"),
    [("'", "'a, ''b'''", "a, 'b'"), ("", '"a" is', '"a" is'), (None, '"a, b"', "a, b")],
)
def test_quotes(quote, cell, expected, tmp_path):
    path = write(tmp_path / "a.csv", f"text,label\n{cell},x\n")
    assert read_with(path, quote=quote)[0] == [{"text": expected, "label": "x"}]


@pytest.mark.parametrize("settings", [{"delimiter": ";;"}, {"quote": "\n"}])
def test_a_form_that_cannot_be(settings):
    with pytest.raises(ConfigError, match=r"data\.(delimiter|quote): found .* one character"):
        LabelledData("a.csv", **settings)


def test_another_form_is_a_remedy(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\n"a" b,x\n')
    fails(read, path, matches=["a.csv:2: malformed CSV", "data.delimiter and data.quote"])


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_empty_cells_are_refused_or_counted(ending, tmp_path):
    gap = "," if ending == "csv" else "\t"
    lines = [["text", "label"], ["a", "x"], [" ", "x"], ["b", ""], ["", ""], ["c", "y"]]
    path = write(tmp_path / f"a.{ending}", "".join(f"{gap.join(each)}\n" for each in lines))
    with pytest.raises(EmptyTextError, match=r"a\.[ct]sv:3"):
        read(path)
    rows, skipped = read_with(path, skip_empty=True)
    assert rows == [{"text": "a", "label": "x"}, {"text": "c", "label": "y"}]
    assert skipped == {"an empty text": 2, "an empty label": 1}


def test_empty_rows_of_new_text_keep_their_place(tmp_path):
    path = write(tmp_path / "a.csv", "id,text\n1,a\n2,\n3,c\n")
    rows = stream_rows(str(path), {}, "auto", SINGLE, reading=RowReading(skip_empty=True))
    found = list(rows)
    assert [row.row["id"] for row in found] == ["1", "2", "3"]
    assert found[1].reason == "left out: an empty text"
    with pytest.raises(DataError, match=r"a\.csv:3"):
        list(stream_rows(str(path), {}, "auto", SINGLE))

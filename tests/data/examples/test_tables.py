import csv
import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertlab.api.examples import Column

from .labelled_files import CHOICE, PAIR, SINGLE, TAGGING, fails, read, streamed, values, write

ROWS = [{"text": "A fine day.", "label": "good"}, {"text": "Rain, again.", "label": "bad"}]
relaxed = settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n\t\ufeff")
cells = st.text(letters, min_size=1, max_size=20).filter(str.strip)
FILES = {
    "a.tsv": "text\tlabel\nA fine day.\tgood\nRain, again.\tbad\n",
    "a.csv": 'text,label\nA fine day.,good\n"Rain, again.",bad\n',
    "a.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "b.json": "".join(json.dumps(row) + "\n" for row in ROWS),
    "a.json": json.dumps(ROWS, indent=1),
    "a.txt": "text\tlabel\nA fine day.\tgood\nRain, again.\tbad\n",
}


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("name", FILES)
def test_same_rows_from_every_format(tmp_path, name, packed):
    path = write(tmp_path / (name + packed), FILES[name])
    assert values(path) == ROWS


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_byte_order_mark_crlf_and_empty_last_lines(tmp_path, name):
    text = "\ufeff" + FILES[name].replace("\n", "\r\n") + "\r\n\r\n"
    assert values(write(tmp_path / name, text)) == ROWS


def test_rows_name_their_lines(tmp_path):
    tsv = write(tmp_path / "a.tsv", FILES["a.tsv"])
    assert [row.where for row in read(tsv).rows] == [f"{tsv}:2", f"{tsv}:3"]
    spread = write(tmp_path / "a.csv", 'text,label\n"two\nlines",x\nnext,y\n')
    assert [row.where for row in read(spread).rows] == [f"{spread}:2", f"{spread}:4"]
    assert values(spread)[0]["text"] == "two\nlines"


def test_quotes_are_ordinary_in_tsv(tmp_path):
    path = write(tmp_path / "a.tsv", 'text\tlabel\n"open\ta\n"closed"\tb\n')
    assert [row["text"] for row in values(path)] == ['"open', '"closed"']


@pytest.mark.slow
@relaxed
@given(rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=8))
def test_tsv_round_trip(tmp_path, rows):
    text = "text\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in rows)
    expected = [{"text": a, "label": b.strip()} for a, b in rows]
    assert values(write(tmp_path / "a.tsv", text), accepts_doubtful=True) == expected


@pytest.mark.slow
@relaxed
@given(rows=st.lists(st.tuples(st.text(letters | st.just("\n"), min_size=1), cells), min_size=1))
def test_csv_round_trip(tmp_path, rows):
    rows = [(a, b) for a, b in rows if a.strip()] or [("a", "b")]
    out = io.StringIO()
    csv.writer(out).writerows([("text", "label"), *rows])
    expected = [{"text": a, "label": b.strip()} for a, b in rows]
    assert values(write(tmp_path / "a.csv", out.getvalue()), accepts_doubtful=True) == expected


def test_columns_are_mapped_by_name(tmp_path):
    path = write(tmp_path / "a.csv", "id,question,reply,ok\n7,Why?,So.,1\n")
    columns = {"text_a": "question", "text_b": "reply", "label": "ok"}
    expected = [{"text_a": "Why?", "text_b": "So.", "label": "1"}]
    assert values(path, PAIR, columns=columns) == expected


@pytest.mark.parametrize("places", [(2, 0), ("2", "0"), ("-1", "-3")])
def test_columns_are_mapped_by_place_where_there_is_no_header(tmp_path, places):
    path = write(tmp_path / "a.tsv", "x\t\tFirst.\ny\t\tSecond.\n")
    columns = dict(zip(("text", "label"), places, strict=True))
    expected = [{"text": "First.", "label": "x"}, {"text": "Second.", "label": "y"}]
    assert values(path, columns=columns) == expected


def test_list_of_columns_makes_a_list_of_texts(tmp_path):
    path = write(tmp_path / "a.csv", "start,e0,e1,right\nHe,ran.,sat.,1\n")
    columns = {"context": "start", "choices": ["e0", "e1"], "label": "right"}
    expected = [{"context": "He", "choices": ["ran.", "sat."], "label": "1"}]
    assert values(path, CHOICE, columns=columns) == expected


def test_plain_text_is_for_prediction(tmp_path):
    path = write(tmp_path / "a.txt", "One.\nTwo\tparts.\n\n")
    assert streamed(path) == [{"text": "One."}, {"text": "Two\tparts."}]
    pairs = write(tmp_path / "b.txt", "One.\tTwo.\n")
    assert streamed(pairs, PAIR) == [{"text_a": "One.", "text_b": "Two."}]
    assert streamed(path, TAGGING)[1] == {"words": ["Two", "parts", "."]}
    assert streamed(path, TAGGING, form="words")[1] == {"words": ["Two", "parts."]}
    # a mapping is of the training data's columns
    assert streamed(path, columns={"text": "review"}) == streamed(path)


def test_optional_number_is_a_name(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a", "id": 7}\n{"text": "b"}\n')
    wanted = (Column("text"), Column("id", required=False))
    assert values(path, wanted) == [{"text": "a", "id": "7"}, {"text": "b"}]


BAD = [
    ("a.tsv", "", ["a.tsv: holds no rows"]),
    ("a.csv", "\n\n", ["a.csv: holds no rows"]),
    ("a.jsonl", "\n", ["a.jsonl: holds no rows"]),
    ("a.json", "[]", ["a.json: holds no rows"]),
    ("a.tsv", "text\tlabel\n", ["a.tsv: holds no rows but the header"]),
    ("a.tsv", "text\tlabel\na\tb\nc\n", ["a.tsv:3: found 1 tab-separated column, expected 2"]),
    ("a.csv", "text,label\na,b,c\n", ["a.csv:2: found 3 comma-separated columns, expected 2"]),
    ("a.csv", 'text,label\na,"b\n', ["a.csv:2: malformed CSV"]),
    ("a.csv", 'text,label\na,"b"c\n', ["a.csv:2: malformed CSV"]),
    ("a.tsv", "text\ttext\tlabel\na\tb\tc\n", ["a.tsv:1", "'text' twice"]),
    ("a.tsv", "text\tlabel\n \tb\n", ["a.tsv:2: column 'text': is empty"]),
    ("a.tsv", b"text\tlabel\nab\xff\tb\n", ["a.tsv:2", "byte offset 13 (found 0xff"]),
    ("a.tsv.gz", b"text\tlabel\nab\xff\tb\n", ["a.tsv.gz:2", "offset 13 of the unpacked text"]),
    ("a.tsv", "text\tlabel\n".encode("utf-16"), ["a.tsv:1: not UTF-8", "it looks like UTF-16"]),
    ("a.csv", b"PK\x03\x04\xff", ["a.csv:1: not UTF-8", "it looks like a zip file"]),
    ("a.tsv", "text\tlabel\na\0b\tc\n", ["a.tsv:2: holds a NUL byte at byte offset 12"]),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text"\n', ["a.jsonl:2: malformed JSON"]),
    ("a.jsonl", '{"text": "a", "label": 1}\n[1]\n', ["a.jsonl:2: found list '[1]', expected"]),
    (
        "a.jsonl",
        f'{{"text": {"1" * 5000}}}',
        ["a.jsonl:1: malformed JSON (a number of 5000 digits"],
    ),
    (
        "a.jsonl",
        '{"text": ' + "1" * 5000 + "}",
        ["a.jsonl:1: malformed JSON (a number of 5000 digits"],
    ),
    ("a.json", '[\n{"text": "a", "label": 1},\n{]', ["a.json:3: malformed JSON"]),
    ("a.jsonl", '{"text": "\\ud800", "label": 1}', ["a.jsonl:1: column 'text'", "surrogate"]),
    ("a.jsonl", '{"text": 3, "label": 1}', ["column 'text': found number 3, expected a text"]),
    ("a.jsonl", '{"text": null, "label": 1}', ["a.jsonl:1: column 'text': is empty"]),
    (
        "a.jsonl",
        '{"text": "a", "label": 1}\n{"txt": "b", "label": 2}',
        ["a.jsonl:2: column 'text': is missing; there are 'txt', 'label'"],
    ),
    ("a.jsonl", '{"text": "a", "label": [1]}', ["column 'label': found list [1], expected a name"]),
    ("a.csv", "Text,label\na,b\n", ["a.csv: no column 'text'; did you mean 'Text'?", "'label'"]),
    (
        "a.csv",
        "Text,grade\na,b\n",
        [
            "no column 'text'; did you mean 'Text'?; no column 'label'; columns",
            "text: COLUMN, label",
        ],
    ),
    ("a.dat", "text\n", ["the ending '.dat' does not tell the format", "tsv, csv"]),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD)
def test_bad_files(tmp_path, name, text, message):
    fails(read, write(tmp_path / name, text), matches=message)


def test_damaged_gzip(tmp_path):
    path = tmp_path / "a.tsv.gz"
    write(path, FILES["a.tsv"])
    path.write_bytes(path.read_bytes()[:-12])
    fails(read, path, matches="a.tsv.gz: damaged gzip file")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("text", "text_pair"),
        ("sentence1", "sentence2"),
        ("premise", "hypothesis"),
        ("question1", "question2"),
        ("text_a", "sentence2"),
    ],
)
def test_columns_have_the_names_of_published_files(tmp_path, first, second):
    """GLUE's, and those that ``predict`` itself takes."""
    expected = [{"text_a": "Rain.", "text_b": "Sun.", "label": "no"}]
    path = write(tmp_path / "a.csv", f"id,{first},{second},label\n1,Rain.,Sun.,no\n")
    assert values(path, PAIR) == expected
    path = write(tmp_path / "a.jsonl", f'{{"{first}":"Rain.","{second}":"Sun.","label":"no"}}')
    assert values(path, PAIR) == expected
    path = write(tmp_path / "b.tsv", "sentence\tlabel\nRain.\tno\n")
    assert values(path) == [{"text": "Rain.", "label": "no"}]


def test_a_missing_column_is_named_once_and_the_nearest_is_one_that_is_free(tmp_path):
    path = write(tmp_path / "a.csv", "text,sentence_2,label\nRain.,Sun.,no\n")
    message = "no column 'text_b'; did you mean 'sentence_2'?; columns there: 'text', 'sentence_2'"
    fails(read, path, PAIR, matches=message)
    path = write(tmp_path / "b.csv", "text,label\nRain.,no\n")
    fails(read, path, PAIR, matches="no column 'text_b'; columns there: 'text', 'label'; name")


BAD_COLUMNS = [
    ({"text": "txet"}, ["no column 'txet', which 'text' comes from; did you mean 'text'?"]),
    ({"labels": "label"}, ["the head reads no 'labels'; did you mean 'label'?", "text, label"]),
    ({"text": 5}, ["no column '5', which 'text' comes from", "'text', 'label'"]),
    ({"text": None}, ["columns: text: found None, expected the name"]),
    ({"text": True}, ["columns: text: found True, expected the name"]),
    ({"text": ["text", "nope"]}, ["no column 'nope', which 'text' comes from"]),
]


@pytest.mark.parametrize(("columns", "message"), BAD_COLUMNS)
def test_bad_columns(tmp_path, columns, message):
    path = write(tmp_path / "a.tsv", FILES["a.tsv"])
    fails(read, path, columns=columns, matches=message)


def test_bad_lists(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"words": "a b", "tags": ["O", "O"]}')
    fails(read, path, TAGGING, matches="column 'words': found text 'a b', expected a list of texts")
    path = write(tmp_path / "b.jsonl", '{"words": ["a", ""], "tags": ["O", "O"]}')
    fails(read, path, TAGGING, matches="b.jsonl:1: column 'words'[1]: is empty")
    path = write(tmp_path / "c.jsonl", '{"words": ["a", 1], "tags": ["O", "O"]}')
    fails(read, path, TAGGING, matches="c.jsonl:1: column 'words'[1]: found number 1")
    path = write(tmp_path / "d.jsonl", '{"words": ["a", "b"], "tags": ["O", null]}')
    fails(read, path, TAGGING, matches="d.jsonl:1: column 'tags'[1]: found nothing")
    path = write(tmp_path / "e.csv", "context,choices,label\na,b,0\n")
    fails(read, path, CHOICE, matches="e.csv:2: column 'choices': found text 'b'")


def test_bad_plain_text(tmp_path):
    path = write(tmp_path / "a.txt", "One.\n\nTwo.\n")
    fails(streamed, path, matches="a.txt:2: column 'text': is empty")
    fails(streamed, path, PAIR, matches="a.txt:1: found 1 tab-separated text, expected 2: text_a")
    fails(streamed, path, CHOICE, matches="plain text cannot hold what is read here")
    fails(read, path, SINGLE, form="txt", matches="no column 'label'; columns there: 'text'")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_several_columns_become_one_text(tmp_path, name):
    rows = [("On rain", "It rains."), ("", "It does not."), ("Snow ", ""), ("", " ")]
    if name == "a.csv":
        text = "title,body,label\n" + "".join(f"{a},{b},x\n" for a, b in rows)
    else:
        keys = ("title", "body", "label")
        lines = (zip(keys, (a or None, b, "x"), strict=True) for a, b in rows)
        text = "".join(json.dumps(dict(line)) + "\n" for line in lines)
    path = write(tmp_path / name, text)
    columns = {"text": ["title", "body"]}
    found = values(path, columns=columns, skip_empty=True)
    assert [row["text"] for row in found] == ["On rain It rains.", "It does not.", "Snow "]
    place = "column 'title', 'body' (text): is empty"
    fails(read, path, columns=columns, matches=[f"{name}:", place])
    assert "text: title, body" in read(path, columns=columns, skip_empty=True).understood["columns"]


def test_several_columns_of_which_one_is_a_number(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"title": 5, "body": "b", "label": "x"}\n')
    fails(read, path, columns={"text": ["title", "body"]}, matches=["a.jsonl:1", "found number 5"])

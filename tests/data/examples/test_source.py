import io
import json
import sys

import datasets
import pytest

from bertlab.api.examples import Column
from bertlab.data.examples import source as source_module
from bertlab.data.examples.source import stream_rows
from bertlab.errors import ConfigError
from bertlab.heads.sentences import SentencePair

from .labelled_files import (
    PAIR,
    SINGLE,
    SPAN,
    TAGGING,
    fails,
    read,
    streamed,
    values,
    write,
)

ROWS = "text\tlabel\nA fine day.\tgood\nRain.\tbad\n"


@pytest.fixture(autouse=True)
def _no_progress_bars():
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def one(path):
    return values(path)[0]["text"]


def test_splits_of_a_folder(tmp_path):
    for name in ("train.tsv", "validation.tsv.gz", "test.jsonl", ".train.tsv", "notes.md"):
        text = (
            json.dumps({"text": name, "label": 1}) if "json" in name else f"text\tlabel\n{name}\t1"
        )
        write(tmp_path / name, text)
    splits = {"train": "train.tsv", "test": "test.jsonl"}
    splits |= dict.fromkeys(("dev", "validation", "val"), "validation.tsv.gz")
    for split, name in splits.items():
        assert values(tmp_path, split=split) == [{"text": name, "label": "1"}]
    fails(read, tmp_path, split="tets", matches=["no file for split 'tets'", "there is notes.md"])
    fails(read, tmp_path, matches=["a folder; give a split", "train.tsv"])
    write(tmp_path / "dev.csv", "text,label\na,b\n")
    fails(read, tmp_path, split="dev", matches="several files for split 'dev': dev.csv, validation")


def test_missing_files(tmp_path):
    write(tmp_path / "train.tsv", ROWS)
    fails(read, tmp_path / "trian.tsv", matches="no such file or folder")
    fails(read, tmp_path / "trian.tsv", matches="did you mean 'train.tsv'?")
    fails(read, tmp_path / "no" / "train.tsv", matches="does not exist either")
    fails(read, tmp_path / "train.tsv", form="csvv", matches=["format: found 'csvv'", "'csv'?"])


def test_what_is_no_table_of_rows(tmp_path):
    fails(read, write(tmp_path / "a.csv.7z", "x"), matches="is an archive; unpack it")
    fails(read, write(tmp_path / "a.csv.zip", "x"), matches="damaged zip file")
    fails(read, write(tmp_path / "a.XLSX", "x"), matches="is a spreadsheet")
    words = write(tmp_path / "words.conll", "Marie\nsaw\n\n" * 3)
    fails(read, words, TAGGING, matches="its lines have one column alone")
    no_header = write(tmp_path / "rows.csv", "A fine day.,good\nRain.,bad\n")
    fails(read, no_header, matches="(its number, from 0, where there is no header)")


def test_says_what_a_name_was_taken_for(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(source_module.logger, "info", lambda text, *of: said.append(text % of))
    path = write(tmp_path / "a.txt", ROWS)
    assert len(values(path)) == 2
    assert f"{path}: read as format tsv" in said.pop()
    assert len(streamed(path)) == 3
    assert f"{path}: read as format txt" in said.pop()


def test_plain_text_where_one_text_is_all_that_is_read(tmp_path):
    wanted = (Column("text", aliases=("sentence",)),)
    path = write(tmp_path / "a.txt", "A fine\tday.\n\n \nRain.\n")
    assert values(path, wanted) == [{"text": "A fine\tday."}, {"text": "Rain."}]
    assert read(path, wanted).skipped == {"an empty text": 2}
    assert [row.where for row in read(path, wanted).rows] == [f"{path}:1", f"{path}:4"]
    table = write(tmp_path / "b.txt", "id\tsentence\n1\tRain.\n")
    assert values(table, wanted) == [{"text": "Rain."}]
    assert values(table, wanted, columns={"text": "id"}) == [{"text": "1"}]
    named = write(tmp_path / "d.txt", "id\tline\n1\tRain.\n")
    assert values(named, wanted, columns={"text": "line"}) == [{"text": "Rain."}]
    assert len(streamed(write(tmp_path / "c.txt", "text\nRain.\n"), wanted)) == 2


def test_scores_stay_as_they_are(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text_a": "A", "text_b": "B", "label": 3.0}')
    score = values(path, SentencePair(regression=True).columns)[0]["label"]
    assert isinstance(score, float)
    assert score == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("name", "rows", "classes"),
    [
        ("a.jsonl", ["0", "1", "1.0", "0.0", "-0.0", '"1"'], ["0", "1", "1", "0", "0", "1"]),
        ("a.jsonl", ["1", "1.5", "1.0"], ["1", "1.5", "1"]),
        ("a.csv", ["1", "2", "1", "2"], ["1", "2", "1", "2"]),
        ("a.csv", ["1.0", "2.0", "1.0"], ["1.0", "2.0", "1.0"]),  # texts, as they are written
    ],
)
def test_a_whole_number_is_one_class_however_json_has_it(tmp_path, name, rows, classes):
    line = '{{"text_a": "A", "text_b": "B", "label": {}}}\n' if name == "a.jsonl" else "A,B,{}\n"
    header = "" if name == "a.jsonl" else "text_a,text_b,label\n"
    path = write(tmp_path / name, header + "".join(map(line.format, rows)))
    head = SentencePair()
    found = [label for row in read(path, PAIR).rows for label in head.labels_of(row)]
    assert found == classes


@pytest.mark.parametrize(
    ("form", "split", "name"),
    [
        ("conll", "train", "eng.train"),
        ("conll", "validation", "eng.testa.gz"),
        ("conll", "test", "eng.testb"),
        ("squad", "dev", "dev-v1.1.json"),
        ("squad", "train", "train-v2.0.json"),
    ],
)
def test_official_names_in_a_folder(tmp_path, form, split, name):
    for other in ("readme.txt", "eng.other", "other.json"):
        write(tmp_path / other, "")
    path = write(tmp_path / name, "")
    wanted = {"conll": TAGGING, "squad": SPAN}[form]
    fails(read, tmp_path, wanted, split=split, form=form, matches=path)


def test_columns_beside_a_named_format(tmp_path):
    # the numbers of columns of words are no contradiction
    words = write(tmp_path / "a.conll", "EU NNP B-NP B-ORG\n")
    columns = {"tags": "1"}
    assert values(words, TAGGING, columns=columns, form="conll") == [
        {"words": ["EU"], "tags": ["NNP"]}
    ]
    with pytest.raises(ConfigError, match="id: title, but format squad"):
        read(write(tmp_path / "a.json", "{}"), SPAN, columns={"id": "title"}, form="squad")


def test_format_must_suit_the_head(tmp_path):
    path = write(tmp_path / "a.conll", "EU B-ORG\n")
    fails(read, path, form="conll", matches="format conll has words, tags, but the head reads text")


LABELS = [
    (["bad", "good"], ["0", "1"], ["bad", "good"]),
    (["bad", "good"], ["good", "bad"], ["good", "bad"]),
    ({"0": "bad", "1": "good"}, ["1", "0"], ["good", "bad"]),
    ({0: "bad", 1: "good"}, ["1", "bad"], ["good", "bad"]),
    ({"neg": "bad", "neu": "bad", "pos": "good"}, ["neu", "pos"], ["bad", "good"]),
    (["1", "0"], ["1", "0"], ["1", "0"]),
    (None, ["1", "0"], ["1", "0"]),
]


@pytest.mark.parametrize(("names", "raw", "expected"), LABELS)
def test_label_names(tmp_path, names, raw, expected):
    path = write(tmp_path / "a.tsv", "text\tlabel\n" + "".join(f"a\t{label} \n" for label in raw))
    found = read(path, names=names)
    assert [row.values["label"] for row in found.rows] == expected
    if names is None:
        assert found.label_names is None
    elif isinstance(names, dict):
        assert found.label_names == ("bad", "good")
    else:
        assert found.label_names == tuple(names)


def test_unknown_label(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabel\na\tgood\nb\tgod\n")
    message = ["a.tsv:3: column 'label': found 'god'; did you mean 'good'?", "expected 0 (bad)"]
    fails(read, path, names=["bad", "good"], matches=message)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_minus_one_is_no_label_of_new_text_alone(tmp_path, name):
    content = {
        "a.csv": "text,label\na,0\nb,-1\n",
        "a.jsonl": '{"text": "a", "label": 0}\n{"text": "b", "label": -1}\n',
    }
    path = write(tmp_path / name, content[name])
    message = ["column 'label': found '-1'", "expected 0 (neg), 1 (neu), 2 (pos)"]
    names = ["neg", "neu", "pos"]
    fails(read, path, names=names, matches=message)
    assert streamed(path, label_names=names) == [{"text": "a", "label": "neg"}, {"text": "b"}]
    found = read(path, names={-1: "neg", 0: "neu"})
    assert [row.values["label"] for row in found.rows] == ["neu", "neg"]


def test_rows_without_a_label_are_there(tmp_path):
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": None}, {"text": "c", "label": " "}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, [*rows, {"text": "d"}])))
    assert values(path) == [rows[0], {"text": "b"}, {"text": "c"}, {"text": "d"}]


def dataset():
    features = datasets.Features(
        tokens=datasets.List(datasets.Value("string")),
        ner_tags=datasets.List(datasets.ClassLabel(names=["O", "B-PER"])),
        text=datasets.Value("string"),
        label=datasets.ClassLabel(names=["neg", "pos"]),
    )
    rows = [
        {"tokens": ["Ann", "ran"], "ner_tags": [1, 0], "text": "a", "label": 1},
        {"tokens": ["It"], "ner_tags": [0], "text": "b", "label": -1},
    ]
    return datasets.Dataset.from_list(rows, features)


@pytest.fixture(params=["hub", "saved", "saved whole", "parquet"])
def source(request, tmp_path, monkeypatch):
    """The same rows by every way that keeps class names; the split that they need."""
    if request.param == "hub":
        splits = {("owner/name", "part", "train"): dataset()}
        monkeypatch.setattr(
            datasets, "load_dataset", lambda name, config, split: splits[name, config, split]
        )
        return "hf:owner/name/part", "train"
    if request.param == "parquet":
        dataset().to_parquet(tmp_path / "a.parquet")
        return tmp_path / "a.parquet", None
    if request.param == "saved":
        datasets.DatasetDict(train=dataset()).save_to_disk(tmp_path / "saved")
        return tmp_path / "saved", "train"
    dataset().save_to_disk(tmp_path / "saved")
    return tmp_path / "saved", None


def test_class_names_of_the_source(source):
    location, split = source
    found = read(location, split=split)
    assert found.label_names == ("neg", "pos")
    assert [row.values for row in found.rows] == [{"text": "a", "label": "pos"}, {"text": "b"}]
    assert found.rows[1].where.endswith("row 2")
    for options in ({"form": "conll"}, {"columns": {"words": "tokens", "tags": "ner_tags"}}):
        found = read(location, TAGGING, split=split, **options)
        assert found.label_names == ("O", "B-PER")
        expected = {"words": ["Ann", "ran"], "tags": ["B-PER", "O"]}
        assert found.rows[0].values == expected
    assert streamed(location, split=split) == [{"text": "a", "label": "pos"}, {"text": "b"}]


def test_a_split_may_stand_behind_the_name(tmp_path, monkeypatch):
    splits = {("owner/name", part, "train[:1%]"): dataset() for part in ("part", None)}
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name, config, split: splits[name, config, split]
    )
    for location in ("hf:owner/name/part::train[:1%]", "hf:owner/name:part:train[:1%]"):
        (first, _) = read(location).rows
        assert (first.values["text"], first.where[-18:]) == ("a", " train[:1%]: row 1")
    assert streamed("hf:owner/name::train[:1%]")[1] == {"text": "b"}
    datasets.DatasetDict(train=dataset()).save_to_disk(tmp_path / "saved")
    assert len(streamed(tmp_path / "saved" / "train")) == 2


def test_renamed_classes_of_the_source(source):
    location, split = source
    found = read(location, split=split, names={"pos": "good", "neg": "bad"})
    assert found.label_names == ("good", "bad")
    assert found.rows[0].values["label"] == "good"


def test_missing_column_of_the_source(source):
    location, split = source
    fails(read, location, PAIR, split=split, matches=["no column 'text_b'; col", "there: 'tok"])


def test_hub_errors():
    fails(read, "hf:no/such", split="train", matches=["hf:no/such: split 'train' cannot be loaded"])
    fails(read, "hf:no/such", matches=["hf:no/such: which split is not said", " hf:no/such::test"])
    fails(read, "hf:no/such/a", matches=["split is not said", "example hf:no/such/a::test"])
    fails(read, "hf:no/such:a", matches=["split is not said", "example hf:no/such:a:test"])
    fails(read, "hf:a::test", split="train", matches="hf:a::test: found splits 'test' and 'train'")
    fails(read, "hf:a/b/c/d", split="train", matches="expected hf:OWNER/NAME")
    there = "python-english:packages:train or python-english:packages:validation"
    fails(read, "python-english:packages", matches=f"which split is not said; give {there}")
    fails(read, "python-english:nothing", split="train", matches="found 'nothing'")


def test_damaged_data_sets(tmp_path):
    fails(read, write(tmp_path / "a.parquet", "PAR1"), matches="not a readable Parquet file")
    dataset().select([]).to_parquet(tmp_path / "b.parquet")
    fails(read, tmp_path / "b.parquet", matches="b.parquet: holds no rows")
    datasets.DatasetDict(train=dataset()).save_to_disk(tmp_path / "saved")
    fails(read, tmp_path / "saved", split="tran", matches="no split 'tran'; did you mean 'train'?")
    fails(read, tmp_path / "saved", matches=f"split is not said; give one: {tmp_path}/saved/train")
    (tmp_path / "saved" / "train" / "state.json").write_text("{}")
    fails(read, tmp_path / "saved", split="train", matches="saved: not a readable saved data set")


class Pipe(io.RawIOBase):
    """Lines that come one at a time; counts how many were asked for."""

    def __init__(self, lines):
        self.lines, self.read_lines = iter(lines), 0

    def readable(self):
        return True

    def readinto(self, buffer):
        line = next(self.lines, b"")
        self.read_lines += bool(line)
        buffer[: len(line)] = line
        return len(line)


@pytest.fixture
def standard_input(monkeypatch):
    def feed(lines):
        pipe = Pipe(lines)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(pipe)))
        return pipe

    return feed


def test_standard_input_is_read_line_by_line(standard_input):
    pipe = standard_input([f"Line {number}.\n".encode() for number in range(100)])
    rows = stream_rows("-", {}, "auto", SINGLE)
    for number in range(50):
        row = next(rows)
        assert (row.values, row.where) == (
            {"text": f"Line {number}."},
            f"standard input:{number + 1}",
        )
        assert pipe.read_lines <= number + 2


def test_formats_of_standard_input(standard_input):
    standard_input([b'{"text": "a"}\n', b'{"text": "b", "label": 1}\n'])
    assert streamed("-") == [{"text": "a"}, {"text": "b", "label": "1"}]
    standard_input([b'\xef\xbb\xbf{"text": "a"}\n', b'{"text": "b"}\n'])  # as Windows writes it
    assert streamed("-") == [{"text": "a"}, {"text": "b"}]
    standard_input([b"One O\n", b"word O\n", b"\n", b"Two O\n"])
    assert [row["words"] for row in streamed("-", TAGGING, form="conll")] == [
        ["One", "word"],
        ["Two"],
    ]
    standard_input([b"label\ttext\n", b"x\ta\n"])
    assert streamed("-", form="tsv") == [{"text": "a", "label": "x"}]
    standard_input([])
    fails(streamed, "-", matches="standard input: holds no rows")
    standard_input([b"ok\n", b"\xff\n"])
    fails(streamed, "-", matches="standard input:2: not UTF-8 at byte offset 3")


@pytest.mark.parametrize("form", ["auto", "txt"])
def test_standard_input_that_cannot_be_read(standard_input, monkeypatch, form):
    def readinto(buffer):
        raise IsADirectoryError(21, "Is a directory")

    monkeypatch.setattr(standard_input([]), "readinto", readinto)
    fails(streamed, "-", form=form, matches="standard input: cannot be read: Is a directory")


def test_truth_is_optional_in_new_text_only(tmp_path):
    path = write(tmp_path / "a.tsv", "text\na\n")
    columns = {"label": "stars"}
    assert streamed(path, columns=columns) == [{"text": "a"}]
    fails(read, path, columns=columns, matches="no column 'stars', which 'label' comes from")

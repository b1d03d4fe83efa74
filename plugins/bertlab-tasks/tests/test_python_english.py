"""The labelled tasks made from Python's own English."""

import json
import re
import subprocess
import sys
from collections import Counter

import pytest

from bertlab.api import Example
from bertlab.data.corpus.documents import Document
from bertlab.data.corpus.python_english import python_english_documents
from bertlab.errors import DataError
from bertlab.extend import LabelledExamples
from bertlab_tasks import python_english as python_english_rows
from bertlab_tasks.python_english import PACKAGES, PythonEnglishRows, read

SPLITS = ("train", "validation")
NAMES = ("packages", "same_page")


@pytest.fixture(scope="module")
def tasks():
    return {(name, split): read(name, split) for name in NAMES for split in SPLITS}


def sentences(rows):
    columns = ("text", "text_a", "text_b")
    return [row.values[column] for row in rows.rows for column in columns if column in row.values]


def words(sentence):
    return tuple(re.findall(r"\w+", sentence.lower()))


@pytest.fixture(scope="module")
def pages():
    return {
        s: document.source for document in python_english_documents() for s in document.sentences
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_sentence_is_in_both_splits(tasks, name):
    train, validation = (set(map(words, sentences(tasks[name, split]))) for split in SPLITS)
    assert train
    assert validation
    assert not train & validation


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_module_is_in_both_splits(tasks, pages, name):
    train, validation = ({pages[s] for s in sentences(tasks[name, split])} for split in SPLITS)
    assert not train & validation
    assert {row.where for split in SPLITS for row in tasks[name, split].rows} <= train | validation


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_sentence_comes_once(tasks, name):
    for split in SPLITS:
        assert max(Counter(sentences(tasks[name, split])).values()) == 1


@pytest.mark.slow
def test_packages(tasks, pages):
    train, validation = tasks["packages", "train"], tasks["packages", "validation"]
    assert train.label_names == validation.label_names
    assert set(train.label_names) <= set(PACKAGES)
    assert len(train.label_names) >= 7  # some distributions ship tkinter, idlelib, unittest apart
    for rows, least, most in ((train, 100, 600), (validation, 20, 150)):
        counts = Counter(row.values["label"] for row in rows.rows)
        assert set(counts) == set(rows.label_names)
        assert least <= min(counts.values())
        assert max(counts.values()) <= most
        assert max(counts.values()) / len(rows.rows) < 0.25
        for row in rows.rows:
            assert set(row.values) == {"text", "label"}
            assert pages[row.values["text"]] == row.where
            assert row.where.split(".")[0] == row.values["label"]
    assert len(train.rows) > 2500
    assert len(validation.rows) > 600


@pytest.mark.slow
def test_no_sentence_names_a_package(tasks):
    for split in SPLITS:
        for text in sentences(tasks["packages", split]):
            assert not any(package in text.lower() for package in PACKAGES), text
            assert not re.search(r"\bTk\b|\bIDLE\b", text, re.IGNORECASE), text
        assert tasks["packages", split].skipped["sentence names a package"] > 0


@pytest.mark.slow
def test_same_page(tasks, pages):
    neighbors = {
        pair
        for document in python_english_documents()
        for pair in zip(document.sentences, document.sentences[1:], strict=False)
    }
    for split, least in (("train", 2500), ("validation", 700)):
        rows = tasks["same_page", split]
        assert rows.label_names == ("other_page", "same_page")
        assert len(rows.rows) > least
        counts = Counter(row.values["label"] for row in rows.rows)
        assert counts["same_page"] == counts["other_page"]
        by_page = Counter((row.where, row.values["label"]) for row in rows.rows)
        assert max(by_page.values()) <= 12
        for row in rows.rows:
            first, second = row.values["text_a"], row.values["text_b"]
            assert set(row.values) == {"text_a", "text_b", "label"}
            assert pages[first] == row.where
            same = pages[first] == pages[second]
            assert row.values["label"] == ("same_page" if same else "other_page")
            assert (first, second) not in neighbors
            assert min(len(first.split()), len(second.split())) >= 8


@pytest.mark.slow
def test_one_sentence_alone_tells_nothing(tasks, pages):
    for split in SPLITS:
        for column in ("text_a", "text_b"):
            of_page = {"same_page": Counter(), "other_page": Counter()}
            for row in tasks["same_page", split].rows:
                of_page[row.values["label"]][pages[row.values[column]]] += 1
            assert of_page["same_page"] == of_page["other_page"]


@pytest.mark.nightly
def test_another_process_makes_the_same_rows_and_imports_none_of_the_modules(tasks):
    code = (
        "import json, sys\n"
        "from bertlab_tasks.python_english import read\n"
        f"rows = [[r.where, dict(r.values)] for n in {NAMES} for s in {SPLITS} "
        "for r in read(n, s).rows]\n"
        "assert not {'tkinter', 'idlelib', 'turtle', 'torch'} & set(sys.modules)\n"
        "print(json.dumps(rows))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={"PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
    )
    ours = [
        [row.where, dict(row.values)]
        for name in NAMES
        for split in SPLITS
        for row in tasks[name, split].rows
    ]
    assert json.loads(run.stdout) == ours


@pytest.fixture
def library(monkeypatch):
    """Documents of our own."""

    def use(documents):
        made = [Document(sentences, source) for source, sentences in documents.items()]
        monkeypatch.setattr(python_english_rows, "python_english_documents", lambda: iter(made))

    return use


def test_a_sentence_of_training_is_no_sentence_of_validation(library):
    modules = {
        f"{package}.part{part}": [f"Each part of {kind} says.", "Is it so?"]
        + [f"Word{part} number {number} of {kind}." for number in range(8)]
        for package, kind in {"email": "letters", "xml": "trees"}.items()
        for part in range(9)
    }
    library(modules)
    train, validation = read("packages", "train"), read("packages", "validation")
    assert {words(s) for s in sentences(train)} >= {("is", "it", "so")}
    assert not {words(s) for s in sentences(validation)} & {words(s) for s in sentences(train)}
    assert validation.skipped["sentence is in training too"] > 0
    assert len(train.rows) + len(validation.rows) == 180 - sum(validation.skipped.values())


@pytest.mark.parametrize("name", NAMES)
def test_too_little_documentation(library, name):
    library({"email.message": ["A sentence of eight words is this one."] * 6})
    with pytest.raises(DataError, match=f"{name}: this Python's standard library"):
        read(name, "train")


def test_a_package_that_is_not_there_is_no_label(library):
    library(
        {
            f"{package}.m{part}": [f"Line {number} of {part} here." for number in range(5)]
            for package in ("asyncio", "email", "turtle")
            for part in range(8)
        }
    )
    assert read("packages", "validation").label_names == ("asyncio", "email")


def test_a_split_may_stand_behind_the_name(monkeypatch):
    rows = LabelledExamples([Example({"text": "a", "label": "http"}, "http.client")])
    asked = []
    monkeypatch.setattr(python_english_rows, "read", lambda *given: asked.append(given) or rows)
    for name, split in (("packages:train", None), ("packages", "train")):
        source = PythonEnglishRows(f"python-english:{name}", name)
        assert source.raw_examples(split).name == "python-english:packages train"
    assert asked == [("packages", "train")] * 2


def test_unknown_names():
    with pytest.raises(DataError, match="'package'; did you mean 'packages'"):
        read("package", "train")
    with pytest.raises(DataError, match=r"split 'test'.*expected train or validation"):
        read("packages", "test")

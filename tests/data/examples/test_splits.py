import unicodedata
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertlab.api.examples import Column, Example, LabelledExamples, Labels
from bertlab.data.examples.encoded import encode_examples
from bertlab.data.examples.splits import (
    check_classes,
    check_truth,
    hold_out,
    locate_split,
    report_split,
    train_split,
)
from bertlab.data.rows.files import evaluation_splits
from bertlab.errors import ConfigError, DataError
from bertlab.heads.sentences import SingleSentence
from tests.checkpoints.peers import TOKENIZER

from .labelled_files import CHOICE, PAIR, fails, read, write

HUB = "hf:nyu-mll/glue/rte"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with train.tsv and dev.tsv.gz, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    write(tmp_path / "rows" / "train.tsv", "text\tlabel\na\tb\n")
    write(tmp_path / "rows" / "dev.tsv.gz", "text\tlabel\na\tb\n")
    return tmp_path / "rows"


@pytest.mark.parametrize("source", [HUB, "rows", "python-english:order"])
def test_names_of_splits_are_looked_up_in_the_source(folder, source):
    for split in ("train", "validation_matched", "train[:10%]", "train[:0.5%]+test", "test.clean"):
        assert locate_split(split, source, "train") == (source, split)


@pytest.mark.parametrize("source", [HUB, "rows", "rows/train.tsv", None])
def test_files_and_data_sets_stand_for_themselves(folder, source, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    for split in ("rows/train.tsv", "rows", "~/train.tsv", "hf:other/set", str(folder)):
        assert locate_split(split, source, "train") == (split, None)


@pytest.mark.parametrize("source", [HUB, "rows"])
@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("rows/trian.tsv", "did you mean 'train.tsv'?"),
        ("rows/train", "did you mean 'train.tsv'?"),
        ("rows/dev.gz", "did you mean 'dev.tsv.gz'?"),
        ("rows/zzz.csv", "expected a file"),
        ("no/train.tsv", "the folder no does not exist either"),
        ("trian.jsonl", "no such file"),
        ("trian.gz", "no such file"),
    ],
)
def test_a_mistyped_file_is_no_split(folder, source, split, message):
    fails(locate_split, split, source, "train", matches=[f"data.train: {split}", message])


def test_the_name_of_a_file_in_the_source(folder):
    matches = ["data.validation: dev.tsv.gz: no such file; did you mean 'rows/dev.tsv.gz'?"]
    fails(locate_split, "dev.tsv.gz", "rows", "validation", matches=matches)


def test_a_file_has_no_splits(folder):
    matches = ["data.test: tset: no such file or folder"]
    fails(locate_split, "tset", "rows/train.tsv", "test", matches=matches)


def test_what_is_meant_by_the_settings(folder):
    assert train_split(HUB, None) == "train"
    assert train_split("rows/train.tsv", None) == "rows/train.tsv"
    assert train_split(HUB, "other") == "other"
    with pytest.raises(ConfigError, match=r"data\.source: found none"):
        train_split(None, None)
    assert evaluation_splits(HUB, None, None, "test") == {"": "test"}
    assert evaluation_splits(HUB, None, "mine", "test") == {"": "mine"}
    assert evaluation_splits(HUB, None, {"a": "b"}, "test") == {"a": "b"}
    assert evaluation_splits(HUB, "mine", None, "test") is None
    assert evaluation_splits("rows/train.tsv", None, None, "test") is None
    assert evaluation_splits(None, None, None, "test") is None


@pytest.mark.parametrize("role", ["validation", "test"])
@pytest.mark.parametrize(
    ("given", "found"),
    [({}, "none"), ({"train": "a.csv"}, "train, "), ({"a": "a.csv", "train": "b.csv"}, "train, ")],
)
@pytest.mark.parametrize("source", [HUB, None])
def test_sets_are_some_and_none_is_called_train(source, given, found, role):
    with pytest.raises(
        ConfigError, match=rf"data\.{role}: found {found}.*expected sets by names of"
    ):
        evaluation_splits(source, None, given, role)


def test_every_row_needs_the_truth():
    row = Example({"text_a": "a", "text_b": "b"}, "a.tsv:2")
    fails(check_truth, [row], PAIR, "train", matches="a.tsv:2: label: missing; every row of data.t")
    check_truth([row], [Column("label", "label", is_truth=True, required=False)], "train")


def rows_of(values):
    return LabelledExamples(
        [Example(value, f"row {n}") for n, value in enumerate(values)], ("a",), {"x": 1}
    )


VALUES = st.fixed_dictionaries(
    {"text_b": st.sampled_from("pqrs"), "label": st.sampled_from("01")},
    optional={"text_a": st.one_of(st.none(), st.sampled_from("abcdefgh"))},
)


@pytest.mark.slow
@given(st.lists(VALUES, min_size=1, max_size=60), st.floats(0.05, 0.95))
def test_rows_that_share_a_text_stay_together(values, fraction):
    train = rows_of(values)
    try:
        kept, held = hold_out(train, fraction, PAIR, "text_a")
    except DataError as error:
        assert "data.validation_fraction" in str(error)  # noqa: PT017  the other outcome
        return
    assert sorted([*kept.rows, *held.rows], key=train.rows.index) == train.rows
    assert (kept.label_names, kept.skipped, held.skipped) == (("a",), {"x": 1}, {})
    sides = [[row.values for row in side.rows] for side in (kept, held)]
    with_text = [{row.get("text_a") for row in side} - {None} for side in sides]
    without = [{row["text_b"] for row in side if row.get("text_a") is None} for side in sides]
    assert not with_text[0] & with_text[1]
    assert not without[0] & without[1]
    again = hold_out(rows_of(values), fraction, PAIR, "text_a")
    assert [side.rows for side in again] == [kept.rows, held.rows]


def test_about_the_fraction_is_held_out():
    train = rows_of({"text_a": str(n // 2), "text_b": "b"} for n in range(1000))
    kept, held = hold_out(train, 0.1, PAIR, "text_a")
    assert abs(len(held.rows) - 100) <= 2
    assert len(kept.rows) + len(held.rows) == 1000


def test_rows_without_the_column_are_told_apart_by_their_other_texts():
    rows = [{"choices": [f"a{n}", "b"], "label": "0"} for n in range(50)]
    kept, held = hold_out(rows_of(rows + rows), 0.2, CHOICE, "context")
    assert len(held.rows) == 20
    choices = [{tuple(row.values["choices"]) for row in side.rows} for side in (kept, held)]
    assert not choices[0] & choices[1]


@pytest.mark.parametrize(("count", "rows"), [(1, "one row"), (3, "3 rows")])
def test_one_text_cannot_be_divided(count, rows):
    train = rows_of([{"text_a": "a", "label": "1"}] * count)
    matches = f"{rows} with one value of text_a cannot be divided; give data.validation"
    fails(hold_out, train, 0.1, PAIR, "text_a", matches=matches)


@pytest.mark.parametrize(
    ("label", "head", "advises"),
    [
        ("2.5", SingleSentence(), True),
        ("-3", SingleSentence(), True),
        ("B-PER", SingleSentence(), False),
        ("2", SimpleNamespace(labels_of=lambda row: (row.values["label"],)), False),  # tags
    ],
)
def test_numbers_are_advised_where_a_label_can_be_one(label, head, advises):
    rows = [Example({"text": "a", "label": each}, f"f:{each}") for each in ("b", label)]
    kept = LabelledExamples(rows[:1])
    with pytest.raises(DataError, match=f"all with the label '{label}' are among them") as caught:
        check_classes(rows, kept, head, 0.1)
    assert ("model.head.regression: true" in str(caught.value)) == advises


@pytest.mark.parametrize(("form", "said"), [("NFC", None), ("NFD", "2 rows (66.7%)")])
def test_decomposed_texts_are_reported(tmp_path, form, said):
    texts = [unicodedata.normalize(form, text) for text in ("café", "Phim này rất hay", "plain")]
    path = write(tmp_path / "a.jsonl", "".join(f'{{"text": "{t}", "label": "x"}}\n' for t in texts))
    split, head = read(path), SingleSentence()
    head.labels = Labels(("x",), (3,))
    encoded = encode_examples(head, split.rows, TOKENIZER, 32)
    report = dict(report_split(split, encoded, head))
    assert report.get("not in NFC", "").partition(",")[0] == (said or "")
    assert "in the source" not in report
    split = replace(split, skipped={"an empty text": 2, "no gold label": 1})
    report = dict(report_split(split, encoded, head, of_source=4))
    assert report["in the source"] == "10 = 3 + 4 held out + 3 left out"

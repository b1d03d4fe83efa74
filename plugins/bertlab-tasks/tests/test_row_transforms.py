"""Transforms of rows (``data.transforms``): in a config, in a run, and where its model is used."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bertlab
from bertlab.api import Column, ConfigError, DataError, Example, Head
from bertlab.extend import UnreadableRow, read_request, resolve_request
from bertlab_tasks.multiple_choice import MultipleChoice
from bertlab_tasks.row_transforms import LowerCase, RowTransform, TextLength, Transforms
from bertlab_tasks.span import Span
from bertlab_tasks.tagging import Tagging
from tests.conftest import Command

COLUMNS = (Column("text"), Column("label", "label", is_truth=True))
GIVEN = {"lower_case": {}, "text_length": {"least": 2, "most": 4}}
ROWS = [
    *({"text": f"A FINE DAY {n}", "label": "GOOD"} for n in range(8)),
    *({"text": f"Rain again {n}", "label": "BAD"} for n in range(8)),
    {"text": "Alone", "label": "GOOD"},
    {"text": "Many words in one text", "label": "RARE"},
]
FEWER, MORE = (f"text_length: a text of {each} words" for each in ("fewer than 2", "more than 4"))


def test_rows_are_changed_in_order_and_the_truth_stays() -> None:
    transforms = Transforms(GIVEN)
    row = transforms.change(
        Example({"text": "A FINE Day", "label": "GOOD"}, "a:1", {"id": 3}), COLUMNS
    )
    assert row == Example({"text": "a fine day", "label": "GOOD"}, "a:1", {"id": 3})
    left_out = transforms.change(
        Example({"text": "Alone", "label": "GOOD"}, "a:2", {"id": 4}), COLUMNS
    )
    assert left_out == UnreadableRow({}, "a:2", {"id": 4}, reason=FEWER)


def test_a_transform_sees_no_truth_and_cannot_write_it() -> None:
    seen: list[set[str]] = []

    class Spy(RowTransform):
        def change(self, values: Any) -> Any:
            seen.append(set(values))
            return {**values, "label": "MINE"} if values["text"] == "b" else values

    transforms = Transforms({})
    transforms._all = {"spy": Spy()}
    transforms.change(Example({"text": "a", "label": "GOOD"}, "a:1"), COLUMNS)
    assert seen == [{"text"}]
    with pytest.raises(DataError, match=r"a:2: data\.transforms\.spy: found the columns text, lab"):
        transforms.change(Example({"text": "b", "label": "GOOD"}, "a:2"), COLUMNS)


def test_lower_case_keeps_the_places_of_characters() -> None:
    text = "İSTANBUL is ΣΑΣ"
    lower = LowerCase().change({"text": text, "words": ["A", "b"], "number": 3})
    assert lower["text"] == "İstanbul is σασ"
    assert lower["words"] == ["a", "b"]
    assert lower["number"] == 3


def test_ids_and_columns_that_no_head_reads_stay_as_they_are() -> None:
    values = {"question": "Where IS it", "context": "In Rome or so", "id": "Q0A", "note": "A"}
    changed = Transforms(GIVEN).change(Example(values, "a:1"), Span.columns)
    lower = {"question": "where is it", "context": "in rome or so"}
    assert changed.values == {**values, **lower}


@pytest.mark.parametrize(
    ("head", "values", "is_kept"),
    [
        (MultipleChoice, {"context": "a b c", "choices": ["a b", "c d"], "stem": "x"}, True),
        (MultipleChoice, {"context": "a b c", "choices": ["a b", "c"]}, False),
        (MultipleChoice, {"context": "a b c", "choices": ["a b"] * 5}, True),
        (Tagging, {"words": ["a", "b", "c"]}, True),
        (Tagging, {"words": ["a"]}, False),
    ],
)
def test_the_words_of_each_text_are_counted(
    head: type[Head], values: dict[str, Any], is_kept: bool
) -> None:
    changed = Transforms({"text_length": {"least": 2, "most": 4}}).change(
        Example(values, "a:1"), head.columns
    )
    assert isinstance(changed, UnreadableRow) is not is_kept


def test_answers_have_the_capitals_of_the_context() -> None:
    row = {"question": "Where?", "context": "In Rome, İzmir", "passage": "x"}
    example = Transforms({"lower_case": {}}).change(Example(row, "a:1", row), Span.columns)
    assert example.values["context"] == "in rome, İzmir"
    spans = [{"spans": [(3, 7, 1.0)], "null_score": 0.0}]
    assert Span().merge(example, spans)["answer"] == "Rome"
    other = replace(example, row={"context": "an other text "})
    assert Span().merge(other, spans)["answer"] == "rome"


def test_answers_have_the_capitals_of_whatever_column_the_context_is_of() -> None:
    values = {"question": "Where?", "context": "In Rome, ΣΑΣ"}
    row = {"q": "Where?", "id": 3, "passage": "In Rome, ΣΑΣ"}
    spans = [{"spans": [(3, 12, 1.0)], "null_score": 0.0}]
    example = Example(values, "a:1", {"title": "IN ROME, ΣΑΣ", **row})
    assert Span().merge(example, spans)["answer"] == "Rome, ΣΑΣ"  # as it is, not as a title
    lower = Transforms({"lower_case": {}}).change(replace(example, row=row), Span.columns)
    assert lower.values["context"] == "in rome, σασ"
    assert Span().merge(lower, spans)["answer"] == "Rome, ΣΑΣ"


@pytest.mark.parametrize(
    ("row", "places"),
    [
        ({"words": ["In", "Rome"]}, None),
        ({"ids": [1, 2], "sentence": ["In", "Rome"]}, None),
        ({"words": "['In', 'Rome']"}, None),
        ({"id": "rom", "first": "In", "second": "Rome"}, None),
        ({"text": "In  Rome"}, [[0, 2], [4, 8]]),
        ({"id": "in", "sentence": "In Rome"}, [[0, 2], [3, 7]]),
        ({"text": "So: In Rome!", "tokens": ["In", "Rome"]}, [[4, 6], [7, 11]]),
    ],
)
def test_words_and_entities_have_the_capitals_of_the_row(
    row: dict[str, Any], places: list[list[int]] | None
) -> None:
    head = Tagging()
    head.entity_types = ["LOC"]
    given = Example({"words": ["In", "Rome"]}, "a:1", row)
    example = Transforms({"lower_case": {}}).change(given, Tagging.columns)
    assert example.values["words"] == ["in", "rome"]
    found = head.merge(example, [{"words": [0, 1], "tags": ["O", "B-LOC"], "scores": [1.0, 1.0]}])
    assert found.get("offsets") == places
    assert found.get("words") == (["In", "Rome"] if places else None)
    assert [entity["text"] for entity in found["entities"]] == ["Rome"]
    other = replace(example, row={"text": "an other text"})
    assert head.merge(other, [])["tags"] == ["", ""]


@pytest.mark.parametrize(
    "row", [{"choices": ["A dog", "A cat"]}, {"end0": "A dog", "end1": "A cat", "context": "a cat"}]
)
def test_the_choice_has_the_capitals_of_the_row(row: dict[str, Any]) -> None:
    given = Example({"context": "A", "choices": ["A dog", "A cat"]}, "a:1", row)
    example = Transforms({"lower_case": {}}).change(given, MultipleChoice.columns)
    assert example.values["choices"] == ["a dog", "a cat"]
    assert MultipleChoice().merge(example, [{"score": 0.0}, {"score": 1.0}])["choice"] == "A cat"


def test_lengths_that_no_text_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="text_length: found least 5 and most 4"):
        TextLength(5, 4)


HEAD = ("--model.head=single_sentence", "--data.tokenizer=x", "--data.train=rows.tsv")


def resolved(*arguments: str) -> Any:
    return resolve_request(read_request([*HEAD, *arguments]))["data"]["transforms"]


@pytest.mark.slow
def test_they_are_named_in_order_with_typed_settings() -> None:
    short = "--data.transforms=[lower_case, {text_length: {most: 4}}]"
    assert resolved(short) == {"lower_case": {}, "text_length": {"least": 1, "most": 4}}
    given = resolved(short, "--data.transforms.text_length.least=2")
    assert given["text_length"] == {"least": 2, "most": 4}
    assert list(resolved("--data.transforms=[text_length, lower_case]")) == [
        "text_length",
        "lower_case",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.transforms=[lowercase]"], "no transform is called 'lowercase'; did you mean"),
        (
            ["--data.transforms=[text_length]", "--data.transforms.text_length.least=a"],
            "data.transforms.text_length.least: found 'a'",
        ),
        (["--data.transforms=3"], "data.transforms: found 3"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(bertlab.BertlabError) as error:
        resolved(*arguments)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("model", "there"),
    [({}, "objectives"), ({"heads": {"a": "single_sentence"}}, "model.heads")],
)
def test_they_are_for_the_rows_of_one_head(model: dict[str, Any], there: str) -> None:
    config = {"model": model, "data": {"transforms": ["lower_case"]}}
    with pytest.raises(ConfigError, match=f"data.transforms: found some, .* with {there}"):
        resolve_request(read_request([], config))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return file


@pytest.fixture(scope="module")
def run(rows: Path, tiny_run: Path) -> Path:
    """A run on changed rows, with a vocabulary that knows capitals from small letters."""
    words = ["a", "fine", "day", "rain", "again", *map(str, range(8)), "A", "FINE", "DAY", "Rain"]
    vocabulary = rows.with_name("vocab.txt")
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    config = {
        "model": {"encoder": {"name": "bert", "preset": "tiny"}, "head": "single_sentence"},
        "data": {
            **{"train": str(rows), "validation": str(rows), "tokenizer": str(vocabulary)},
            **{"batch_size": 8, "max_seq_length": 16, "transforms": GIVEN},
        },
        "trainer": {"max_steps": 2, "accelerator": "cpu", "logger": False},
        "keep_predictions": True,
    }
    return bertlab.fit(config, {"run_dir": str(rows.with_name("run"))}).directory


@pytest.mark.slow
def test_rows_that_are_left_out_are_counted_by_reason(run: Path) -> None:
    report = json.loads((run / "manifest.json").read_text())
    assert report["data"]["train"]["rows"] == 16
    assert report["labels"] == ["BAD", "GOOD"]  # RARE is of a row that is left out


@pytest.mark.slow
def test_predictions_of_validation_rows_are_not_changed_twice(run: Path) -> None:
    lines = (run / "predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines][:1] == ["a fine day 0"]
    assert len(lines) == 16


@pytest.mark.slow
def test_a_file_keeps_its_rows_and_says_why_one_has_no_prediction(
    run: Path, rows: Path, bertlab: Command
) -> None:
    code, out, _ = bertlab("predict", run, "--input", rows)
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 3  # as of any row without a prediction
    assert [row["text"] for row in found] == [row["text"] for row in ROWS]
    assert [row.get("error") for row in found] == [*[None] * 16, FEWER, MORE]
    small, small_out, _ = bertlab("predict", run, "--text", "a fine day 0")
    assert small == 0
    # six decimals are shown, and the last bits of a batch of one row are others than of sixteen
    assert json.loads(small_out)["scores"] == pytest.approx(found[0]["scores"], abs=1e-6)


def test_a_loaded_model_changes_its_inputs(run: Path) -> None:
    model = bertlab.load(run)
    one, other = model.predict(["A FINE DAY 3", "a fine day 3"])
    assert one == other
    with pytest.raises(DataError, match=f"input 0: {FEWER}"):
        model.predict("Alone")

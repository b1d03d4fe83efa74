"""Files of predictions: what they say at their end, and whose words the tags are."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bertlab.api import DataError, Example
from bertlab.checkpoints.pretrained_model import load
from bertlab.training.predictions import RowFile
from bertlab_tasks import tables
from bertlab_tasks.tables import bertlab_prediction_file
from bertlab_tasks.text_of_words import word_places
from tests.checkpoints.test_fine_tuned import TAGS, write_run


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_the_last_line_counts_rows_labels_and_what_was_left_out(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / f"found.{form}"
    found = bertlab_prediction_file(output, form)
    assert found is not None
    for label in ("good", "bad", "good"):
        found.write({"text": "a", "label": label})
    found.write({"text": "", "error": "left out: an empty text"})
    found.close()
    line = capsys.readouterr().out
    assert line == f"{output}: 4 rows; good 2, bad 1; 1 without an answer (error)\n"
    assert output.read_text("utf-8").count("\n") == (4 if form == "jsonl" else 5)


def test_entities_and_many_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = bertlab_prediction_file(tmp_path / "a.jsonl", "jsonl")
    assert found is not None
    found.write({"tags": ["B-LOC", "O"], "entities": [{"type": "LOC"}]})
    found.write({"labels": [str(number) for number in range(20)]})
    found.close()
    line = capsys.readouterr().out
    assert "2 rows; LOC 1, 0 1, " in line
    assert line.endswith(", 9 more\n")
    assert bertlab_prediction_file(tmp_path / "a", "xml") is None


def test_scores_have_six_digits_and_columns_stay(tmp_path: Path) -> None:
    file = bertlab_prediction_file(tmp_path / "a.jsonl", "jsonl")
    assert file is not None
    rows = RowFile(file)
    row = Example({"text": "a"}, "a:1", {"text": "a", "weight": 0.123456789})
    rows.write(row, {"label": "x", "scores": {"x": 0.123456789, "y": [1e-9 / 3]}})
    rows.close()
    written = json.loads((tmp_path / "a.jsonl").read_text("utf-8"))
    assert written["scores"] == {"x": 0.123457, "y": [3.33333e-10]}
    assert written["weight"] == 0.123456789


def test_places_of_words() -> None:
    assert word_places(["a", "b"], {"id": 1, "other": "b", "text": "a, b"}) == [[0, 1], [3, 4]]
    assert word_places(["a", "a"], {"text": "aa"}) == [[0, 1], [1, 2]]
    assert word_places(["a"], {"words": ["a"]}) is None
    # of the text that they are parted from, whatever other column has them or comes first
    row = {"url": "/i-am-a", "title": "I  am a"}
    assert word_places(["I", "am", "a"], row) == [[0, 1], [3, 5], [6, 7]]
    assert word_places(["i", "am", "a"], row) == [[0, 1], [3, 5], [6, 7]]  # lower_case
    assert word_places(["am", "a"], row) is None
    assert word_places(["Iam", "a"], row) is None
    assert word_places([], {"text": ""}) is None


def test_a_loaded_model_says_where_the_words_of_a_text_are(tmp_path: Path) -> None:
    write_run(tmp_path / "run.ckpt", {"name": "tagging"}, TAGS)
    model = load(tmp_path / "run.ckpt")
    for given in ("w1,  w2", {"text": "w1,  w2"}):
        (found,) = model.predict(given)
        assert found["words"] == ["w1", ",", "w2"]
        assert found["offsets"] == [[0, 2], [2, 3], [5, 7]]
    assert "offsets" not in model.predict({"words": ["w1", "w2"]})[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([{}, {}], [None, None]),
        ([{"a": {}, "b": 1}, {}], [{"a": None, "b": 1}, {"a": None, "b": None}]),
        ([[{}], []], [[None], []]),
        ([{}, {"a": 1}], [{"a": None}, {"a": 1}]),
    ],
)
def test_objects_without_keys_are_null_in_parquet(
    given: list[object], expected: list[object], tmp_path: Path
) -> None:
    file = bertlab_prediction_file(tmp_path / "a.parquet", "parquet")
    assert file is not None
    for meta in given:
        file.write({"text": "w1", "meta": meta})
    file.close()
    assert pq.read_table(tmp_path / "a.parquet")["meta"].to_pylist() == expected


def test_values_that_a_table_cannot_hold_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_without_empty", lambda table: table)
    file = bertlab_prediction_file(tmp_path / "a.parquet", "parquet")
    assert file is not None
    file.write({"meta": {}})
    with pytest.raises(
        DataError, match=r"a column has values \(Cannot write .*--output NAME.jsonl"
    ):
        file.close()

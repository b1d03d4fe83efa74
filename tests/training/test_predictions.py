"""``bertlab predict``: all columns of the input come back, in the form of the output's name."""

import csv
import json
import shutil
from pathlib import Path

import huggingface_hub
import pandas as pd
import pyarrow.parquet as pq
import pytest
import transformers

from bertlab.api.examples import Example
from bertlab.cli.main import main
from bertlab.config.yaml_files import read_config
from bertlab.errors import OutputError
from bertlab.training.predictions import open_sink
from tests.conftest import Command

ROWS = [
    row
    for n in range(4)
    for row in (
        {"id": 7, "text": f"{n}, or not.", "label": "a", "when": "2020-01-02", "score": "0.50"},
        {"id": 8, "text": f'A "b"\tis {n}.', "label": "b", "when": "2021-03-04", "score": "1"},
        {"id": 9, "text": f"The end {n}.", "label": "a", "when": "", "score": "2"},
    )
]
OF_PREDICTION = {"label", "scores"}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "texts.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    return path


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path, texts: Path) -> Path:
    run = tmp_path_factory.mktemp("runs") / "classifier"
    arguments = [
        "fit", "finetune/single-sentence", "--model.init_from", tiny_run, "--data.source", texts,
        "--data.max_seq_length", "32", "--data.batch_size", "4", "--trainer.max_steps", "1",
        "--data.validation_fraction", "0.4", "--data.cluster", "id", "--keep_predictions", "true",
        "--trainer.accelerator", "cpu", "--trainer.logger", "false", "--run_dir", run,
    ]  # fmt: skip
    assert main(list(map(str, arguments))) == 0
    return run


def predicted(bertlab: Command, *arguments: object) -> list[dict[str, object]]:
    code, output, error = bertlab("predict", "--ckpt_path", *arguments)
    assert code == 0, error
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.first_fast
@pytest.mark.parametrize(
    "setting", ["limit_predict_batches 1", "limit_predict_batches 0", "fast_dev_run true"]
)
def test_no_row_is_left_out(
    classifier: Path, texts: Path, tmp_path: Path, bertlab: Command, setting: str
) -> None:
    output = tmp_path / "out.csv"
    given = ("--ckpt_path", classifier, "--input", texts, "--output", output)
    code, _, error = bertlab("predict", *given, *f"--trainer.{setting}".split())
    assert code == 2
    assert "trainer.limit_predict_batches, fast_dev_run: rows would be left out" in error
    assert not output.exists()


def test_a_resumed_run_keeps_predictions_as_it_was_asked(
    classifier: Path, tmp_path: Path, bertlab: Command
) -> None:
    """Its config.yaml and the checkpoint say so; whoever resumes may ask for none."""
    assert read_config(classifier / "config.yaml")["keep_predictions"] is True
    run = shutil.copytree(classifier, tmp_path / "run")
    kept = (run / "predictions.jsonl").read_text("utf-8")
    (run / "predictions.jsonl").unlink()
    code, _, error = bertlab("fit", "--ckpt_path", run, "--keep_predictions", "false")
    assert (code, (run / "predictions.jsonl").exists()) == (0, False), error
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 0, error
    assert (run / "predictions.jsonl").read_text("utf-8") == kept


def test_a_run_keeps_the_cluster_of_each_row(classifier: Path) -> None:
    lines = (classifier / "predictions.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    ids = {row["text"]: row["id"] for row in ROWS}
    assert found
    assert [row["cluster"] for row in found] == [f"id:{ids[row['text']]}" for row in found]


def test_all_columns_come_back(bertlab: Command, classifier: Path, texts: Path) -> None:
    found = predicted(bertlab, classifier, "--input", texts)
    for row, made in zip(ROWS, found, strict=True):
        given = {key: str(value) for key, value in row.items() if key != "label"}
        assert {key: made[key] for key in given} == given  # a file's cells are texts
        assert made["gold"] == {"label": row["label"]}
        assert set(made) == set(given) | {"gold"} | OF_PREDICTION


@pytest.mark.slow
def test_columns_keep_the_names_of_the_file(
    bertlab: Command, classifier: Path, tmp_path: Path
) -> None:
    path = tmp_path / "new.jsonl"
    rows = [{"review": "It is.", "scores": [1, None], "n": n} for n in range(3)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = predicted(bertlab, classifier, "--input", path, "--data.columns", "{text: review}")
    assert [list(each)[:3] for each in found] == [["review", "input_scores", "n"]] * 3
    assert [each["input_scores"] for each in found] == [[1, None]] * 3
    assert [each["n"] for each in found] == [0, 1, 2]
    (tmp_path / "new.csv").write_text("5,It is.\n6,It is not.\n")
    arguments = ("--input", tmp_path / "new.csv", "--data.columns", "{text: 1}")
    found = predicted(bertlab, classifier, *arguments)
    assert [(each["0"], each["text"]) for each in found] == [("5", "It is."), ("6", "It is not.")]


@pytest.mark.first_fast
@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_no_column_is_lost_where_names_meet(
    bertlab: Command, classifier: Path, tmp_path: Path, form: str
) -> None:
    names = ["text", "scores.a", "error", "input_error", "gold.label", "label", "x"]
    lines = [",".join(names), "It is.,1,2,3,4,a,5", ",6,7,8,9,b,10"]
    output = tmp_path / "0.csv"
    output.write_text("\n".join(lines) + "\n")
    for number in (1, 2, 3):  # predictions are input again
        given, output = output, tmp_path / f"{number}.{form}"
        arguments = ("--ckpt_path", classifier, "--input", given, "--output", output)
        assert bertlab("predict", *arguments)[0] == 3  # a row without text
    if form == "csv":
        table = pd.read_csv(output, dtype=str)
        assert list(table.columns) == [*dict.fromkeys(table.columns)]
        assert not [name for name in table.columns if name.endswith(".1")]  # pandas: named twice
    elif form == "parquet":
        table = pd.read_parquet(output)
    else:
        table = pd.read_json(output, lines=True, dtype=str)
    kept = [[str(cell) for cell in row] for row in table.to_numpy()]
    for row, line in zip(kept, lines[1:], strict=True):
        assert {*line.split(",")[1:5], line.split(",")[6]} <= {*row}
    assert ["is empty" in str(cell) for cell in table["error"]] == [False, True]


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_a_column_has_one_name_in_rows_with_and_without_an_error(
    bertlab: Command, classifier: Path, tmp_path: Path, form: str
) -> None:
    """The file's label and scores are not read as predicted, whichever row comes first."""
    given, output = tmp_path / "new.csv", tmp_path / f"out.{form}"
    given.write_text("text,Bewertung,label,scores\n,a,L0,S0\nIt is.,a,L1,S1\n,b,L2,S2\n")
    code, _, error = bertlab(
        "predict", "--ckpt_path", classifier, "--data.columns", "{label: Bewertung}",
        "--input", given, "--output", output,
    )  # fmt: skip
    assert code == 3, error
    reading = {"csv": pd.read_csv, "parquet": pd.read_parquet, "jsonl": pd.read_json}[form]
    table = reading(output, lines=True) if form == "jsonl" else reading(output)
    assert list(table["input_label"]) == ["L0", "L1", "L2"]
    assert list(table["input_scores"]) == ["S0", "S1", "S2"]
    assert list(table["label"].isna()) == [True, False, True]


def test_names_of_columns_stay_where_rows_have_other_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = open_sink(None, "jsonl", None)
    rows = [{"a": 1}, {"a": 2, "x": 3}, {"x": 4, "input_x": 5}, {"x": 6}, {"input_x": 7}]
    predictions = [{}, {"x": 0}, {"x": 0}, {"error": "odd"}, {"x": 0, "a": 0}]
    for row, prediction in zip(rows, predictions, strict=True):
        sink.write(Example({}, "", row), prediction)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for made, prediction in zip(found, predictions, strict=True):
        for key in prediction:
            made.pop(key)
    assert found == [
        {"a": 1},
        {"a": 2, "input_x": 3},
        {"input_x": 4, "input_input_x": 5},
        {"input_x": 6},
        {"input_input_x": 7},
    ]


def test_half_a_surrogate_pair_is_written_as_json_has_it(
    bertlab: Command, classifier: Path, tmp_path: Path
) -> None:
    path, output = tmp_path / "new.jsonl", tmp_path / "new.csv"
    path.write_text('{"text": "It is.", "id": "a\\ud800", "\\ud801": {"b": ["\\udfff"]}}\n')
    code, _, error = bertlab(
        "predict", "--ckpt_path", classifier, "--input", path, "--output", output
    )
    assert code == 0, error
    with output.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["id"] == "a\\ud800"
    assert row["\\ud801.b"] == '["\\\\udfff"]'


@pytest.mark.parametrize("name", ["new.csv.gz", "new.jsonl.ZST", "new.xlsx"])
def test_forms_that_are_not_written(
    bertlab: Command, classifier: Path, texts: Path, tmp_path: Path, name: str
) -> None:
    arguments = ("--ckpt_path", classifier, "--input", texts, "--output", tmp_path / name)
    code, _, error = bertlab("predict", *arguments)
    assert code == 2
    assert "are not written, expected a name that ends in .csv" in error


@pytest.mark.first_fast
@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl"])
def test_the_form_follows_from_the_name(
    ending: str, bertlab: Command, classifier: Path, texts: Path, tmp_path: Path
) -> None:
    expected = predicted(bertlab, classifier, "--input", texts)
    output = tmp_path / "sub" / f"predictions.{ending}"
    code, line, error = bertlab(
        "predict", "--ckpt_path", classifier, "--input", texts, "--output", output
    )
    assert code == 0, error
    assert line.startswith(f"{output}: {len(expected)} rows; ")
    for label in {str(row["label"]) for row in expected}:
        assert f"{label} {sum(row['label'] == label for row in expected)}" in line
    if ending == "jsonl":
        assert [json.loads(line) for line in output.read_text().splitlines()] == expected
    elif ending == "parquet":
        assert pq.read_table(output).to_pylist() == expected
    else:
        delimiter, quoting = (",", csv.QUOTE_MINIMAL) if ending == "csv" else ("\t", csv.QUOTE_NONE)
        with output.open(newline="") as file:
            found = list(csv.DictReader(file, delimiter=delimiter, quoting=quoting))
        for made, row in zip(found, expected, strict=True):
            scores, text = row["scores"], str(row["text"])
            assert isinstance(scores, dict)
            assert float(made["scores.a"]) == scores["a"]
            assert made["text"] == (text if ending == "csv" else text.replace("\t", " "))
            assert made["label"] == row["label"]
            assert made["gold.label"] == row["gold"]["label"]  # type: ignore[index]
        # what was written can be read again, and predicted on
        again = predicted(
            bertlab, classifier, "--input", output, "--data.columns", "{label: gold.label}"
        )
        assert [each["label"] for each in again] == [each["label"] for each in expected]


@pytest.mark.slow
def test_what_no_table_holds(bertlab: Command, classifier: Path, tmp_path: Path) -> None:
    path, output = tmp_path / "new.jsonl", tmp_path / "new.parquet"
    path.write_text('{"text": "a", "id": 1}\n{"text": "b", "id": "two"}\n')
    code, _, error = bertlab(
        "predict", "--ckpt_path", classifier, "--input", path, "--output", output
    )
    assert code == 2
    assert "values of several kinds" in error
    assert ".jsonl" in error
    assert [each.name for each in tmp_path.iterdir()] == ["new.jsonl"]
    arguments = ("--input", path, "--output_format", "csv")
    code, _, error = bertlab("predict", "--ckpt_path", classifier, *arguments)
    assert code == 2
    assert "expected --output" in error


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize(
    "ids", [[2**63 + 1, 5], [2**64, 5], [5] * 1001 + [2**64 - 1], [-1] * 1001 + [2**63]], ids=len
)
def test_whole_numbers_of_any_size_come_back(
    bertlab: Command, classifier: Path, tmp_path: Path, form: str, ids: list[int]
) -> None:
    """Hashes as ids: beyond 2^63 from the first row on, or after a block of small ones."""
    path, output = tmp_path / "new.jsonl", tmp_path / f"out.{form}"
    rows = [json.dumps({"text": "a", "id": each}) for each in ids]
    path.write_text("\n".join(rows) + "\n")
    code, _, error = bertlab(
        "predict", "--ckpt_path", classifier, "--input", path, "--output", output
    )
    assert code == 0, error
    if form == "csv":
        found = [each["id"] for each in csv.DictReader(output.read_text().splitlines())]
    elif form == "parquet":
        found = pq.read_table(output)["id"].to_pylist()
    else:
        found = [json.loads(line)["id"] for line in output.read_text().splitlines()]
    assert [str(each) for each in found] == [str(each) for each in ids]


@pytest.mark.slow
def test_rows_that_are_cut_are_counted(bertlab: Command, classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("text\n" + "short\n" + "word " * 40 + "\n" + "long " * 99 + "\n")
    code, _, error = bertlab("predict", "--ckpt_path", classifier, "--input", path)
    assert code == 0
    assert "2 of 3 rows are longer than 32 tokens (data.max_seq_length)" in error
    _, _, error = bertlab("predict", "--ckpt_path", classifier, "--text", "short")
    assert "longer" not in error


@pytest.mark.slow
def test_the_truth_of_new_rows_may_be_any(
    bertlab: Command, classifier: Path, tmp_path: Path
) -> None:
    """An export of rows to be labelled has the column, filled with what stands for nothing yet."""
    bare, path = tmp_path / "bare.csv", tmp_path / "new.csv"
    bare.write_text("text\na house\nan end\n")
    path.write_text("text,label\na house,unlabeled\nan end,?\n")
    found = predicted(bertlab, classifier, "--input", path)
    assert [each.pop("gold") for each in found] == [{"label": "unlabeled"}, {"label": "?"}]
    assert found == predicted(bertlab, classifier, "--input", bare)


@pytest.mark.slow
def test_what_is_read_is_not_written_over(
    bertlab: Command, classifier: Path, texts: Path, tmp_path: Path
) -> None:
    before = texts.read_bytes()
    same = tmp_path / "another-name.csv"
    same.symlink_to(texts)
    for output, words in (
        (texts, "is the input"),
        (same, "is the input"),
        ("a.xlsx", ".csv, .tsv"),
    ):
        code, _, error = bertlab(
            "predict", "--ckpt_path", classifier, "--input", texts, "--output", output
        )
        assert code == 2
        assert f"--output: {output}: " in error
        assert words in error
    assert texts.read_bytes() == before


@pytest.mark.slow
def test_the_best_classes(bertlab: Command, classifier: Path) -> None:
    arguments = (classifier, "--text", "It is red.", "--top_k", "1")
    (found,) = predicted(bertlab, *arguments)
    assert list(found["scores"]) == [found["label"]]  # type: ignore[call-overload]
    assert found["text"] == "It is red."
    code, _, error = bertlab("predict", "--ckpt_path", *arguments[:-1], "0")
    assert code == 2
    assert "--top_k: found 0" in error


def test_texts_and_files_for_objectives(bertlab: Command, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text('id,text\n1,"It [MASK], so."\n2,The [MASK].\n')
    found = predicted(bertlab, tiny_run, "--input", tmp_path / "new.csv", "--top_k", "3")
    assert [each["id"] for each in found] == ["1", "2"]
    assert [len(each["fillers"][0]) for each in found] == [3, 3]  # type: ignore[index]
    (tmp_path / "new.txt").write_text("The [MASK].\n")
    by_file = predicted(bertlab, tiny_run, "--input", tmp_path / "new.txt")
    by_text = predicted(bertlab, tiny_run, "--text", "The [MASK].")
    assert by_file == by_text
    assert len(by_text[0]["fillers"][0]) == 5  # type: ignore[index]


def test_nothing_to_fill_in_names_the_mask_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    sink = open_sink(None, "jsonl", None, mask="<mask>")
    sink.write(Example({"text": "The [MASK]."}, "line 1"), {"fillers": []})
    sink.close()
    assert "nothing was predicted: no text has a <mask> to fill in\n" in capsys.readouterr().err


@pytest.mark.first_fast
@pytest.mark.parametrize("given", [(), ("--text", "a", "--input", "b.txt")])
def test_one_input_is_needed(
    given: tuple[str, ...], bertlab: Command, classifier: Path, tiny_run: Path
) -> None:
    for checkpoint in (classifier, tiny_run):
        code, _, error = bertlab("predict", "--ckpt_path", checkpoint, *given)
        assert code == 2
        assert "data.text, data.input: found " in error


def test_a_head_that_reads_one_text_takes_no_pair(bertlab: Command, classifier: Path) -> None:
    code, _, error = bertlab(
        "predict", "--ckpt_path", classifier, "--text", "a", "--text_pair", "b"
    )
    assert code == 2
    assert (
        "data.text_pair: found one, but the head reads text; expected none: --text alone" in error
    )


@pytest.mark.first_fast
@pytest.mark.parametrize("source", ["classifier", "tiny_run"])
def test_a_hugging_face_folder_is_a_checkpoint(
    source: str, bertlab: Command, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue(source)
    folder = tmp_path / "hf"
    assert bertlab("export", run, folder)[0] == 0
    code, _, error = bertlab("export", folder, tmp_path / "again", "--head", "pair")
    own = "one, single_sentence" if source == "classifier" else "none"
    assert code == 2
    assert f"--head: found 'pair', but {folder} does not have several (it has {own})" in error
    text = "The [MASK] is red." if source == "tiny_run" else "It is red."
    (by_folder,) = predicted(bertlab, folder, "--text", text)
    (by_run,) = predicted(bertlab, run, "--text", text)
    assert by_folder.keys() == by_run.keys()
    assert str(by_folder["text"]) == text
    if source == "classifier":
        assert by_folder["label"] == by_run["label"]
        assert by_folder["scores"] == pytest.approx(by_run["scores"], abs=1e-6)
        loaded = transformers.pipeline("text-classification", str(folder), device="cpu")
        assert loaded(text)[0]["label"] == by_folder["label"]


@pytest.mark.slow
def test_a_model_of_the_hub_is_a_checkpoint(
    tiny_run: Path, bertlab: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hf"
    assert bertlab("export", tiny_run, folder)[0] == 0
    hub = {"someone/tiny": folder}
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: hub[name])
    monkeypatch.chdir(tmp_path)
    (found,) = predicted(bertlab, "someone/tiny", "--text", "The [MASK] is red.")
    assert found["fillers"]
    code, _, error = bertlab("predict", "--ckpt_path", folder, "--text", "It is red.")
    assert code == 0
    assert "warning: nothing was predicted: no text has a [MASK] to fill in\n" in error
    (tmp_path / "runs" / "tiny").mkdir(parents=True)  # so that this is a run's directory, misspelt
    code, _, error = bertlab("predict", "--ckpt_path", "runs/tinny", "--text", "The [MASK] is red.")
    assert code == 2
    assert "runs/tinny: no such run or checkpoint; did you mean 'tiny'?" in error


@pytest.mark.slow
def test_words_of_plain_text(bertlab: Command, tiny_run: Path, tmp_path: Path) -> None:
    sentences = tmp_path / "s.conll"
    sentences.write_text("".join(f"Ann B-PER\nsaw O\n{n} O\n. O\n\n" for n in range(8)))
    run = tmp_path / "run"
    code, _, error = bertlab(
        "fit", "finetune/conll2003", "--model.init_from", tiny_run, "--data.source", sentences,
        "--data.max_seq_length", "32", "--data.batch_size", "4", "--trainer.max_steps", "1",
        "--data.validation_fraction", "0.4",
        "--trainer.accelerator", "cpu", "--trainer.logger", "false", "--run_dir", run,
    )  # fmt: skip
    assert code == 0, error
    text = "Ann saw (twice), didn't she?"
    words = ["Ann", "saw", "(", "twice", ")", ",", "didn", "'", "t", "she", "?"]
    (tmp_path / "new.txt").write_text(f"{text}\n")
    (tmp_path / "new.csv").write_text(f'id,text\n1,"{text}"\n')
    for given in (("--text", text), ("--input", tmp_path / "new.txt")):
        (found,) = predicted(bertlab, run, *given)
        assert len(found["tags"]) == len(words)  # type: ignore[arg-type]
        assert found["text"] == text
    (found,) = predicted(bertlab, run, "--input", tmp_path / "new.csv")
    assert (found["id"], len(found["tags"])) == ("1", len(words))  # type: ignore[arg-type]
    arguments = ("--input", tmp_path / "new.txt", "--input_format", "words")
    (found,) = predicted(bertlab, run, *arguments)
    assert found["words"] == text.split()


BAD_ROWS = 'id,text\n1,A fine day.\n2,\n3\n4,"\u200b"\n5,Rain again.\n'


@pytest.mark.slow
def test_a_bad_row_does_not_stop_a_file(bertlab: Command, classifier: Path, tmp_path: Path) -> None:
    rows = tmp_path / "new.csv"
    rows.write_text(BAD_ROWS, "utf-8")
    code, output, error = bertlab("predict", "--ckpt_path", classifier, "--input", rows)
    assert code == 3, error
    found = [json.loads(line) for line in output.splitlines()]
    assert [row.get("id") for row in found] == ["1", "2", None, "4", "5"]
    assert ["label" in row for row in found] == [True, False, False, False, True]
    for row, reason in zip(found[1:4], ["is empty", "found 1 comma", "one word"], strict=True):
        assert reason in row["error"]
    assert "3 of 5 rows have an error in place of a prediction" in error
    table = tmp_path / "out.csv"
    assert bertlab("predict", "--ckpt_path", classifier, "--input", rows, "--output", table)[0] == 3
    with table.open(newline="") as file:
        assert [bool(row["error"]) for row in csv.DictReader(file)] == [
            False,
            True,
            True,
            True,
            False,
        ]


@pytest.mark.slow
def test_bad_rows_are_refused_where_asked(
    bertlab: Command, classifier: Path, tmp_path: Path
) -> None:
    rows, out = tmp_path / "new.jsonl", tmp_path / "out.jsonl"
    rows.write_text('{"text": "A day."}\n{"text": \n', "utf-8")
    arguments = ["predict", "--ckpt_path", classifier, "--input", rows, "--output", out]
    code, _, error = bertlab(*arguments, "--data.bad_rows", "refuse")
    assert code == 2
    assert "new.jsonl:2: malformed JSON" in error
    assert not out.exists()
    assert bertlab(*arguments)[0] == 3
    assert "malformed JSON" in out.read_text("utf-8").splitlines()[1]
    rows.write_text('{"text": ""}\n', "utf-8")  # none is left
    assert bertlab(*arguments)[0] == 2


def test_a_carriage_return_is_in_its_cell(
    bertlab: Command, classifier: Path, tmp_path: Path
) -> None:
    rows, out = tmp_path / "new.jsonl", tmp_path / "out.csv"
    rows.write_text('{"id": "a\\rb", "text": "A\\r\\nfine\\rday."}\n', "utf-8")
    arguments = ["predict", "--ckpt_path", classifier, "--input", rows, "--output", out]
    assert bertlab(*arguments)[0] == 0
    with out.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["id"], row["text"]) == ("a\rb", "A\r\nfine\rday.")


def test_a_submission_does_not_leave_rows_out(
    bertlab: Command, classifier: Path, tmp_path: Path
) -> None:
    """Its lines are numbered: those behind a row that lacks would be read as of other rows."""
    rows, out = tmp_path / "new.csv", tmp_path / "out.tsv"
    rows.write_text('id,text\n1,""\n2,A day.\n', "utf-8")
    given = ["predict", "--ckpt_path", classifier, "--input", rows, "--data.empty", "skip"]
    code, _, error = bertlab(*given, "--output", out, "--output_format", "cola")
    assert code == 2
    assert f"{rows}:2: left out: an empty text" in error
    assert not out.exists()
    code, printed, error = bertlab(*given)
    assert code == 0, error
    assert [json.loads(line).get("error") for line in printed.splitlines()] == [
        "left out: an empty text",
        None,
    ]


def test_a_file_at_home_is_written_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell leaves ``~`` as it is behind ``--output=``."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name in ("p.jsonl", "p.csv"):
        sink = open_sink(f"~/{name}", "auto", None)
        sink.write(Example({}, "", {"text": "a"}), {"label": "b"})
        sink.close()
        assert (tmp_path / "home" / name).is_file()
    assert not (tmp_path / "~").exists()
    (tmp_path / "home" / "in.jsonl").write_text("{}")
    with pytest.raises(OutputError, match=r"~/in\.jsonl: is the input"):
        open_sink("~/in.jsonl", "auto", None, read_from=str(tmp_path / "home" / "in.jsonl"))

"""What ``bertlab evaluate`` writes, where, and beside what that is there already."""

import json
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from bertlab.api import DataError, EvaluationResult, Example, PluginError, ScoreGrid
from bertlab_evaluations.entries import EvaluationEntry, read_entries
from bertlab_evaluations.evaluate import _default_folder, evaluate, read_entry_rows
from bertlab_evaluations.evaluation_output import write_evaluation
from tests.conftest import Command


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    file.write_text("good,bad\nit is so,so it is\nthey are here,they is here\n", "utf-8")
    return file


def results_in(folder: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((folder / "results.json").read_text("utf-8"))
    return found


def train_on(checkpoint: Path) -> None:
    content = torch.load(checkpoint, weights_only=True)
    for each in content["state_dict"].values():
        each.mul_(1.5)
    torch.save(content, checkpoint)


def test_figures_of_different_models_do_not_get_into_one_file(
    tiny_run: Path, pairs: Path, tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for each in ("a", "b"):
        shutil.copytree(tiny_run / "checkpoints", tmp_path / each)  # as downloaded, of no run
    train_on(tmp_path / "b/last.ckpt")
    command = ("minimal_pairs", "--data", pairs)
    assert bertlab("evaluate", "a/last.ckpt", *command, "--name", "first")[0] == 0
    code, _, error = bertlab("evaluate", "b/last.ckpt", *command, "--name", "second")
    assert code == 2
    assert "evaluations/last: results.json: found figures of a/last.ckpt (step 6, token" in error
    assert "expected those of b/last.ckpt (step 6, tokenizer" in error
    assert "second/accuracy" not in results_in(tmp_path / "evaluations/last")
    # of the same model, by another path; and of another, where nothing of the first stays
    assert bertlab("evaluate", tmp_path / "a/last.ckpt", *command, "--name", "second")[0] == 0
    both = results_in(tmp_path / "evaluations/last")
    assert {name.partition("/")[0] for name in both} == {"first", "second"}
    (tmp_path / "evaluations/last/results.json").write_text('{"first/accuracy": 0.5}', "utf-8")
    assert bertlab("evaluate", "b/last.ckpt", *command, "--name", "first")[0] == 0
    # a file of other weights at the path and the step of before
    train_on(tmp_path / "b/last.ckpt")
    code, _, error = bertlab("evaluate", "b/last.ckpt", *command, "--name", "second")
    assert code == 2
    assert re.search(r"found figures of b/last.ckpt \(.*, weights (\w+)\), expected .*, w", error)


def test_figures_of_a_model_are_in_one_file_by_whatever_path_it_is_read(
    tiny_run: Path, pairs: Path, tmp_path: Path, bertlab: Command
) -> None:
    out = tmp_path / "out"
    command = ("minimal_pairs", "--data", pairs, "--output", out, "--name")
    for name, source in (("first", tiny_run), ("second", tiny_run / "checkpoints/step-6.ckpt")):
        code, _, error = bertlab("evaluate", source, *command, name)
        assert code == 0, error
    assert {"first/accuracy", "second/accuracy"} <= results_in(out).keys()


def test_a_folder_of_before_weights_were_recorded_goes_by_the_path(
    tiny_run: Path, pairs: Path, tmp_path: Path, bertlab: Command
) -> None:
    other = shutil.copy(tiny_run / "checkpoints/last.ckpt", tmp_path / "other.ckpt")
    command = ("minimal_pairs", "--data", pairs, "--output", tmp_path / "out", "--name")
    for name, source, expected in (("a", tiny_run, 0), ("b", tiny_run, 0), ("c", other, 2)):
        assert bertlab("evaluate", source, *command, name)[0] == expected
        file = tmp_path / "out/manifest.json"
        content = json.loads(file.read_text("utf-8"))
        content.pop("weights", None)
        file.write_text(json.dumps(content), "utf-8")


@pytest.mark.parametrize(
    ("source", "path", "folder"),
    [
        ("r", "r/checkpoints/last.ckpt", "r/evaluations/step-6"),
        ("downloads/A/model.ckpt", "downloads/A/model.ckpt", "evaluations/model"),
        ("models/final", None, "evaluations/final"),
        ("someone/bert", None, "evaluations/someone--bert"),
        ("bert-base-uncased", None, "evaluations/bert-base-uncased"),
    ],
)
def test_the_folder_is_named_by_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, path: str | None, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/final").mkdir(parents=True)
    model: Any = SimpleNamespace(source=source, path=path and Path(path), global_step=6)
    assert _default_folder(model) == Path(folder)


def test_a_curve_of_other_rows_is_not_shown(
    tiny_run: Path, pairs: Path, tmp_path: Path, bertlab: Command
) -> None:
    curve = tmp_path / "minimal_pairs.words.csv"
    lines = ["words,kind,group,rows,mean,low,high,clusters", "1000,all,,2,0.5,0.1,0.9,2"]
    curve.write_text("\n".join([*lines, "2000,all,,2,0.5,0.1,0.9,2"]) + "\n", "utf-8")
    command = ("evaluate", tiny_run, "minimal_pairs", "--data", pairs, "--output", tmp_path)
    assert bertlab(*command)[0] == 0
    assert not curve.exists()
    assert "Against words seen" not in (tmp_path / "minimal_pairs.html").read_text("utf-8")


def test_grids_of_an_earlier_evaluation_of_the_name_are_removed(tmp_path: Path) -> None:
    grids = [ScoreGrid(str(number), ["r"], ["c"], np.zeros((1, 1))) for number in range(3)]
    for kept in (3, 1):
        result = EvaluationResult({"accuracy": 1.0}, np.ones(1), grids=grids[:kept])
        write_evaluation(tmp_path, "x", result, [])
        found = sorted(each.name for each in tmp_path.glob("*.grid-*"))
        assert found == [f"x.grid-{number}.csv" for number in range(1, kept + 1)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text\na b\n""\n', "is empty, expected a text; correct the row or remove it$"),
        ("words\na b c\n", r"name them, as in columns: \{text: COLUMN\} \(its number"),
        ("text\n" + "12\n" * 30, r"as in columns: \{text: COLUMN\}$"),
        ("text,n\na,1\nb\n", "mend the row; write the file in another form$"),
        ('text,n\n"a,1\n', "another form, and a file separated by tabs, without quotes, is form"),
        ("a,b;c\n" * 3, "comma and semicolon part the first lines into 2 cells each$"),
        ('text,n\n "a",1\n', "remove the spaces behind the delimiter$"),
    ],
)
def test_rows_that_cannot_be_used_name_keys_that_an_evaluation_has(
    tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(content, "utf-8")
    entries = {"loss": {"evaluation": "held_out_loss", "data": str(file)}}
    (entry,) = read_entries(entries, "evaluations")
    with pytest.raises(DataError, match=message):
        read_entry_rows(entry)


@pytest.mark.parametrize(
    "scores", [[1, 0.0, math.nan], np.array([1, 0, np.nan]), (True, False, None)]
)
def test_scores_are_any_numbers(scores: object) -> None:
    assert made_of(scores, 0.5).scores.dtype == np.float64


@pytest.mark.parametrize(
    ("scores", "metric", "words"),
    [
        ([1.0, 1.0, 0.0], 0.2, "accuracy is 0.2, and the mean of its scores is 0.666667; expected"),
        (
            ["high", "low", "low"],
            0.2,
            "found scores that are list of shape (3,), expected a number",
        ),
        (np.ones((3, 2)), 1.0, "found scores that are ndarray of shape (3, 2), expected a number"),
        (np.ones(2), 1.0, "scores has 2 entries, expected 3, one for each row"),
    ],
)
def test_scores_are_those_of_the_metric(scores: object, metric: float, words: str) -> None:
    with pytest.raises(PluginError, match=re.escape(f"evaluation 'odd': {words}")):
        made_of(scores, metric)


def made_of(scores: Any, metric: float) -> EvaluationResult:
    """Return what is made of the result of an evaluation of three rows."""
    own = SimpleNamespace(
        monitor=("accuracy", "max"),
        evaluate=lambda model, rows: EvaluationResult({"accuracy": metric}, scores),
    )
    entry = EvaluationEntry("x", "odd", cast("Any", own), "rows.csv", "auto", None, {}, {})
    return evaluate(cast("Any", None), entry, [Example({}, "rows.csv")] * 3)

"""Fine-tunings of one pre-training: from their directories to a value, and what is said of them."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertlab.errors import DataError
from bertlab_studies.execute.run_state import Attempt, Outcome, write_attempts
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.report.failures import without
from bertlab_studies.report.repeats import RunResult, add_results, seed_warnings
from bertlab_studies.report.report import report_of
from bertlab_studies.study import Study
from bertlab_studies.study_scores import Cell
from made_up_scores import add_repeats, made_up_study
from small_study import finish, opened

NESTED: dict[str, Any] = {
    "seeds": {"pretrain": 2, "finetune": 3},
    "evaluate": {"x": "task.yaml"},
}
GOLD = "aaab"


def reach(study: Study, variant: str, seed: int, finetune: int, labels: str, **more: Any) -> None:
    """Leave a fine-tuning that gives these labels."""
    run = study.planned.runs_of(variant, "x", seed)[finetune]
    lines = [
        {"label": label, "gold": {"label": gold}} for label, gold in zip(labels, GOLD, strict=True)
    ]
    accuracy = np.mean([label == gold for label, gold in zip(labels, GOLD, strict=True)])
    results = {"single_sentence/accuracy": float(accuracy), "loss": 0.5}
    finish(study, run, results, predictions=lines, **more)


def test_a_value_is_the_mean_over_fine_tunings(tmp_path: Path) -> None:
    study = opened(tmp_path, **NESTED)
    for finetune, labels in ((1, "aaab"), (2, "bbbb"), (3, "aabb")):
        reach(study, "both", 1, finetune, labels)
    reach(study, "both", 2, 2, "aaaa")
    found = study.scores()
    cell = found.cell("both", found.measures[0])
    assert cell.repeats == {1: {1: 1.0, 2: 0.25, 3: 0.75}, 2: {2: 0.75}}
    assert cell.values == {1: pytest.approx(2 / 3), 2: 0.75}
    assert cell.examples[1] == pytest.approx([2 / 3, 2 / 3, 1 / 3, 1.0])
    assert cell.examples[2].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert found.seeds == [1, 2]
    assert found.finetune_seeds == [1, 2, 3]
    assert found.cell("mlm", found.measures[0]) == Cell()
    assert "fine-tunings 1, 3 of seed 2 are missing" in seed_warnings(found)[0]


def test_seeds_that_are_not_nested_have_no_repeats(tmp_path: Path) -> None:
    study = opened(tmp_path, seeds=2, evaluate={"x": "task.yaml"})
    finish(study, study.planned.run_of("both", "x", 1), {"single_sentence/accuracy": 0.5})
    found = study.scores()
    assert found.cell("both", found.measures[0]) == Cell({1: 0.5})
    assert found.finetune_seeds == []
    assert seed_warnings(found) == []


def test_metrics_of_pre_training_are_not_nested(tmp_path: Path) -> None:
    study = opened(tmp_path, **NESTED)
    finish(study, study.planned.run_of("both", BASE, 1), {"mlm/loss": 5.0, "loss": 5.0})
    found = study.scores()
    assert found.cell("both", found.measures[1]) == Cell({1: 5.0})


def test_degenerate_runs_are_named_with_both_seeds(tmp_path: Path) -> None:
    study = opened(tmp_path, **NESTED)
    for finetune, complaints in ((1, []), (2, ["one label"]), (3, ["one label"])):
        reach(study, "mlm", 2, finetune, "aaaa", complaints=complaints)
    report = study.report(write=False)
    expected = "mlm, x accuracy: seed 2 is degenerate: in fine-tunings 2, 3, one label; it is in"
    assert any(line.startswith(expected) for line in report.warnings)
    assert report.scores.rows[1][1] == "75.0† (n=1)"


def test_a_failed_fine_tuning_is_told_and_the_others_count(tmp_path: Path) -> None:
    study = opened(tmp_path, **NESTED)
    for finetune in (1, 2):
        reach(study, "mlm", 1, finetune, "aaab")
    run = study.planned.runs_of("mlm", "x", 1)[3]
    run.log(study.study_dir).parent.mkdir(parents=True)
    run.log(study.study_dir).write_text("out of paper\n", "utf-8")
    finish(study, study.planned.run_of("mlm", BASE, 1), {"mlm/loss": 5.0})
    write_attempts(run, study.study_dir, [Attempt(1.0, False, Outcome.FAILED, 2.0, 2)])
    found = study.scores()
    assert found.variants["mlm"].failures == [f"{run.id}: out of paper"]
    assert found.cell("mlm", found.measures[0]).values == {1: 1.0}
    assert seed_warnings(found) == [
        "mlm, x accuracy: fine-tuning 3 of seed 1 is missing; means are of the others"
    ]


@pytest.mark.slow
def test_time_and_cost_are_those_of_all_runs(tmp_path: Path) -> None:
    study = opened(tmp_path, settings={"data.vocab_size": 1000}, **NESTED)
    runs = [study.planned.run_of("mlm", BASE, 1)]
    runs += study.planned.runs_of("mlm", "x", 1).values()
    for run in runs:
        facts = {"training_tokens": 1200.0, "mean_sequence_length": 25.0}
        metric = "mlm/loss" if run.stage == BASE else "single_sentence/accuracy"
        finish(study, run, {metric: 0.5}, manifest=facts)
        write_attempts(run, study.study_dir, [Attempt(1.0, False, Outcome.DONE, 2.5, 0)])
    assert study.scores().variants["mlm"].seconds == {1: 10.0}
    runs[-1].directory(study.study_dir).joinpath("results.json").unlink()
    assert study.scores().variants["mlm"].seconds == {}


def test_a_value_that_is_not_finite_is_left_out_and_named() -> None:
    cell = Cell()
    rows = np.array([1.0, 0.0])
    add_results(cell, 1, {1: RunResult(0.5, None, rows), 2: RunResult(math.nan)}, "a, x")
    assert cell.values == {1: 0.5}
    assert cell.examples[1].tolist() == [1.0, 0.0]
    add_results(cell, 2, {1: RunResult(math.inf), 2: RunResult(-math.inf)}, "a, x")
    assert cell.values[2] == math.inf
    study = made_up_study(names=("a", "b"))
    study.finetune_seeds = [1, 2]
    study.variants["a"].cells["qnli accuracy"] = cell
    lines = seed_warnings(study)
    assert lines == [
        "a, qnli accuracy: fine-tuning 2 of seed 1 has no finite value; means are of the others"
    ]
    assert any(
        "a, qnli accuracy: seed 2 has no finite" in each for each in report_of(study).warnings
    )


def test_rows_count_only_where_all_fine_tunings_have_them() -> None:
    cell, rows = Cell(), np.array([1.0, 0.0])
    add_results(cell, 1, {1: RunResult(0.5, None, rows), 2: RunResult(0.7)}, "a, x")
    assert cell.values == {1: 0.6}
    assert not cell.examples
    with pytest.raises(DataError, match=r"^a, x, seed 1: predictions of 2 and 3 rows"):
        add_results(cell, 1, {n: RunResult(0.5, None, np.ones(n)) for n in (3, 2)}, "a, x")


def test_what_is_complete_needs_no_warning() -> None:
    assert seed_warnings(add_repeats(made_up_study())) == []
    assert seed_warnings(made_up_study()) == []


@pytest.mark.parametrize(
    ("variants", "words"),
    [
        (
            {"a": {}, "b": {"init_from": "other"}},
            ["start from nowhere, other, so", "these checkpoints, not for the recipes that made"],
        ),
        (
            {"a": {}, "b": {"head.dropout": 0.3}},
            ["start from nowhere, so", "this checkpoint, not for the recipe that made it;"],
        ),
    ],
)
def test_given_checkpoints_are_no_recipes(
    variants: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    study = opened(tmp_path, base="task.yaml", variants=variants)
    (line,) = [each for each in study.report(write=False).warnings if "checkpoint" in each]
    assert line.startswith("seeds are of fine-tuning only")
    for word in words:
        assert word in line


@pytest.mark.slow
def test_other_studies_have_no_given_checkpoints(tmp_path: Path) -> None:
    scratch = {"a": {"from_scratch": True}, "b": {"from_scratch": True, "head.dropout": 0.3}}
    study = opened(tmp_path / "scratch", base="task.yaml", variants=scratch)
    assert study.scores().checkpoints == []
    continued = {"a": {"init_from": "x"}, "b": {"init_from": "y"}}
    assert opened(tmp_path / "more", variants=continued).scores().checkpoints == []
    assert opened(tmp_path / "nested", **NESTED).scores().checkpoints == []


def test_a_degenerate_fine_tuning_is_left_out_of_what_was_learned():
    cell = Cell()
    results = {1: RunResult(0.8), 2: RunResult(0.5, "one class for every row"), 3: RunResult(0.9)}
    add_results(cell, 7, results, "mlm, qnli accuracy")
    assert cell.values[7] == pytest.approx(2.2 / 3)
    assert cell.learned[7] == pytest.approx(0.85)
    cell.values[8] = 0.7
    assert without(cell, {7}).values == {8: 0.7, 7: pytest.approx(0.85)}

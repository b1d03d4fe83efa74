"""From the directories of runs to the scores of a study."""

import math
from pathlib import Path
from typing import Any

import pytest

from bertlab.errors import BertlabError, ConfigError
from bertlab.files import UnreadableError
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.run_state import Attempt, Outcome, write_attempts
from bertlab_studies.plan.budget import pretraining_cost
from bertlab_studies.plan.plan import PlannedRun
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.report.collect import collect
from bertlab_studies.report.report import report_of
from bertlab_studies.study import Study
from bertlab_studies.study_scores import StudyScores
from small_study import TASK, finish, opened, write_yaml

PRETRAINED = {"mlm/loss": 5.0, "mlm/accuracy": 0.25, "nsp/accuracy": 0.5, "loss": 5.7}
STEPS = {"checkpoint": {"save_top_k": -1}}


def run_of(study: Study, variant: str, stage: str, seed: int) -> PlannedRun:
    return study.planned.runs[study.planned.cells[variant, stage, seed]]


def collected(study: Study) -> StudyScores:
    return collect(study.config, study.planned, study.study_dir)


def scored(value: float, **more: float) -> dict[str, float]:
    return {"single_sentence/loss": 0.7, "single_sentence/accuracy": value, "loss": 0.7, **more}


def test_values_by_seed(tmp_path: Path) -> None:
    study = opened(tmp_path, evaluate={"x": "task.yaml"})
    finish(study, run_of(study, "both", BASE, 1), PRETRAINED)
    finish(study, run_of(study, "both", "x", 1), scored(0.75))
    finish(study, run_of(study, "both", "x", 2), scored(0.5), complaints=["one label", "no"])
    finish(study, run_of(study, "mlm", "x", 2), scored(0.25))
    found = collected(study)
    assert (found.name, found.baseline, found.seeds) == ("study", "both", [1, 2])
    assert [(each.name, each.is_primary) for each in found.measures] == [
        ("x accuracy", True),
        ("mlm loss", False),
        ("mlm accuracy", False),
        ("nsp accuracy", False),
    ]
    x, loss, *_ = found.measures
    assert (x.higher_is_better, x.is_share) == (True, True)
    assert (loss.higher_is_better, loss.is_share) == (False, False)
    assert found.cell("both", x).values == {1: 0.75, 2: 0.5}
    assert found.cell("both", x).degenerate == {2: "one label; no"}
    assert found.cell("mlm", x).values == {2: 0.25}
    assert found.cell("both", loss).values == {1: 5.0}
    assert found.cell("mlm", loss).values == {}
    assert not any(variant.failures for variant in found.variants.values())


def test_nothing_is_done(tmp_path: Path) -> None:
    found = collected(opened(tmp_path, evaluate={"x": "task.yaml"}))
    assert [measure.name for measure in found.measures] == ["x accuracy"]
    assert not found.cell("mlm", found.measures[0]).values


@pytest.mark.parametrize("loss", [math.inf, 1e200])
def test_a_score_whose_square_is_no_number_is_of_a_failed_run(loss: float, tmp_path: Path) -> None:
    study = opened(tmp_path, evaluate={"x": "task.yaml"})
    finish(study, run_of(study, "both", "x", 1), {"single-sentence/accuracy": loss, "loss": loss})
    found = collected(study)
    assert found.cell("both", found.measures[0]).values[1] == math.inf
    assert study.report()


@pytest.mark.parametrize(
    ("facts", "config", "words"),
    [
        ({"training_tokens": "x"}, {}, "manifest.json"),
        ({"mean_sequence_length": None}, {}, "manifest.json"),
        ({"mean_sequence_length": math.nan}, {}, "mean_sequence_length: found nan, expected a"),
        ({}, {"data": True}, "config.yaml"),
        ({}, {"model": {"encoder": None}}, "config.yaml"),
        ({}, {"model": {"encoder": {"name": "bert", "num_hidden_layers": 10**6}}}, "config.yaml"),
    ],
)
def test_a_record_from_which_no_cost_follows_is_named(
    facts: dict[str, Any], config: dict[str, Any], words: str, tmp_path: Path
) -> None:
    study = opened(tmp_path, seeds=1, settings={"data.vocab_size": 1000})
    run = run_of(study, "mlm", BASE, 1)
    given = {"training_tokens": 1200.0, "mean_sequence_length": 25.0, **facts}
    finish(study, run, PRETRAINED, manifest=given)
    place = run.directory(study.study_dir) / "config.yaml"
    write_yaml(place, {**study.planned.configs["mlm", BASE], **config})
    with pytest.raises((BertlabError, UnreadableError)) as caught:
        collected(study)
    assert words in f"{getattr(caught.value, 'filename', '')}: {caught.value}"


def test_best_and_last_step(tmp_path: Path) -> None:
    evaluate = {
        "last": "task.yaml",
        "best": {"config": "other.yaml", "step": "best", "settings": {"data.batch_size": 4}},
    }
    study = opened(tmp_path, evaluate=evaluate)
    lines = [{"label": "a", "gold": {"label": gold}} for gold in "ab"]
    for stage in evaluate:
        finish(
            study,
            run_of(study, "both", stage, 1),
            scored(0.5),
            best=scored(0.9),
            predictions=lines,
        )
    found = collected(study)
    last, best = found.measures
    assert found.cell("both", last).values == {1: 0.5}
    assert found.cell("both", last).examples[1].tolist() == [1.0, 0.0]
    assert found.cell("both", best).values == {1: 0.9}
    assert not found.cell("both", best).examples  # predictions are those of the last step
    assert not any("scores of rows" in each for each in study.scores().remarks)


def test_rows_are_kept_only_where_their_mean_is_the_metric(tmp_path: Path) -> None:
    study = opened(tmp_path, evaluate={"x": {"config": "task.yaml", "metric": "matthews"}})
    lines = [{"label": "a", "gold": {"label": "a"}}]
    results = scored(1.0, **{"single_sentence/matthews": 1.0})
    finish(study, run_of(study, "both", "x", 1), results, predictions=lines)
    found = collected(study)
    assert found.measures[0].name == "x matthews"
    assert not found.measures[0].is_share
    assert found.cell("both", found.measures[0]).values == {1: 1.0}
    assert not found.cell("both", found.measures[0]).examples
    (line,) = (each for each in study.scores().remarks if "scores of rows" in each)
    assert line.startswith("x matthews: head single_sentence gives no scores of rows whose mean is")


SETS = {"t/matched/accuracy": 0.7, "t/mismatched/accuracy": 0.6, "t/matched/loss": 1.0, "loss": 1.0}


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("metric", "results", "value", "higher"),
    [
        (None, SETS, 0.7, True),  # the first set decides
        ("mismatched/accuracy", SETS, 0.6, True),
        ("loss", SETS, 1.0, False),
        ("matched/loss", SETS, 1.0, False),
        ("f1", {"t/accuracy": 1, "t/f1": 0.8, "t/f1/PER": 0.9}, 0.8, True),
        ("f1/PER", {"t/f1": 0.8, "t/f1/LOC": 0.7, "t/f1/PER": 0.9}, 0.9, True),
        ("f1/PER", {"t/dev/f1/PER": 0.9, "t/test/f1/PER": 0.1}, 0.9, True),
    ],
)
def test_metrics_of_sets_and_types(
    metric: str | None, results: dict[str, float], value: float, higher: bool, tmp_path: Path
) -> None:
    study = opened(tmp_path, evaluate={"x": {"config": "task.yaml", "metric": metric}})
    finish(study, run_of(study, "mlm", "x", 1), results)
    found = collected(study)
    assert found.cell("mlm", found.measures[0]).values == {1: value}
    assert found.measures[0].higher_is_better is higher


def test_a_metric_that_runs_do_not_have(tmp_path: Path) -> None:
    study = opened(
        tmp_path,
        evaluate={"x": {"config": "task.yaml", "metric": {"name": "acuracy", "better": "higher"}}},
    )
    finish(study, run_of(study, "mlm", "x", 1), scored(0.5))
    with pytest.raises(ConfigError, match=r"evaluate\.x\.metric: .*did you mean 'accuracy'") as it:
        collected(study)
    assert "can be kept" in str(it.value)


def test_an_evaluation_that_is_called_as_an_objective(tmp_path: Path) -> None:
    # its figures would hide the objective's, and a measure of `decide` among them
    with pytest.raises(StudyError, match=r"evaluate\.mlm: found the name of an objective"):
        opened(tmp_path, evaluate={"mlm": "task.yaml"})


def test_a_study_of_fine_tunings(tmp_path: Path) -> None:
    variants: dict[str, Any] = {"tuned": {}, "scratch": {"from_scratch": True}}
    study = opened(tmp_path, base="task.yaml", variants=variants)
    lines = [{"label": "a", "gold": {"label": gold}} for gold in "aab"]
    finish(study, run_of(study, "scratch", BASE, 2), scored(2 / 3), predictions=lines)
    found = collected(study)
    assert [measure.name for measure in found.measures] == ["study accuracy"]
    cell = found.cell("scratch", found.measures[0])
    assert cell.values == {2: 2 / 3}
    assert cell.examples[2].tolist() == [1.0, 1.0, 0.0]
    assert found.variants["scratch"].tokens is None


def test_what_starts_from_new_weights_has_nothing_of_the_pre_training(tmp_path: Path) -> None:
    variants: dict[str, Any] = {"both": {}, "none": {"evaluate.from_scratch": True}}
    study = opened(tmp_path, variants=variants, evaluate={"x": "task.yaml"})
    for seed in (1, 2):
        curve = {6: {"val/mlm/loss": 5.0}}
        finish(study, run_of(study, "both", BASE, seed), PRETRAINED, curve=curve)
        for variant in variants:
            finish(study, run_of(study, variant, "x", seed), scored(0.5 + seed / 100))
    found = collected(study)
    both, none = found.variants["both"], found.variants["none"]
    x, loss, *_ = found.measures
    assert found.cell("none", x).values == found.cell("both", x).values == {1: 0.51, 2: 0.52}
    assert (len(found.cell("both", loss).values), found.cell("none", loss).values) == (2, {})
    assert (list(both.curves), none.curves) == (["mlm loss"], {})
    assert both.tokens is not None
    assert none.tokens is None
    assert not any("none" in warning for warning in report_of(found).warnings)


def test_failures_are_told_of_each_variant_that_needs_the_run(tmp_path: Path) -> None:
    study = opened(
        tmp_path,
        variants={"a": {}, "b": {"evaluate.head.dropout": 0.3}, "c": {"objectives": ["mlm"]}},
        evaluate={"x": "task.yaml"},
    )
    run = run_of(study, "a", BASE, 2)
    run.log(study.study_dir).parent.mkdir(parents=True)
    run.log(study.study_dir).write_text("bertlab: error: out of paper\n", "utf-8")
    write_attempts(run, study.study_dir, [Attempt(1.0, False, Outcome.FAILED, 2.0, 2)])
    found = collected(study)
    expected = [f"{run.id}: bertlab: error: out of paper"]
    assert found.variants["a"].failures == expected
    assert found.variants["b"].failures == expected
    assert found.variants["c"].failures == []


def test_curves_costs_and_times(tmp_path: Path) -> None:
    study = opened(tmp_path, seeds=1, settings={"data.vocab_size": 1000})
    run = run_of(study, "mlm", BASE, 1)
    curve = {3: {"val/mlm/loss": 6.0, "val/loss": 6.0, "train/loss": 6.5}, 6: {"val/mlm/loss": 5.0}}
    facts = {"training_tokens": 1200.0, "mean_sequence_length": 25.0}
    finish(study, run, PRETRAINED, curve=curve, manifest=facts)
    write_attempts(run, study.study_dir, [Attempt(1.0, False, Outcome.DONE, 2.5, 0)])
    found = collected(study)
    mlm, both = found.variants["mlm"], found.variants["both"]
    assert list(mlm.curves) == ["mlm loss"]
    assert (mlm.curves["mlm loss"][1].steps, mlm.curves["mlm loss"][1].values) == ([3, 6], [6, 5])
    assert mlm.tokens == 1200.0
    assert mlm.seconds == {1: 2.5}
    cost = pretraining_cost(study.planned.configs["both", BASE])
    assert cost is not None
    assert (both.tokens, both.flops) == (cost.tokens, cost.flops)  # not begun: by its config
    assert both.tokens == 6 * 8 * 32
    assert both.seconds == {}


def test_curves_of_fine_tunings_are_those_of_the_deciding_metric(tmp_path: Path) -> None:
    study = opened(tmp_path, seeds={"pretrain": 1, "finetune": 2}, evaluate={"task": "task.yaml"})
    runs = study.planned.runs_of("mlm", "task", 1)
    for finetune, run in runs.items():
        value = 0.5 + (finetune or 0) / 10
        logged = {"val/single_sentence/accuracy": value, "val/single_sentence/loss": 1.0}
        finish(study, run, scored(value), curve={2: logged, 4: logged})
    found = collected(study)
    curves = found.variants["mlm"].finetune_curves
    assert list(curves) == ["task accuracy"]
    assert {seeds: (c.steps, c.values) for seeds, c in curves["task accuracy"].items()} == {
        (1, 1): ([2, 4], [0.6, 0.6]),
        (1, 2): ([2, 4], [0.7, 0.7]),
    }
    assert found.variants["both"].finetune_curves == {}
    assert found.variants["mlm"].curves == {}


def test_curves_of_a_study_of_fine_tunings_are_no_pre_trainings(tmp_path: Path) -> None:
    study = opened(
        tmp_path, base="task.yaml", seeds=1, variants={"a": {}, "b": {"data.batch_size": 4}}
    )
    finish(
        study,
        run_of(study, "a", BASE, 1),
        scored(0.75),
        curve={3: {"val/single_sentence/accuracy": 0.75}},
    )
    found = collected(study)
    ((name, curves),) = found.variants["a"].finetune_curves.items()
    assert name == found.measures[0].name
    assert curves[1, None].values == [0.75]
    assert found.variants["a"].curves == {}


def test_a_step_on_the_way_has_its_own_cost_and_held_out_score(tmp_path: Path) -> None:
    study = opened(
        tmp_path,
        variants={"end": {}, "half": {"evaluate.from_step": 3}},
        settings=STEPS,
        evaluate={"x": "task.yaml"},
        seeds=1,
    )
    run = run_of(study, "end", BASE, 1)
    curve = {3: {"val/mlm/accuracy": 0.1}, 6: {"val/mlm/accuracy": 0.25}}
    facts = {"training_tokens": 1200.0, "mean_sequence_length": 25.0}
    finish(study, run, PRETRAINED, curve=curve, manifest=facts)
    found = collected(study)
    (accuracy,) = [measure for measure in found.measures if measure.name == "mlm accuracy"]
    assert found.cell("end", accuracy).values == {1: 0.25}
    assert found.cell("half", accuracy).values == {1: 0.1}
    assert (found.variants["end"].tokens, found.variants["half"].tokens) == (1200, 600)


def test_of_a_task_that_is_measured_otherwise(tmp_path: Path) -> None:
    model = {"init_from": "x", "head": {"name": "single_sentence", "regression": True}}
    write_yaml(tmp_path / "task.yaml", {**TASK, "model": model})
    study = opened(tmp_path, evaluate={"x": "task.yaml"})
    measure = collected(study).measures[0]
    head = study.planned.configs["both", "x"]["model"]["head"]
    assert head["regression"] is True
    assert measure.name == "x pearson"


@pytest.mark.slow
def test_tags_that_are_no_entities_have_an_accuracy(tmp_path: Path) -> None:
    model = {"init_from": "x", "head": "tagging"}
    write_yaml(tmp_path / "task.yaml", {**TASK, "model": model})
    study = opened(tmp_path, evaluate={"x": "task.yaml"})
    assert collected(study).measures[0].name == "x f1"
    finish(study, run_of(study, "both", "x", 1), {"tagging/loss": 1, "tagging/accuracy": 0.5})
    found = collected(study)
    assert found.measures[0].name == "x accuracy"
    assert found.cell("both", found.measures[0]).values == {1: 0.5}


RATES: dict[str, Any] = {"low": {}, "high": {"optimizer.learning_rate": 0.01}}


def test_a_held_out_loss_decides_where_all_variants_have_the_same_task(tmp_path: Path) -> None:
    study = opened(tmp_path, variants=RATES)
    for variant, loss in (("low", 5.0), ("high", 4.0)):
        finish(study, run_of(study, variant, BASE, 1), {**PRETRAINED, "mlm/loss": loss})
    found = collected(study)
    deciding = [each.name for each in found.measures if each.is_primary]
    assert deciding == ["mlm loss", "nsp loss"]
    (loss, *_) = found.measures
    assert not loss.higher_is_better
    assert found.cell("high", loss).values == {1: 4.0}
    assert found.why_described == "mlm loss and nsp loss decide"


def test_a_measure_that_a_study_names_decides_beside_its_evaluations(tmp_path: Path) -> None:
    given: dict[str, Any] = {"variants": RATES, "evaluate": {"x": "task.yaml"}}
    asked = opened(tmp_path, **given, decide=["mlm accuracy"])
    finish(asked, run_of(asked, "low", BASE, 1), PRETRAINED)
    found = collected(asked)
    deciding = [each.name for each in found.measures if each.is_primary]
    assert deciding == ["x accuracy", "mlm accuracy"]
    assert found.cell("low", found.measures[1]).values == {1: 0.25}
    found = collected(opened(tmp_path, **given))
    assert [each.name for each in found.measures if each.is_primary] == ["x accuracy"]
    assert found.why_described == "the evaluations decide"


def test_a_report_says_why_a_loss_does_not_decide(tmp_path: Path) -> None:
    study = opened(tmp_path)
    finish(study, run_of(study, "both", BASE, 1), PRETRAINED)
    legend = report_of(collected(study)).legend
    why = "mlm loss decides; not all variants have the same nsp"
    assert f"not tested: mlm accuracy, nsp accuracy ({why})" in legend

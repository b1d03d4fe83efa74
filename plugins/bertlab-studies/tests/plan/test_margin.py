"""The margin of a study file: how it is said, what is refused, and what the report makes of it."""

from pathlib import Path
from typing import Any

import pytest

from bertlab.errors import ConfigError
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.report.collect import collect
from bertlab_studies.report.report import report_of
from small_study import finish, opened, read_study

LOSSES = {"slow": {}, "fast": {"optimizer.learning_rate": 0.01}}


def margins_of(folder: Path, **content: Any) -> dict[str, float | None]:
    study = opened(folder, **content)
    found = collect(study.config, study.planned, study.study_dir)
    return {measure.name: measure.margin for measure in found.measures}


@pytest.mark.slow
def test_of_an_evaluation(tmp_path: Path) -> None:
    evaluate = {"x": {"config": "task.yaml", "margin": 0.01}, "y": {"config": "other.yaml"}}
    assert margins_of(tmp_path, evaluate=evaluate) == {
        "x accuracy": 0.01,
        "y accuracy": None,
    }


def test_of_an_evaluation_that_trains_nothing(tmp_path: Path) -> None:
    blimp = {"evaluation": "minimal_pairs", "data": "blimp", "margin": 0.02}
    (evaluation,) = read_study(tmp_path, evaluate={"blimp": blimp}).evaluations
    assert evaluation.margin == 0.02
    # it changes no run
    plain = read_study(tmp_path, evaluate={"blimp": {**blimp, "margin": None}})
    assert plain.evaluations[0].zero_shot == evaluation.zero_shot


def test_of_pre_training(tmp_path: Path) -> None:
    decide = {"mlm loss": {"margin": 0.02}, "nsp loss": {}}
    study = read_study(tmp_path, variants=LOSSES, decide=decide)
    assert (study.decide, study.margins) == (("mlm loss", "nsp loss"), {"mlm loss": 0.02})
    assert margins_of(tmp_path, variants=LOSSES, decide=decide) == {
        "mlm loss": 0.02,
        "nsp loss": None,
    }
    assert read_study(tmp_path, variants=LOSSES, decide=["mlm loss"]).margins == {}


@pytest.mark.parametrize("wrong", [0, -0.01, "1 point", True, float("inf"), float("nan"), [0.1]])
def test_a_wrong_one(wrong: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evaluate.x.margin: found .* expected a number above 0"):
        read_study(tmp_path, evaluate={"x": {"config": "task.yaml", "margin": wrong}})
    with pytest.raises(ConfigError, match=r"decide.mlm loss.margin: found .* a number above 0"):
        read_study(tmp_path, decide={"mlm loss": {"margin": wrong}})


def test_points_where_a_share_is_meant(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"x.margin: found 1, expected less than 1: accuracy is a"):
        opened(tmp_path, evaluate={"x": {"config": "task.yaml", "margin": 1}})


def test_a_wrong_decide(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"decide.mlm loss: no key is called 'margn'.*'margin'"):
        read_study(tmp_path, decide={"mlm loss": {"margn": 0.1}})
    with pytest.raises(ConfigError, match=r"decide.mlm loss: found 0.1, expected a mapping"):
        read_study(tmp_path, decide={"mlm loss": 0.1})


def test_the_report_says_as_good_as(tmp_path: Path) -> None:
    study = opened(tmp_path, seeds=3, evaluate={"x": {"config": "task.yaml", "margin": 0.02}})
    noise = iter([0.0, 0.001, -0.001, 0.001, -0.001, 0.0])
    for variant in ("both", "mlm"):
        for seed in (1, 2, 3):
            finish(study, study.planned.run_of(variant, BASE, seed), {"mlm/loss": 5.0, "loss": 5.0})
            results = {"single_sentence/accuracy": 0.75 + next(noise), "loss": 0.7}
            finish(study, study.planned.run_of(variant, "x", seed), results)
    found = report_of(collect(study.config, study.planned, study.study_dir))
    assert any("as good as the baseline, within 2.0" in line for line in found.findings)


def test_levels_of_variants(tmp_path: Path) -> None:
    axes = {"objectives.mlm.rate": [0.15, 0.4], "size": {"small": {}, "big": {"encoder.num": 2}}}
    first, *_ = read_study(tmp_path, axes=axes).variants
    assert first.name == "rate=0.15 small"
    assert first.levels == {"objectives.mlm.rate": "rate=0.15", "size": "small"}
    named = {"a": {}, "b": {"optimizer.lr": 0.1}}
    first, *_ = read_study(tmp_path, variants=named, axes={"data.batch_size": [4, 8]}).variants
    assert first.levels == {"variants": "a", "data.batch_size": "batch_size=4"}
    assert [each.levels for each in read_study(tmp_path, variants=named).variants] == [{}, {}]
    with pytest.raises(ConfigError, match=r"axes.variants: this is the name of the rows"):
        read_study(tmp_path, axes={"variants": {"a": {}, "b": {}}})

"""Seeds of parts of a study's runs: which vary, which stay, and what a file can say wrong."""

from pathlib import Path
from typing import Any

import pytest

from bertlab.config.merge import read_request
from bertlab.config.run_config import parse_request
from bertlab.errors import CommandError
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.plan import Plan, make_plan
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.report.report import runs_of
from bertlab_studies.tables import variants_table
from small_study import finish, opened, plan_of, read_study

EVALUATED: dict[str, Any] = {"evaluate": {"task": "task.yaml"}}
FINE_TUNING: dict[str, Any] = {
    "base": "task.yaml",
    "variants": {"slow": {}, "fast": {"optimizer.learning_rate": 1e-3}},
}


def seeds_of(plan: Plan, variant: str, stage: str, number: int) -> tuple[int, ...]:
    """Return the seeds of weights, order, masks and dropout that ``bertlab fit`` would take."""
    arguments = plan.run_of(variant, stage, number).arguments
    config = parse_request(read_request(arguments), "fit")
    assert config.seed == 1
    seeds = config.seeds
    return seeds.weights, seeds.order, seeds.masks, seeds.dropout


def test_only_what_is_named_varies(tmp_path: Path) -> None:
    study = read_study(tmp_path, seeds={"weights": 3}, **EVALUATED)
    plan = make_plan(study)
    assert study.seeds == (1, 2, 3)
    assert not study.is_crossed
    for seed in study.seeds:
        assert seeds_of(plan, "mlm", BASE, seed) == (seed, 1, 1, 1)
        run = plan.run_of("mlm", "task", seed)
        assert run.seed == 1
        assert run.parent == plan.cells["mlm", BASE, seed]
        assert not any(each.startswith("--seed.") for each in run.arguments)
    assert len(plan.runs) == 2 * 3 * 2
    assert plan.cells["mlm", BASE, 3].startswith("mlm-base-weights-3-")


def test_parts_vary_together(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, seeds={"order+masks": [1, 5]})
    assert [seeds_of(plan, "both", BASE, seed) for seed in (1, 5)] == [(1, 1, 1, 1), (1, 5, 5, 1)]
    assert plan.cells["both", BASE, 5].startswith("both-base-order+masks-5-")


def test_several_are_crossed(tmp_path: Path) -> None:
    study = read_study(tmp_path, seeds={"weights": 2, "dropout": [4, 1, 6]})
    plan = make_plan(study)
    assert study.is_crossed
    found = [seeds_of(plan, "both", BASE, number) for number in study.seeds]
    expected = [(weights, 1, 1, dropout) for weights in (1, 2) for dropout in (4, 1, 6)]
    assert found == expected
    assert plan.cells["both", BASE, 4].startswith("both-base-weights-2-dropout-4-")


@pytest.mark.slow
def test_variants_share_all_seeds(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, seeds={"weights": 2, "order": 2})
    for number in range(1, 5):
        assert seeds_of(plan, "both", BASE, number) == seeds_of(plan, "mlm", BASE, number)


def test_a_study_that_fine_tunes_varies_head_rows_and_dropout(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, seeds={"weights": 2, "order": 2}, **FINE_TUNING)
    assert seeds_of(plan, "fast", BASE, 2)[:2] == (1, 2)
    with pytest.raises(StudyError, match=r"seeds.order\+masks: found in a study that fine-tunes"):
        plan_of(tmp_path, seeds={"order+masks": 2}, **FINE_TUNING)


def test_the_run_whose_seeds_are_all_1_is_that_of_a_usual_study(tmp_path: Path) -> None:
    usual = plan_of(tmp_path, seeds=1)
    begun = [run.id for run in usual.in_order()]
    apart = make_plan(read_study(tmp_path, seeds={"weights": 2, "order": 2}), begun)
    assert [apart.cells[name, BASE, 1] for name in ("both", "mlm")] == begun


def test_more_seeds_in_the_file_keep_what_is_done(tmp_path: Path) -> None:
    begun = plan_of(tmp_path, seeds={"weights": 2, "order": 2}, **EVALUATED).runs
    more = make_plan(read_study(tmp_path, seeds={"weights": 3, "order": 4}, **EVALUATED), begun)
    assert begun.keys() <= more.runs.keys()
    assert all(more.runs[run] == begun[run] for run in begun)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"seeds": {"weigths": 3}}, "no key is called 'weigths'; did you mean 'weights'?"),
        ({"seeds": {"weights": 3, "ordre": 3}}, "found 'ordre' beside parts of a run; did you"),
        ({"seeds": {"weights": 3, "finetune": 3}}, "found 'finetune' beside parts of a run"),
        ({"seeds": {"weights+order": 3, "order": 3}}, "seeds: 'order' is given twice"),
        ({"seeds": {"weights": -1}}, "seeds.weights: found -1, expected"),
        ({"seeds": {"weights": [-1]}}, "seeds.weights: found [-1], expected a number of seeds"),
        ({"seeds": {"weights": [2**32]}}, "seeds.weights: found 4294967296, expected 0 to"),
        ({"seeds": {"weights": 0}}, "seeds.weights: found 0, expected a number of seeds"),
        ({"seeds": {"weights": 2}, "added_seeds": 3}, "added_seeds: found 3 beside seeds of parts"),
        ({"seeds": {"weights": 2, "order": 2}, "decide": ["mlm loss"]}, "decide: found mlm loss"),
        ({"settings": {"seed.weights": 2}}, "seed.weights: cannot be set here; give the study"),
        ({"settings": {"seed": {"order": 2}}}, "seed: cannot be set here; give the study seeds"),
    ],
)
def test_what_a_file_can_say_wrong(content: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as error:
        read_study(tmp_path, **content)
    assert expected in str(error.value)


def test_a_config_file_does_not_fix_parts_unseen(tmp_path: Path) -> None:
    plan_of(tmp_path, **EVALUATED)  # writes the files
    for name in ("base.yaml", "task.yaml"):
        path = tmp_path / name
        before = path.read_text("utf-8")
        path.write_text(before + "seed: {order: 1}\n", "utf-8")
        with pytest.raises(StudyError, match=f"seed: found .* in .*{name}, expected none"):
            plan_of(tmp_path, **EVALUATED)
        path.write_text(before, "utf-8")


def test_seeds_of_parts_are_added_in_the_file(tmp_path: Path) -> None:
    study = opened(tmp_path, seeds={"weights": 2})
    study.claim()
    with pytest.raises(CommandError, match="seeds are of weights; give more in its file"):
        study.add_seeds(5)


def test_a_report_says_what_its_differences_speak_for(tmp_path: Path) -> None:
    study = opened(tmp_path, seeds={"weights": 2}, variants={"a": {}, "b": {"data.batch_size": 4}})
    for number, run in enumerate(study.runs):
        finish(study, run, {"mlm/loss": 2.0 + number / 10, "nsp/loss": 0.5, "nsp/accuracy": 0.5})
    report = study.report(write=False)
    (line,) = [each for each in report.warnings if "varies" in each]
    assert "only the seed of weights varies: tests and intervals speak for the one order" in line
    assert study.analysis()["factors"] == {"weights": [1, 2]}
    assert "factors" not in opened(tmp_path / "usual").analysis()


@pytest.mark.slow
def test_a_crossed_study_reports_shares(tmp_path: Path) -> None:
    study = opened(tmp_path, seeds={"weights": 2, "order": 2}, evaluate={"task": "task.yaml"})
    for number, run in enumerate(study.runs):
        if run.stage == BASE:
            finish(study, run, {"mlm/loss": 2.0 + number / 10, "nsp/accuracy": 0.5})
        else:
            finish(study, run, {"single_sentence/accuracy": 0.5 + number % 7 / 100})
    report = study.report()
    assert "Seeds are crossed" in report.findings[0]
    tables = {table.title: table for table in report.tables_of(report.studies[0])}
    names = [row[0] for row in tables["Variance shares"].grid.rows]
    assert "task accuracy, points" in names
    assert not any(one.significant for one in report.comparisons[0].values())
    assert runs_of(report.studies[0]).rows[1][1] == "2 (weights 1, order 2)"
    table = variants_table(study.planned, study.config)
    assert table.title == "study: 16 runs, seeds of weights 1, 2 × of order 1, 2"

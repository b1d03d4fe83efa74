"""Evaluations that train nothing, in a study's file and plan, and in a study that is run."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from bertlab.cli.main import main
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.execution import fit_arguments
from bertlab_studies.plan.budget import pretraining_cost
from bertlab_studies.plan.plan import Plan, make_plan
from bertlab_studies.plan.study_file import StudyConfig, make_study
from bertlab_studies.report.row_scores import evaluated_rows, keep_common_rows
from bertlab_studies.study import study as open_study
from bertlab_studies.study_scores import Cell


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "order.jsonl"
    rows = [("a statement", "statement a", "x"), ("the name", "name the", "y")]
    content = [{"sentence_good": g, "sentence_bad": b, "UID": u} for g, b, u in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in content), "utf-8")
    return path


def study_of(config: Path, evaluate: object, **more: object) -> tuple[StudyConfig, Plan]:
    content = {
        "name": "order",
        "base": str(config),
        "variants": {"both": {}, "mlm": {"objectives": {"nsp": None}}},
        "seeds": 2,
        "evaluate": evaluate,
        **more,
    }
    study = make_study(content, "order.yaml", config.parent)
    return study, make_plan(study)


def test_a_run_for_each_pre_training_with_its_weights(tiny_config, pairs, tmp_path):
    entry = {"evaluation": "minimal_pairs", "data": str(pairs), "settings": {"per_token": True}}
    _, plan = study_of(tiny_config, {"order": entry})
    runs = [run for run in plan.in_order() if run.stage == "order"]
    assert len(runs) == 4
    for run in runs:
        assert not run.trains
        assert plan.runs[run.parent].seed == run.seed
        parent = tmp_path / "runs" / run.parent
        parent.mkdir(parents=True)
        (parent / "results.json").write_text("{}")
        arguments = fit_arguments(run, tmp_path)
        assert f"--ckpt_path={parent}" in arguments
        assert "--settings.per_token=true" in arguments
        assert arguments[-2:] == ["--output", str(tmp_path / "runs" / run.id)]
        assert not any(each.startswith("--seed") for each in arguments)
        cost = pretraining_cost(plan.configs[run.variant, "order"])
        assert cost.flops == 0


def test_the_checkpoint_of_a_step(tiny_config, pairs):
    variants = {"early": {"evaluate.from_step": 3}, "late": {}}
    settings = {"checkpoint.save_top_k": -1}
    entry = {"evaluation": "minimal_pairs", "data": str(pairs)}
    _, plan = study_of(tiny_config, {"order": entry}, variants=variants, settings=settings)
    run = plan.run_of("early", "order", 1)
    assert "--ckpt_path={weights}/checkpoints/step-3.ckpt" in run.arguments
    assert plan.run_of("late", "order", 1).id != run.id


def test_the_curve_over_words(tiny_config, pairs):
    entry = {"evaluation": "minimal_pairs", "data": str(pairs)}
    runs = [
        study_of(tiny_config, {"order": entry | more})[1].run_of("mlm", "order", 1)
        for more in ({}, {"words_checkpoints": False}, {"words_checkpoints": True})
    ]
    assert [any("words_checkpoints" in each for each in run.arguments) for run in runs] == [
        False,
        False,
        True,
    ]
    assert runs[0].id == runs[1].id != runs[2].id


def test_other_settings_are_another_run(tiny_config, pairs):
    entry = {"evaluation": "minimal_pairs", "data": str(pairs)}
    ids = [
        study_of(tiny_config, {"order": entry | {"settings": settings}})[1]
        .run_of("mlm", "order", 1)
        .id
        for settings in ({}, {"method": "within_word_l2r"}, {"method": "original"})
    ]
    assert ids[0] == ids[1]  # the default, given or not
    assert ids[1] != ids[2]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"evaluation": "minimal_pair", "data": "x"}, "did you mean 'minimal_pairs'"),
        ({"evaluation": "minimal_pairs"}, "evaluate.order: missing: --data"),
        (
            {"evaluation": "minimal_pairs", "dat": "x"},
            "no key is called 'dat'; did you mean 'data'",
        ),
        ({"evaluation": "minimal_pairs", "data": "x", "step": "best"}, "no key is called 'step'"),
        (
            {"evaluation": "minimal_pairs", "data": "x", "settings": {"method": "orginal"}},
            "method: found 'orginal'",
        ),
        (
            {"evaluation": "minimal_pairs", "data": "x", "words_checkpoints": 2},
            "words_checkpoints: found 2, expected true or false",
        ),
        ({"config": None}, "a config file of bertlab fit, or evaluation: NAME"),
    ],
)
def test_mistakes_name_the_key(tiny_config, entry, message):
    with pytest.raises(StudyError) as error:
        study_of(tiny_config, {"order": entry})
    assert message in str(error.value)
    assert "order" in str(error.value)


def test_rows_that_a_run_could_not_score_are_left_out_of_all(tmp_path):
    path = tmp_path / "order.rows.jsonl"
    path.write_text("".join(json.dumps({"score": each}) + "\n" for each in (1.0, None, 0.0, 0.5)))
    one = evaluated_rows(path, "x", 0.5)
    assert evaluated_rows(path, "x", 0.7) is None  # the mean is another metric
    assert evaluated_rows(tmp_path / "none", "x", 0.5) is None
    other = np.array([0.0, 1.0, 1.0, np.nan])
    cells = [Cell(examples={1: one}), Cell(examples={1: other})]
    keep_common_rows(cells)
    assert cells[0].examples[1].tolist() == [1.0, 0.0]
    assert cells[1].examples[1].tolist() == [0.0, 1.0]


@pytest.mark.nightly
def test_a_study_scores_its_models_beside_training_nothing(tiny_config, pairs, tmp_path, capsys):
    content = {
        "base": str(tiny_config),
        "variants": {"both": {}, "mlm": {"objectives": {"nsp": None}}},
        "seeds": 2,
        "evaluate": {"order": {"evaluation": "minimal_pairs", "data": str(pairs)}},
    }
    file = tmp_path / "order.yaml"
    file.write_text(yaml.safe_dump(content))
    folder = tmp_path / "study"
    assert main(["study", "run", str(file), "--study_dir", str(folder), "--workers", "2"]) == 0
    assert "order accuracy" in capsys.readouterr().out
    found = list((folder / "runs").glob("*-order-seed-*"))
    assert len(found) == 4
    for run in found:
        results = json.loads((run / "results.json").read_text("utf-8"))
        assert 0 <= results["order/accuracy"] <= 1
    report = (folder / "report" / "report.md").read_text("utf-8")
    assert "order accuracy" in report
    assert "## order by paradigm" in report
    files = {path.name for path in (folder / "report").iterdir()}
    assert {"heat_map_order_paradigm.svg", "groups_order.csv"} <= files
    assert main(["study", "run", str(folder)]) == 0  # nothing is left to do
    manifest = json.loads((found[0] / "manifest.json").read_text("utf-8"))
    assert manifest["device"] == "cpu"
    assert len(manifest["rows"]["order"]) == 64  # SHA-256 in hexadecimal
    assert open_study(folder).scores().remarks == []  # all runs say what they were made of

"""Studies whose runs have several heads: each is a task, and a variant may lack one."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertlab_studies.errors import StudyError
from bertlab_studies.plan.plan import make_plan
from bertlab_studies.study import Study
from small_study import finish, opened, read_study, write_yaml

HEADS: dict[str, Any] = {
    "model": {
        "init_from": "nowhere",
        "heads": {
            "topic": "single_sentence",
            "nearness": {"name": "sentence_pair", "regression": True},
        },
    },
    "data": {
        "heads": {"topic": {"source": "topics.jsonl"}, "nearness": {"source": "pairs.tsv"}},
        "max_seq_length": 32,
        "batch_size": 8,
    },
    "trainer": {"max_epochs": 2, "accelerator": "cpu"},
}
VARIANTS: dict[str, Any] = {
    "both": {},
    "equal": {"data.mixing.temperature": 100.0},
    "topic alone": {"heads": {"nearness": None}},
}


def study_of(folder: Path) -> Study:
    write_yaml(folder / "heads.yaml", HEADS)
    return opened(folder, base="heads.yaml", variants=VARIANTS, baseline="both")


def results(topic: float, nearness: float | None) -> dict[str, float]:
    found = {"topic/loss": 1.0, "topic/accuracy": topic, "topic/majority_accuracy": 0.5}
    if nearness is not None:
        found |= {"nearness/pearson": nearness, "heads/mean": (topic + nearness) / 2}
    return found


@pytest.mark.slow
def test_each_head_is_a_task(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    given = {"both": (0.6, 0.5), "equal": (0.7, 0.3), "topic alone": (0.8, None)}
    splits = ("topic/train", "topic/validation", "nearness/train", "nearness/validation")
    for run in study.planned.in_order():
        topic, nearness = given[run.variant]
        data = {
            split: {"fingerprint": split}
            for split in splits
            if nearness is not None or "topic" in split
        }
        warned = ["topic: one label is predicted"] if run.variant == "equal" else []
        curve = {3: {"val/topic/accuracy": topic / 2}, 6: {"val/topic/accuracy": topic}}
        finish(
            study, run, results(topic + run.seed / 100, nearness), curve=curve,
            complaints=warned, manifest={"data": data},
        )  # fmt: skip
    scores = study.scores()
    measures = {each.name: each for each in scores.measures}
    assert list(measures) == ["topic accuracy", "nearness pearson", f"{study.config.name} mean"]
    assert [each.is_primary for each in scores.measures] == [True, True, False]
    assert measures["nearness pearson"].higher_is_better

    def values(variant: str, name: str) -> dict[int, float]:
        return dict(scores.variants[variant].cells[name].values)

    assert values("both", "topic accuracy") == {1: pytest.approx(0.61), 2: pytest.approx(0.62)}
    assert values("equal", "nearness pearson") == {1: 0.3, 2: 0.3}
    assert values("topic alone", "topic accuracy") == pytest.approx({1: 0.81, 2: 0.82})
    assert values("topic alone", "nearness pearson") == {}
    assert values("topic alone", f"{study.config.name} mean") == {}
    cells = scores.variants["equal"].cells
    assert cells["topic accuracy"].degenerate == {n: "one label is predicted" for n in (1, 2)}
    assert cells["nearness pearson"].degenerate == {}
    curves = scores.variants["both"].finetune_curves["topic accuracy"]
    assert curves[1, None].values == [0.3, 0.6]

    study.report()
    report = (study.study_dir / "report" / "report.md").read_text("utf-8")
    assert "topic accuracy" in report
    assert "nearness pearson" in report


@pytest.mark.slow
def test_variants_are_told_by_what_differs(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    configs = {name: config for (name, _), config in study.planned.configs.items()}
    assert configs["topic alone"]["model"]["heads"].keys() == {"topic"}
    assert configs["topic alone"]["data"]["heads"].keys() == {"topic"}
    assert configs["equal"]["data"]["mixing"]["temperature"] == 100.0
    arguments = {argument for run in study.planned.in_order() for argument in run.arguments}
    assert "--keep_predictions=false" in arguments
    assert json.dumps(configs)  # plain data


def test_an_evaluation_has_one_head(tmp_path: Path) -> None:
    write_yaml(tmp_path / "heads.yaml", HEADS)
    config = read_study(tmp_path, evaluate={"x": {"config": "heads.yaml"}})
    with pytest.raises(StudyError, match=r"evaluate.x: .*heads.yaml has several heads"):
        make_plan(config)

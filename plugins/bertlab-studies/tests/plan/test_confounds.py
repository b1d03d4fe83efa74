"""Comparisons that are of something else than they seem."""

from pathlib import Path
from typing import Any

from bertlab_studies.plan.confounds import confounds
from bertlab_studies.plan.plan import make_plan
from small_study import opened, read_study

RATES: dict[str, Any] = {"low": {}, "high": {"optimizer.learning_rate": 0.01}}
WIDTHS: dict[str, Any] = {"narrow": {}, "wide": {"encoder.hidden_size": 64}}
SPLITS: dict[str, Any] = {"bert": {}, "all": {"objectives.mlm.unit": "whole_word"}}


def found(folder: Path, **content: Any) -> list[str]:
    study = read_study(folder, **content)
    return confounds(study, make_plan(study))


def test_equal_time_where_variants_cost_the_same(tmp_path: Path) -> None:
    (line,) = found(tmp_path, variants=RATES, budget={"time": "00:00:01:00"})
    assert "expected budget: {steps: N}" in line
    assert not found(tmp_path, variants=WIDTHS, budget={"time": "00:00:01:00"})
    assert not found(tmp_path, variants=RATES)


def test_another_masking_is_not_judged_by_one_splits_loss(tmp_path: Path) -> None:
    loss = {"evaluation": "held_out_loss", "data": "text.txt"}
    (tmp_path / "text.txt").write_text("One line.\n", "utf-8")
    study = opened(tmp_path, variants=SPLITS, evaluate={"text": loss})
    (line,) = confounds(study.config, study.planned)
    assert "variants differ in objectives.mlm.unit" in line
    assert "metric: mask_loss" in line
    assert line in study.plan().note
    assert not found(tmp_path, variants=SPLITS, evaluate={"text": {**loss, "metric": "mask_loss"}})
    assert not found(tmp_path, variants=RATES, evaluate={"text": loss})

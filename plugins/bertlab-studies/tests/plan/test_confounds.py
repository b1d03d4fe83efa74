"""Comparisons that are of something else than they seem."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertlab_studies.plan.confounds import confounds, other_domains, readings
from bertlab_studies.plan.plan import make_plan
from small_study import finish, opened, read_study

RATES: dict[str, Any] = {"low": {}, "high": {"optimizer.learning_rate": 0.01}}
WIDTHS: dict[str, Any] = {"narrow": {}, "wide": {"encoder.hidden_size": 64}}


def found(folder: Path, **content: Any) -> list[str]:
    study = read_study(folder, **content)
    return confounds(study, make_plan(study))


def test_equal_time_where_variants_cost_the_same(tmp_path: Path) -> None:
    (line,) = found(tmp_path, variants=RATES, budget={"time": "00:00:01:00"})
    assert "expected budget: {steps: N}" in line
    assert not found(tmp_path, variants=WIDTHS, budget={"time": "00:00:01:00"})
    assert not found(tmp_path, variants=RATES)


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("change", "metric", "fair"),
    [
        ({"unit": "whole_word"}, None, "word_pll_loss"),
        ({"unit": "whole_word"}, "mask_loss", "word_pll_loss"),
        ({"unit": "span"}, "pll_loss", "word_pll_loss"),
        ({"rate": 0.4}, "accuracy", "pll_loss"),
        ({"mask_share": 1.0, "random_share": 0.0, "keep_share": 0.0}, "trained_loss", "pll_loss"),
    ],
)
def test_another_masking_is_not_judged_by_one_splits_loss(
    change: dict[str, Any], metric: str | None, fair: str, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("One line.\n", "utf-8")
    loss = {"evaluation": "held_out_loss", "data": "text.txt"}
    variants = {
        "bert": {},
        "other": {f"objectives.mlm.{key}": each for key, each in change.items()},
    }
    asked = loss if metric is None else {**loss, "metric": metric}
    study = opened(tmp_path, variants=variants, evaluate={"text": asked})
    (line,) = confounds(study.config, study.planned)
    assert f"variants differ in objectives.mlm.{next(iter(change))}" in line
    assert f"metric: {fair} is" in line
    assert line in study.plan().note
    study = opened(tmp_path, variants=variants, evaluate={"text": {**loss, "metric": fair}})
    assert not confounds(study.config, study.planned)
    (line,) = readings(study.config, study.planned)
    assert line.startswith(f"text: {fair} decides, as variants differ in objectives.mlm.")
    assert line in study.plan().note
    assert line in study.scores().remarks


@pytest.mark.slow
def test_what_leaves_the_masks_of_held_out_text_alone(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One line.\n", "utf-8")
    loss = {"evaluation": "held_out_loss", "data": "text.txt"}
    for other in ({"objectives.mlm.dynamic": False}, {"optimizer.learning_rate": 0.01}):
        study = opened(tmp_path, variants={"bert": {}, "other": other}, evaluate={"text": loss})
        assert not confounds(study.config, study.planned)
        assert not readings(study.config, study.planned)


def texts(folder: Path, held_out: str) -> list[str]:
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, 3001)
    words = {kind: np.array([f"{kind}{n}" for n in range(3000)]) for kind in ("sea", "law")}
    for name, kind in (("train", "sea"), ("held-out", held_out)):
        drawn = rng.choice(words[kind], 20_000, p=shares / shares.sum())
        lines = [" ".join(line) for line in drawn.reshape(-1, 20)]
        (folder / f"{name}.txt").write_text("\n\n".join(lines), "utf-8")
    evaluate = {"text": {"evaluation": "held_out_loss", "data": str(folder / "held-out.txt")}}
    settings = {"data.corpus": str(folder / "train.txt")}
    study = opened(folder, variants=RATES, settings=settings, evaluate=evaluate)
    found = other_domains(study.config, study.planned)
    assert all(line in study.plan().note for line in found)
    return found


@pytest.mark.slow
def test_a_held_out_text_of_another_domain_is_named_before_the_first_run(tmp_path: Path) -> None:
    assert not texts(tmp_path, "sea")
    (line,) = texts(tmp_path, "law")
    assert line.startswith("confounded: text: not of the domain of the training text")
    assert "is 1.00 bits" in line


def test_a_held_out_text_of_another_domain_is_named_by_its_runs(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One line.\n", "utf-8")
    loss = {"evaluation": "held_out_loss", "data": "text.txt"}
    study = opened(tmp_path, variants=RATES, evaluate={"text": loss})
    for run in study.runs:
        far = 0.5 if run.variant == "high" else 0.1
        found = {"text/loss": 3.0, "text/unigram_divergence": far, "text/natural_divergence": 0.2}
        finish(study, run, found if run.stage == "text" else {"mlm/loss": 3.0, "loss": 3.0})
    (line,) = (each for each in study.scores().remarks if "domain" in each)
    assert line.startswith("text of high: not of the domain")
    assert "0.50 bits" in line
    assert "at most 0.20" in line

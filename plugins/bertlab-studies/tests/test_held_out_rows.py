"""Losses of held-out sequences, which a run of a study leaves, and what its study makes of them."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertlab.checkpoints.run_directory import STUDY_ENVIRONMENT
from bertlab_studies.held_out_rows import HELD_OUT_ROWS, held_out_scores
from bertlab_studies.report.statistics import compare_study
from small_study import BASE, finish, opened, write_yaml
from tests.conftest import Command


def write_rows(directory: Path, losses: list[float], counts: list[int]) -> None:
    lines = [
        {
            "row": row,
            "cluster": f"document:{row // 2}",
            "mlm": {"loss": a, "right": 1, "predictions": n},
        }
        for row, (a, n) in enumerate(zip(losses, counts, strict=True))
    ]
    (directory / HELD_OUT_ROWS).write_text("\n".join(map(json.dumps, lines)) + "\n", "utf-8")


@pytest.mark.slow
def test_a_run_of_a_study_leaves_the_losses_of_its_sequences(
    tiny_config: Path, tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STUDY_ENVIRONMENT, "s")
    run = tmp_path / "run"
    assert bertlab("fit", "--config", tiny_config, "--run_dir", run)[0] == 0
    lines = [json.loads(each) for each in (run / HELD_OUT_ROWS).read_text("utf-8").splitlines()]
    results = json.loads((run / "results.json").read_text("utf-8"))
    parts = [line["mlm"] for line in lines]
    count = sum(each["predictions"] for each in parts)
    # the sums over sequences are those that the run's own metrics are made of
    assert sum(each["loss"] for each in parts) / count == pytest.approx(results["mlm/loss"], 1e-5)
    right = sum(each["right"] for each in parts) / count
    assert right == pytest.approx(results["mlm/accuracy"], abs=1e-6)
    assert [line["row"] for line in lines] == list(range(len(lines)))
    assert all(line["cluster"].startswith("document:") for line in lines)


def test_scores_are_the_influence_of_each_sequence(tmp_path: Path) -> None:
    losses, counts = [6.0, 2.0, 9.0, 1.0], [2, 1, 3, 2]
    write_rows(tmp_path, losses, counts)
    found = held_out_scores(tmp_path, "mlm", "loss", 18 / 8)
    assert found is not None
    assert found.mean() == pytest.approx(18 / 8)
    # what the ratio changes by if a row gains a little weight
    for row in range(4):
        weights = np.ones(4)
        weights[row] += 1e-6
        moved = (weights @ losses) / (weights @ counts)
        slope = (moved - 18 / 8) / 1e-6
        assert (found[row] - 18 / 8) / 4 == pytest.approx(slope, abs=1e-5)
    assert held_out_scores(tmp_path, "mlm", "loss", 2.3) is None  # of another text
    assert held_out_scores(tmp_path, "mlm", "perplexity", 9.5) is None
    assert held_out_scores(tmp_path, "clm", "loss", 18 / 8) is None


def test_rows_are_in_the_tests_of_a_study_and_losses_of_all_decide(tmp_path: Path) -> None:
    write_yaml(tmp_path / "base.yaml", BASE)
    study = opened(tmp_path, seeds=3)
    rng = np.random.default_rng(1)
    ease = rng.normal(6, 1, 40)
    for variant in study.config.variants:
        for seed in (1, 2, 3):
            run = study.planned.run_of(variant.name, "base", seed)
            losses = ease + rng.normal(0, 0.3, 40)
            finish(study, run, {"mlm/loss": float(losses.mean()), "mlm/accuracy": 0.5})
            write_rows(run.directory(study.study_dir), losses.tolist(), [1] * 40)
    scores = study.scores()
    (measure,) = [each for each in scores.measures if each.is_primary]
    assert measure.name == "mlm loss"
    assert scores.why_described == "mlm loss decides; not all variants have the same nsp"
    found = compare_study(scores)["mlm", "mlm loss"]
    assert (found.rows, found.clusters, found.cluster) == (40, 20, "document")

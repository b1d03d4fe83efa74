"""Further metrics that a config names, beside the tasks' own."""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor
from torchmetrics import Metric

from bertlab.api.batch import pack
from bertlab.api.examples import Example
from bertlab.api.task import Head, TaskLoss
from bertlab.config.merge import read_request
from bertlab.config.run_config import resolve_request
from bertlab.data.module import EvaluationRows
from bertlab.errors import ConfigError, PluginError
from bertlab.model.build import build_metrics
from bertlab.model.evaluation import Evaluations, EvaluationSet
from bertlab.objectives.classification import NextSentencePrediction
from bertlab.plugins import index as plugins
from tests.conftest import Command
from tests.plugins.strange_packages import install

CODE = """
import torch
from torchmetrics import Metric

class Share(Metric):
    '''Share of predictions of a class.

    Args:
        of: the class.
    '''

    tasks = ("nsp",)

    def __init__(self, of: int = 1) -> None:
        super().__init__()
        self.of = of
        self.add_state("found", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds, target):
        self.found += (preds == self.of).sum()
        self.count += len(preds)

    def compute(self):
        return self.found / self.count
"""


class Wrong(Metric):
    """Counts predictions that differ."""

    wrong: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("wrong", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        if preds.dim() > 1:
            raise ValueError("expected classes")
        self.wrong += (preds != target).sum()

    def compute(self) -> Tensor:
        return self.wrong


class WrongOfNobody(Wrong):
    tasks = ("another",)


def update(evaluation: EvaluationSet, preds: list[int], target: list[int]) -> None:
    batch = pack([[1]] * len(preds))
    loss = TaskLoss(torch.tensor(1.0), len(preds), torch.tensor(preds), torch.tensor(target))
    evaluation.update("nsp", NextSentencePrediction(), None, batch, loss)


def test_a_further_metric_is_updated_and_reset_with_the_others() -> None:
    task = NextSentencePrediction()
    evaluation = EvaluationSet({"nsp": task}, "", (), {"wrong": Wrong(), "none": WrongOfNobody()})
    assert "wrong" in evaluation.names("nsp", task)
    assert "none" not in evaluation.names("nsp", task)
    for _ in range(2):
        update(evaluation, [0, 1, 1], [1, 1, 1])
        update(evaluation, [0], [1])
        values = evaluation.compute("nsp", task, tune=False)
        assert (values["wrong"], values["accuracy"]) == (2.0, 0.5)


def loss_over(batches: list[tuple[float, int]]) -> float:
    """The loss of an evaluation whose batches have these sums, each over so many predictions."""
    task = NextSentencePrediction()
    evaluation = EvaluationSet({"nsp": task}, "", (), {})
    for total, count in batches:
        labels = torch.zeros(count, dtype=torch.int64)
        loss = TaskLoss(torch.tensor(total), count, labels, labels)
        evaluation.update("nsp", task, None, pack([[1]] * max(count, 1)), loss)
    return evaluation.compute("nsp", task, tune=False)["loss"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_batch_without_a_loss_leaves_the_evaluation_without_one(place: int) -> None:
    batches = [(6.0, 3), (1.0, 1), (2.0, 4)]
    batches[place] = (math.nan, batches[place][1])
    assert math.isnan(loss_over(batches))


def test_the_loss_is_the_mean_over_predictions_and_not_over_batches() -> None:
    assert loss_over([(6.0, 3), (1.0, 1)]) == pytest.approx(1.75)
    assert loss_over([(6.0, 3), (0.0, 0), (1.0, 1)]) == pytest.approx(1.75)


class SureAndWrong(Wrong):
    def update(self, preds: Tensor, target: Tensor, sure: Tensor, unknown: int = 1) -> None:
        super().update(preds[sure], target[sure])
        self.wrong *= unknown


def test_a_metric_gets_the_extras_that_it_names() -> None:
    asked: list[str] = []

    def sure() -> Tensor:
        asked.append("sure")
        return torch.tensor([True, False, True])

    task = NextSentencePrediction()
    preds, target = torch.tensor([0, 0, 1]), torch.tensor([1, 1, 1])
    extras = {"sure": sure, "preds_of_others": lambda: pytest.fail("nobody asks for it")}
    for metrics, wrong, calls in (({"wrong": Wrong()}, 2, 0), ({"wrong": SureAndWrong()}, 1, 1)):
        evaluation = EvaluationSet({"nsp": task}, "", (), metrics)
        loss = TaskLoss(torch.tensor(1.0), 3, preds, target, extras)
        evaluation.update("nsp", task, None, pack([[1]] * 3), loss)
        assert evaluation.compute("nsp", task, tune=False)["wrong"] == wrong
        assert len(asked) == calls


def test_a_metric_whose_extra_is_missing_is_named() -> None:
    evaluation = EvaluationSet({"nsp": NextSentencePrediction()}, "", (), {"sure": SureAndWrong()})
    with pytest.raises(PluginError, match=r"'sure' cannot take the predictions of nsp.*'sure'"):
        update(evaluation, [0], [1])


@pytest.mark.parametrize(
    ("seen", "scored"),
    [
        ([(0, 0), (0, 1), (1, 2), (2, 3), (2, 4), (2, 5)], {0: 2, 1: 1, 2: 3}),
        ([(2, 5), (0, 1), (2, 4), (0, 0)], {0: 2}),  # limit_val_batches: row 2 was cut
        ([(2, 5), (2, 5), (2, 4)], {}),  # on two devices
    ],
)
def test_a_row_of_which_a_part_was_not_seen_is_not_scored(
    seen: list[tuple[int, int]], scored: dict[int, int]
) -> None:
    rows = [Example({}, f"row {number}") for number in range(3)]
    head = Mock(spec=Head)
    head.score_names.return_value = ["parts"]
    head.metrics.return_value = head.derived_metrics.return_value = {}
    head.decode.side_effect = lambda _, batch: [{} for _ in range(len(batch))]
    head.merge.side_effect = lambda row, parts: {"row": row, "parts": len(parts)}
    found = []
    head.score.side_effect = lambda rows, made: found.extend(made) or {"parts": len(rows)}
    sequences = {"dev": np.array([2, 1, 3])}
    evaluation = EvaluationSet({"tags": head}, "dev", rows, {}, sequences)
    for row, sequence in seen:
        fields = {"row": torch.tensor([row]), "sequence": torch.tensor([sequence])}
        batch = replace(pack([[1]]), fields=fields)
        loss = TaskLoss(torch.tensor(1.0), 1, *torch.zeros(2, 1))
        evaluation.update("tags", head, None, batch, loss)
    values = evaluation.compute("tags", head, tune=True)
    assert {rows.index(each["row"]): each["parts"] for each in found} == scored
    assert values["parts"] == len(scored) or (not scored and math.isnan(values["parts"]))
    assert head.tune.call_count == bool(scored)


def test_two_sets_do_not_share_a_metric() -> None:
    task, metric = NextSentencePrediction(), Wrong()
    sets = [EvaluationSet({"nsp": task}, name, (), {"wrong": metric}) for name in ("a", "b")]
    update(sets[0], [0], [1])
    update(sets[1], [1], [1])
    assert [each.compute("nsp", task, tune=False)["wrong"] for each in sets] == [1.0, 0.0]


def test_a_name_of_the_tasks_own_is_refused() -> None:
    with pytest.raises(ConfigError, match="nsp has a metric accuracy of its own"):
        EvaluationSet({"nsp": NextSentencePrediction()}, "", (), {"accuracy": Wrong()})


def test_a_loss_whose_predictions_its_own_metric_cannot_take_is_named() -> None:
    pairs = NextSentencePrediction()
    evaluation = EvaluationSet({"nsp": pairs}, "", (), {})
    loss = TaskLoss(torch.tensor(1.0), 2, torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))
    words = r"metric 'accuracy' cannot take the predictions of nsp \(preds \(2, 3\) torch.float32"
    with pytest.raises(PluginError, match=words):
        evaluation.update("nsp", pairs, None, pack([[1], [1]]), loss)


def test_memory_that_runs_out_in_a_metric_is_no_fault_of_its_own() -> None:
    def no_memory() -> Tensor:
        raise torch.OutOfMemoryError("Tried to allocate 20.00 GiB")

    pairs = NextSentencePrediction()
    loss = TaskLoss(torch.tensor(1.0), 2, no_memory, torch.zeros(2))
    with pytest.raises(torch.OutOfMemoryError):
        EvaluationSet({"nsp": pairs}, "", (), {}).update("nsp", pairs, None, pack([[1], [1]]), loss)


def test_a_metric_that_is_for_no_task_of_the_run_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pairs = {"nsp": NextSentencePrediction()}
    metric: Any = Wrong()
    for metric.tasks in (("mlm",), "sentence_pair"):  # a text names one
        Evaluations(pairs, (EvaluationRows(),), {"wrong": metric})
        words = (
            f"model.metrics.wrong: is for {metric.tasks}, and what is evaluated is nsp; left out"
        )
        assert words in capsys.readouterr().err
    metric.tasks = ("mlm",)
    assert Evaluations(pairs, (), {"wrong": metric}).names("val") == []  # as in predict
    for metric.tasks in (("mlm", "nsp"), "nsp", ()):
        found = Evaluations(pairs, (EvaluationRows(),), {"wrong": metric})
        assert "val/nsp/wrong" in found.names("val")
    assert capsys.readouterr().err == ""


def test_a_metric_that_cannot_take_the_predictions_is_named() -> None:
    evaluation = EvaluationSet({"nsp": NextSentencePrediction()}, "", (), {"wrong": Wrong()})
    loss = TaskLoss(torch.tensor(1.0), 2, torch.zeros(2, 2), torch.zeros(2, 2))
    words = r"'wrong' cannot take the predictions of nsp \(preds \(2, 2\).*expected classes; `tas"
    with pytest.raises(PluginError, match=words):
        evaluation.update("nsp", NextSentencePrediction(), None, pack([[1], [1]]), loss)


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    groups = {"bertlab.metrics": {"share": "metrics_of_stranger:Share"}}
    install(tmp_path, "stranger", groups, {"metrics_of_stranger": CODE})
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget_installed()
    yield
    plugins.forget_installed()
    sys.modules.pop("metrics_of_stranger", None)


@pytest.mark.slow
def test_fit_logs_a_strangers_metric_and_validate_knows_it_again(
    stranger: None, bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    code, printed, error = bertlab(
        "fit", "--config", tiny_config, "--run_dir", run, "--model.metrics", "[share]",
        "--model.metrics.share.of", 0, "--checkpoint.monitor", "val/nsp/share",
        "--checkpoint.mode", "max",
    )  # fmt: skip
    assert code == 0, error
    assert "share" in printed
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["metrics"] == {"share": {"of": 0}}
    code, printed, error = bertlab("validate", "--ckpt_path", run)
    assert code == 0, error
    assert "share" in printed
    code, printed, error = bertlab("predict", "--ckpt_path", run, "--text", "A [MASK] day.")
    assert code == 0, error


def test_a_class_of_torchmetrics_needs_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = "torchmetrics.classification:MulticlassCohenKappa"
    install(tmp_path, "kappas", {"bertlab.metrics": {"kappa": target}}, {})
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget_installed()
    given = ["-c", "quickstart", "--model.metrics=[kappa]", "--model.metrics.kappa.num_classes=3"]
    model = resolve_request(read_request(given))["model"]
    assert build_metrics(model)["kappa"].num_classes == 3
    plugins.forget_installed()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("[shrae]", "no metric is called 'shrae'; did you mean 'share'?"),
        ("{share: 3}", "model.metrics: found 'share': 3, expected names"),
        ("[share", "model.metrics: cannot read '[share'"),
    ],
)
def test_bad_metrics_are_named(
    stranger: None, bertlab: Command, tiny_config: Path, given: str, words: str
) -> None:
    code, _, error = bertlab("fit", "--config", tiny_config, "--model.metrics", given)
    assert code == 2
    assert words in error

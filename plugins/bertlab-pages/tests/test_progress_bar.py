"""The bar shows steps of the whole run, and leaves standard output to predictions."""

import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from bertlab.data.module import TaskData
from bertlab.training.predictions import JsonLines, PredictionWriter, RowFile
from bertlab_pages.step_bar import StepBar
from tests.conftest import Command


def trainer(step: int, end: float) -> Any:
    """Return a Trainer at a step."""
    data = Mock(spec=TaskData)
    data.total_steps.return_value = end
    metrics = {"train/loss": torch.tensor(10.1234), "tokens_per_second": torch.tensor(123456.0)}
    return Mock(global_step=step, datamodule=data, callback_metrics=metrics)


def bar_of(running: Any) -> StepBar:
    bar = StepBar()
    bar._trainer = running
    return bar


@pytest.mark.parametrize("end", [1_000_000.0, math.inf])
def test_the_end_of_the_bar_is_that_of_the_run(end: float) -> None:
    assert bar_of(trainer(1, end)).total_train_batches == end


def test_figures_as_far_as_they_are_known() -> None:
    running = trainer(1, 2.0)
    shown = bar_of(running).get_metrics(running, Mock())
    assert shown == {"loss": pytest.approx(10.1234), "tok/s": "123,456"}
    assert bar_of(running).get_metrics(Mock(callback_metrics={}), Mock()) == {}


@pytest.mark.slow
def test_a_run_in_a_terminal(
    tiny_config: Path, tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertlab.training.trainer.can_draw", lambda: True)
    monkeypatch.setattr("bertlab.extend.can_draw", lambda: True, raising=False)
    code, out, error = bertlab("fit", "--config", tiny_config, "--run_dir", tmp_path / "run")
    assert code == 0, error
    assert "step" in out
    assert "6/6" in out  # over both epochs
    code, _, error = bertlab(
        *("fit", "--config", tiny_config, "--run_dir", tmp_path / "other"),
        *("--trainer.callbacks+", "TQDMProgressBar"),
    )
    assert code == 0, error  # the user's own bar is the only one
    no = ("--trainer.enable_progress_bar", "false", "--run_dir", tmp_path / "none")
    code, out, error = bertlab("fit", "--config", tiny_config, *no)
    assert code == 0, error
    assert "6/6" not in out


def test_no_line_is_drawn_among_predictions_on_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bar = StepBar()
    running = Mock(progress_bar_callback=bar, datamodule=Mock(spec=TaskData))
    writer = PredictionWriter()
    with writer.into(RowFile(JsonLines()), running.datamodule, None):
        for each in (writer, bar):  # in Lightning's order: the bar comes last
            each.on_predict_start(running, Mock())
        print("a prediction")
        bar.on_predict_end(running, Mock())
    assert capsys.readouterr().out == "a prediction\n"

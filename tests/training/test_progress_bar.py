"""Progress: steps and time left for every kind of run, on one line of 80 columns."""

import io
import math
import re
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from lightning.pytorch.callbacks import Timer
from rich.console import Console

from bertlab.data.module import TaskData
from bertlab.training.callbacks.progress_bar import ProgressBar, figures, how_far
from bertlab.training.predictions import PredictionWriter, RowFile


def trainer(step: int, end: float, limit: tuple[float, float] | None = None) -> Any:
    """Return a Trainer at a step; ``limit`` is the time gone and left of ``trainer.max_time``."""
    data = Mock(spec=TaskData)
    data.total_steps.return_value = end
    timer = Mock(spec=Timer)
    timer.time_elapsed.return_value, timer.time_remaining.return_value = limit or (0.0, None)
    metrics = {"train/loss": torch.tensor(10.1234), "tokens_per_second": torch.tensor(123456.0)}
    return Mock(
        global_step=step, datamodule=data, callbacks=[] if limit is None else [timer],
        callback_metrics=metrics, num_val_batches=[3, 4],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("step", "end", "limit", "share", "words"),
    [
        (20, 100.0, None, 0.2, ["step 20/100", "0:10 gone", "1:20 left"]),  # 10 steps in 10 s
        (10, 100.0, None, 0.1, ["step 10/100", "0:10 gone"]),  # no step of this process yet
        (20, math.inf, (30.0, 90.0), 0.25, ["step 20", "0:10 gone", "1:30 left"]),
        (20, 100.0, (30.0, 10.0), 0.75, ["step 20/100", "0:10 gone", "0:10 left"]),
        (20, math.inf, None, None, ["step 20", "0:10 gone"]),
    ],
)
def test_whatever_ends_a_run(
    step: int,
    end: float,
    limit: tuple[float, float] | None,
    share: float | None,
    words: list[str],
) -> None:
    found = how_far(trainer(step, end, limit), first_step=10, seconds=10.0)
    assert found.share == share
    assert found.words() == words


def test_figures_as_far_as_they_are_known() -> None:
    assert figures(trainer(1, 2.0)) == ["loss 10.123", "123k tok/s"]
    assert figures(Mock(callback_metrics={})) == []


def test_large_numbers_fit_on_a_line() -> None:
    screen = io.StringIO()
    bar = ProgressBar(Console(file=screen, force_terminal=True, width=80, color_system=None))
    module, running = Mock(), trainer(123_456, 1_000_000.0)
    bar.on_train_start(running, module)
    bar._first_step, bar._started = 0, bar._started - 7000  # almost two hours
    for _ in range(2):
        bar._drawn = -math.inf
        bar.on_train_batch_end(running, module, None, Mock(), 0)
    bar.on_validation_start(running, module)
    bar._drawn = -math.inf
    bar.on_validation_batch_end(running, module, None, Mock(), 0)
    bar.on_validation_end(running, module)
    bar.on_train_end(running, module)
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue())
    lines = [line.rstrip() for line in re.split(r"[\r\n]", shown) if line.strip()]
    assert all(len(line) <= 80 for line in lines)
    assert all(line.startswith("step 123,456") for line in lines)  # none is broken in two
    assert re.search(r" 1:56:\d\d gone 13:\d\d:\d\d left loss 10\.123 123k tok/s$", lines[-1])


def test_the_rows_of_a_prediction_are_counted() -> None:
    screen, data = io.StringIO(), Mock(spec=TaskData)
    data.rows_taken_in.side_effect = (12_000, 12_345)
    running = Mock(datamodule=data)
    bar = ProgressBar(Console(file=screen, force_terminal=True, width=80, color_system=None))
    bar.on_predict_start(running, Mock())
    bar._started -= 60
    bar.on_predict_batch_end(running, Mock(), None, Mock(), 0)
    bar.on_predict_end(running, Mock())
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue())
    lines = [line.rstrip() for line in re.split(r"[\r\n]", shown) if line.strip()]
    assert re.search(r"^12,345 rows \S+ 1:00 gone 20[56] rows/s$", lines[-1])
    assert len(lines[-1]) <= 80


def test_no_line_is_drawn_among_predictions_on_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = io.StringIO()
    bar = ProgressBar(Console(file=screen, force_terminal=True, width=80))
    running = Mock(progress_bar_callback=bar, datamodule=Mock(spec=TaskData, rows_taken_in=int))
    writer = PredictionWriter()
    with writer.into(RowFile(None, "jsonl"), running.datamodule, None):
        for each in (writer, bar):  # in Lightning's order: the bar comes last
            each.on_predict_start(running, Mock())
        print("a prediction")
        bar.on_predict_end(running, Mock())
    assert screen.getvalue() == ""
    assert capsys.readouterr().out == "a prediction\n"


def test_an_interrupted_run_gives_the_terminal_back() -> None:
    screen = io.StringIO()
    bar = ProgressBar(Console(file=screen, force_terminal=True, width=80))
    bar.on_train_start(trainer(0, 5.0), Mock())
    bar.on_exception(trainer(0, 5.0), Mock(), KeyboardInterrupt())
    assert screen.getvalue().endswith("\x1b[?25h")  # the cursor is shown again

"""Bars of progress in a terminal and in a notebook: steps, time left, and a few figures."""

import math
import sys
import time
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar as LightningBar
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from bertlab.api.batch import PackedBatch
from bertlab.data.module import TaskData
from bertlab.model.schedule import run_timer
from bertlab.training.console import duration

_REDRAWING_INTERVAL = 0.5  # seconds; reading a loss off a GPU waits for it


@dataclass(frozen=True)
class HowFar:
    """How far training is.

    Attributes:
        step: optimiser steps that are done.
        end: at which it ends; infinite where none ends it.
        seconds: since this process began to train.
        left: seconds until the end, by the speed so far or the time limit; None if not known.
        share: of the whole that is done; None if there is no end.
    """

    step: int
    end: float
    seconds: float
    left: float | None
    share: float | None

    def words(self) -> list[str]:
        """Return the parts of a line: ``step 120/3,000``, ``0:12 gone``, ``4:48 left``."""
        end = f"/{self.end:,.0f}" if math.isfinite(self.end) else ""
        left = [] if self.left is None else [f"{duration(self.left)} left"]
        return [f"step {self.step:,}{end}", f"{duration(self.seconds)} gone", *left]


def how_far(trainer: Trainer, first_step: int, seconds: float) -> HowFar:
    """Return how far a run is, whether steps, epochs, words or a time limit end it."""
    step, data = trainer.global_step, getattr(trainer, "datamodule", None)
    end = data.total_steps(trainer) if isinstance(data, TaskData) else math.inf
    done = step - first_step
    ends = [seconds / done * (end - step)] if done and math.isfinite(end) else []
    shares = [step / end] if math.isfinite(end) else []
    timer = run_timer(trainer)
    limit = None if timer is None else timer.time_remaining()
    if timer is not None and limit is not None:
        ends.append(max(0.0, limit))
        shares.append(timer.time_elapsed() / max(1e-9, timer.time_elapsed() + limit))
    share = max(shares, default=None)  # what ends first ends the run
    return HowFar(step, end, seconds, min(ends, default=None), share)


def figures(trainer: Trainer) -> list[str]:
    """Return the training loss and the speed, as far as they are known: ``loss 5.123``."""
    logged = trainer.callback_metrics
    found = []
    if "train/loss" in logged:
        found.append(f"loss {float(logged['train/loss']):.3f}")
    if "tokens_per_second" in logged:
        thousands = float(logged["tokens_per_second"]) / 1000
        found.append(f"{thousands:.{0 if thousands >= 100 else 1}f}k tok/s")  # 12.3k, 123k
    return found


class ProgressBar(LightningBar):
    """One line in a terminal: steps, a bar, time gone and left, loss, thousands of tokens a second.

    While it evaluates, the line counts the batches of the evaluation instead. While it predicts,
    the line counts the rows that were read: of a stream nobody knows how many come.

    Args:
        console: that is drawn on; the terminal by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console
        self._draws = True
        self._progress: Progress | None = None
        self._line: TaskID | None = None
        self._started = self._drawn = -math.inf
        self._first_step = 0
        self._batches = 0

    def disable(self) -> None:
        """Draw nothing, as on all devices but the first."""
        self._draws = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the line."""
        self._started, self._first_step = time.monotonic(), trainer.global_step
        self._open(f"step {trainer.global_step:,}")
        self._draw(trainer)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
    ) -> None:
        """Draw the line if it is time."""
        if time.monotonic() > self._drawn + _REDRAWING_INTERVAL:
            self._draw(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the last step."""
        self._draw(trainer)
        self._close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Give the terminal back."""
        self._close()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count the batches of an evaluation."""
        self._batches = 0

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draw the evaluation if it is time."""
        self._batches += 1
        if self._progress is None or time.monotonic() <= self._drawn + _REDRAWING_INTERVAL:
            return
        self._drawn = time.monotonic()
        total = sum(trainer.num_val_batches)
        parts = [f"step {trainer.global_step:,}", f"evaluating {self._batches:,}/{total:,}"]
        self._show(" ".join(parts), self._batches / max(1, total), [])

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go back to the line of training."""
        self._draw(trainer)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the line."""
        self._started = time.monotonic()
        self._open("0 rows")

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draw the line if it is time."""
        if time.monotonic() > self._drawn + _REDRAWING_INTERVAL:
            self._draw_rows(trainer, None)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the last row."""
        self._draw_rows(trainer, 1.0)
        self._close()

    def print(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401  Lightning's
        """Print above the line."""
        if self._progress is not None:
            self._progress.console.print(*arguments, **settings)
        else:
            super().print(*arguments, **settings)

    def _open(self, text: str) -> None:
        if not self._draws:
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),  # what the words leave of the line
            TextColumn("{task.fields[rest]}"),
        )
        self._progress = Progress(
            *columns, console=self._console, refresh_per_second=4, expand=True
        )
        self._line = self._progress.add_task(text, total=None, rest="")
        self._progress.start()

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._line = None

    def _draw(self, trainer: Trainer) -> None:
        if self._progress is None:  # reading figures off a GPU waits for it
            return
        self._drawn = time.monotonic()
        found = how_far(trainer, self._first_step, self._drawn - self._started)
        step, *times = found.words()
        self._show(step, found.share, [*times, *figures(trainer)])

    def _draw_rows(self, trainer: Trainer, share: float | None) -> None:
        self._drawn = time.monotonic()
        data, gone = getattr(trainer, "datamodule", None), self._drawn - self._started
        rows = data.rows_taken_in() if isinstance(data, TaskData) else 0
        rate = f"{rows / max(gone, 1e-9):,.0f} rows/s"
        self._show(f"{rows:,} rows", share, [f"{duration(gone)} gone", rate])

    def _show(self, text: str, share: float | None, rest: list[str]) -> None:
        if self._progress is None or self._line is None:
            return
        self._progress.update(
            self._line,
            description=text,
            total=None if share is None else 1.0,
            completed=share or 0.0,
            rest=" ".join(rest),
        )


class NotebookProgress(Callback):
    """A bar in a notebook's output, drawn again in place at most twice a second."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._started = self._drawn = -math.inf
        self._first_step = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show an empty bar."""
        from IPython.display import HTML, display  # noqa: PLC0415  notebooks only

        self._started, self._first_step = time.monotonic(), trainer.global_step
        self._handle = display(HTML(""), display_id=True)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
    ) -> None:
        """Draw the bar if it is time."""
        now = time.monotonic()
        if now > self._drawn + _REDRAWING_INTERVAL:
            self._drawn = now
            self._draw(trainer, now - self._started)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw the last step."""
        self._draw(trainer, time.monotonic() - self._started)

    def _draw(self, trainer: Trainer, seconds: float) -> None:
        from IPython.display import HTML  # noqa: PLC0415

        found = how_far(trainer, self._first_step, seconds)
        share = "" if found.share is None else f'<progress value="{found.share:.4f}"></progress> '
        self._handle.update(HTML(share + " · ".join([*found.words(), *figures(trainer)])))


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules and "IPython" in sys.modules

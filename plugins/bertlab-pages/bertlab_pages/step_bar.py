"""The bar of a run in a terminal or a notebook."""

import math
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar

from bertlab.api import PackedBatch, TaskData

_REDRAWING_INTERVAL = 0.5  # seconds; reading a loss off a GPU waits for it


class StepBar(RichProgressBar):
    """Lightning's bar; in ``fit`` of the steps of the whole run, with loss and tokens a second."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=4)
        self._drawn = 0.0

    @property
    def total_train_batches(self) -> float:
        """Optimiser steps of the run; infinite if no number of them ends it."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        steps = data.total_steps(self.trainer) if isinstance(data, TaskData) else math.inf
        return steps if math.isinf(steps) else int(steps)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the bar once: the end of an epoch is not its end."""
        if self.train_progress_bar_id is None:
            super().on_train_epoch_start(trainer, pl_module)
            self._update(self.train_progress_bar_id, trainer.global_step)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
    ) -> None:
        """Show the step that is done, if it is time."""
        if time.monotonic() > self._drawn + _REDRAWING_INTERVAL:
            self._drawn = time.monotonic()
            done = trainer.global_step - 1  # the parent adds 1
            super().on_train_batch_end(trainer, pl_module, outputs, batch, done)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the last step."""
        self._update(self.train_progress_bar_id, trainer.global_step, hard=True)

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Return the training loss and the speed, as far as they are known."""
        logged, found = trainer.callback_metrics, dict[str, Any]()
        if "train/loss" in logged:
            found["loss"] = float(logged["train/loss"])
        if "tokens_per_second" in logged:
            found["tok/s"] = f"{float(logged['tokens_per_second']):,.0f}"
        return found

    def _get_train_description(self, current_epoch: int) -> str:
        return "step"

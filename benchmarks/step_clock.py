"""When each optimiser step ended, for both sides of a comparison: a line of seconds a step."""

import os
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

VARIABLE = "STEP_CLOCK"  # names the file


def tick() -> None:
    """Append the time, by the clock that all processes of the machine share."""
    with Path(os.environ[VARIABLE]).open("a") as file:
        file.write(f"{time.monotonic()}\n")


class StepClock(Callback):
    """Ticks after each training batch of Lightning; one batch is one step here."""

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401
        batch: Any,  # noqa: ANN401
        batch_idx: int,
    ) -> None:
        """Tick."""
        del trainer, pl_module, outputs, batch, batch_idx
        tick()


class PredictClock(Callback):
    """Ticks when prediction begins and when it has ended."""

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tick."""
        del trainer, pl_module
        tick()

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tick."""
        del trainer, pl_module
        tick()

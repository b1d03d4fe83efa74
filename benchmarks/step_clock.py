"""When each optimiser step ended, for both sides of a comparison.

A line a step: seconds, and the largest memory of a GPU so far, in bytes.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

VARIABLE = "STEP_CLOCK"  # names the file
LOSSES = "STEP_LOSSES"  # names another, for the loss of each step, if it is set


def tick() -> None:
    """Append the time, by the clock that all processes of the machine share."""
    memory = 0
    path = Path(os.environ[VARIABLE])
    if torch.cuda.is_initialized():
        if len(path.read_text().splitlines()) % 10 == 9:  # each 10th: others may run ahead
            torch.cuda.synchronize()
        memory = torch.cuda.max_memory_allocated()
    with path.open("a") as file:
        file.write(f"{time.monotonic()} {memory}\n")


class StepClock(Callback):
    """Ticks after each training batch of Lightning; one batch is one step here."""

    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401
        batch: Any,  # noqa: ANN401
        batch_idx: int,
    ) -> None:
        """Tick."""
        del pl_module, batch, batch_idx
        if trainer.is_global_zero and VARIABLE in os.environ:
            tick()
        if LOSSES in os.environ:
            self.losses.append(outputs["loss"].detach())

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the losses."""
        del trainer, pl_module
        if LOSSES in os.environ:
            Path(os.environ[LOSSES]).write_text(json.dumps(torch.stack(self.losses).tolist()))


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

"""Memory that is free but scattered goes back to the system from time to time."""

import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.heap import return_free_memory

INTERVAL = 30.0  # seconds; asking takes a tenth of one, and memory that is taken again is cleared


class ReturnMemory(Callback):
    """Asks glibc for it twice a minute, around each evaluation, and before each epoch.

    Batches of packed tokens differ in size from step to step. On a CPU that scatters the heap: what
    is in use stays the same, what the system counts grew from 0.8 to 2 GB in an hour of BERT-tiny.
    Data workers are forked where evaluations and epochs begin, and keep what there was.
    """

    def __init__(self) -> None:
        self.returned = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  as Lightning has it
        batch: Any,  # noqa: ANN401
        batch_idx: int,
    ) -> None:
        """Return it if it is time."""
        del trainer, pl_module, outputs, batch, batch_idx
        if time.monotonic() > self.returned + INTERVAL:
            self.return_now()

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  as Lightning has it
        batch: Any,  # noqa: ANN401
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Return it if it is time."""
        del dataloader_idx
        self.on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Return it."""
        self.return_now()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Return it."""
        self.return_now()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Return it."""
        self.return_now()

    def return_now(self) -> None:
        """Return it, and begin to count anew."""
        return_free_memory()
        self.returned = time.monotonic()

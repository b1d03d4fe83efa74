"""A callback that holds a run at chosen steps, so that a test can hurt it there."""

import os
import time
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.api.batch import PackedBatch
from bertlab.training.callbacks import StopOnSignal

FOLDER = "BERTLAB_TEST_GATE"  # of the file that opens it
KILLED, JOINED = 20, 40  # steps
_PATIENCE = 300


class Gate(Callback):
    """Waits before step 21 of two processes for a file, before step 41 of one for a SIGTERM."""

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Wait, where there is something to wait for."""
        folder = Path(os.environ[FOLDER])
        at = (trainer.global_step, trainer.world_size)
        (stop,) = (
            each
            for each in trainer.callbacks  # type: ignore[attr-defined]
            if isinstance(each, StopOnSignal)
        )
        end = time.monotonic() + _PATIENCE
        if at == (KILLED, 2):
            (folder / f"waits-{trainer.global_rank}").touch()
            while not (folder / "open").exists() and time.monotonic() < end:
                time.sleep(0.05)
        if at == (JOINED, 1):
            (folder / "alone").touch()
            while stop.number is None and time.monotonic() < end:
                time.sleep(0.05)

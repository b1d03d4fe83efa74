"""SIGTERM, as a cluster sends it before it takes a machine away: save at once, then stop."""

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException

from bertlab.packed_batch import PackedBatch


class StopOnSigterm(Callback):
    """Saves between two optimiser steps, from where a run goes on bit by bit, and stops it.

    Lightning's own handler stops inside an accumulation window or an evaluation, which cannot be
    repeated exactly, and saves nothing.

    Args:
        file: the checkpoint; written only if SIGTERM comes.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.is_asked = False
        self.is_saved = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take SIGTERM over from Lightning, which gives it back when the run ends."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
    ) -> None:
        """Save where a step ends, if any process was asked to."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        if trainer.world_size > 1:  # all stop at the same step
            self.is_asked = trainer.strategy.reduce_boolean_decision(self.is_asked, all=False)
        if self.is_asked:
            trainer.save_checkpoint(self.file)
            self.is_saved = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save again after an evaluation that was due at that step: it is not to be done twice."""
        if self.is_saved:
            trainer.save_checkpoint(self.file)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Stop before the next step; Lightning counts its batch already, so nothing is saved here.

        Raises:
            SIGTERMException: always, if a checkpoint was asked for and written.
        """
        if self.is_saved:
            raise SIGTERMException

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_asked = True

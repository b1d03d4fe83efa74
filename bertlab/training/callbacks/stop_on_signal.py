"""SIGTERM, or SLURM's warning that a job's time is up: save at once, then stop."""

import os
import signal
import subprocess
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException

from bertlab.api.batch import PackedBatch

REQUEUE = signal.SIGUSR1  # which Lightning takes as well, as ``#SBATCH --signal=USR1@120`` sends it


class StopOnSignal(Callback):
    """Saves between two optimiser steps, from where a run goes on bit by bit, and stops it.

    Lightning's own handlers stop, or save, inside an accumulation window or an evaluation, which
    cannot be repeated exactly.

    Args:
        file: the checkpoint; written only if a signal comes. None to stop without one.

    Attributes:
        number: of the signal that came to this process; once stopping, the same on all devices.
        is_stopping: whether no further step is taken.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.number: int | None = None
        self.is_stopping = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the signals over from Lightning, which gives them back when the run ends."""
        if threading.current_thread() is not threading.main_thread():
            return
        signal.signal(signal.SIGTERM, self._note)
        if SLURMEnvironment.detect() and signal.getsignal(REQUEUE) is not signal.SIG_DFL:
            signal.signal(REQUEUE, self._note)

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
        if not _any_device(trainer, self.number is not None):  # all stop at the same step
            return
        again = _any_device(trainer, self.number == REQUEUE)
        self.number = REQUEUE if again else signal.SIGTERM
        self.is_stopping = True
        self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save again after an evaluation that was due at that step: it is not to be done twice."""
        if self.is_stopping:
            self._save(trainer)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Stop before the next step; Lightning counts its batch already, so nothing is saved here.

        Raises:
            SIGTERMException: always, if a signal came.
        """
        if self.is_stopping:
            raise SIGTERMException

    def _save(self, trainer: Trainer) -> None:
        if self.file is not None:
            trainer.save_checkpoint(self.file)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number


def stopped_by(trainer: Trainer) -> StopOnSignal | None:
    """Return the callback that stopped a trainer's run between two steps; None if none did."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    stops = [each for each in callbacks if isinstance(each, StopOnSignal) and each.is_stopping]
    return stops[0] if stops else None


def queue_again() -> str:
    """Ask SLURM to queue this job once more; return what came of it, in words."""
    job = os.environ.get("SLURM_ARRAY_JOB_ID")
    job = f"{job}_{os.environ.get('SLURM_ARRAY_TASK_ID')}" if job else os.environ["SLURM_JOB_ID"]
    try:
        done = subprocess.run(  # noqa: S603  SLURM's own number
            ["scontrol", "requeue", job],  # noqa: S607  where the cluster has it
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"job {job} is not queued again: scontrol: {error.strerror}"
    if done.returncode:
        return f"job {job} is not queued again: {' '.join(done.stderr.split())}"
    return f"job {job} is queued again"


def _any_device(trainer: Trainer, here: bool) -> bool:
    """Return whether something is so on any device."""
    if trainer.world_size == 1:
        return here
    return bool(trainer.strategy.reduce_boolean_decision(here, all=False))

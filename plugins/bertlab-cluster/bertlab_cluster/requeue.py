"""A job of SLURM whose time is up queues itself again, once its run is saved.

Lightning does so by itself, but saves inside an accumulation window or an evaluation, which cannot
be repeated exactly.
"""

import os
import signal
import subprocess

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.extend import StopOnSignal

REQUEUE = signal.SIGUSR1  # as ``#SBATCH --signal=USR1@120`` sends it


class QueueAgain(Callback):
    """Has a run that got SIGUSR1 in a job of SLURM queued again."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say what to do after the signal, unless Lightning was told not to take it."""
        if SLURMEnvironment.detect() and signal.getsignal(REQUEUE) is not signal.SIG_DFL:
            callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
            for each in callbacks:
                if isinstance(each, StopOnSignal):
                    each.afterwards[REQUEUE] = queue_again


def queue_again() -> str:
    """Ask SLURM to queue this job once more; return what came of it, in words."""
    job = os.environ.get("SLURM_ARRAY_JOB_ID")  # task 3 of array job 71 is 71_3
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

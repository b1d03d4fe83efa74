"""A callback that kills its job at a step, as if the node had lost its power."""

import os
import signal
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer

import fake_slurm
from bertlab.api.batch import PackedBatch

AT = 12  # steps
DIES = "BERTLAB_TEST_DIES"  # path of a file; while it is there, its node will die


class DyingNode(Callback):
    """Kills all processes of its job, once on each node that is to die."""

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Remove the file, and kill."""
        file = Path(os.environ.get(DIES, "none"))
        if trainer.global_step == AT and file.exists():
            file.unlink()
            job = Path(os.environ["FAKE_SLURM"], os.environ["SLURM_JOB_ID"])
            fake_slurm.tell(job, signal.SIGKILL)

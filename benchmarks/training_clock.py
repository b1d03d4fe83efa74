"""How long a training took, from first to last step, evaluations and checkpoints included."""

import json
import time
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer

TRAINING = "training.json"  # in the directory of a run: seconds, CPU seconds


class TrainingClock(Callback):
    """Writes seconds and CPU seconds of a training into the run's directory."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the time."""
        del trainer, pl_module
        self.began = time.monotonic(), time.process_time()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the time since then."""
        del pl_module
        now = time.monotonic(), time.process_time()
        taken = [end - begin for begin, end in zip(self.began, now, strict=True)]
        Path(trainer.default_root_dir, TRAINING).write_text(json.dumps(taken))

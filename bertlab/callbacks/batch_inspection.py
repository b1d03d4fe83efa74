"""Shows every batch to the plugins that want to see it."""

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.hooks import inspect_batch
from bertlab.packed_batch import PackedBatch


class BatchInspection(Callback):
    """Calls the hook ``bertlab_inspect_batch`` before each batch of a ``fit``."""

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Show a batch of training."""
        inspect_batch(batch, "train", trainer.global_step)

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: PackedBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Show a batch of an evaluation."""
        inspect_batch(batch, "validate", trainer.global_step)

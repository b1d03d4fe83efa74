"""``StepAuditing``: computes steps of a run again, where that is exact."""

from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    EarlyStopping,
    LearningRateMonitor,
    ModelSummary,
    ProgressBar,
    Timer,
)
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.optim import Optimizer

from bertlab import check_at_least
from bertlab.api import PackedBatch
from bertlab.extend import FIRST_PARTY, BertModule
from bertlab_guard.corruption import StepAudit, Steps


def step_audit(every: int, has_others: bool) -> list[Callback]:
    """Return the callback for ``check_every``; none for 0, and beside callbacks of the user's.

    Those may change weights between two steps.
    """
    check_at_least("check_every", every, 0)
    return [StepAuditing(every)] if every and not has_others else []


_OURS = {"bertlab", *(name.replace("-", "_") for name in FIRST_PARTY)}
_LIGHTNINGS = (EarlyStopping, LearningRateMonitor, ModelSummary, ProgressBar, Timer)


def _leaves_weights(callback: Callback) -> bool:
    """Tell whether a callback is known to leave weights alone, as not all of a plugin's hooks."""
    package = type(callback).__module__.partition(".")[0]
    return package in _OURS or (package == "lightning" and isinstance(callback, _LIGHTNINGS))


class StepAuditing(Callback):
    """Audits the steps of one process on a CPU; on a GPU, and of several, nothing.

    Args:
        every: steps from one that is computed again to the next.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.audit: StepAudit | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin, if steps are exact here."""
        assert isinstance(pl_module, BertModule)
        on_cpu = trainer.strategy.root_device.type == "cpu"
        is_whole = not isinstance(trainer.strategy, ModelParallelStrategy)  # as fsdp
        alone = trainer.world_size == 1 and is_whole
        if not alone or not on_cpu or len(trainer.optimizers) != 1:
            return
        if pl_module.optimizer_config.recipe.needs_closure:  # steps are taken without one here
            return
        if not all(map(_leaves_weights, trainer.callbacks)):  # type: ignore[attr-defined]
            return
        data, optimizer = trainer.datamodule, trainer.optimizers[0]  # type: ignore[attr-defined]

        def losses(step: int) -> Iterator[Tensor]:
            for part, batch in enumerate(data.training_steps[step]):
                pl_module.seed_draws(step, part)
                with trainer.precision_plugin.train_step_context():
                    total = pl_module.scaled_loss(pl_module.shares(batch))
                yield total / trainer.accumulate_grad_batches

        def clip() -> bool:
            value, by = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
            return bool(pl_module.clip(optimizer, value, by).isfinite())

        steps = Steps(pl_module, optimizer, losses, clip, pl_module.after_step)
        self.audit = StepAudit(steps, self.every)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Note where a step begins."""
        if self.audit is not None and batch_idx % trainer.accumulate_grad_batches == 0:
            self.audit.begin(trainer.global_step)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Look at what the last step left."""
        if self.audit is not None:
            self.audit.before_update(trainer.global_step)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
    ) -> None:
        """Compute the step again, if that is due."""
        assert isinstance(pl_module, BertModule)
        if self.audit is not None and (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.audit.end(trainer.global_step - 1, pl_module.step_loss.total())

"""Callbacks that watch training: loss spikes, heads that do not learn, batches for plugins."""

import statistics
from collections import deque
from itertools import pairwise

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.optim import Optimizer

from bertlab.api.batch import PackedBatch
from bertlab.errors import warn
from bertlab.model.module import BertModule
from bertlab.plugins.hooks import inspect_batch

WINDOW = 50  # logged losses that say how noisy they are
_RECENT = 10  # those that a new one is compared with
_SPIKE = 8.0  # in median differences from one to the next
_SHARE = 0.2  # and in shares of the loss, where it hardly varies
_NATS = 1.0  # and as it is: batches of a task that is nearly learnt differ by many deviations
_CHECKS = 3  # logged steps in a row without a gradient


class LossWatch(Callback):
    """Warns of loss spikes and of heads that get no gradient.

    It looks only at logged steps, so that no step waits for a GPU. A spike is a loss far above the
    median of those before: bad data, or a learning rate that is too high. A dead head is a task
    whose layers get no gradient at all.
    """

    def __init__(self) -> None:
        self.losses: deque[float] = deque(maxlen=WINDOW)
        self.is_high = False
        self.resting: dict[str, int] = {}

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Look at the gradients of each task, and at the loss of the last logged step."""
        every = max(1, trainer.log_every_n_steps)  # type: ignore[attr-defined]  # set by a connector
        if trainer.global_step % every:
            return
        assert isinstance(pl_module, BertModule)
        for name, task in pl_module.named_tasks().items():
            self.resting[name] = self.resting.get(name, 0) + 1 if _rests(task) else 0
            if self.resting[name] == _CHECKS:
                warn(
                    f"{name} has had no gradient at {_CHECKS} logged steps: its layers do not learn"
                )
        loss = trainer.callback_metrics.get("train/loss")
        if loss is not None:
            self._look_at(float(loss), trainer.global_step)

    def _look_at(self, loss: float, step: int) -> None:
        # around 3.0 with differences of 0.1: above max(8 * 0.1, 0.2 * 3.0, 1.0), a loss from 4.0 on
        if len(self.losses) >= _RECENT:
            middle = statistics.median(list(self.losses)[-_RECENT:])
            noise = statistics.median(abs(one - next_) for one, next_ in pairwise(self.losses))
            was_high, above = self.is_high, loss - middle
            self.is_high = above > max(_SPIKE * noise, _SHARE * abs(middle), _NATS)
            if self.is_high and not was_high:  # once for each spike
                warn(
                    f"step {step}: train loss {loss:.3f} jumped above {middle:.3f}, the median of "
                    f"the last {_RECENT} logged"
                )
        self.losses.append(loss)


def _rests(task: nn.Module) -> bool:
    """Whether a task has parameters to train and none has a gradient."""
    trained = [each for each in task.parameters() if each.requires_grad]
    found = [each.grad for each in trained if each.grad is not None]
    return bool(trained) and not any(bool(torch.count_nonzero(each)) for each in found)


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

"""Warnings of loss spikes, heads that do not learn, and rows that are evaluated and trained on."""

import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.optim import Optimizer

from bertlab import Column, Example
from bertlab.extend import BertModule, LabelledData, warn

LOSS_WINDOW = 50  # losses that say how noisy they are
_RECENT = 10  # those that a new one is compared with
_SPIKE = 8.0  # in median differences from one to the next
_SHARE = 0.2  # and in shares of the loss, where it hardly varies
_NATS = 1.0  # and as it is: batches of a task that is nearly learnt differ by many deviations
_CHECKS = 3  # logged steps in a row without a gradient
_IN_BOTH = 0.1  # share of an evaluation set


def jump_above(losses: deque[float], loss: float) -> float | None:
    """Return the median of the last losses if a new one lies far above it; None if not."""
    # around 3.0 with differences of 0.1: above max(8 * 0.1, 0.2 * 3.0, 1.0), a loss from 4.0 on
    if len(losses) < _RECENT:
        return None
    middle = statistics.median(list(losses)[-_RECENT:])
    noise = statistics.median(abs(one - next_) for one, next_ in pairwise(losses))
    high = loss - middle > max(_SPIKE * noise, _SHARE * abs(middle), _NATS)
    return middle if high else None


class LossWatch(Callback):
    """Warns of loss spikes, heads that get no gradient, and texts that are in both splits.

    It looks only at logged steps, so that no step waits for a GPU. A spike is a loss far above the
    median of those before: bad data, or a learning rate that is too high. A dead head is a task
    whose layers get no gradient at all.
    """

    def __init__(self) -> None:
        self.losses: dict[str, deque[float]] = {}  # by the name that they are logged under
        self.high: set[str] = set()
        self.resting: dict[str, int] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count the rows of each evaluation set whose texts are trained on, too."""
        del pl_module
        data = trainer.datamodule  # type: ignore[attr-defined]  # set by a connector
        # of several heads, each has data of its own
        parts: Mapping[str, object] = getattr(data, "parts", {"": data})
        for part in parts.values() if trainer.is_global_zero else ():
            if not isinstance(part, LabelledData) or part.head is None:
                continue
            trained = set(_texts(part.rows["train"].rows, part.head.columns))
            for each in part.evaluation_sets():
                found = sum(read in trained for read in _texts(each.rows, part.head.columns))
                if found > _IN_BOTH * len(each.rows):
                    warn(
                        f"{part.head_name}: {found:,} of the {len(each.rows):,} rows of "
                        f"{each.name or 'validation'} are training rows as well, whatever their "
                        "labels: scores on them say little of new texts"
                    )

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Look at the gradients of each task, and at the loss of the last logged step."""
        every = max(1, trainer.log_every_n_steps)  # type: ignore[attr-defined]  # set by a connector
        if trainer.global_step % every:
            return
        assert isinstance(pl_module, BertModule)
        for name, task in pl_module.named_tasks().items():
            if name not in pl_module.step_loss.by_task:
                continue
            self.resting[name] = self.resting.get(name, 0) + 1 if _rests(task) else 0
            if self.resting[name] == _CHECKS:
                warn(
                    f"{name} has had no gradient at {_CHECKS} logged steps: its layers do not learn"
                )
        # heads, and objectives beside them, have steps of their own, whose losses differ
        tasks = pl_module.named_tasks()
        several = tasks if pl_module.heads and len(tasks) > 1 else ()
        for key in [f"train/{name}/loss" for name in several] or ["train/loss"]:
            loss = trainer.callback_metrics.get(key)
            if loss is not None:
                self._look_at(float(loss), trainer.global_step, key)

    def _look_at(self, loss: float, step: int, key: str = "train/loss") -> None:
        losses = self.losses.setdefault(key, deque(maxlen=LOSS_WINDOW))
        middle = jump_above(losses, loss)
        if middle is not None and key not in self.high:  # once for each spike
            warn(
                f"step {step}: {key.replace('/', ' ')} {loss:.3f} jumped above {middle:.3f}, the "
                "median of the last logged"
            )
            self.high.add(key)
        elif middle is None:
            self.high.discard(key)
        losses.append(loss)


def _texts(rows: Sequence[Example], columns: Sequence[Column]) -> Iterator[int]:
    """Yield a hash of what is read of each row: all but its truth."""
    names = [column.name for column in columns if not column.is_truth]
    return (hash(repr([row.values.get(name) for name in names])) for row in rows)


def _rests(task: nn.Module) -> bool:
    """Whether a task has parameters to train and none has a gradient."""
    trained = [each for each in task.parameters() if each.requires_grad]
    found = [each.grad for each in trained if each.grad is not None]
    return bool(trained) and not any(bool(torch.count_nonzero(each)) for each in found)

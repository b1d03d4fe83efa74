"""The loss of an optimiser step: each task's mean over its predictions in all of its batches.

8 sequences, mlm and nsp: sums of 40 and 8 losses, divided by the counts of the whole step (120 and
24 in a window of three such batches): the shares of the three batches add up to the step's mean.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bertlab.api.batch import PackedBatch
from bertlab.api.task import TaskLoss


def shares_of(losses: Sequence[TaskLoss], counts: Tensor) -> list[Tensor]:
    """Return the share of each task's loss in the mean of its step, scalars in float32.

    Args:
        losses: of a batch, one a task.
        counts: ``(tasks,)`` predictions of each task in the step.
    """
    return [
        loss.sum.float() / count.clamp(min=1)  # nothing to predict: 0 / 1, not NaN
        for loss, count in zip(losses, counts, strict=True)
    ]


def global_counts(
    batch: PackedBatch, names: Sequence[str], device: torch.device, world_size: int
) -> Tensor:
    """Return ``(tasks,)`` int64 predictions of each task in the step, over all devices."""
    counts = torch.tensor([batch.window_counts[name] for name in names])
    if device.type == "cuda":
        counts = counts.pin_memory()  # so that nothing waits for the copy
    counts = counts.to(device, non_blocking=True)
    if world_size > 1:
        torch.distributed.all_reduce(counts)  # here 40, there 44: 84 on both
    return counts


class StepLoss:
    """Adds up the shares of a step's batches, by task."""

    def __init__(self) -> None:
        self.by_task: dict[str, Tensor] = {}

    def add(self, names: Sequence[str], shares: Sequence[Tensor], is_first: bool) -> None:
        """Add a batch's shares; the first of a step begins anew."""
        if is_first:
            self.by_task = {}
        for name, share in zip(names, shares, strict=True):
            self.by_task[name] = self.by_task.get(name, 0) + share.detach()

    def over_devices(self, world_size: int) -> Tensor:
        """Return the ``(tasks,)`` losses of a step that is whole."""
        values = torch.stack(list(self.by_task.values()))  # (tasks,): one exchange for all
        if world_size > 1:
            torch.distributed.all_reduce(values)
        return values

    def total(self) -> float:
        """Return the loss of the last step, in this process."""
        return float(sum(self.by_task.values()))

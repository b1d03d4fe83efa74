"""Choosing one of several classes: loss, accuracy and its baseline, for objectives and heads."""

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from bertlab.api.task import TaskLoss


def classification_loss(
    logits: Tensor,
    labels: Tensor,
    class_weights: Tensor | None = None,
    extras: Mapping[str, Tensor | Callable[[], Tensor]] | None = None,
) -> TaskLoss:
    """Return cross-entropy in nats, summed over the predictions.

    Args:
        logits: ``(K, C)`` float32 scores of the C classes.
        labels: ``(K,)`` int64 class ids; those of -100 do not count.
        class_weights: ``(C,)`` weight of each class in the sum; 1 if None.
        extras: ``(K, …)`` tensors by name, for metrics; as in :class:`TaskLoss`.
    """
    return TaskLoss(
        sum=F.cross_entropy(logits, labels, class_weights, reduction="sum"),
        count=labels.numel(),
        preds=lambda: logits.detach().argmax(-1),
        target=labels,
        extras=extras,
    )


class Accuracy(Metric):
    """Share of predictions that equal their target; exact counts, summed over processes."""

    full_state_update = False
    higher_is_better = True
    correct: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("correct", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count ``(K,)`` class ids against ``(K,)`` targets."""
        self.correct += (preds == target).sum()
        self.count += target.numel()

    def compute(self) -> Tensor:
        """Return the share; NaN of nothing."""
        return self.correct / self.count


class MajorityAccuracy(Metric):
    """Accuracy of always answering the commonest class among the targets seen: a baseline."""

    full_state_update = False
    higher_is_better = True
    targets: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("targets", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Keep ``(B,)`` int64 targets; ``preds`` play no part."""
        del preds
        self.targets.append(target.float())  # what torchmetrics takes a process without any to have

    def compute(self) -> Tensor:
        """Return the share of the commonest class; NaN of nothing."""
        if not len(self.targets):
            return torch.tensor(math.nan)
        targets = dim_zero_cat(self.targets).cpu().long()
        return torch.bincount(targets).max().double() / targets.numel()

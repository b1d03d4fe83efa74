"""Choosing one of several classes: loss and accuracy."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric

from bertlab.tasks import TaskLoss


def classification_loss(logits: Tensor, labels: Tensor) -> TaskLoss:
    """Return cross-entropy in nats, summed over the predictions.

    Args:
        logits: ``(K, C)`` float32 scores of the C classes.
        labels: ``(K,)`` int64 class ids.
    """
    return TaskLoss(
        sum=F.cross_entropy(logits, labels, reduction="sum"),
        count=labels.numel(),
        preds=logits.detach().argmax(-1),
        target=labels,
    )


class Accuracy(Metric):
    """Share of predictions that equal their target; exact counts, summed over processes."""

    full_state_update = False
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

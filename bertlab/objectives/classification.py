"""Choosing one of several classes: loss and metrics, and next-sentence prediction (sec. 3.1)."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from bertlab.api.batch import EncoderOutput, PackedBatch, PackedSequences
from bertlab.api.task import Objective, TaskContext, TaskLoss
from bertlab.encoders.layers import initialize

if TYPE_CHECKING:
    from bertlab.api.rng import CounterRNG


def classification_loss(
    logits: Tensor,
    labels: Tensor,
    class_weights: Tensor | None = None,
    extras: Mapping[str, Tensor | Callable[[], Tensor]] | None = None,
) -> TaskLoss:
    """Return cross-entropy in nats, summed over the predictions.

    Args:
        logits: ``(K, C)`` float32 scores of the C classes.
        labels: ``(K,)`` int64 class ids.
        class_weights: ``(C,)`` weight of each class in the sum; 1 if None.
        extras: ``(K, …)`` tensors by name, for metrics, beside ``logits``; as in :class:`TaskLoss`.
    """
    return TaskLoss(
        sum=F.cross_entropy(logits, labels, class_weights, reduction="sum"),
        count=labels.numel(),
        preds=lambda: logits.detach().argmax(-1),
        target=labels,
        extras={"logits": logits.detach, **(extras or {})},
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


class NextSentencePrediction(Objective):
    """Tell whether segment B follows segment A in its document (label 0) or not (label 1).

    ``classifier`` is Hugging Face's ``cls.seq_relationship``.
    """

    requires_pairs = True
    classifier: nn.Linear

    def build(self, context: TaskContext) -> None:
        """Create the classifier of the pooled output."""
        self.classifier = nn.Linear(context.encoder.hidden_size, 2)
        initialize(self, context.encoder.initializer_range)

    def prepare(self, sequences: PackedSequences, rng: "CounterRNG", training: bool) -> int:
        """Return the number of sequences; the sampler wrote ``next_sentence_label`` ``(B,)``."""
        del rng, training
        return len(sequences.cu_seqlens) - 1

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return none: the pooled output is read."""
        return batch.input_ids[:0]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, summed in float32 over the B sequences."""
        labels = batch.fields["next_sentence_label"]
        logits = self.classifier(output.pooled).float()
        return classification_loss(logits, labels)

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy`` and ``majority_accuracy``, its baseline."""
        return {"accuracy": Accuracy(), "majority_accuracy": MajorityAccuracy()}

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"is_next_probability": p}`` of each pair, nothing of a single segment."""
        probabilities = self.classifier(output.pooled).float().softmax(-1)[:, 0].tolist()
        last = batch.token_type_ids[batch.cu_seqlens[1:].long() - 1].tolist()  # 1: has a B
        return [
            {"is_next_probability": p} if segment == 1 else {}
            for p, segment in zip(probabilities, last, strict=True)
        ]

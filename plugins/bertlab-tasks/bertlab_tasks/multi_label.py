"""Several labels, or none, for a text: topics, tags of a post, toxic in which ways."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MultilabelExactMatch, MultilabelF1Score

from bertlab import ClassifierHead, check_share
from bertlab.api import (
    Column,
    DataError,
    EncoderOutput,
    Example,
    Features,
    Labels,
    PackedBatch,
    TaskContext,
    TaskLoss,
    Tokenizer,
)
from bertlab.extend import text_features


class MultiLabel(ClassifierHead):
    """Predict for each of K labels whether it holds: dropout and one linear layer, ``classifier``.

    A row's labels are a list, in a table's cell parted by ``|``, ``;`` or ``,``. An empty one says
    that none holds.

    Args:
        threshold: probability from which on a label is predicted.
        dropout: dropout on the pooled output; the encoder's ``hidden_dropout_prob`` if not given.

    Raises:
        ConfigError: if an argument is out of range.
    """

    columns = (Column("text"), Column("labels", "labels", is_truth=True, aliases=("label",)))
    monitor = ("micro_f1", "max")
    huggingface = "BertForSequenceClassification"
    problem_type = "multi_label_classification"

    def __init__(self, threshold: float = 0.5, dropout: float | None = None) -> None:
        super().__init__(dropout)
        check_share("model.head.threshold", threshold, ends=False)
        self.threshold = threshold

    def labels_of(self, example: Example) -> Iterable[str]:
        """Return the names of the labels that hold."""
        return map(str, example.values["labels"])

    def add_layers(self, context: TaskContext) -> None:
        """Create the classifier, H to K labels.

        Raises:
            DataError: if no training row has a label.
        """
        if not self._classes:
            raise DataError(
                "training data: labels: found none in any row, expected names; check data.columns"
            )
        self.add_classifier(context.encoder, len(self._classes))

    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return ``[CLS] text [SEP]``; what does not fit is cut off the end.

        Raises:
            DataError: if the text is empty or a label unknown.
            ConfigError: if not even one token fits.
        """
        features = text_features(example, tokenizer, max_seq_length)
        if "labels" in example.values:
            found = example.values["labels"]
            if not isinstance(found, list | tuple):
                raise DataError(f"{example.where}: labels: found {found!r}, expected a list")
            numbers = {self._classes.id_of(name, example.where, "labels") for name in found}
            features.ragged["labels"] = np.array(sorted(numbers), np.int64)
        return [features]

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return none: the pooled output is read."""
        return batch.input_ids[:0]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return binary cross-entropy in nats, the mean over K labels, summed over B texts."""
        logits = self.classify(output.pooled)  # (B, K)
        truth = self._truth(batch, logits)
        each = F.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
        loss = each / logits.shape[1]
        return TaskLoss(loss, len(logits), self._holds(logits), truth.long())

    def metrics(self) -> dict[str, Metric]:
        """Return F1 over all labels together and as a mean over labels, and whole rows right."""
        given: dict[str, Any] = {"num_labels": len(self._classes), "validate_args": False}
        return {
            "micro_f1": MultilabelF1Score(average="micro", **given),
            "macro_f1": MultilabelF1Score(average="macro", **given),
            "exact_match": MultilabelExactMatch(**given),
        }

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"labels": [name, …], "scores": {name: probability}}`` of each text."""
        del batch
        logits, names = self.classify(output.pooled), self._classes.names
        return [
            {
                "labels": [name for name, is_there in zip(names, holds, strict=True) if is_there],
                "scores": dict(zip(names, scores, strict=True)),
            }
            for holds, scores in zip(
                self._holds(logits).tolist(), logits.sigmoid().tolist(), strict=True
            )
        ]

    def _holds(self, logits: Tensor) -> Tensor:
        return (logits.detach().sigmoid() >= self.threshold).long()

    def _truth(self, batch: PackedBatch, logits: Tensor) -> Tensor:
        # labels [1, 0, 2] with cu_seqlens [0, 1, 1, 3] -> rows [0, 2, 2]: row 1 has none
        borders = batch.fields["labels_cu_seqlens"].long()
        rows = torch.arange(len(logits), device=logits.device).repeat_interleave(borders.diff())
        truth = torch.zeros_like(logits)
        truth[rows, batch.fields["labels"].long()] = 1.0
        return truth

    @property
    def _classes(self) -> Labels:
        return self.labels or Labels((), ())

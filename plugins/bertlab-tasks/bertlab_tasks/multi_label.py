"""Several labels, or none, for a text: topics, tags of a post, toxic in which ways."""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MultilabelExactMatch, MultilabelF1Score
from torchmetrics.utilities import dim_zero_cat

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

_HASHES = 2**24 - 3  # the largest prime below what float32 counts to


class _Sets(Metric):
    """Counts of what holds over all rows: labels, and whole rows by a hash of their labels."""

    full_state_update = False
    counts: Tensor
    hashes: list[Tensor]
    reads_truth: ClassVar[bool] = True

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(num_labels, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("hashes", [], dist_reduce_fx="cat")
        draw = torch.Generator().manual_seed(0)
        self._weights = torch.randint(0, _HASHES, (num_labels,), generator=draw)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count ``(B, K)`` labels that are predicted, or that are true."""
        rows = target if self.reads_truth else preds  # (B, K)
        self.counts += rows.sum(0)
        hashes = (rows * self._weights.to(rows.device)).sum(1) % _HASHES
        self.hashes.append(hashes.float())  # what torchmetrics takes a process without any to have

    def _rows(self) -> Tensor:
        return dim_zero_cat(self.hashes) if len(self.hashes) else torch.zeros(0)


class PredictedSets(_Sets):
    """Number of different sets of labels that are predicted; 1 is a degenerate run."""

    reads_truth = False

    def compute(self) -> Tensor:
        """Return the number."""
        return torch.tensor(len(torch.unique(self._rows())))


class MajoritySet(_Sets):
    """Share of rows that have the most frequent set of labels: a baseline of ``exact_match``."""

    def compute(self) -> Tensor:
        """Return the share; NaN of nothing."""
        rows = self._rows()
        return torch.unique(rows, return_counts=True)[1].max() / len(rows) if len(rows) else _nan()


class ConstantF1(_Sets):
    """F1 of giving every row the same labels, the best there are: a baseline.

    Args:
        num_labels: K.
        average: ``micro``, over all labels together; ``macro``, the mean over labels.
    """

    def __init__(self, num_labels: int, average: Literal["micro", "macro"]) -> None:
        super().__init__(num_labels)
        self.average = average

    def compute(self) -> Tensor:
        """Return F1; NaN of nothing."""
        rows, counts = len(self._rows()), self.counts.cpu().double()  # (K,)
        if not rows:
            return _nan()
        if self.average == "macro":
            return (2 * counts / (rows + counts)).mean()
        # the k commonest labels: 2 * true positives / (k * rows + all that are true)
        found = counts.sort(descending=True).values.cumsum(0)
        given = torch.arange(1, len(counts) + 1) * rows
        return (2 * found / (given + counts.sum())).max()


def _nan() -> Tensor:
    return torch.tensor(torch.nan)


class MultiLabel(ClassifierHead):
    """Predict for each of K labels whether it holds: dropout and one linear layer, ``classifier``.

    A row's labels are a list, also one that was printed into a table's cell; or names in a cell,
    parted by ``|``, ``;`` or ``,``, one of them for a file; or a column of 0 and 1 for each label.
    An empty one says that none holds. Each metric stands beside that of the best answer that is
    the same for all rows: ``majority_micro_f1``, ``majority_macro_f1``, ``majority_exact_match``.

    Args:
        threshold: probability from which on a label is predicted.
        dropout: dropout on the pooled output; the encoder's ``hidden_dropout_prob`` if not given.

    Raises:
        ConfigError: if an argument is out of range.
    """

    columns = (Column("text"), Column("labels", "labels", True, aliases=("label",)))
    monitor = ("micro_f1", "max")
    shares = ("micro_f1", "macro_f1", "exact_match")
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
            "majority_micro_f1": ConstantF1(len(self._classes), "micro"),
            "majority_macro_f1": ConstantF1(len(self._classes), "macro"),
            "majority_exact_match": MajoritySet(len(self._classes)),
            "predicted_sets": PredictedSets(len(self._classes)),
        }

    def warning(self, values: dict[str, float]) -> str | None:
        """Return a warning if all rows get the same labels, or none."""
        if values.get("predicted_sets") != 1 or values.get("majority_exact_match") == 1:
            return None
        what = "no label is" if values.get("micro_f1") == 0 else "the same labels are"
        return (
            f"{what} predicted for every row; train longer, or with another "
            "model.optimizer.learning_rate or a lower model.head.threshold"
        )

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

"""What the heads with a ``classifier`` share: dropout and one linear layer (paper fig. 4).

Classification and regression of whole sequences (paper sec. 4.1), and their metrics.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import BinaryF1Score
from torchmetrics.utilities import dim_zero_cat

from bertlab.api.batch import EncoderOutput, PackedBatch
from bertlab.api.encoder import Encoder
from bertlab.api.examples import Column, Example, Labels, number_of
from bertlab.api.task import Head, TaskContext, TaskLoss
from bertlab.encoders.layers import Dropout, initialize
from bertlab.errors import ConfigError, DataError, check_share, nearest
from bertlab.objectives.classification import Accuracy, MajorityAccuracy, classification_loss


class ClassCounts(Metric):
    """A metric of how often each of K classes is true, predicted, and both (right).

    Three counts a class and no table of all pairs: memory grows with K, not with its square.
    """

    full_state_update = False
    right: Tensor
    true: Tensor
    predicted: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        for name in ("right", "true", "predicted"):
            zeros = torch.zeros(num_classes, dtype=torch.long)
            self.add_state(name, zeros, dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count ``(B,)`` class ids against ``(B,)`` targets."""
        # true 0 2 2, predicted 0 2 1: right [1, 0, 1], true [1, 0, 2], predicted [1, 1, 1]
        classes = len(self.true)
        self.right += torch.bincount(target[preds == target], minlength=classes)
        self.true += torch.bincount(target, minlength=classes)
        self.predicted += torch.bincount(preds, minlength=classes)

    def compute(self) -> Tensor:
        """Return the metric as a scalar; NaN of nothing."""
        if not self.true.any():
            return torch.tensor(math.nan)
        return self.of(self.right.cpu(), self.true.cpu(), self.predicted.cpu())

    @abstractmethod
    def of(self, right: Tensor, true: Tensor, predicted: Tensor) -> Tensor:
        """Return the metric of three ``(K,)`` int64 counts."""


class Matthews(ClassCounts):
    """Matthews correlation coefficient of K classes; 0 if one class is all of either side."""

    higher_is_better = True

    def of(self, right: Tensor, true: Tensor, predicted: Tensor) -> Tensor:
        """Return the coefficient, -1 to 1 (Gorodkin 2004, for K classes)."""
        true, predicted, total = true.double(), predicted.double(), true.sum().double()
        covariance = right.sum() * total - true @ predicted
        spread = (total**2 - true @ true) * (total**2 - predicted @ predicted)
        return covariance / spread.sqrt() if spread > 0 else torch.zeros_like(spread)


class MacroF1(ClassCounts):
    """Mean F1 of the classes that are true or predicted at least once."""

    higher_is_better = True

    def of(self, right: Tensor, true: Tensor, predicted: Tensor) -> Tensor:
        """Return the mean, 0 to 1, in float32 as torchmetrics' MulticlassF1Score."""
        either = true + predicted  # F1 of a class is 2 right / (true + predicted)
        return (2 * right / either.clamp(min=1) / (either > 0).sum()).sum()


class PredictedClasses(ClassCounts):
    """Number of classes that are predicted at least once; 1 is a degenerate run."""

    def of(self, right: Tensor, true: Tensor, predicted: Tensor) -> Tensor:
        """Return the number."""
        del right, true
        return (predicted > 0).sum()


class Pearson(Metric):
    """Pearson correlation of scores, computed in float64 over all of them.

    NaN, as in scipy, if all predictions or all targets are equal, and of fewer than two.
    """

    full_state_update = False
    higher_is_better = True
    preds: list[Tensor]
    targets: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("preds", [], dist_reduce_fx="cat")
        self.add_state("targets", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Keep ``(B,)`` predicted scores and ``(B,)`` targets, floating point."""
        self.preds.append(preds)
        self.targets.append(target)

    def compute(self) -> Tensor:
        """Return the coefficient, -1 to 1, or NaN."""
        if not len(self.preds):
            return torch.tensor(math.nan)
        # on the CPU: not every accelerator has float64
        return self.of(
            dim_zero_cat(self.preds).cpu().double(), dim_zero_cat(self.targets).cpu().double()
        )

    def of(self, preds: Tensor, target: Tensor) -> Tensor:
        """Return the coefficient of ``(N,)`` float64 predictions and targets."""
        return _correlation(preds, target)


class Spearman(Pearson):
    """Spearman's rank correlation: Pearson's of the ranks, ties sharing their mean rank."""

    def of(self, preds: Tensor, target: Tensor) -> Tensor:
        """Return the coefficient of ``(N,)`` float64 predictions and targets."""
        if preds.isnan().any() or target.isnan().any():
            return torch.tensor(math.nan)
        return _correlation(_ranks(preds), _ranks(target))


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    if (a == a[0]).all() or (b == b[0]).all():  # the mean of equal values need not equal them
        return torch.tensor(math.nan)
    a, b = a - a.mean(), b - b.mean()
    cosine: Tensor = (a / a.norm()) @ (b / b.norm())  # no product of two large norms
    return cosine.clamp(-1, 1)  # rounding


def _ranks(values: Tensor) -> Tensor:
    """Return ``(N,)`` float64 ranks from 1."""
    # [3, 1, 3, 2]: below [2, 0, 2, 1], not_above [4, 1, 4, 2] -> [3.5, 1, 3.5, 2]
    ascending = values.sort().values
    below = torch.searchsorted(ascending, values)
    not_above = torch.searchsorted(ascending, values, right=True)
    return (below + not_above + 1).double() / 2


class ClassifierHead(Head):
    """A head that adds dropout and one linear layer, ``classifier``.

    Args:
        dropout: on what the classifier reads; the encoder's ``hidden_dropout_prob`` if not given.

    Attributes:
        dropout_prob: the argument; None if not given.

    Raises:
        ConfigError: if the dropout is not a probability.
    """

    classifier: nn.Linear

    def __init__(self, dropout: float | None = None) -> None:
        super().__init__()
        check_share("model.head.dropout", dropout)
        self.dropout_prob = dropout

    def add_classifier(self, encoder: Encoder, outputs: int) -> None:
        """Create both layers, for hidden states or the pooled output; all weights are new."""
        given = self.dropout_prob
        self.dropout = Dropout(encoder.hidden_dropout_prob if given is None else given)
        self.classifier = nn.Linear(encoder.hidden_size, outputs)
        initialize(self, encoder.initializer_range)

    def classify(self, states: Tensor) -> Tensor:
        """Return ``(K, C)`` float32 scores of C outputs for ``(K, H)`` states."""
        scores: Tensor = self.classifier(self.dropout(states)).float()
        return scores


ClassWeights = Literal["balanced"] | list[float] | dict[str, float] | None


class SequenceClassifier(ClassifierHead):
    """Dropout and one linear layer, ``classifier``, on the pooled output.

    The best checkpoint is the one with the highest ``accuracy``, in regression ``pearson``.

    Args:
        regression: predict a number and not a class (STS-B): one output, mean squared error.
        class_weights: weight of each class in the loss: a list in the order of the labels, a
            mapping from label to weight (labels that it does not name weigh 1), or ``balanced``,
            the inverse of how often the class occurs. Weights are scaled so that the mean over the
            training rows is 1.
        dropout: dropout on the pooled output; the encoder's ``hidden_dropout_prob`` if not given.

    Raises:
        ConfigError: if an argument is out of range, or classes are weighted in regression.
    """

    huggingface = "BertForSequenceClassification"
    monitor = ("accuracy", "max")
    shares = ("accuracy", "f1", "macro_f1")
    label_weights: Tensor | None

    def __init__(
        self,
        regression: bool = False,
        class_weights: ClassWeights = None,
        dropout: float | None = None,
    ) -> None:
        super().__init__(dropout)
        if isinstance(class_weights, str) and class_weights != "balanced":
            raise ConfigError(
                f"model.head.class_weights: found {class_weights!r}"
                f"{nearest(class_weights, ['balanced'])} (expected balanced, a list of numbers, "
                "or a mapping from label to number)"
            )
        if regression and class_weights is not None:
            told = "model.head.class_weights: regression has no classes to weigh"
            raise ConfigError(f"{told}; remove it, or set model.head.regression: false")
        self.regression = regression
        self.class_weights = class_weights
        if regression:
            # both depend on the argument
            self.monitor = ("pearson", "max")  # type: ignore[misc]
            asked = "model.head.regression: true"
            columns = [
                replace(each, kind="number", setting=asked) if each.is_truth else each
                for each in self.columns
            ]
            self.columns = tuple[Column, ...](columns)  # type: ignore[misc]

    def labels_of(self, example: Example) -> Iterable[str]:
        """Return the example's class name; nothing in regression."""
        return () if self.regression else (_class_name(example),)

    def add_layers(self, context: TaskContext) -> None:
        """Create the classifier, H to K labels, or to 1 in regression."""
        weights = None
        if not self.regression:
            _check_labels(self._classes)
            weights = _weights(self.class_weights, self._classes)
        self.register_buffer("label_weights", weights, persistent=False)
        self.add_classifier(context.encoder, 1 if self.regression else len(self._classes))

    def truth_of(self, example: Example) -> dict[str, float | int]:
        """Return the field ``label`` of a labelled example: a class id or a score; else nothing."""
        if "label" not in example.values:
            return {}
        if self.regression:
            return {"label": number_of(example.values["label"], f"{example.where}: label")}
        return {"label": self._classes.id_of(_class_name(example), example.where)}

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return none: the pooled output is read."""
        return batch.input_ids[:0]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, or squared error, summed in float32 over B sequences."""
        logits, labels = self.classify(output.pooled), batch.fields["label"]
        if not self.regression:
            return classification_loss(logits, labels, self.label_weights)
        scores, labels = logits.squeeze(-1), labels.float()
        error = F.mse_loss(scores, labels, reduction="sum")
        return TaskLoss(error, labels.numel(), scores.detach(), labels)

    def metrics(self) -> dict[str, Metric]:
        """Return metrics of classes, or ``pearson`` and ``spearman`` in regression.

        ``f1`` is that of the second of two labels; with more there is none. ``matthews`` is 0 if
        one class is predicted for everything, ``f1`` if its class is neither predicted nor true;
        the correlations are then NaN.
        """
        if self.regression:
            return {"pearson": Pearson(), "spearman": Spearman()}
        classes = len(self._classes)
        metrics: dict[str, Metric] = {"accuracy": Accuracy(), "matthews": Matthews(classes)}
        if classes == 2:
            metrics["f1"] = BinaryF1Score(validate_args=False)
        return metrics | {
            "macro_f1": MacroF1(classes),
            "predicted_classes": PredictedClasses(classes),
            "majority_accuracy": MajorityAccuracy(),
        }

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"label": name, "scores": {name: probability}}``, or ``{"score": number}``."""
        del batch
        logits = self.classify(output.pooled)
        if self.regression:
            return [{"score": score} for score in logits.squeeze(-1).tolist()]
        names = self._classes.names
        return [
            {"label": names[best], "scores": dict(zip(names, scores, strict=True))}
            for best, scores in zip(
                logits.argmax(-1).tolist(), logits.softmax(-1).tolist(), strict=True
            )
        ]

    def warning(self, values: dict[str, float]) -> str | None:
        """Return a warning if one answer is given to everything (paper sec. 4.1: small data)."""
        advice = (
            "if it stays so, the run is degenerate, as happens on small data sets (paper sec. "
            "4.1): try another seed_everything, a lower model.optimizer.learning_rate or more "
            "model.optimizer.warmup_steps"
        )
        if self.regression:
            if math.isnan(values.get("pearson", 0.0)):
                return f"pearson is NaN as all predictions, or all true scores, equal; {advice}"
        elif values.get("predicted_classes") == 1 and values.get("majority_accuracy", 1.0) < 1:
            return f"one label is predicted for every row, though there are several; {advice}"
        return None

    @property
    def _classes(self) -> Labels:
        return self.labels or Labels((), ())


def _class_name(example: Example) -> str:
    label = example.values["label"]
    if label is None or label == "" or label != label:  # noqa: PLR0124  NaN of an empty CSV cell
        raise DataError(f"{example.where}: label: found {label!r}, expected the name of a class")
    return str(label)


def _check_labels(labels: Labels) -> None:
    found = [name for name, count in zip(labels.names, labels.counts, strict=True) if count]
    found = found or list(labels.names)  # counts are unknown where a model comes without its data
    if len(found) < 2:
        names = f"only {found[0]!r}" if found else "none"
        told = f"training data: label: found {names}, expected two or more different labels"
        raise DataError(f"{told}; check data.columns and the training file")
    if len(found) > 20 and _are_fractions(found):
        raise DataError(
            f"training data: label: found {len(found)} different numbers such as {found[1]}, which "
            "look like scores and not like classes; set model.head.regression: true to predict them"
        )


def _are_fractions(names: Sequence[str]) -> bool:
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def _weights(given: ClassWeights, labels: Labels) -> Tensor | None:
    """Return ``(K,)`` float32 weights whose mean over the training rows is 1."""
    counts = torch.tensor(labels.counts, dtype=torch.float64)
    if given is None:
        return None
    if given == "balanced":
        weights = 1 / counts.clamp(min=1)
    else:
        weights = torch.tensor(_weight_list(given, labels.names), dtype=torch.float64)
    # counts [30, 10], balanced: 30 * 0.667 + 10 * 2 = 40 -> [0.667, 2]
    rows = counts.sum().clamp(min=1)
    mean = (weights @ counts) / rows if counts.any() else weights.new_ones(())
    return (weights / mean).float()


def _weight_list(given: list[float] | dict[str, float], names: Sequence[str]) -> list[float]:
    where = "model.head.class_weights"
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise ConfigError(
                    f"{where}: found {name!r}{nearest(str(name), names)}, which is not a label of "
                    f"the training data (expected: {', '.join(names[:12])})"
                )
        weights = [given.get(name, 1.0) for name in names]
    else:
        weights = list(given)
    if len(weights) != len(names):
        raise ConfigError(
            f"{where}: found {len(weights)} weights, expected one for each of the {len(names)} "
            f"labels, in this order: {', '.join(names[:12])}"
        )
    for name, weight in zip(names, weights, strict=True):
        if not 0 < weight < math.inf:
            raise ConfigError(f"{where}: found {weight} for {name!r}, expected a number above 0")
    return weights

"""Metrics of replaced-token detection, and how the generator does."""

from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import BinaryF1Score, BinaryPrecision, BinaryRecall

from bertlab import Accuracy, MajorityAccuracy


class GeneratorAccuracy(Accuracy):
    """Share of the generator's samples that are the original token."""

    def update(self, preds: Tensor, target: Tensor, selected: Tensor) -> None:  # type: ignore[override]
        """Count the ``(N,)`` targets that are not replaced among the ``selected`` ``(N,)`` bool."""
        del preds
        replaced = target[selected]
        # 0 is "not replaced": equal to it is a sample that is the original
        super().update(replaced, replaced.new_zeros(len(replaced)))


def replacement_metrics() -> dict[str, Metric]:
    """Return fresh metrics by name.

    ``majority_accuracy`` is that of calling every token an original. ``precision``, ``recall`` and
    ``f1`` are of finding the replaced ones; 0 where none is found. ``generator_accuracy`` is that
    of the generator's samples, not of its best guesses: the better it is, the harder the detection.
    """
    return {
        "accuracy": Accuracy(),
        "majority_accuracy": MajorityAccuracy(),
        "precision": BinaryPrecision(validate_args=False),
        "recall": BinaryRecall(validate_args=False),
        "f1": BinaryF1Score(validate_args=False),
        "generator_accuracy": GeneratorAccuracy(),
    }

"""Metrics of replaced-token detection: of ids that are 1 for replaced, plus 2 for selected."""

from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import BinaryF1Score, BinaryPrecision, BinaryRecall
from torchmetrics.wrappers import LambdaInputTransformer

from bertlab import Accuracy, MajorityAccuracy

SELECTED = 2


class GeneratorAccuracy(Accuracy):
    """Share of the generator's samples that are the original token."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count the selected of ``(N,)`` targets that are not replaced."""
        del preds
        replaced = target[target >= SELECTED] - SELECTED
        super().update(replaced, replaced.new_zeros(len(replaced)))


def replacement_metrics() -> dict[str, Metric]:
    """Return fresh metrics by name.

    ``majority_accuracy`` is that of calling every token an original. ``precision``, ``recall`` and
    ``f1`` are of finding the replaced ones; 0 where none is found. ``generator_accuracy`` is that
    of the generator's samples, not of its best guesses: the better it is, the harder the detection.
    """
    return {
        "majority_accuracy": _of_replaced(MajorityAccuracy()),
        "precision": _of_replaced(BinaryPrecision(validate_args=False)),
        "recall": _of_replaced(BinaryRecall(validate_args=False)),
        "f1": _of_replaced(BinaryF1Score(validate_args=False)),
        "generator_accuracy": GeneratorAccuracy(),
    }


def _of_replaced(metric: Metric) -> Metric:
    return LambdaInputTransformer(metric, _is_replaced, _is_replaced)


def _is_replaced(ids: Tensor) -> Tensor:
    return ids % SELECTED

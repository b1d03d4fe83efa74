"""Metrics of classes and scores that torchmetrics lacks, or has less exactly.

Its binary Matthews coefficient is not 0 where one class is predicted for everything. Its Pearson
coefficient adds up moments in float32, which is off by 6e-4 for scores around 1e6, and its Spearman
coefficient is off by 1e-6 on small sets.
"""

import math
from abc import abstractmethod

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat


class ConfusionMetric(Metric):
    """A metric of the counts of every (target, predicted) pair of classes.

    Args:
        num_classes: number of classes K; ids are below it.
    """

    full_state_update = False
    confusion: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        zeros = torch.zeros(num_classes, num_classes, dtype=torch.int64)
        self.add_state("confusion", zeros, dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count ``(B,)`` int64 predicted class ids against ``(B,)`` targets."""
        # targets [0, 1, 1], predictions [1, 1, 0] -> [[0, 1], [1, 1]]
        cells = torch.bincount(target * self.num_classes + preds, minlength=self.num_classes**2)
        self.confusion += cells.view_as(self.confusion)

    def compute(self) -> Tensor:
        """Return the metric as a scalar; NaN of nothing."""
        if not self.confusion.any():
            return torch.tensor(math.nan)
        return self.of(self.confusion.cpu().double())

    @abstractmethod
    def of(self, confusion: Tensor) -> Tensor:
        """Return the metric of ``(K, K)`` float64 counts: rows are targets, columns predictions."""


class Matthews(ConfusionMetric):
    """Matthews correlation coefficient of K classes; 0 if one class is all of either side."""

    higher_is_better = True

    def of(self, confusion: Tensor) -> Tensor:
        """Return the coefficient, -1 to 1 (Gorodkin 2004, for K classes)."""
        true, predicted, total = confusion.sum(1), confusion.sum(0), confusion.sum()
        covariance = confusion.trace() * total - true @ predicted
        spread = (total**2 - true @ true) * (total**2 - predicted @ predicted)
        return covariance / spread.sqrt() if spread > 0 else torch.zeros_like(spread)


class PredictedClasses(ConfusionMetric):
    """Number of classes that are predicted at least once; 1 is a degenerate run."""

    def of(self, confusion: Tensor) -> Tensor:
        """Return the number."""
        return (confusion.sum(0) > 0).sum()


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

"""Expected calibration error: whether a head is as often right as it is sure."""

import torch
from torch import Tensor

from bertlab.api import ConfigError, Metric


class CalibrationError(Metric):
    """Expected calibration error (Guo et al. 2017) of tasks whose loss is ``classification_loss``.

    Predictions are put into bins by the probability of the predicted class. The error is the mean,
    over predictions, of the gap between a bin's accuracy and its mean probability: 0 of a perfectly
    calibrated model, at most 1.

    Args:
        bins: of equal width, from probability 0 to 1.
    """

    full_state_update = False
    higher_is_better = False
    count: Tensor
    right: Tensor
    probability: Tensor

    def __init__(self, bins: int = 15) -> None:
        super().__init__()
        if bins < 1:
            raise ConfigError(f"model.metrics.calibration_error.bins: found {bins}, expected >= 1")
        self.bins = bins
        # (bins,): predictions, right ones, and the sum of their probabilities
        self.add_state("count", torch.zeros(bins), dist_reduce_fx="sum")
        self.add_state("right", torch.zeros(bins), dist_reduce_fx="sum")
        self.add_state("probability", torch.zeros(bins), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor, logits: Tensor) -> None:
        """Add up ``(K,)`` predicted and true class ids by their ``(K, C)`` scores."""
        probability = logits.float().softmax(-1).amax(-1)
        # of 4 bins: 0.25 -> 0, 0.26 -> 1, 1.0 -> 3
        place = (probability * self.bins).ceil().long() - 1
        self.count.index_add_(0, place, torch.ones_like(probability))
        self.right.index_add_(0, place, (preds == target).to(probability))
        self.probability.index_add_(0, place, probability)

    def compute(self) -> Tensor:
        """Return the error, 0 to 1; NaN of nothing."""
        return (self.right - self.probability).abs().sum() / self.count.sum()

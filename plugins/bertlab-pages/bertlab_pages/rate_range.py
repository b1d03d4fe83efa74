"""What a sweep over learning rates says: a range of rates to train with, or that it shows none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertlab.extend import TrainerError, read_object
from bertlab_pages.line_charts import Line, line_chart

RATES = "learning-rates.json"  # of a run: what was tried, and what came of it
_WIDTH = 0.2  # standard deviation of the smoothing, in powers of ten of the rate
_FEWEST = 10  # losses
_CLEAR = 4.0  # standard errors by which the loss has to fall,
_LEAST = 0.01  # and this share of what it was
_BEGUN, _STABLE = 0.5, 0.5  # see `propose`
_HINT = (
    "give model.optimizer.learning_rate, or try more rates with "
    "--trainer.callbacks.num_training_steps 300"
)


@dataclass(frozen=True)
class RateRange:
    """Learning rates that a sweep proposes.

    Attributes:
        low: the smallest.
        best: the one to take.
        high: the largest.
        smoothed: ``(rates,)`` losses without most of their noise; NaN from divergence on.
    """

    low: float
    best: float
    high: float
    smoothed: NDArray[np.float64]


def losses_of(averages: Sequence[float], beta: float = 0.98) -> NDArray[np.float64]:
    """Return the losses that Lightning's finder has averaged over all rates before.

    Its average remembers fifty steps, half of a sweep: the curve's foot and valley lie at rates
    that are ten times too large in it.

    Args:
        averages: ``(rates,)`` exponential means as the finder has them, corrected for their start.
        beta: of these means.

    Returns:
        ``(rates,)`` losses.
    """
    means = np.asarray(averages, np.float64)
    # the finder divides by 1 - beta^(steps + 1), and has done one step at the first loss
    means = means * (1 - beta ** np.arange(2, len(means) + 2))
    before = np.concatenate([[0.0], means[:-1]])
    losses: NDArray[np.float64] = (means - beta * before) / (1 - beta)
    return losses


def smooth(rates: NDArray[np.float64], losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return means of the losses at nearby rates, weighted by a Gaussian, up to divergence."""
    finite = np.isfinite(losses)
    end = len(losses) if finite.all() else int(np.argmin(finite))
    place = np.log10(rates[:end])
    # a loss ten times the first is no better known than that it is large
    kept = np.minimum(losses[:end], 10 * np.abs(losses[:1]))
    weights = np.exp(-0.5 * ((place[:, None] - place) / _width(place)) ** 2)
    found = np.full(len(losses), np.nan)
    found[:end] = weights @ kept / weights.sum(1)
    return found


def _width(place: NDArray[np.float64]) -> float:
    # of few rates that lie far apart, neighbours at least
    return max(_WIDTH, float(np.diff(place).mean()) if len(place) > 1 else _WIDTH)


def propose(rates: Sequence[float], losses: Sequence[float]) -> RateRange:
    """Return the rates at which a sweep learns fast and does not yet become unstable.

    A rate is large enough where the loss has done half of its way down, and too large from half the
    rate of its lowest point on: there steps begin to undo each other. The geometric mean of both is
    proposed.

    Args:
        rates: rising.
        losses: of each step, at these.

    Raises:
        TrainerError: the loss does not clearly fall, or still falls at the largest rate.
    """
    tried, found = np.asarray(rates, np.float64), np.asarray(losses, np.float64)
    smoothed = smooth(tried, found)
    end = int(np.isfinite(smoothed).sum())
    name = "LearningRateFinder"
    if end < _FEWEST:
        raise TrainerError(
            f"{name}: found {end} losses before they were no numbers, expected {_FEWEST}; {_HINT}"
        )
    lowest = int(np.argmin(smoothed[:end]))
    first = max(5, end // 10)
    start = float(found[:first].mean())
    fall = start - float(smoothed[lowest])
    noise = _noise(found[: lowest + 1] - smoothed[: lowest + 1])
    per_rate = max(1.0, 3.5 * _width(np.log10(tried)) / float(np.diff(np.log10(tried)).mean()))
    clear = max(_CLEAR * noise * math.sqrt(1 / per_rate + 1 / first), _LEAST * abs(start))
    if not fall > clear:
        raise TrainerError(
            f"{name}: no clear descent: over {tried[0]:.2g} to {tried[end - 1]:.2g} the loss falls "
            f"from {start:.3g} by {max(fall, 0.0):.2g}, expected more than {clear:.2g}, given its "
            f"noise; {_HINT}"
        )
    if lowest == len(tried) - 1:
        raise TrainerError(
            f"{name}: the loss still falls at {tried[-1]:.2g}, the largest rate; expected a larger "
            "--trainer.callbacks.max_lr"
        )
    down = int(np.argmax(smoothed[:end] < start - _BEGUN * fall))
    low, high = float(tried[down]), _STABLE * float(tried[lowest])
    low = min(low, high)
    return RateRange(low, math.sqrt(low * high), high, smoothed)


def _noise(residuals: NDArray[np.float64]) -> float:
    """Return a standard deviation that single outliers do not move."""
    return 1.4826 * float(np.median(np.abs(residuals)))


def rates_section(directory: Path) -> dict[str, object] | None:
    """Return a sentence and a chart for the page of a run; None if it has looked for no rate.

    Raises:
        DamagedRecordError: the record cannot be read.
    """
    if not (path := directory / RATES).is_file():
        return None
    record = read_object(path, {"rates": list, "losses": list, "smoothed": list})
    rates = record["rates"]
    losses, smoothed = (
        [math.nan if each is None else float(each) for each in record[name]]
        for name in ("losses", "smoothed")
    )
    begun = losses[0]
    # at the largest rates losses are many times the first, which would flatten all others
    ceiling = begun + 0.25 * (begun - min(filter(math.isfinite, smoothed)))
    shown = [loss if loss <= ceiling else math.nan for loss in losses]
    curve = [loss if loss <= ceiling else math.nan for loss in smoothed]
    lines = [Line("a step", rates, shown, is_scatter=True), Line("smoothed", rates, curve)]
    if (proposed := record.get("proposed")) is None:
        about = "The loss of a few steps while the rate rises. It shows no clear descent."
    else:
        low, best, high = map(float, proposed)
        about = (
            f"The loss of a few steps while the rate rises. Proposed: {low:.2g} to {high:.2g}; the "
            f"run was trained with {best:.2g}."
        )
        foot = min(each for each in [*shown, *curve] if math.isfinite(each))
        lines.append(Line("proposed range", [low, best, high], [foot] * 3))
    return {
        "about": about,
        "chart": line_chart("Loss", lines, ("learning rate", "loss"), decades=True),
    }

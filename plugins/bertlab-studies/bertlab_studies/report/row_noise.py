"""How much another sample of rows would move a difference, beyond what other seeds would.

Runs and rows are crossed: every run is scored on the same rows. Two variants that are equally good
in the population may be good at different rows, and the more seeds a study has the surer it would
be of the rows at hand. So the variance of a difference has two parts, as in a random-effects
analysis of variance with crossed factors (Owen and Eckles 2012, Bootstrapping data arrays of
arbitrary order): seeds, and rows.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bertlab.api import DataError

FloatArray = NDArray[np.float64]


def row_variance(
    sides: Sequence[Mapping[int, FloatArray]], weights: Sequence[float], paired: bool
) -> tuple[float, int] | None:
    """Return the part of a contrast's variance that other rows would add, and the rows.

    The variance over rows of the weighted sum also holds the noise of single runs at single rows,
    which the variance over seeds has counted already; that part is subtracted.

    Args:
        sides: of each variant, ``(rows,)`` score of each row by seed; the same rows in all.
        weights: of the variants' means. A difference has −1 and 1.
        paired: whether the sum is taken seed by seed.

    Returns:
        None if a side has fewer than two seeds with scores, or there are fewer than two rows.

    Raises:
        DataError: the sides or their seeds have different numbers of rows.
    """
    lengths = {len(scores) for side in sides for scores in side.values()}
    if len(lengths) > 1:
        raise DataError(
            f"predictions of {' and '.join(str(length) for length in sorted(lengths))} rows cannot"
            " be compared row by row; score all runs on the same test set"
        )
    usable = [
        {seed: scores for seed, scores in side.items() if np.isfinite(scores).all()}
        for side in sides
    ]
    if paired:
        seeds = sorted(set.intersection(*(set(side) for side in usable)))
        usable = [{seed: side[seed] for seed in seeds} for side in usable]
    parts = [w * np.array(list(side.values())) for w, side in zip(weights, usable, strict=True)]
    if paired:
        parts = [np.sum(parts, axis=0)]
    if min(map(len, parts)) < 2 or max(lengths) < 2:
        return None
    rows = parts[0].shape[1]
    means = sum(part.mean(0) for part in parts)  # (rows,)
    # of (S, R) scores what is left without the means of runs and rows, as the mean over S runs
    single = sum(_interaction(part) / len(part) for part in parts)
    return max(0.0, float(np.var(means, ddof=1)) - single) / rows, rows


def _interaction(scores: FloatArray) -> float:
    """Return the mean square of ``(S, R)`` scores without the means of runs and of rows."""
    runs, rows = scores.shape
    rest = scores - scores.mean(1, keepdims=True) - scores.mean(0) + scores.mean()
    return float(np.square(rest).sum() / ((runs - 1) * (rows - 1)))

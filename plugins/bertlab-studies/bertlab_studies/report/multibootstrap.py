"""The Multi-Bootstrap: would a difference stand on other seeds and other rows at once?

Sellam et al. (2021), The MultiBERTs: BERT reproductions for robustness analysis, arXiv 2106.16163,
section 3. Each draw resamples seeds and rows, the same rows for both sides and all seeds. Its draws
are those of the authors' program for the same ``numpy.random.RandomState``. Rows in clusters are
drawn by whole clusters (Davison and Hinkley 1997, section 3.8), and a score is the mean over the
rows that were drawn, however many they are.

It holds for the recipe, not for the models at hand, if seeds are of pre-training. Resampling n
seeds sees (n - 1) / n of the variance over seeds, so with few seeds the interval is too narrow: by
a factor of 0.8 in the deviation over three.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bertlab.api import DataError
from bertlab_evaluations.clusters import Clusters
from bertlab_studies.report.seed_noise import ROUNDING

FloatArray = NDArray[np.float64]

_BATCH = 2_000_000  # counts of rows that are held at a time, 16 MB
_TAILS = (0.025, 0.975)


@dataclass(frozen=True)
class MultiBootstrap:
    """A difference over seeds and rows. All differences are variant − baseline.

    Attributes:
        difference: of the means over all seeds and rows, as they are.
        low: 2.5th percentile of the draws.
        high: 97.5th percentile.
        p: two-sided: twice the smaller share of draws at or beyond zero, (b + 1) / (draws + 1). Not
            corrected for many comparisons.
        rows: of the test set.
        seeds: number of the baseline's, and of the variant's.
        draws: resampled sets of seeds and rows.
    """

    difference: float
    low: float
    high: float
    p: float
    rows: int
    seeds: tuple[int, int]
    draws: int


def multibootstrap(
    baseline: FloatArray,
    variant: FloatArray,
    paired: bool,
    draws: int = 1000,
    seed: int = 0,
    clusters: Clusters | None = None,
) -> MultiBootstrap | None:
    """Resample seeds and rows of two sides.

    Several fine-tunings of a seed are to be averaged before, so that each seed has one line. A seed
    with a score that is not finite is left out, of paired seeds on both sides.

    Args:
        baseline: ``(seeds, rows)`` score of each row, whose mean over rows is the seed's metric.
        variant: ``(seeds, rows)`` of the same rows; if paired, of the same seeds in the same order.
        paired: draw the same seeds for both sides, not for each side its own.
        draws: to make.
        seed: of the resampling.
        clusters: of the rows; None if each is on its own.

    Returns:
        None if a side has fewer than two seeds, or there are fewer than two rows.

    Raises:
        DataError: the sides have different numbers of rows or, if paired, of seeds.
    """
    if baseline.shape[1] != variant.shape[1] or (paired and len(baseline) != len(variant)):
        raise DataError(
            f"scores of {len(baseline)} seeds × {baseline.shape[1]} rows and {len(variant)} seeds ×"
            f" {variant.shape[1]} rows cannot be resampled together; score all runs on the same"
            f" test set{', and the same seeds' if paired else ''}"
        )
    kept = [np.isfinite(side).all(1) for side in (baseline, variant)]
    if paired:
        kept = [kept[0] & kept[1]] * 2
    baseline, variant = baseline[kept[0]], variant[kept[1]]
    if min(len(baseline), len(variant)) < 2 or baseline.shape[1] < 2:
        return None
    drawn = np.diff(drawn_scores(baseline, variant, paired, draws, seed, clusters))[:, 0]
    scale = max(np.abs(side).max() for side in (baseline, variant))
    low, high, p = _interval_and_p(drawn, float(scale))
    return MultiBootstrap(
        difference=float(variant.mean() - baseline.mean()),
        low=low,
        high=high,
        p=p,
        rows=baseline.shape[1],
        seeds=(len(baseline), len(variant)),
        draws=draws,
    )


def drawn_scores(
    baseline: FloatArray,
    variant: FloatArray,
    paired: bool,
    draws: int,
    seed: int,
    clusters: Clusters | None = None,
) -> FloatArray:
    """Return ``(draws, 2)`` scores of both sides in each draw; arguments as above, all finite."""
    both, sizes = np.concatenate([baseline, variant]), (len(baseline), len(variant))
    if clusters is not None:
        both = np.array([np.bincount(clusters.numbers, each) for each in both])
    rows = both.shape[1]  # or clusters, each with the sum over its rows
    scores = both.T if clusters is not None else both.T / rows  # (rows, seeds of both sides)
    # divided by the seeds of its side, so that a side's sum over its seeds is their mean
    scores = scores / np.repeat(sizes, sizes)
    counts = _counts(sizes, rows, paired, np.random.RandomState(seed))
    found, size = [], max(1, _BATCH // rows)
    for made in range(0, draws, size):
        batch = islice(counts, min(size, draws - made))
        seeds, drawn_rows = (np.array(each, np.float64) for each in zip(*batch, strict=True))
        # (batch, rows) @ (rows, seeds) -> (batch, seeds): mean of each seed over the drawn rows
        means = drawn_rows @ scores
        if clusters is not None:  # of sizes [5, 2], drawn twice the first: 10 rows
            means /= (drawn_rows @ clusters.sizes)[:, None]
        found.append(np.add.reduceat(seeds * means, [0, sizes[0]], axis=1))
    return np.concatenate(found)


def _counts(
    sizes: tuple[int, int], rows: int, paired: bool, rng: np.random.RandomState
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield how often each seed of both sides, and each row, is in a draw."""

    def counts(number: int) -> NDArray[np.int64]:
        # 3 seeds, drawn [2, 0, 2] -> [1, 0, 2]
        return np.bincount(rng.choice(number, size=number, replace=True), minlength=number)

    while True:  # the order of the authors' program: baseline's seeds, variant's, rows
        first = counts(sizes[0])
        second = first if paired else counts(sizes[1])
        yield np.concatenate([first, second]), counts(rows)


def _interval_and_p(draws: NDArray[np.float64], scale: float) -> tuple[float, float, float]:
    """Return the 2.5th and 97.5th percentile of resampled differences, and the two-sided p.

    Args:
        draws: ``(draws,)`` differences.
        scale: the largest absolute score, whose rounding counts as zero.
    """
    zero = ROUNDING * scale  # sums of rows that cancel may miss 0
    # (b + 1) / (B + 1), never 0 (Davison and Hinkley 1997, chapter 4), of the smaller tail, doubled
    tail = 1 + min(int((draws <= zero).sum()), int((draws >= -zero).sum()))
    low, high = np.quantile(draws, _TAILS)
    return float(low), float(high), min(1.0, 2 * tail / (len(draws) + 1))

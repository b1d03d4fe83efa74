"""Scores of single evaluation rows, and a paired bootstrap over them.

The mean of a run's row scores is its metric: a row's own score, such as right or wrong, where the
metric is a mean over rows, and its influence (:mod:`bertlab.studies.report.row_influence`) where it
is not. The bootstrap says whether a difference would stand on another test set.

Efron and Tibshirani (1993), An introduction to the bootstrap, chapters 13 and 15.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bertlab.errors import DataError
from bertlab.studies.report.prediction_scores import candidate_scores

_TOLERANCE = 1e-5  # metrics are computed in float32


def row_scores(path: Path, metric: str, value: float) -> NDArray[np.float64] | None:
    """Return ``(rows,)`` float64 scores whose mean is the metric; None where there are none.

    There are scores of accuracy, F1, macro F1 and Matthews' coefficient of classes, of Pearson's
    and Spearman's correlation, of the accuracy of tags and of precision, recall and F1 of entities,
    and of SQuAD's metrics.

    Args:
        path: predictions as JSON lines, each with its ``gold``.
        metric: that the rows are scored by.
        value: that the run reported; if the rows' mean is another, they are not what it is made of.
    """
    if not path.is_file():
        return None
    with path.open(encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    if not lines:
        return None
    for scores in candidate_scores(lines, metric):
        if scores is not None and abs(scores.mean() - value) < _TOLERANCE:
            return scores
    return None


def evaluated_rows(path: Path, value: float) -> NDArray[np.float64] | None:
    """Return the ``(rows,)`` scores that ``bertlab evaluate`` wrote, NaN of rows without one.

    Args:
        path: ``NAME.rows.jsonl``.
        value: that the run reported; None is returned if the rows' mean is another metric.
    """
    if not path.is_file():
        return None
    with path.open(encoding="utf-8") as file:
        found = [json.loads(line)["score"] for line in file]
    scores = np.array([np.nan if each is None else each for each in found], np.float64)
    fits = len(scores) > 0 and abs(np.nanmean(scores) - value) < _TOLERANCE
    return scores if fits else None


def keep_common_rows(cells: Sequence[dict[int, NDArray[np.float64]]]) -> None:
    """Leave out rows that some run of an evaluation could not score, such as long texts.

    Args:
        cells: of one measure: scores of the rows by seed, of each variant. Changed in place.
    """
    scores = [each for cell in cells for each in cell.values()]
    if not scores or len({len(each) for each in scores}) > 1:
        return
    missing = np.isnan(scores)  # (runs, rows)
    if not missing.any() or missing.all(1).any():
        return
    kept = ~missing.any(0)
    for cell in cells:
        cell.update({seed: each[kept] for seed, each in cell.items()})


_TAILS = (0.025, 0.975)
_ROUNDING = 1e-12  # spread below this share of the values is that of floating point


@dataclass(frozen=True)
class ExampleComparison:
    """A difference over the rows of one test set, for the models that were trained.

    It says what another sample of as many rows could have given, and nothing about other seeds.

    Attributes:
        rows: of the test set.
        seeds: whose scores were averaged for each row.
        difference: mean of variant − baseline.
        low: 2.5th percentile of the bootstrap.
        high: 97.5th percentile.
        p: two-sided: twice the smaller share of draws at or beyond zero. Not corrected for many
            comparisons; nothing is decided by it.
        unusable: seeds left out because a row's score was NaN or infinite.
    """

    rows: int
    seeds: tuple[int, ...]
    difference: float
    low: float
    high: float
    p: float
    unusable: tuple[int, ...] = ()


def compare_examples(
    baseline: Mapping[int, NDArray[np.float64]],
    variant: Mapping[int, NDArray[np.float64]],
    draws: int = 10_000,
    seed: int = 0,
) -> ExampleComparison | None:
    """Bootstrap the rows of a test set, the same rows for both sides and for all seeds.

    The percentile interval is too narrow below some 50 rows. Rows are taken for independent; those
    that share a paragraph are not, and then it is too narrow as well.

    Args:
        baseline: ``(rows,)`` score of each row, by seed of the training.
        variant: the same rows' scores.
        draws: resampled test sets.
        seed: of the resampling.

    Returns:
        None if no seed has usable scores on both sides, or there are fewer than two rows.

    Raises:
        DataError: the two sides or their seeds have different numbers of rows.
    """
    both = sorted(baseline.keys() & variant.keys())
    lengths = {len(side[number]) for number in both for side in (baseline, variant)}
    if len(lengths) > 1:
        raise DataError(
            f"predictions of {' and '.join(str(length) for length in sorted(lengths))} rows cannot"
            " be compared row by row; score all runs on the same test set"
        )
    seeds = tuple(
        number for number in both if np.isfinite([baseline[number], variant[number]]).all()
    )
    if not seeds or lengths.pop() < 2:
        return None
    # (rows,): over seeds first, as the models are fixed and only rows are drawn
    rows = np.mean([variant[number] - baseline[number] for number in seeds], axis=0)
    means = _resampled_means(rows, draws, np.random.default_rng(seed))
    low, high, p = interval_and_p(means, float(np.abs(rows).max()))
    return ExampleComparison(
        rows=len(rows),
        seeds=seeds,
        difference=float(rows.mean()),
        low=low,
        high=high,
        p=p,
        unusable=tuple(number for number in both if number not in seeds),
    )


def interval_and_p(draws: NDArray[np.float64], scale: float) -> tuple[float, float, float]:
    """Return the 2.5th and 97.5th percentile of resampled differences, and the two-sided p.

    Args:
        draws: ``(draws,)`` differences.
        scale: the largest absolute score, whose rounding counts as zero.
    """
    zero = _ROUNDING * scale  # sums of rows that cancel may miss 0
    # (b + 1) / (B + 1), never 0 (Davison and Hinkley 1997, chapter 4), of the smaller tail, doubled
    tail = 1 + min(int((draws <= zero).sum()), int((draws >= -zero).sum()))
    low, high = np.quantile(draws, _TAILS)
    return float(low), float(high), min(1.0, 2 * tail / (len(draws) + 1))


def _resampled_means(
    rows: NDArray[np.float64], draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return ``(draws,)`` means of as many rows drawn with replacement."""
    distinct, counts = np.unique(rows, return_counts=True)
    if len(distinct) <= 100:  # right or wrong: how often each value is drawn is all that matters
        # rows [0, 0, 1, 1] -> distinct [0, 1], counts [2, 2]; drawn (draws, 2): [3, 1] -> 0.25
        drawn = rng.multinomial(len(rows), counts / len(rows), size=draws)
        return np.asarray(drawn @ distinct / len(rows))  # (draws,)
    batch = max(1, 2_000_000 // len(rows))  # 16 MB of row numbers at a time
    result = stats.bootstrap(
        (rows,), np.mean, n_resamples=draws, batch=batch, method="percentile", rng=rng
    )
    return np.asarray(result.bootstrap_distribution)

"""Runs that failed to learn: how often they happen, and what a variant is worth without them.

One such run (:mod:`~bertlab_studies.report.failed_runs`) makes a variant look worse, and noisy.
Whether it fails more often is one question, how good it is when it learns is another.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bertlab_studies.report.seed_noise import ROUNDING
from bertlab_studies.study_scores import Cell, Measure, StudyScores

UNSTABLE = 0.3  # share of a variant's runs that failed, from which it is unstable
_RUNS = 8  # of a variant, from which two groups of its runs are told from a wide spread
TRIM = 0.2  # share of the runs that a trimmed mean leaves out at each end


@dataclass(frozen=True)
class FailureComparison:
    """Failed runs of a variant and of its baseline, in one measure.

    Attributes:
        failed: runs of the baseline, and of the variant, that failed.
        runs: of both sides.
        low: lower end of the 95 % interval of the variant's rate (Wilson).
        high: upper end.
        p: two-sided, of equal rates (Fisher's exact test).
        trimmed: difference of the means without the lowest and highest fifth of each side's runs;
            None with fewer than five runs on a side.
        p_trimmed: two-sided (Yuen 1974). It keeps its level where one side fails at times.
        p_adjusted: Holm's, of ``p`` over the study's comparisons of primary measures; None if the
            measure is not primary.
    """

    failed: tuple[int, int]
    runs: tuple[int, int]
    low: float
    high: float
    p: float
    trimmed: float | None = None
    p_trimmed: float | None = None
    p_adjusted: float | None = None


def is_established(
    failed: Mapping[str, set[int]], scores: StudyScores, measure: Measure, variants: Iterable[str]
) -> bool:
    """Whether failures of some variants are more than a low run or two, which may be noise.

    A run is degenerate, or two variants of the study have failed runs, or a variant of the sum is
    unstable and has so many runs that it is not just noisier than the others.

    Args:
        failed: as :func:`~bertlab_studies.report.failed_runs.failed_runs` returns it.
        scores: of the study.
        measure: in which they failed.
        variants: that are compared.
    """
    if sum(map(bool, failed.values())) > 1:
        return True
    return any(
        failed[name] & scores.cell(name, measure).degenerate.keys()
        or (
            is_unstable(failed[name], scores.cell(name, measure))
            and count_runs(failed[name], scores.cell(name, measure)) >= _RUNS
        )
        for name in variants
    )


def is_unstable(failed: Collection[int], cell: Cell) -> bool:
    """Whether ``UNSTABLE`` of a variant's runs failed, and more than one."""
    return len(failed) >= max(2, UNSTABLE * count_runs(failed, cell))


def count_runs(failed: Collection[int], cell: Cell) -> int:
    """Return the runs of a variant; one that failed may have left no value."""
    return len(cell.values.keys() | set(failed))


def without(cell: Cell, failed: set[int]) -> Cell:
    """Return a variant's values without the runs, or the fine-tunings of a run, that failed."""
    kept = {seed: value for seed, value in cell.values.items() if seed not in failed}
    return Cell(
        values=kept | {seed: cell.learned[seed] for seed in sorted(failed) if seed in cell.learned},
        examples={seed: rows for seed, rows in cell.examples.items() if seed not in failed},
        clusters=cell.clusters,
    )


def compare_failures(
    failed: Mapping[str, set[int]], scores: StudyScores, measure: Measure, variant: str
) -> FailureComparison | None:
    """Compare how often a variant and the baseline fail; None if neither does.

    Args:
        failed: as :func:`~bertlab_studies.report.failed_runs.failed_runs` returns it.
        scores: of the study.
        measure: in which they failed.
        variant: that is compared.
    """
    names = (scores.baseline, variant)
    counts = len(failed[names[0]]), len(failed[names[1]])
    if not any(counts):
        return None
    cells = [scores.cell(name, measure) for name in names]
    runs = count_runs(failed[names[0]], cells[0]), count_runs(failed[names[1]], cells[1])
    table = [[count, of - count] for count, of in zip(counts, runs, strict=True)]
    rate = stats.binomtest(counts[1], runs[1]) if runs[1] else None
    interval = None if rate is None else rate.proportion_ci(method="wilson")
    sides = [np.array([v for v in cell.values.values() if np.isfinite(v)]) for cell in cells]
    trimmed = p_trimmed = None
    if min(map(len, sides)) >= 5:
        means = [float(stats.trim_mean(side, TRIM)) for side in sides]
        trimmed = means[1] - means[0]
        if all(_middle_varies(side) for side in sides):
            p_trimmed = float(
                stats.ttest_ind(sides[1], sides[0], equal_var=False, trim=TRIM).pvalue
            )
    return FailureComparison(
        counts,
        runs,
        low=0.0 if interval is None else float(interval.low),
        high=1.0 if interval is None else float(interval.high),
        p=float(stats.fisher_exact(table).pvalue),
        trimmed=trimmed,
        p_trimmed=p_trimmed,
    )


def _middle_varies(values: NDArray[np.float64]) -> bool:
    """Whether what a trimmed mean leaves is more than rounding of one number."""
    cut = int(TRIM * len(values))
    kept = np.sort(values)[cut : len(values) - cut]
    return bool(np.ptp(kept) > ROUNDING * np.abs(values).max())

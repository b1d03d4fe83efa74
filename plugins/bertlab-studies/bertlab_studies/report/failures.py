"""Runs that failed to learn: how often they happen, and what a variant is worth without them.

A fine-tuning on few rows sometimes ends at the majority class (Devlin et al. 2018, sec. 5.1;
Mosbach et al. 2021). One such run makes a variant look worse, and noisy. Whether it fails more
often is one question, how good it is when it learns is another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bertlab_studies.report.seed_noise import ROUNDING
from bertlab_studies.study_scores import Cell, Measure, StudyScores

OUTLYING = 6.0  # robust deviations below a variant's other runs
_RUNS = 8  # below which a spread is not known well enough
_TO_DEVIATION = 1.4826  # median absolute deviation of a normal distribution -> its deviation
TRIM = 0.2  # share of the runs that a trimmed mean leaves out at each end


@dataclass(frozen=True)
class FailureComparison:
    """Failed runs of a variant and of its baseline, in one measure.

    Attributes:
        failed: runs of the baseline, and of the variant, that failed.
        runs: of both sides.
        low: lower end of the 95 % interval of the variant's rate (Wilson).
        high: upper end.
        p: two-sided, of equal rates (Fisher's exact test). Not corrected for many comparisons.
        trimmed: difference of the means without the lowest and highest fifth of each side's runs;
            None with fewer than five runs on a side.
        p_trimmed: two-sided (Yuen 1974). It keeps its level where one side fails at times.
    """

    failed: tuple[int, int]
    runs: tuple[int, int]
    low: float
    high: float
    p: float
    trimmed: float | None = None
    p_trimmed: float | None = None


def failed_runs(scores: StudyScores, measure: Measure) -> dict[str, set[int]]:
    """Return the seeds of each variant that failed to learn a measure.

    Runs that are degenerate, that have no finite value, or that lie far below the other runs of
    their variant: by ``OUTLYING`` robust deviations, estimated from all variants, and of many
    runs from the variant's own if that is more. A pre-training is one of them if one of its
    fine-tunings is.
    """
    cells = {variant: scores.cell(variant, measure) for variant in scores.variants}
    found = {
        variant: set(cell.degenerate) | {s for s, v in cell.values.items() if not np.isfinite(v)}
        for variant, cell in cells.items()
    }
    # how far each run is below the median of its variant
    below: dict[str, dict[int, float]] = {}
    for variant, cell in cells.items():
        kept = {seed: v for seed, v in cell.values.items() if seed not in found[variant]}
        if len(kept) > 2:
            middle = median(kept.values())
            sign = 1 if measure.higher_is_better else -1
            below[variant] = {seed: sign * (middle - value) for seed, value in kept.items()}
    if sum(map(len, below.values())) < _RUNS:
        return found
    # the median itself is no distance: 3 runs have one of 0
    sizes = [size for runs in below.values() for size in sorted(map(abs, runs.values()))[1:]]
    common = median(sizes)
    for variant, runs in below.items():
        above = [-distance for distance in runs.values() if distance < 0]  # failures are not there
        own = median(above) if len(runs) >= _RUNS and above else 0.0
        limit = OUTLYING * _TO_DEVIATION * max(common, own)
        found[variant] |= {seed for seed, distance in runs.items() if distance > limit > 0}
    return found


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
        failed: as :func:`failed_runs` returns it.
        scores: of the study.
        measure: in which they failed.
        variant: that is compared.
    """
    names = (scores.baseline, variant)
    counts = len(failed[names[0]]), len(failed[names[1]])
    if not any(counts):
        return None
    cells = [scores.cell(name, measure) for name in names]
    # a run that failed may have left no value
    ends = [cell.values.keys() | failed[name] for name, cell in zip(names, cells, strict=True)]
    runs = len(ends[0]), len(ends[1])
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

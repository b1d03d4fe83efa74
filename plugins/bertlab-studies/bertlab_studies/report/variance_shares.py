"""Where the spread of a study's results comes from: pre-training seed, fine-tuning seed, test rows.

A result is μ + a + e: the mean of its variant, what its pre-training adds, and what its fine-tuning
adds. The variances of a and e are taken for the same in all variants and estimated by the one-way
analysis of variance with random effects, for unequal numbers too (Searle, Casella and McCulloch
1992, Variance components, section 3.6).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertlab_pages.tables import Grid, TitledGrid
from bertlab_studies.report.columns import NOTHING, Column, columns_of
from bertlab_studies.report.seed_noise import ROUNDING
from bertlab_studies.study_scores import Cell, StudyScores

NEGATIVE = "§"

_LEGEND = (
    "Seeds: the share of the variance of a single result (one pre-training, fine-tuned once) that "
    "is due to each, by a random-effects analysis of variance pooled over variants; in brackets "
    "the standard deviation. Test rows: what another test set of as many rows, or of as many "
    "clusters of them, would add to that variance; more seeds do not make it less. Standard error: "
    "of a variant's mean over the seeds as they are, and with twice the pre-trainings or twice the "
    "fine-tunings of each. Degrees of freedom: of pre-trainings, of fine-tunings; shares that rest "
    "on few are rough."
)
_NEGATIVE_LEGEND = (
    f" {NEGATIVE} the estimate is below 0 and taken for 0: the spread of pre-trainings is no "
    "larger than that of fine-tunings explains."
)
_HEADINGS = (
    ("measure",),
    ("pre-training", "seed"),
    ("fine-tuning", "seed"),
    ("test rows", "add"),
    ("standard", "error"),
    ("twice the", "pre-trainings"),
    ("twice the", "fine-tunings"),
    ("degrees of", "freedom"),
)


@dataclass(frozen=True)
class VarianceShares:
    """Variances of a measure, in its squared units, and what they make of a variant's mean.

    Attributes:
        pretraining: due to the seed of a pre-training; 0 if the estimate is negative.
        finetuning: due to the seed of a fine-tuning.
        rows: of a result over test sets of as many rows; None where row scores were not kept. That
            of the rows' mean scores over all runs of a variant, so a part that differs from run to
            run, small with many runs, is counted here and in the seeds.
        freedom: degrees of freedom of the first and the second.
        is_negative: whether the estimate of ``pretraining`` was.
        of_mean: what ``pretraining`` and ``finetuning`` add to the variance of a variant's mean,
            the average over variants.
    """

    pretraining: float
    finetuning: float
    rows: float | None
    freedom: tuple[int, int]
    is_negative: bool
    of_mean: tuple[float, float]

    @property
    def total(self) -> float:
        """Variance of a single result over seeds."""
        return self.pretraining + self.finetuning

    def standard_error(self, pretrainings: float = 1, finetunings: float = 1) -> float:
        """Return that of a variant's mean over seeds.

        Args:
            pretrainings: how many times as many as there are.
            finetunings: the same of the fine-tunings of each.
        """
        between, within = self.of_mean
        return float(((between + within / finetunings) / pretrainings) ** 0.5)


def variance_shares(cells: Iterable[Cell]) -> VarianceShares | None:
    """Estimate the variances of one measure from its single fine-tunings.

    Args:
        cells: of the variants. Values that are not finite are left out.

    Returns:
        None if no variant has two pre-trainings, or no pre-training two fine-tunings.
    """
    cells = list(cells)
    groups = [found for found in map(_finite_groups, cells) if found]
    between = within = coefficient = 0.0
    freedom_between = freedom_within = 0
    for of_variant in groups:
        counts = np.array([len(each) for each in of_variant])  # (pre-trainings,)
        means = np.array([each.mean() for each in of_variant])
        between += float(counts @ (means - np.average(means, weights=counts)) ** 2)
        within += float(sum(((each - each.mean()) ** 2).sum() for each in of_variant))
        # E(between) = freedom_between · finetuning + coefficient · pretraining
        # counts [5, 5, 5] -> 15 - 75 / 15 = 10 = (3 - 1) · 5
        coefficient += float(counts.sum() - (counts**2).sum() / counts.sum())
        freedom_between += len(counts) - 1
        freedom_within += int(counts.sum()) - len(counts)
    if freedom_between < 1 or freedom_within < 1:
        return None
    scale = max(float(np.abs(each).max()) for of_variant in groups for each in of_variant)
    smallest = (ROUNDING * scale) ** 2
    finetuning = within / freedom_within
    pretraining = (between - freedom_between * finetuning) / coefficient
    finetuning = finetuning if finetuning > smallest else 0.0
    is_negative = pretraining < -smallest
    pretraining = pretraining if pretraining > smallest else 0.0
    # of the mean over J pre-trainings of the means over their K fine-tunings: 1 / J, 1 / (J K)
    per_pretraining = float(np.mean([1 / len(of_variant) for of_variant in groups]))
    per_finetuning = float(
        np.mean([sum(1 / len(each) for each in found) / len(found) ** 2 for found in groups])
    )
    return VarianceShares(
        pretraining=pretraining,
        finetuning=finetuning,
        rows=_variance_over_rows(cells),
        freedom=(freedom_between, freedom_within),
        is_negative=is_negative,
        of_mean=(pretraining * per_pretraining, finetuning * per_finetuning),
    )


def _finite_groups(cell: Cell) -> list[NDArray[np.float64]]:
    """Return ``(fine-tunings,)`` finite values of each pre-training that has some."""
    values = [np.array(list(each.values()), np.float64) for each in cell.repeats.values()]
    finite = [each[np.isfinite(each)] for each in values]
    return [each for each in finite if len(each)]


def _variance_over_rows(cells: Sequence[Cell]) -> float | None:
    """Return the variance of a test set's mean score, the average over variants."""
    found = []
    for cell in cells:
        scores = list(cell.examples.values())
        if not scores or len({len(each) for each in scores}) > 1 or len(scores[0]) < 2:
            continue
        rows = np.mean(scores, axis=0)  # (rows,)
        if np.isfinite(rows).all():
            rows = rows if cell.clusters is None else cell.clusters.scores(rows)  # (clusters,)
            found.append(float(rows.var(ddof=1)) / len(rows))
    return float(np.mean(found)) if found else None


def variance_tables(study: StudyScores) -> list[TitledGrid]:
    """Return the table of variance shares, if seeds are nested and there are enough runs."""
    estimates = (
        (column, variance_shares(study.cell(variant, column.measure) for variant in study.variants))
        for column in columns_of(study)
        if column.measure.is_primary
    )
    found = [(column, shares) for column, shares in estimates if shares is not None]
    if not found:
        return []
    legend = _LEGEND
    if any(shares.is_negative for _, shares in found):
        legend += _NEGATIVE_LEGEND
    rows = tuple(tuple(_row(column, shares)) for column, shares in found)
    return [TitledGrid("Variance shares", Grid(_HEADINGS, rows, len(_HEADINGS) - 1), legend)]


def _row(column: Column, shares: VarianceShares) -> Iterator[str]:
    yield column.measure.name + (", points" if column.measure.is_share else "")
    yield _share(column, shares, shares.pretraining) + (NEGATIVE if shares.is_negative else "")
    yield _share(column, shares, shares.finetuning)
    rows = _share(column, shares, shares.rows)
    yield rows if rows == NOTHING else f"+{rows}"
    for pretrainings, finetunings in ((1, 1), (2, 1), (1, 2)):
        yield column.number(shares.standard_error(pretrainings, finetunings))
    yield f"{shares.freedom[0]}, {shares.freedom[1]}"


def _share(column: Column, shares: VarianceShares, variance: float | None) -> str:
    """Return ``62 % (0.81)``: a share of the variance over seeds, and the standard deviation."""
    if variance is None or not shares.total:
        return NOTHING
    return f"{100 * variance / shares.total:.0f} % ({column.number(variance**0.5)})"

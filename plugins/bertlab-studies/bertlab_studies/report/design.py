"""What a study of so many seeds, fine-tunings and rows can show: power before there are data.

Power is that of the report's own test: see :mod:`~bertlab_studies.report.contrast_noise`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bertlab_evaluations.clusters import counted
from bertlab_studies.report.comparison import LEVEL
from bertlab_studies.report.contrast_noise import (
    POWER,
    ContrastNoise,
    DrawnTest,
    draw_test,
    prior_freedom,
    with_earlier,
)
from bertlab_studies.report.statistics import compare_study, summarize
from bertlab_studies.report.variance_shares import variance_shares
from bertlab_studies.study_scores import Measure, StudyScores

MOST_SEEDS, MOST_ROWS = 1000, 10_000_000  # that are looked for


@dataclass(frozen=True)
class Deviations:
    """How noisy a measure is, in its own units.

    Attributes:
        pretraining: standard deviation over seeds of pre-training. Where ``finetuning`` is given,
            of what is left when fine-tunings are averaged away; else of single results.
        finetuning: over fine-tunings of one pre-training; None if it is not known.
        row: over rows, of the difference of two variants' mean scores of a row; None: not known.
            Of rows in clusters, over clusters.
        rows: of the test set; None if ``row`` is.
        freedom: degrees of freedom of the first two, from a pilot; None if they are given.
        row_size: rows of a cluster, the mean; 1 if each is on its own.
        cluster: what clusters are, such as ``paradigm``; empty if they are rows.
    """

    pretraining: float
    finetuning: float | None = None
    row: float | None = None
    rows: int | None = None
    freedom: tuple[int, int] | None = None
    row_size: float = 1.0
    cluster: str = ""

    def over_seeds(self, finetunings: int = 1) -> float:
        """Return the variance of a pre-training's value, the mean over its fine-tunings."""
        return self.pretraining**2 + (self.finetuning or 0.0) ** 2 / finetunings

    def with_rows(self, rows: int) -> "Deviations":
        """Return the same for another number of rows."""
        return replace(self, rows=rows)

    def over_rows(self) -> float:
        """Return what rows add to the variance of a difference."""
        return self.row**2 / self.clusters if self.row and self.rows else 0.0

    @property
    def clusters(self) -> int:
        """Clusters that the rows are in; as many as rows, if each is on its own."""
        return max(round((self.rows or 0) / self.row_size), 2)

    @property
    def counted_rows(self) -> str:
        """``67 paradigms (67,000 rows)``, or ``277 rows``."""
        return counted(self.cluster, self.clusters, self.rows or 0)


@dataclass(frozen=True)
class Question:
    """What a study is asked.

    Attributes:
        effect: the true difference that matters, in the measure's units.
        variants: of the study, the baseline among them.
        comparisons: that Holm's correction is over.
        looks: planned number of looks at the data.
        earlier: degrees of freedom that the test takes from earlier studies; 0: none.
    """

    effect: float
    variants: int
    comparisons: int
    looks: int = 1
    earlier: float = 0.0

    @property
    def level(self) -> float:
        """Of the test that the smallest p-value has to pass."""
        return LEVEL / (self.comparisons * self.looks)


@dataclass(frozen=True)
class Design:
    """What so many seeds show.

    Attributes:
        seeds: pre-trainings of each variant.
        finetunings: of each pre-training.
        shows: smallest true difference that is shown four times in five.
        power: chance to show the effect that was asked for.
    """

    seeds: int
    finetunings: int
    shows: float
    power: float


def evaluate_design(
    deviations: Deviations, question: Question, seeds: int, finetunings: int = 1
) -> Design:
    """Return what a design shows.

    Args:
        deviations: of the measure.
        question: that the study is asked.
        seeds: pre-trainings of each variant, two or more.
        finetunings: of each pre-training.
    """
    test = _test(deviations, question, seeds, finetunings)
    return Design(seeds, finetunings, test.detectable, test.power(question.effect))


def _test(deviations: Deviations, question: Question, seeds: int, finetunings: int) -> DrawnTest:
    """Return the test of one comparison, for variants that are equally noisy and not paired."""
    known, variants, over_rows = seeds - 1, question.variants, deviations.over_rows()
    earlier = (question.earlier,) if question.earlier else ()  # as noisy as this study
    prior = prior_freedom(variants, known, question.comparisons >= variants)
    noise = ContrastNoise(
        variances=(deviations.over_seeds(finetunings),) * (variants + len(earlier)),
        known=(known,) * variants + earlier,
        shares=(1 / seeds,) * 2,
        prior=with_earlier(prior, question.earlier),
        rows=((over_rows, deviations.clusters - 1),) if over_rows else (),
    )
    return draw_test(noise, question.level)


def limit_of_rows(deviations: Deviations, question: Question) -> float:
    """Return the smallest difference that the rows at hand could show with any number of seeds."""
    if not deviations.over_rows() or deviations.rows is None:
        return 0.0
    return _test(replace(deviations, pretraining=0.0, finetuning=None), question, 2, 1).detectable


def seeds_needed(deviations: Deviations, question: Question, finetunings: int = 1) -> int | None:
    """Return the fewest seeds that reach the power; None if not even ``MOST_SEEDS`` do."""
    return _fewest(
        lambda seeds: (
            _test(deviations, question, seeds, finetunings).power(question.effect) >= POWER
        ),
        MOST_SEEDS,
    )


def rows_needed(
    deviations: Deviations, question: Question, seeds: int, finetunings: int = 1
) -> int | None:
    """Return the fewest rows that reach the power with so many seeds; None if no number does."""

    def reach(rows: int) -> bool:
        wider = deviations.with_rows(rows)
        return _test(wider, question, seeds, finetunings).power(question.effect) >= POWER

    return _fewest(reach, MOST_ROWS)


def _fewest(is_enough: Callable[[int], bool], most: int) -> int | None:
    """Return the smallest number from 2 to ``most`` that is enough, by bisection."""
    low, high = 1, most
    if not is_enough(high):
        return None
    while high - low > 1:  # low is too few, high is enough
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def pilot_deviations(pilot: StudyScores, measure: Measure) -> Deviations | None:
    """Return the deviations that a study has found.

    Over seeds: pooled over variants, or by the variance shares where seeds are nested. Over rows:
    the mean over comparisons with the baseline of what rows add to the difference.

    Args:
        pilot: what it found.
        measure: of it.

    Returns:
        None if no variant has two seeds with finite values, or all of them are the same.
    """
    cells = [pilot.cell(variant, measure) for variant in pilot.variants]
    shares = variance_shares(cells)
    if shares is not None:
        if not shares.total:
            return None
        parts = math.sqrt(shares.pretraining), math.sqrt(shares.finetuning)
        return _with_row_deviation(Deviations(*parts, freedom=shares.freedom), pilot, measure)
    found = [summarize(cell.values.values()) for cell in cells]
    known = [(each.n - 1, each.deviation) for each in found if each.deviation is not None]
    freedom = sum(n for n, _ in known)
    pooled = sum(n * deviation**2 for n, deviation in known) / max(freedom, 1)
    if not pooled:
        return None
    over_seeds = Deviations(math.sqrt(pooled), freedom=(freedom, 0))
    return _with_row_deviation(over_seeds, pilot, measure)


def _with_row_deviation(known: Deviations, pilot: StudyScores, measure: Measure) -> Deviations:
    """Return deviations with that over single rows or clusters, if rows have scores."""
    only = replace(pilot, measures=[measure])
    found = [one for one in compare_study(only, draws=0).values() if one.rows and one.error]
    if not found:
        return known
    # what rows add to the variance of a difference, times the clusters: that of a single one
    variances = [(o.row_share or 0.0) * (o.error or 0.0) ** 2 * (o.clusters or 0) for o in found]
    rows, clusters, kind = found[0].rows or 0, found[0].clusters or 1, found[0].cluster
    deviation = math.sqrt(float(np.mean(variances)))
    return replace(known, row=deviation, rows=rows, row_size=rows / clusters, cluster=kind)

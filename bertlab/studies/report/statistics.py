"""Whether variants differ: paired tests over seeds, correction for many, bootstrap over rows.

A study has two sources of chance, and one number cannot show both. Another seed would train
another model: `compare` tests that, paired by seed. Another test set would hold other rows:
`compare_examples` shows that, for the models at hand. A difference to build on survives both.

References: Student's paired t-test; Holm (1979), A simple sequentially rejective multiple test
procedure; Hedges (1981), Distribution theory for Glass's estimator of effect size; Efron and
Tibshirani (1993), An introduction to the bootstrap, chapters 13 and 15.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from bertlab.api.study_scores import StudyScores
from bertlab.errors import DataError
from bertlab.studies.report.row_scores import ExampleComparison, compare_examples

LEVEL = 0.05  # of the tests, two-sided
POWER = 0.8  # at which a difference counts as one that could have been shown
ROUNDING = 1e-12  # spread below this share of the values is that of floating point


@dataclass(frozen=True)
class Summary:
    """Values of one measure over seeds.

    Attributes:
        n: finite values.
        mean: of them; None if there are none.
        deviation: sample deviation (n − 1); None with fewer than two values.
        low: lower end of the mean's t interval; None with fewer than two values or no spread.
        high: upper end of it.
        unusable: values that were NaN or infinite and are left out.
    """

    n: int
    mean: float | None
    deviation: float | None
    low: float | None
    high: float | None
    unusable: int = 0


@dataclass(frozen=True)
class Comparison:
    """A variant against the baseline, paired by seed. All differences are variant − baseline.

    Intervals are not adjusted for the number of comparisons, decisions are: an interval that leaves
    zero out can belong to a difference that is not ``significant``. With no pair all numbers are
    None, with one pair all but ``difference``. If the difference is the same in every seed
    (``deviation`` 0) there is no noise to measure it by: no interval, no effect size, nothing
    detectable, and ``p`` is the sign test's, 2^(1 − pairs), or 1 if the difference is zero. That is
    exact for symmetric noise given the sizes of the differences, where a t-test would claim p = 0
    for accuracies that happen to move by the same number of rows.

    Attributes:
        seeds: that were compared: finite values on both sides.
        difference: mean.
        deviation: sample deviation of the differences.
        low: lower end of the 95 % t interval of the mean difference.
        high: upper end.
        p: two-sided paired t-test.
        p_adjusted: Holm's, over the study's comparisons of primary measures; a comparison on its
            own is a family of one. None if the measure is not primary.
        family: number of comparisons that Holm's correction was over; 0 if the measure is not
            primary.
        effect_size: d_z (Cohen 1988, section 2.3.5: mean / deviation of the differences) times
            Hedges' exact correction for pairs − 1 degrees of freedom; None below three pairs, where
            that is not defined. In units of the seeds' noise, not of the measure.
        minimum_detectable_effect: smallest true mean difference that a two-sided 5 % test over this
            many seeds would show with 80 % power, were ``deviation`` the true one.
        minimum_detectable_effect_adjusted: the same at 5 % / family: what would be shown even if it
            were the only difference of the study.
        unpaired: seeds that only one side has.
        unusable: seeds left out because a side's value was NaN or infinite.
        examples: the same difference over rows, if predictions were kept on both sides.
    """

    seeds: tuple[int, ...]
    difference: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    family: int = 0
    effect_size: float | None = None
    minimum_detectable_effect: float | None = None
    minimum_detectable_effect_adjusted: float | None = None
    unpaired: tuple[int, ...] = ()
    unusable: tuple[int, ...] = ()
    examples: ExampleComparison | None = None

    @property
    def pairs(self) -> int:
        """Number of seeds compared."""
        return len(self.seeds)

    @property
    def significant(self) -> bool:
        """Whether there is a difference at the 5 % level, after Holm's correction."""
        return self.p_adjusted is not None and self.p_adjusted <= LEVEL

    @property
    def is_constant(self) -> bool:
        """Whether the difference is the same in every one of two or more seeds."""
        return self.deviation == 0


def summarize(values: Iterable[float], confidence: float = 1 - LEVEL) -> Summary:
    """Return mean, sample deviation and t interval of one measure over seeds.

    Args:
        values: one for each seed; NaN and infinite ones are counted and left out.
        confidence: of the interval.
    """
    given = np.array(list(values), dtype=np.float64)
    finite = given[np.isfinite(given)]
    n, unusable = len(finite), len(given) - len(finite)
    mean = float(finite.mean()) if n else None
    deviation = _deviation(finite, scale=np.abs(finite).max()) if n > 1 else None
    low = high = None
    if deviation:
        # Student's t with n - 1 degrees of freedom; scale is the standard error of the mean
        low, high = stats.t.interval(confidence, n - 1, loc=mean, scale=deviation / n**0.5)
        low, high = float(low), float(high)
    return Summary(n, mean, deviation, low, high, unusable)


def compare(baseline: Mapping[int, float], variant: Mapping[int, float]) -> Comparison:
    """Compare by the seeds that both sides have.

    The t-test takes the differences for normal, which matters with few seeds; ``benchmarks/
    study_calibration.py`` shows how far it can be trusted where they are not.

    Args:
        baseline: value by seed.
        variant: value by seed.
    """
    both = sorted(baseline.keys() & variant.keys())
    finite = {seed: bool(np.isfinite([baseline[seed], variant[seed]]).all()) for seed in both}
    seeds = tuple(seed for seed in both if finite[seed])
    found = Comparison(
        seeds,
        unpaired=tuple(sorted(baseline.keys() ^ variant.keys())),  # ^: keys of one side
        unusable=tuple(seed for seed in both if not finite[seed]),
    )
    if not seeds:
        return found
    before = np.array([baseline[seed] for seed in seeds], dtype=np.float64)
    after = np.array([variant[seed] for seed in seeds], dtype=np.float64)
    difference = float((after - before).mean())
    if len(seeds) == 1:
        return replace(found, difference=difference)
    scale = float(np.abs([before, after]).max())
    deviation = _deviation(after - before, scale)
    if not deviation:
        if abs(difference) <= ROUNDING * scale:
            difference = 0.0
        # sign test: n differences of one sign; two-sided 2 * (1/2)^n
        p = 2.0 ** (1 - len(seeds)) if difference else 1.0
        return replace(found, difference=difference, deviation=0.0, p=p, p_adjusted=p, family=1)
    test = stats.ttest_rel(after, before)  # n - 1 degrees of freedom
    low, high = test.confidence_interval(1 - LEVEL)
    detectable = minimum_detectable_effect(len(seeds), deviation)
    return replace(
        found,
        difference=difference,
        deviation=deviation,
        low=float(low),
        high=float(high),
        p=float(test.pvalue),
        p_adjusted=float(test.pvalue),
        family=1,
        effect_size=_corrected_effect_size(difference / deviation, len(seeds)),
        minimum_detectable_effect=detectable,
        minimum_detectable_effect_adjusted=detectable,
    )


def compare_study(scores: StudyScores) -> dict[tuple[str, str], Comparison]:
    """Compare every variant but the baseline with it, in every measure.

    Holm's correction is over all comparisons of primary measures that can be tested; it holds
    whatever the dependence between them, and all share the baseline's runs.

    Returns:
        By (variant, name of the measure), in the order of the study.

    Raises:
        DataError: predictions of a variant and of the baseline are of different rows.
    """
    found: dict[tuple[str, str], Comparison] = {}
    primary: list[tuple[str, str]] = []
    for variant in scores.variants:
        if variant == scores.baseline:
            continue
        for measure in scores.measures:
            key = (variant, measure.name)
            before, after = scores.cell(scores.baseline, measure), scores.cell(variant, measure)
            try:
                examples = compare_examples(before.examples, after.examples)
            except DataError as error:
                raise DataError(f"{variant}, {measure.name}: {error}") from error
            comparison = replace(compare(before.values, after.values), examples=examples)
            if measure.is_primary and comparison.p is not None:
                primary.append(key)
            else:
                comparison = replace(
                    comparison, p_adjusted=None, family=0, minimum_detectable_effect_adjusted=None
                )
            found[key] = comparison
    adjusted = holm([found[key].p or 0.0 for key in primary])  # none is None: for mypy
    for key, p in zip(primary, adjusted, strict=True):
        one = found[key]
        detectable = (
            # Holm's first step: the smallest of m p-values has to be below level / m
            minimum_detectable_effect(one.pairs, one.deviation, LEVEL / len(primary))
            if one.deviation
            else None
        )
        found[key] = replace(
            one, p_adjusted=p, family=len(primary), minimum_detectable_effect_adjusted=detectable
        )
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order given (Holm 1979)."""
    p = np.array(p_values, dtype=np.float64)
    order = np.argsort(p)
    # p [0.04, 0.01, 0.03] -> sorted × (3, 2, 1): [0.03, 0.06, 0.04] -> rising: [0.03, 0.06, 0.06]
    # -> in the order given: [0.06, 0.03, 0.06]
    stepwise = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepwise, 1)
    return [float(value) for value in adjusted]


def minimum_detectable_effect(pairs: int, deviation: float, level: float = LEVEL) -> float:
    """Return the mean difference that a two-sided paired t-test shows at 80 % power, sign and all.

    Args:
        pairs: seeds on both sides, at least two.
        deviation: of the differences.
        level: of the test.
    """
    return float(_noncentrality(pairs - 1, level) * deviation / pairs**0.5)


@lru_cache(maxsize=1024)
def _noncentrality(freedom: int, level: float) -> float:
    """Return the noncentrality at which a two-sided t-test shows the right sign at 80 % power."""
    critical = stats.t.isf(level / 2, freedom)

    def missing(noncentrality: float) -> float:
        # the upper tail only: a rejection with the wrong sign shows nothing
        return float(stats.nct.sf(critical, freedom, noncentrality)) - POWER

    # above it both the deviation's and the mean's share of a miss are below (1 − power) / 2
    miss = (1 - POWER) / 2
    enough = critical * (stats.chi2.isf(miss, freedom) / freedom) ** 0.5 + stats.norm.isf(miss)
    return float(optimize.brentq(missing, 0.0, enough))


def _deviation(values: NDArray[np.float64], scale: float) -> float:
    """Return the sample deviation; exactly 0 if the spread is rounding of numbers of this scale."""
    # ddof=1: n - 1 degrees of freedom
    return 0.0 if np.ptp(values) <= ROUNDING * scale else float(values.std(ddof=1))


def _corrected_effect_size(d_z: float, pairs: int) -> float | None:
    """Return d_z times Hedges' J = Γ(m / 2) / (√(m / 2) Γ((m − 1) / 2)), m = pairs − 1."""
    freedom = pairs - 1
    if freedom < 2:  # J has Γ(0) there
        return None
    # poch(a, 1/2) = Γ(a + 1/2) / Γ(a) without overflow; J is 0.56 for 3 pairs, 0.80 for 5
    return float(d_z * special.poch((freedom - 1) / 2, 0.5) / (freedom / 2) ** 0.5)

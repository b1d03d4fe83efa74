"""``Comparison``: a difference of two variants, and what could have been shown.

References: Hedges (1981), Distribution theory for Glass's estimator of effect size; Schuirmann
(1987), A comparison of the two one-sided tests procedure and the power approach.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from scipy import special, stats

from bertlab_studies.report.contrast_noise import ContrastNoise, draw_test
from bertlab_studies.report.failures import FailureComparison
from bertlab_studies.report.multibootstrap import MultiBootstrap

LEVEL = 0.05  # of the tests, two-sided
_DEVIATION_KNOWN = 0.8  # confidence of the range in which the detectable effect lies


@dataclass(frozen=True)
class Comparison:
    """A variant against the baseline. All differences are variant − baseline.

    Intervals are not adjusted for the number of comparisons, decisions are: an interval that leaves
    zero out can belong to a difference that is not ``significant``. Without two runs on each side
    all numbers but ``difference`` are None. Where there is no noise at all to measure by (all runs
    of a side are the same), ``p`` is that of the permutation test or, paired, of the sign test, and
    there is no interval.

    Attributes:
        runs: of the baseline and of the variant, with finite values.
        difference: of the means.
        error: standard error over seeds and, where rows have scores, over rows or clusters of them.
        freedom: degrees of freedom of ``error``.
        low: lower end of the 95 % t interval of the difference.
        high: upper end.
        p: two-sided t-test of no difference.
        p_adjusted: Holm's, over the study's comparisons of primary measures; a comparison on its
            own is a family of one. None if the measure is not primary.
        family: number of comparisons that Holm's correction was over; 0 if the measure is not
            primary.
        effect_size: the difference in units of a run's deviation over seeds, times Hedges' exact
            correction. In units of noise, not of the measure.
        paired: compared seed by seed, because all variants of the measure move together.
        correlation: of the variants over seeds; None if it cannot be told.
        rows: of the test set that ``error`` includes; None where rows have no scores.
        clusters: that these rows are in, of which ``error`` takes whole ones; as many as rows, if
            nothing is known of clusters.
        cluster: what they are: ``context``, ``paradigm``; ``cluster`` if tasks have several kinds,
            empty if they are rows.
        row_share: of ``error`` squared that is due to rows, or to clusters of them.
        noise: what ``error`` and ``freedom`` are estimated from.
        bootstrap: the Multi-Bootstrap over seeds and rows, beside; it decides nothing.
        failures: how often runs failed; None if none did.
        without_failed: the same comparison without these runs.
        of_learned: whether it is certain that runs failed, so that the star is about the others:
            ``without_failed`` decides. A single low run may be noise, and then a star needs both.
        margin: differences below it count as none, if the study says so.
        p_equivalent: of the two one-sided tests that the difference is inside the margin, after
            Holm over all that have one.
    """

    runs: tuple[int, int]
    difference: float | None = None
    error: float | None = None
    freedom: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    family: int = 0
    effect_size: float | None = None
    paired: bool = False
    correlation: float | None = None
    rows: int | None = None
    clusters: int | None = None
    cluster: str = ""
    row_share: float | None = None
    noise: ContrastNoise | None = None
    bootstrap: MultiBootstrap | None = None
    failures: FailureComparison | None = None
    without_failed: "Comparison | None" = None
    of_learned: bool = False
    margin: float | None = None
    p_equivalent: float | None = None

    @property
    def decided(self) -> "Comparison":
        """The comparison that a star is about: of all runs, or of those that learned."""
        return self.without_failed if self.of_learned and self.without_failed else self

    def with_equivalent(self, p: float) -> "Comparison":
        """Return the same with another p-value of equivalence in ``decided``."""
        decided = replace(self.decided, p_equivalent=p)
        return decided if self.decided is self else replace(self, without_failed=decided)

    @property
    def significant(self) -> bool:
        """Whether there is a difference at 5 % after Holm.

        Of the runs that learned, if it is certain that runs failed; if one low run may have, with
        and without it.
        """
        deciding = self.decided
        if deciding.p_adjusted is None or deciding.p_adjusted > LEVEL:
            return False
        rest = self.without_failed
        return (
            deciding is not self
            or rest is None
            or (
                rest.p_adjusted is not None
                and rest.p_adjusted <= LEVEL
                and (rest.difference or 0.0) * (self.difference or 0.0) > 0
            )
        )

    @property
    def equivalent(self) -> bool:
        """Whether the variant is as good as the baseline, within the margin."""
        p = self.decided.p_equivalent
        return p is not None and p <= LEVEL

    @property
    def is_constant(self) -> bool:
        """Whether there is no noise to measure the difference by."""
        return self.error == 0

    @cached_property
    def detectable(self) -> float | None:
        """Smallest true difference that so many seeds and rows show with 80 % power.

        By a two-sided test at 5 % / family, as if it were the only difference of the study, were
        the variances that ``noise`` has the true ones. None where nothing is tested.
        """
        if not self.family or not self.error or self.noise is None:
            return None
        return draw_test(self.noise, LEVEL / self.family).detectable

    @property
    def detectable_range(self) -> tuple[float, float] | None:
        """How well ``detectable`` is known: for the ends of the 80 % interval of ``error``."""
        effect = self.detectable
        if effect is None or self.freedom is None:
            return None
        miss = (1 - _DEVIATION_KNOWN) / 2
        low, high = stats.chi2.ppf((miss, 1 - miss), self.freedom)
        return effect * math.sqrt(self.freedom / high), effect * math.sqrt(self.freedom / low)


def with_margin(comparison: Comparison, margin: float | None) -> Comparison:
    """Return a comparison with the test that the difference is inside a margin."""
    if margin is None or not comparison.error or comparison.difference is None:
        return comparison
    # the nearer end decides
    room = (margin - abs(comparison.difference)) / comparison.error
    p = float(stats.t.sf(room, comparison.freedom))
    return replace(comparison, margin=margin, p_equivalent=p)


def effect_size(
    difference: float, variance: float, runs: tuple[int, int], freedom: float
) -> float | None:
    """Return the difference in deviations of a run, times Hedges' J = Γ(f/2) / (√(f/2) Γ((f−1)/2)).

    None below two degrees of freedom, where J has Γ(0).
    """
    if freedom < 2:
        return None
    # variance is s²/n + s²/m: with n = m = 3 s² is 1.5 times it
    deviation = math.sqrt(variance / (1 / runs[0] + 1 / runs[1]))
    # poch(a, 1/2) = Γ(a + 1/2) / Γ(a) without overflow
    correction = float(special.poch((freedom - 1) / 2, 0.5) / (freedom / 2) ** 0.5)
    return difference / deviation * correction

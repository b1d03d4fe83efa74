"""Detectable difference against tables and scipy; effect size and equivalence against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab_studies.report.comparison import Comparison, effect_size, with_margin
from bertlab_studies.report.contrast_noise import ContrastNoise


def one_variance(error: float, freedom: float, family: int = 1) -> Comparison:
    noise = ContrastNoise((error**2,), (freedom,), (1.0,), prior=0)
    return Comparison((3, 3), error=error, freedom=freedom, family=family, noise=noise)


def detectable(error: float, freedom: float, family: int = 1) -> float:
    found = one_variance(error, freedom, family).detectable
    assert found is not None
    return found


@pytest.mark.parametrize(("d_z", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_power_of_pairs_as_in_the_tables(d_z: float, pairs: int):
    # G*Power 3.1, means, difference between two dependent means, two tails, 0.05, power 0.8
    found, fewer = (detectable(n**-0.5, n - 1) for n in (pairs, pairs - 1))
    assert found <= d_z < fewer


@pytest.mark.parametrize(("d", "runs"), [(0.2, 394), (0.5, 64), (0.8, 26)])
def test_power_of_two_sides_as_in_the_tables(d: float, runs: int):
    # G*Power 3.1, means, difference between two independent means, two tails, 0.05, power 0.8
    found, fewer = (detectable((2 / n) ** 0.5, 2 * n - 2) for n in (runs, runs - 1))
    assert found <= d < fewer


@pytest.mark.parametrize(("freedom", "family"), [(1, 1), (2, 1), (4, 6), (276, 1)])
def test_power_of_one_variance_is_the_noncentral_t(freedom: int, family: int):
    level = 0.05 / family
    found = detectable(2.0, freedom, family) / 2.0
    power = stats.nct.sf(stats.t.isf(level / 2, freedom), freedom, found)
    assert power == pytest.approx(0.8, abs=0.01)


@pytest.mark.nightly
@settings(deadline=None, max_examples=50)
@given(st.floats(1, 300), st.floats(1e-6, 1e3), st.integers(1, 200))
def test_what_is_detectable_grows_with_error_family_and_fewer_degrees(freedom, error, family: int):
    found = detectable(error, freedom, family)
    assert found > stats.t.isf(0.05 / family / 2, freedom) * error * 0.9
    assert detectable(2 * error, freedom, family) == pytest.approx(2 * found)
    assert detectable(error, freedom, family + 1) > found
    assert detectable(error, freedom + 1, family) < found * 1.01  # other draws


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(st.floats(1, 300), st.floats(1e-3, 1e3))
def test_the_range_holds_the_effect_and_is_narrower_with_more_degrees(freedom: float, error: float):
    found, more = (one_variance(error, each, family=4) for each in (freedom, 10 * freedom))
    low, high = found.detectable_range
    assert 0 < low < found.detectable < high
    assert more.detectable_range[1] / more.detectable_range[0] < high / low


@pytest.mark.nightly
def test_the_range_holds_the_true_effect_four_times_in_five():
    rng = np.random.default_rng(0)
    truth, held = detectable(1.0, 4), 0
    for variance in rng.chisquare(4, 2000) / 4:
        found = one_variance(math.sqrt(variance), 4)
        held += found.detectable_range[0] <= truth <= found.detectable_range[1]
    assert stats.binomtest(held, 2000, 0.8).pvalue > 0.01


@pytest.mark.parametrize(
    "found", [Comparison((3, 3)), Comparison((3, 3), difference=0.1, error=0.0, family=1)]
)
def test_without_an_error_nothing_is_detectable_and_nothing_equivalent(found: Comparison):
    assert (found.detectable, found.detectable_range) == (None, None)
    assert with_margin(found, 0.5) == found


def of_sample(sample: np.ndarray, margin: float | None) -> Comparison:
    found = Comparison(
        runs=(len(sample), len(sample)),
        difference=float(sample.mean()),
        error=float(stats.sem(sample)),
        freedom=len(sample) - 1,
    )
    return with_margin(found, margin)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(-100, 100), min_size=2, max_size=10).filter(lambda s: len(set(s)) > 1),
    st.integers(1, 100),
)
def test_equivalence_is_two_one_sided_tests(sample: list[int], margin: int):
    found = of_sample(np.array(sample), margin)
    above = stats.ttest_1samp(sample, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(sample, margin, alternative="less").pvalue
    assert found.p_equivalent == pytest.approx(max(above, below))
    assert found.margin == margin
    # as the 90 % interval inside the margin
    interval = stats.ttest_1samp(sample, 0).confidence_interval(0.9)
    if abs(found.p_equivalent - 0.05) > 1e-9:
        inside = -margin < interval.low and interval.high < margin
        assert found.equivalent == inside


def test_without_a_margin_nothing_is_equivalent():
    found = of_sample(np.array([0.1, -0.1, 0.0, 0.05]), None)
    assert (found.margin, found.p_equivalent, found.equivalent) == (None, None, False)


def test_significance_is_at_five_percent_after_holm():
    found = Comparison((3, 3), difference=1.0, p=0.001, p_adjusted=0.05)
    assert found.significant
    assert not Comparison((3, 3), difference=1.0, p=0.001, p_adjusted=0.0501).significant
    assert not Comparison((3, 3), difference=1.0, p=0.001).significant


@pytest.mark.parametrize(("freedom", "n"), [(2, 3), (9, 10), (2000, 500)])
def test_effect_size_is_hedges(freedom: int, n: int):
    # J by its definition; a deviation of 0.5 on both sides
    j = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / (freedom / 2) ** 0.5
    found = effect_size(1.0, 0.5**2 * 2 / n, (n, n), freedom)
    assert found == pytest.approx(1.0 / 0.5 * j)


def test_effect_size_is_unbiased_and_unknown_with_one_degree():
    rng = np.random.default_rng(0)
    one, other = rng.normal(0, 1, (4000, 3)), rng.normal(0.8, 1, (4000, 3))
    variances = (one.var(1, ddof=1) + other.var(1, ddof=1)) / 3
    sizes = [
        effect_size(difference, variance, (3, 3), 4)
        for difference, variance in zip(other.mean(1) - one.mean(1), variances, strict=True)
    ]
    assert np.mean(sizes) == pytest.approx(0.8, abs=3 * np.std(sizes) / 4000**0.5)
    assert effect_size(1.0, 1.0, (2, 2), 1.0) is None
    assert effect_size(1.0, 0.0, (3, 3), 0.0) is None

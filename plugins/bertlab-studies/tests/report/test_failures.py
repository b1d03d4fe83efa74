"""Runs that failed to learn: which ones, how often, and what is left without them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab_studies.report.failed_runs import failed_runs
from bertlab_studies.report.failures import FailureComparison, compare_failures, without
from bertlab_studies.report.findings import describe_pairing
from bertlab_studies.report.statistics import compare_study
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

MEASURE = Measure("rte", "accuracy")
LOSS = Measure("mlm", "loss", higher_is_better=False, is_share=False)


def study(*variants, measure: Measure = MEASURE) -> StudyScores:
    """Return a study of variants a, b, c, of which the first is the baseline."""
    cells = {
        name: VariantScores({measure.name: Cell(dict(enumerate(map(float, values))))})
        for name, values in zip("abcdefgh", variants, strict=False)
    }
    seeds = list(range(max(map(len, variants))))
    return StudyScores("s", "a", seeds, [measure], cells)


def cell_of(scores: StudyScores, variant: str) -> Cell:
    return scores.variants[variant].cells[scores.measures[0].name]


def failures(scores: StudyScores, variant: str = "b") -> FailureComparison | None:
    measure = scores.measures[0]
    return compare_failures(failed_runs(scores, measure), scores, measure, variant)


def normal(rng: np.random.Generator, variants: int, runs: int) -> np.ndarray:
    return 0.7 + 0.01 * rng.normal(size=(variants, runs))


@pytest.mark.parametrize("runs", [3, 5, 10])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_run_far_on_the_bad_side_is_found(runs: int, sign: int):
    measure = MEASURE if sign < 0 else LOSS
    values = normal(np.random.default_rng(runs), 4, runs)
    values[2, 1] += sign * 0.2  # twenty deviations
    found = failed_runs(study(*values, measure=measure), measure)
    assert found == {"a": set(), "b": set(), "c": {1}, "d": set()}
    values[2, 1] -= 2 * sign * 0.2  # a run that is that much better did not fail
    assert not any(failed_runs(study(*values, measure=measure), measure).values())


def share_found(variants: int, runs: int, noisy: float, drop: float) -> float:
    """Return the share of studies with a failed run; the last variant is noisy and drops one."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(300):
        values = normal(rng, variants, runs)
        values[-1] = 0.7 + noisy * (values[-1] - 0.7)
        values[-1, 0] -= drop
        found += any(failed_runs(study(*values), MEASURE).values())
    return found / 300


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(("variants", "runs"), [(2, 5), (6, 3), (4, 10), (2, 25)])
def test_normal_runs_do_not_fail_and_ten_deviations_do(variants: int, runs: int):
    assert share_found(variants, runs, noisy=1, drop=0) <= 0.02
    assert share_found(variants, runs, noisy=1, drop=0.10) >= 0.7


@pytest.mark.first_fast
@pytest.mark.parametrize("runs", [8, 25])
def test_runs_of_a_noisy_variant_do_not_fail(runs: int):
    assert share_found(6, runs, noisy=3, drop=0) <= 0.04


def test_degenerate_and_broken_runs_failed():
    scores = study([0.7] * 3, [0.7, math.nan, 0.71])
    cell_of(scores, "b").degenerate = {2: "one class for every row"}
    assert failed_runs(scores, MEASURE) == {"a": set(), "b": {1, 2}}
    assert without(cell_of(scores, "b"), {1, 2}).values == {0: 0.7}


def test_few_runs_and_runs_without_spread_are_not_judged():
    assert not any(failed_runs(study([0.7, 0.71, 0.2], [0.7, 0.71, 0.72]), MEASURE).values())
    assert not any(failed_runs(study([0.7] * 5, [0.7] * 4 + [0.1]), MEASURE).values())
    empty = study([0.7] * 9, [])
    empty.variants["b"].cells = {}
    assert failures(empty) is None


@pytest.mark.parametrize(
    ("failed", "runs"), [((0, 3), (10, 10)), ((2, 5), (8, 6)), ((1, 0), (5, 5))]
)
def test_rates_are_fishers_and_wilsons(failed: tuple[int, int], runs: tuple[int, int]):
    scores = study(*(np.linspace(0.7, 0.8, n) for n in runs))
    for name, count in zip("ab", failed, strict=True):
        cell_of(scores, name).degenerate = dict.fromkeys(range(count), "one class")
    found = failures(scores)
    table = [[count, n - count] for count, n in zip(failed, runs, strict=True)]
    interval = stats.binomtest(failed[1], runs[1]).proportion_ci(0.95, "wilson")
    assert (found.failed, found.runs) == (failed, runs)
    assert found.p == pytest.approx(stats.fisher_exact(table).pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_a_run_that_failed_without_a_value_counts():
    scores = study([0.7, 0.8, 0.9], [0.7, 0.8, 0.9])
    del cell_of(scores, "b").values[1]
    cell_of(scores, "b").degenerate = {1: "loss rose"}
    found = failures(scores)
    assert (found.failed, found.runs) == ((0, 1), (3, 3))


def test_trimmed_means_are_yuens():
    rng = np.random.default_rng(0)
    one, other = normal(rng, 1, 10)[0], 0.02 + normal(rng, 1, 8)[0]
    other[:2] = 0.5, math.nan
    found = failures(study(one, other))
    other = other[np.isfinite(other)]
    yuen = stats.ttest_ind(other, one, equal_var=False, trim=0.2)
    assert found.failed == (0, 2)
    assert found.trimmed == pytest.approx(stats.trim_mean(other, 0.2) - stats.trim_mean(one, 0.2))
    assert found.p_trimmed == pytest.approx(yuen.pvalue)
    few = failures(study(one, [0.5, math.nan, 0.7, 0.7, 0.7]))
    assert (few.trimmed, few.p_trimmed) == (None, None)


@pytest.mark.parametrize(
    "side", [[0.7] * 6, [0.1, 0.7, 0.7, 0.7, 0.7, 0.9], [0.7] * 5 + [0.7 + 1e-16]]
)
def test_trimmed_means_without_spread_are_not_tested(side: list[float]):
    scores = study(side, np.linspace(0.6, 0.8, 6))
    cell_of(scores, "a").degenerate = {0: "one class"}
    found = failures(scores)
    assert found.trimmed == pytest.approx(0)
    assert found.p_trimmed is None


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 20).map(lambda n: n / 20), max_size=8), min_size=2, max_size=4)
)
def test_whatever_values_there_are_rates_are_rates(variants):
    scores = study(*variants)
    cell_of(scores, "b").degenerate = dict.fromkeys(list(cell_of(scores, "b").values)[:1], "x")
    found = failures(scores)
    if found is not None:
        assert 0 <= found.low <= found.high <= 1
        assert 0 < found.p <= 1
        assert all(0 <= count <= n for count, n in zip(found.failed, found.runs, strict=True))
        assert found.p_trimmed is None or 0 <= found.p_trimmed <= 1


def comparison(base, other):
    return compare_study(study(base, other))["b", MEASURE.name]


def test_a_difference_counts_if_it_is_there_with_and_without_failed_runs():
    good = np.array([0.70, 0.71, 0.69, 0.70, 0.72, 0.70, 0.71, 0.69])
    found = comparison(good, good + 0.1)
    assert (found.failures, found.without_failed, found.significant) == (None, None, True)
    # a failed run that makes the difference vague: shown without it, not with it
    vague = comparison(good, np.array([*(good[:7] + 0.1), 0.1]))
    assert vague.failures.failed == (0, 1)
    assert vague.without_failed.p_adjusted <= 0.05 < vague.p_adjusted
    assert vague.without_failed.runs[1] == 7
    assert not vague.significant


def test_a_difference_that_is_only_failed_runs_does_not_count():
    good = np.array([0.70, 0.71, 0.69, 0.70, 0.72, 0.70, 0.71, 0.69, 0.70, 0.71])
    failed = np.where(np.arange(10) < 5, good, 0.50)
    scores = study(good, failed)
    cell_of(scores, "b").degenerate = dict.fromkeys(range(5, 10), "one class for every row")
    found = compare_study(scores)["b", MEASURE.name]
    assert found.p_adjusted <= 0.05
    assert found.without_failed.p_adjusted > 0.05
    assert not found.significant


def test_a_difference_with_another_sign_does_not_count():
    good = np.array([0.70, 0.71, 0.69, 0.70, 0.72, 0.70, 0.71, 0.69])
    scores = study(good, good + 0.1)
    cell_of(scores, "b").degenerate = {0: "one class for every row"}
    found = replace(compare_study(scores)["b", MEASURE.name], of_learned=False)
    assert found.significant
    turned = replace(found.without_failed, difference=-0.1)
    assert not replace(found, without_failed=turned).significant
    assert not replace(found, without_failed=replace(turned, p_adjusted=None)).significant


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("variants", [2, 6])
@pytest.mark.parametrize("failing", ["all", "one"])
def test_failed_runs_are_found_whatever_their_share(rate: float, variants: int, failing: str):
    rng = np.random.default_rng(5)
    missed = lost = runs = 0
    for _ in range(25):
        fell = rng.random((variants, 10)) < rate
        if failing == "one":
            fell[1:] = False
        values = normal(rng, variants, 10) - 0.1 * fell * rng.choice([1.2, 3.0])
        called = failed_runs(study(*values), MEASURE)
        found = np.array([[seed in called[name] for seed in range(10)] for name in called])
        missed, lost, runs = (
            missed + (fell & ~found).sum(),
            lost + (found & ~fell).sum(),
            runs + fell.sum(),
        )
    assert missed <= 0.15 * runs
    assert lost == 0


@pytest.mark.parametrize("rate", [0.5, 0.7])
def test_failed_runs_that_all_have_one_value_are_found(rate: float):
    """As the share of the commonest class: equal runs say nothing of how far others spread."""
    rng = np.random.default_rng(12)
    missed = lost = runs = 0
    for _ in range(25):
        fell = rng.random((2, 10)) < rate
        values = np.where(fell, 0.527, normal(rng, 2, 10))
        called = failed_runs(study(*values), MEASURE)
        found = np.array([[seed in called[name] for seed in range(10)] for name in called])
        missed, lost = missed + (fell & ~found).sum(), lost + (found & ~fell).sum()
        runs += fell.sum()
    assert missed <= 0.15 * runs
    assert lost == 0


def test_a_single_good_run_is_one_if_others_are_there():
    good = normal(np.random.default_rng(6), 3, 5)
    fell = np.array([0.70, 0.50, 0.51, 0.49, 0.50])
    assert failed_runs(study(fell, *good), MEASURE)["a"] == {1, 2, 3, 4}
    lucky = np.array([0.90, 0.70, 0.71, 0.69, 0.70])  # above all others: no group
    assert not any(failed_runs(study(lucky, *good), MEASURE).values())


def test_a_variant_whose_runs_all_failed_is_told_from_a_worse_one():
    rng = np.random.default_rng(7)
    values = normal(rng, 4, 3)
    values[1:3, 0] -= 0.2
    values[3] -= 0.2
    found = failed_runs(study(*values), MEASURE)
    assert found == {"a": set(), "b": {0}, "c": {0}, "d": {0, 1, 2}}
    assert not compare_study(study(*values))["d", MEASURE.name].significant
    # one failure among 27 others: three of three are no bad luck
    values = normal(rng, 4, 9)
    values[1, 0] -= 0.2
    values[3] -= 0.2
    assert failed_runs(study(*values), MEASURE) == {"a": set(), "b": {0}, "c": set(), "d": set()}
    assert compare_study(study(*values))["d", MEASURE.name].significant


def test_a_star_is_about_the_runs_that_learned_if_half_of_them_fail():
    rng = np.random.default_rng(8)
    base, other = normal(rng, 2, 10)
    other[:5] -= 0.2
    found = comparison(base, other)
    assert found.of_learned
    assert found.p_adjusted < 0.05  # the means over all runs differ
    assert not found.significant
    assert found.failures.p_adjusted == found.failures.p < 0.05
    better = comparison(base, other + 0.04)
    assert better.significant
    assert better.decided.difference > 0 > better.difference
    assert better.with_equivalent(0.01).equivalent


def test_a_variant_that_fails_tells_nothing_of_the_noise_of_others():
    values = normal(np.random.default_rng(11), 4, 10)
    expected = compare_study(study(*values))["d", MEASURE.name].p
    values[1, :3] -= 3
    found = compare_study(study(*values))["d", MEASURE.name].p
    assert found == pytest.approx(expected, rel=0.2)


def test_rates_are_corrected_over_all_comparisons():
    rng = np.random.default_rng(9)
    values = normal(rng, 3, 10)
    values[1, :6] -= 0.2
    found = compare_study(study(*values))
    assert found["b", MEASURE.name].failures.p_adjusted == 2 * found["b", MEASURE.name].failures.p
    assert found["c", MEASURE.name].failures is None


def false_and_found(rate: float, effect: float, studies: int) -> float:
    """Return the share with a star of two variants that both fail; the second may be better."""
    rng, stars = np.random.default_rng(10), 0
    for _ in range(studies):
        values = normal(rng, 2, 10) - 0.1 * (rng.random((2, 10)) < rate)
        values[1] += effect
        stars += comparison(*values).significant
    return stars / studies


@pytest.mark.nightly
def test_failures_everywhere_cost_little_power_and_no_false_star():
    assert false_and_found(0.5, 0.0, 150) <= 0.06
    assert false_and_found(0.1, 0.022, 100) > 0.5  # Welch's test of all runs: 0.35


def test_pairing_is_said_of_the_runs_that_a_star_is_about():
    values = normal(np.random.default_rng(1), 2, 10)
    values[:, 5:] -= 0.3  # the same seeds fail in both, which says nothing of the others
    scores = study(*values)
    compared = compare_study(scores, draws=0)
    assert all(one.paired and not one.decided.paired for one in compared.values())
    said = describe_pairing(scores, compared)
    assert said is not None
    assert "not paired" in said
    assert "seed by seed" not in said

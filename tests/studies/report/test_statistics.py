"""Statistics against scipy, printed values and simulation; what swapping and scaling must leave."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab.api.study_scores import Cell, Measure, StudyScores, VariantScores
from bertlab.errors import DataError
from bertlab.studies.report.row_scores import compare_examples
from bertlab.studies.report.statistics import (
    compare,
    compare_study,
    holm,
    minimum_detectable_effect,
    summarize,
)

# Student (1908): hours of sleep gained by ten patients with two drugs
DRUG_1 = dict(enumerate([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]))
DRUG_2 = dict(enumerate([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]))

finite = st.integers(-1000, 1000).map(lambda number: number / 1000)
sides = st.lists(st.tuples(finite, finite), min_size=2, max_size=12).map(
    lambda pairs: (
        {seed: one for seed, (one, _) in enumerate(pairs)},
        {seed: other for seed, (_, other) in enumerate(pairs)},
    )
)


def test_summary_is_scipys_interval():
    values = [0.61, 0.64, 0.58, 0.66]
    found = summarize(values, confidence=0.9)
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert found.n == 4
    assert found.mean == pytest.approx(np.mean(values))
    assert found.deviation == pytest.approx(np.std(values, ddof=1))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_summary_of_too_little():
    nothing, one, same = summarize([]), summarize([0.5]), summarize([0.1, 0.1, 0.1])
    assert (nothing.n, nothing.mean, nothing.deviation, nothing.low) == (0, None, None, None)
    assert (one.n, one.mean, one.deviation, one.low, one.high) == (1, 0.5, None, None, None)
    assert (same.deviation, same.low, same.high) == (0.0, None, None)


def test_summary_counts_what_it_leaves_out():
    found = summarize([0.5, math.nan, 0.7, math.inf])
    assert (found.n, found.unusable) == (2, 2)
    assert found.mean == pytest.approx(0.6)


def test_students_sleep():
    found = compare(DRUG_1, DRUG_2)
    # R: t.test(extra ~ group, data = sleep, paired = TRUE), signs turned
    assert found.pairs == 10
    assert found.difference == pytest.approx(1.58)
    assert (found.low, found.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-6)
    assert found.p == pytest.approx(0.002833, abs=1e-6)
    assert found.p_adjusted == found.p
    assert found.significant
    # d_z is t / √10; J of 9 degrees of freedom by its definition
    j = math.gamma(4.5) / (math.sqrt(4.5) * math.gamma(4))
    assert found.effect_size == pytest.approx(4.0621277 / math.sqrt(10) * j, rel=1e-6)


def test_effect_size_is_unbiased():
    rng = np.random.default_rng(0)
    draws = rng.normal(0.8, 1.0, size=(400, 4))
    sizes = [
        compare(dict.fromkeys(range(4), 0.0), dict(enumerate(row))).effect_size for row in draws
    ]
    assert np.mean(sizes) == pytest.approx(0.8, abs=4 * np.std(sizes) / math.sqrt(400))
    assert compare({1: 0.1, 2: 0.2}, {1: 0.2, 2: 0.4}).effect_size is None


@pytest.mark.parametrize(("d_z", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_power_as_in_the_tables(d_z: float, pairs: int):
    # G*Power 3.1, means, difference between two dependent means, two tails, 0.05, power 0.8
    assert minimum_detectable_effect(pairs, 1.0) <= d_z < minimum_detectable_effect(pairs - 1, 1.0)


@pytest.mark.parametrize(("pairs", "level"), [(2, 0.05), (3, 0.05), (5, 0.05 / 6), (10, 0.05)])
def test_power_by_simulation(pairs: int, level: float):
    rng = np.random.default_rng(pairs)
    differences = rng.normal(
        minimum_detectable_effect(pairs, 2.0, level), 2.0, size=(20_000, pairs)
    )
    shown = (stats.ttest_1samp(differences, 0, axis=1).pvalue <= level).sum()
    assert stats.binomtest(int(shown), 20_000, 0.8).pvalue > 0.001


def test_no_pair_and_one_pair():
    none = compare({1: 0.5}, {2: 0.6})
    one = compare({1: 0.5, 2: 0.6}, {2: 0.7})
    assert (none.pairs, none.difference, none.p, none.unpaired) == (0, None, None, (1, 2))
    assert one.difference == pytest.approx(0.1)
    assert (one.pairs, one.low, one.p, one.minimum_detectable_effect) == (1, None, None, None)
    assert not one.significant


def test_the_same_runs():
    found = compare({1: 0.61, 2: 0.64}, {1: 0.61, 2: 0.64})
    assert (found.difference, found.deviation, found.p, found.low) == (0.0, 0.0, 1.0, None)
    assert found.is_constant


def test_a_constant_difference_is_not_infinitely_significant():
    baseline = {seed: 0.1 * seed for seed in range(1, 7)}
    variant = {seed: value + 0.2 for seed, value in baseline.items()}
    three = compare({seed: baseline[seed] for seed in (1, 2, 3)}, variant)
    assert three.p == 0.25
    assert not three.significant
    six = compare(baseline, variant)
    assert six.p == stats.binomtest(6, 6).pvalue == 2 / 64
    assert six.significant
    assert (six.deviation, six.low, six.effect_size, six.minimum_detectable_effect) == (
        0,
        None,
        None,
        None,
    )


def test_values_that_are_not_finite_are_named():
    found = compare({1: 0.5, 2: math.nan, 3: 0.7, 4: 0.6}, {1: 0.6, 2: 0.6, 3: 0.9, 4: -math.inf})
    assert (found.seeds, found.unusable) == ((1, 3), (2, 4))
    assert found.difference == pytest.approx(0.15)


@settings(deadline=None)
@given(sides)
def test_swapping_sides_turns_signs(pair):
    one, other = compare(*pair), compare(*reversed(pair))
    assert one.difference == pytest.approx(-other.difference)
    assert one.p == pytest.approx(other.p)
    assert one.minimum_detectable_effect == pytest.approx(other.minimum_detectable_effect)
    if one.low is not None:
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    if one.effect_size is not None:
        assert one.effect_size == pytest.approx(-other.effect_size)


@settings(deadline=None)
@given(sides, st.integers(-50, 50), st.integers(1, 1000))
def test_shift_changes_nothing_and_scale_scales(pair, shift: int, scale: int):
    one = compare(*pair)
    moved = compare(
        *({seed: (value + shift) * scale for seed, value in side.items()} for side in pair)
    )
    assert moved.difference == pytest.approx(one.difference * scale, rel=1e-6, abs=1e-9 * scale)
    assert moved.p == pytest.approx(one.p, rel=1e-6, abs=1e-9)
    if one.effect_size is not None:
        assert moved.effect_size == pytest.approx(one.effect_size, rel=1e-6, abs=1e-9)
    for name in ("deviation", "low", "high", "minimum_detectable_effect"):
        before, after = getattr(one, name), getattr(moved, name)
        assert (before is None) == (after is None)
        if before is not None:
            assert after == pytest.approx(before * scale, rel=1e-6, abs=1e-9 * scale)


@settings(deadline=None)
@given(sides)
def test_interval_and_test_agree(pair):
    found = compare(*pair)
    assume(found.low is not None and abs(found.p - 0.05) > 1e-9)
    assert (found.low > 0 or found.high < 0) == found.significant


def test_holm_as_in_r():
    # R: p.adjust(p, "holm")
    assert holm([0.01, 0.04, 0.03, 0.02]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.001, 0.9, 0.02]) == pytest.approx([0.003, 0.9, 0.04])
    assert holm([]) == []


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_keeps_order_and_is_between_p_and_bonferroni(p: list[float]):
    adjusted = holm(p)
    for one, corrected in zip(p, adjusted, strict=True):
        assert one <= corrected <= min(1.0, one * len(p))
        for other, also in zip(p, adjusted, strict=True):
            assert corrected <= also or one >= other


def by_seed(rng, rows: int, mean: float, deviation: float) -> dict[int, np.ndarray]:
    return {seed: rng.normal(mean, deviation, rows) for seed in (1, 2, 3)}


@pytest.mark.parametrize("rounded", [False, True])
def test_bootstrap_is_the_normal_interval_on_many_rows(rounded: bool):
    rng = np.random.default_rng(1)
    baseline, variant = by_seed(rng, 3000, 0.3, 0.5), by_seed(rng, 3000, 0.32, 0.5)
    if rounded:  # right or wrong
        baseline = {seed: (scores > 0.5).astype(float) for seed, scores in baseline.items()}
        variant = {seed: (scores > 0.5).astype(float) for seed, scores in variant.items()}
    found = compare_examples(baseline, variant)
    rows = np.mean([variant[seed] - baseline[seed] for seed in (1, 2, 3)], axis=0)
    error = rows.std() / math.sqrt(3000)
    normal = stats.norm(rows.mean(), error)
    assert (found.rows, found.seeds) == (3000, (1, 2, 3))
    assert found.difference == pytest.approx(rows.mean())
    assert (found.low, found.high) == pytest.approx(normal.interval(0.95), abs=0.1 * error)
    assert found.p == pytest.approx(2 * min(normal.cdf(0), normal.sf(0)), abs=0.02)


def test_bootstrap_is_the_same_again_and_mirrored():
    rng = np.random.default_rng(2)
    baseline, variant = by_seed(rng, 150, 0.5, 0.2), by_seed(rng, 150, 0.55, 0.2)
    found, again = compare_examples(baseline, variant), compare_examples(baseline, variant)
    swapped = compare_examples(variant, baseline)
    assert found == again
    assert (found.low, found.high) == pytest.approx((-swapped.high, -swapped.low), abs=0.003)


def test_bootstrap_of_the_same_predictions():
    scores = {1: np.array([1.0, 0.0, 1.0])}
    found = compare_examples(scores, scores)
    assert (found.difference, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_bootstrap_leaves_out_and_names():
    good, broken = np.array([1.0, 0.0, 1.0]), np.array([1.0, math.nan, 0.0])
    found = compare_examples({1: good, 2: good, 3: good}, {1: good, 2: broken})
    assert (found.seeds, found.unusable) == ((1,), (2,))
    assert compare_examples({1: good}, {1: broken}) is None
    endless = np.array([1.0, math.inf, 0.0])
    assert compare_examples({1: endless}, {1: endless}) is None
    assert compare_examples({1: good}, {2: good}) is None
    assert compare_examples({}, {}) is None


def study(*deciding: bool) -> StudyScores:
    measures = [Measure(f"task{number}", "f1", is_primary=on) for number, on in enumerate(deciding)]
    scores = StudyScores(
        "s",
        "base",
        [1, 2, 3, 4, 5],
        measures,
        {name: VariantScores() for name in ("a", "base", "b")},
    )
    rng = np.random.default_rng(3)
    for name, variant in scores.variants.items():
        for measure in measures:
            mean = 0.6 if name == "a" else 0.5
            values = dict(zip(scores.seeds, rng.normal(mean, 0.02, 5).tolist(), strict=True))
            variant.cells[measure.name] = Cell(values)
    return scores


def test_study_corrects_over_what_decides():
    scores = study(True, True, False)
    found = compare_study(scores)
    assert list(found) == [(v, f"task{number} f1") for v in "ab" for number in range(3)]
    deciding = [one for (_, name), one in found.items() if name != "task2 f1"]
    assert [one.p_adjusted for one in deciding] == holm([one.p for one in deciding])
    assert {one.family for one in deciding} == {4}
    for one in deciding:
        adjusted = minimum_detectable_effect(5, one.deviation, 0.05 / 4)
        assert one.minimum_detectable_effect_adjusted == pytest.approx(adjusted)
        assert one.minimum_detectable_effect < one.minimum_detectable_effect_adjusted
    aside = found["a", "task2 f1"]
    assert aside.p < 0.05
    assert (aside.p_adjusted, aside.family, aside.significant) == (None, 0, False)
    alone = compare(
        scores.variants["base"].cells["task0 f1"].values,
        scores.variants["a"].cells["task0 f1"].values,
    )
    assert found["a", "task0 f1"].p == alone.p


def test_study_counts_only_what_can_be_tested():
    scores = study(True, True)
    scores.variants["b"].cells = {"task0 f1": Cell({3: 0.5})}
    found = compare_study(scores)
    assert {one.family for (name, _), one in found.items() if name == "a"} == {2}
    assert found["b", "task0 f1"].pairs == 1
    assert found["b", "task1 f1"].pairs == 0


def test_study_compares_rows_where_both_sides_kept_them():
    scores = study(True)
    right = np.array([1.0, 0.0, 1.0, 1.0])
    scores.variants["base"].cells["task0 f1"].examples = {1: right, 2: right}
    scores.variants["a"].cells["task0 f1"].examples = {2: 1 - right}
    found = compare_study(scores)
    assert found["a", "task0 f1"].examples.seeds == (2,)
    assert found["a", "task0 f1"].examples.difference == -0.5
    assert found["b", "task0 f1"].examples is None


def test_other_rows_are_an_error_that_says_where():
    scores = study(True)
    scores.variants["base"].cells["task0 f1"].examples = {1: np.ones(4)}
    scores.variants["a"].cells["task0 f1"].examples = {1: np.ones(5)}
    with pytest.raises(DataError, match="a, task0 f1: predictions of 4 and 5 rows"):
        compare_study(scores)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=2, max_size=40))
def test_bootstrap_interval_lies_within_the_rows(values: list[float]):
    rows = np.array(values)
    found = compare_examples({1: np.zeros_like(rows)}, {1: rows}, draws=200)
    assert rows.min() <= found.low <= found.high <= rows.max()
    assert 0 < found.p <= 1

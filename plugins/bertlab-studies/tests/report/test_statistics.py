"""Comparisons of a study against scipy and R: what counts, what is corrected, what is included."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab.errors import DataError
from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.contrast_noise import ContrastNoise, draw_test
from bertlab_studies.report.multibootstrap import multibootstrap
from bertlab_studies.report.row_noise import row_noise
from bertlab_studies.report.seed_noise import seed_noise
from bertlab_studies.report.statistics import compare, compare_study, holm, summarize
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

# Student (1908): hours of sleep gained by ten patients with two drugs
DRUG_1 = dict(enumerate([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]))
DRUG_2 = dict(enumerate([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]))

finite = st.integers(-1000, 1000).map(lambda number: number / 1000)
by_seed = st.dictionaries(st.integers(0, 7), finite, max_size=8)


def of_two(baseline, variant) -> Comparison:
    noise = seed_noise({"one": baseline, "other": variant})
    return compare(noise, {"one": Cell(baseline), "other": Cell(variant)}, "one", "other")


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
    found = of_two(DRUG_1, DRUG_2)
    # R: t.test(extra ~ group, data = sleep, paired = TRUE), signs turned; patients move together
    assert (found.runs, found.paired, found.freedom) == ((10, 10), True, 9)
    assert found.difference == pytest.approx(1.58)
    assert (found.low, found.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-6)
    assert found.p == pytest.approx(0.002833, abs=1e-6)
    assert (found.p_adjusted, found.family) == (found.p, 1)
    assert found.significant


def test_students_sleep_of_twenty_patients():
    found = of_two(DRUG_1, {100 + seed: value for seed, value in DRUG_2.items()})
    # R: t.test(extra ~ group, data = sleep), signs turned
    assert (found.runs, found.paired, found.correlation) == ((10, 10), False, None)
    assert found.freedom == pytest.approx(17.776, abs=1e-3)
    assert (found.low, found.high) == pytest.approx((-0.2054832, 3.3654832), abs=1e-6)
    assert found.p == pytest.approx(0.07939, abs=1e-5)
    variances = [np.var(list(drug.values()), ddof=1) for drug in (DRUG_1, DRUG_2)]
    noise = ContrastNoise(tuple(sorted(variances)), (9, 9), (1 / 10, 1 / 10), prior=0)
    assert found.detectable == pytest.approx(draw_test(noise, 0.05).detectable)


def test_no_run_and_one_run():
    none, one = of_two({}, {2: 0.6}), of_two({1: 0.5, 2: 0.6}, {2: 0.7})
    assert (none.runs, none.difference, none.p) == ((0, 1), None, None)
    assert (one.runs, one.low, one.p, one.detectable) == ((2, 1), None, None, None)
    assert one.difference == pytest.approx(0.15)
    assert not one.significant


def test_the_same_runs():
    found = of_two({1: 0.61, 2: 0.61}, {1: 0.61, 2: 0.61})
    assert (found.difference, found.error, found.p, found.low) == (0.0, 0.0, 1.0, None)
    assert found.is_constant


def test_a_constant_difference_is_not_infinitely_significant():
    three, six = (
        of_two(dict.fromkeys(range(n), 0.5), dict.fromkeys(range(n), 0.7)) for n in (3, 6)
    )
    assert (three.p, three.significant) == (pytest.approx(2 / 20), False)
    assert (six.p, six.significant) == (pytest.approx(2 / 924), True)
    assert (six.error, six.low, six.effect_size, six.detectable) == (0, None, None, None)


@settings(deadline=None, max_examples=25)
@given(by_seed, by_seed)
def test_swapping_sides_turns_signs(baseline, variant):
    one, other = of_two(baseline, variant), of_two(variant, baseline)
    assert one.p == pytest.approx(other.p)
    assert one.detectable == pytest.approx(other.detectable)
    for name, turned in (("difference", "difference"), ("low", "high"), ("effect_size",) * 2):
        before, after = getattr(one, name), getattr(other, turned)
        assert (before is None) == (after is None)
        if before is not None:
            assert before == pytest.approx(-after)


@settings(deadline=None, max_examples=25)
@given(by_seed, by_seed)
def test_interval_and_test_agree(baseline, variant):
    found = of_two(baseline, variant)
    assume(found.low is not None and abs(found.p - 0.05) > 1e-9)
    assert (found.low > 0 or found.high < 0) == found.significant


def test_holm_as_in_r():
    # R: p.adjust(p, "holm")
    assert holm([0.01, 0.04, 0.03, 0.02]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.001, 0.9, 0.02]) == pytest.approx([0.003, 0.9, 0.04])
    assert holm([]) == []


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_keeps_order_and_is_between_p_and_bonferroni(p: list[float]):
    adjusted = holm(p)
    for one, corrected in zip(p, adjusted, strict=True):
        assert one <= corrected <= min(1.0, one * len(p))
        for other, also in zip(p, adjusted, strict=True):
            assert corrected <= also or one >= other


def study(*deciding: bool, margin: float | None = None) -> StudyScores:
    measures = [
        Measure(f"task{number}", "f1", is_primary=on, margin=margin)
        for number, on in enumerate(deciding)
    ]
    variants = {name: VariantScores() for name in ("a", "base", "b")}
    scores = StudyScores("s", "base", [1, 2, 3, 4, 5], measures, variants)
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
        assert one.detectable == draw_test(one.noise, 0.05 / 4).detectable
    aside = found["a", "task2 f1"]
    assert aside.p < 0.05
    assert (aside.p_adjusted, aside.family, aside.significant) == (None, 0, False)
    assert (aside.detectable, aside.detectable_range) == (None, None)


def test_study_estimates_noise_from_all_variants():
    scores = study(True)
    values = {name: scores.cell(name, scores.measures[0]).values for name in scores.variants}
    noise = seed_noise(values).contrast({"base": -1, "a": 1})
    found = compare_study(scores)["a", "task0 f1"]
    assert found.error == pytest.approx(math.sqrt(noise.variance))
    assert found.freedom == pytest.approx(noise.freedom)
    assert found.p < of_two(values["base"], values["a"]).p


def test_study_counts_only_what_can_be_tested():
    scores = study(True, True)
    scores.variants["b"].cells = {"task0 f1": Cell({3: 0.5})}
    found = compare_study(scores)
    assert {one.family for (name, _), one in found.items() if name == "a"} == {2}
    assert found["b", "task0 f1"].runs == (5, 1)
    assert (found["b", "task1 f1"].runs, found["b", "task1 f1"].difference) == ((5, 0), None)


def test_equivalence_is_corrected_over_what_decides():
    scores = study(True, True, False, margin=0.06)
    found = compare_study(scores)
    alone = compare_study(study(True, False, False, margin=0.06))
    deciding = [one for (_, name), one in found.items() if name != "task2 f1"]
    rooms = [(0.06 - abs(one.difference)) / one.error for one in deciding]
    p = stats.t.sf(rooms, [one.freedom for one in deciding])
    assert [one.p_equivalent for one in deciding] == pytest.approx(holm(p))
    assert found["b", "task0 f1"].equivalent
    assert not found["a", "task0 f1"].equivalent
    assert alone["b", "task0 f1"].p_equivalent < found["b", "task0 f1"].p_equivalent
    aside = found["b", "task2 f1"]
    assert (aside.margin, aside.p_equivalent, aside.equivalent) == (None, None, False)


def with_rows(scores: StudyScores, rows: int, seeds=(1, 2, 3, 4, 5)) -> StudyScores:
    """Give baseline and variant ``a`` scores of rows, some of them better on other rows."""
    rng = np.random.default_rng(0)
    for name in ("base", "a"):
        ease = rng.random(rows)
        cell = scores.variants[name].cells["task0 f1"]
        cell.examples = {seed: (rng.random(rows) < ease).astype(float) for seed in seeds}
    return scores


@pytest.mark.parametrize("seeds", [(1, 2, 3, 4, 5), (2, 4)])
def test_rows_are_included_where_both_sides_kept_them(seeds: tuple[int, ...]):
    scores = with_rows(study(True), 60, seeds)
    found, alone = compare_study(scores), compare_study(study(True))
    one, without = found["a", "task0 f1"], alone["a", "task0 f1"]
    before, after = (scores.variants[name].cells["task0 f1"].examples for name in ("base", "a"))
    over_rows, rows, *_ = row_noise([before, after], (-1, 1), paired=False)
    assert (one.rows, rows, one.paired) == (60, 60, False)
    assert one.error**2 == pytest.approx(without.error**2 + over_rows)
    assert one.row_share == pytest.approx(over_rows / one.error**2)
    # Satterthwaite
    parts = without.error**4 / without.freedom + over_rows**2 / 59
    assert one.freedom == pytest.approx(one.error**4 / parts)
    assert one.effect_size == without.effect_size
    sides = [np.array(list(side.values())) for side in (before, after)]
    assert one.bootstrap == multibootstrap(*sides, paired=False)
    other = found["b", "task0 f1"]
    assert (other.rows, other.row_share, other.bootstrap) == (None, None, None)
    assert other.error == alone["b", "task0 f1"].error


def test_runs_that_are_the_same_do_not_hide_that_rows_differ():
    scores = study(True)
    del scores.variants["b"]
    for name, right in (("base", 12), ("a", 14)):  # two of twenty rows, in every seed
        rows = (np.arange(20) < right).astype(float)
        examples = dict.fromkeys(scores.seeds, rows)
        values = dict.fromkeys(scores.seeds, right / 20)
        scores.variants[name].cells["task0 f1"] = Cell(values, examples=examples)
    found = compare_study(scores)["a", "task0 f1"]
    assert found.p == pytest.approx(stats.ttest_1samp([1.0] * 2 + [0.0] * 18, 0).pvalue)
    assert found.p > 0.05
    assert (found.row_share, found.freedom, found.effect_size) == (1, 19, None)
    for name in ("base", "a"):
        scores.variants[name].cells["task0 f1"].examples = {}
    assert compare_study(scores)["a", "task0 f1"].p == pytest.approx(2 / 252)


def test_rows_do_not_make_two_runs_a_side_enough():
    scores = study(True)
    del scores.variants["b"]
    for name, right in (("base", 2), ("a", 18)):
        examples = dict.fromkeys((1, 2), (np.arange(20) < right).astype(float))
        scores.variants[name].cells["task0 f1"] = Cell(
            dict.fromkeys((1, 2), right / 20), examples=examples
        )
    found = compare_study(scores)["a", "task0 f1"]
    assert found.low > 0
    assert found.p == pytest.approx(2 / 6)


def test_other_rows_are_an_error_that_says_where():
    scores = study(True)
    scores.variants["base"].cells["task0 f1"].examples = {1: np.ones(4)}
    scores.variants["a"].cells["task0 f1"].examples = {1: np.ones(5)}
    with pytest.raises(DataError, match="a, task0 f1: predictions of 4 and 5 rows"):
        compare_study(scores)


def test_failed_runs_are_corrected_over_the_same_family():
    scores = study(True, True)
    scores.variants["a"].cells["task0 f1"].degenerate = {2: "one class for every row"}
    found = compare_study(scores)
    one = found["a", "task0 f1"]
    # with the others' p as they are: nothing of them failed
    rest = [(c.without_failed or c).p for c in found.values()]
    assert one.failures.failed == (0, 1)
    assert one.without_failed.runs == (5, 4)
    assert one.without_failed.family == 4
    assert one.without_failed.p_adjusted == holm(rest)[0]
    assert found["b", "task0 f1"].without_failed is None

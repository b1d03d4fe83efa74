"""Words for comparisons and studies, and what they must not leave out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.contrast_noise import ContrastNoise
from bertlab_studies.report.failures import FailureComparison
from bertlab_studies.report.findings import (
    conclude,
    describe,
    describe_failures,
    describe_rows,
    format_p,
    warnings,
)
from bertlab_studies.report.multibootstrap import MultiBootstrap
from bertlab_studies.report.seed_noise import seed_noise
from bertlab_studies.report.statistics import compare, compare_study
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

ACCURACY = Measure("mrpc", "accuracy")
LOSS = Measure("mlm", "loss", higher_is_better=False, is_share=False)
FIVE = (1, 2, 3, 4, 5)


def comparison(**changes) -> Comparison:
    found = {
        "runs": (5, 5),
        "difference": 0.0015,
        "error": 0.0036,
        "freedom": 8.0,
        "low": -0.006,
        "high": 0.009,
        "p": 0.6,
        "p_adjusted": 0.6,
        "family": 1,
        "noise": ContrastNoise((0.0036**2,), (8,), (1.0,), prior=0),
    }
    return Comparison(**(found | changes))


def of_two(baseline: dict[int, float], variant: dict[int, float]) -> Comparison:
    noise = seed_noise({"one": baseline, "other": variant})
    return compare(noise, {"one": Cell(baseline), "other": Cell(variant)}, "one", "other")


def test_no_difference_says_what_could_have_been_shown():
    expected = "no difference shown (95 % CI −0.6 … +0.9 points; 5 seeds could have shown "
    assert describe(comparison(), ACCURACY) == f"{expected}1.2 (0.9 … 1.7))"
    of_three = describe(comparison(family=3), ACCURACY)
    assert of_three == f"{expected}1.4 (1.1 … 2.2) after Holm)"
    uneven = describe(comparison(runs=(5, 4)), ACCURACY)
    assert "; 5 and 4 seeds could have shown 1.2 " in uneven


def test_difference():
    found = comparison(
        difference=-0.012, low=-0.019, high=-0.005, p=0.001, p_adjusted=0.004, family=4
    )
    assert (
        describe(found, ACCURACY)
        == "lower by 1.2 points (95 % CI −1.9 … −0.5 points, p 0.004 after Holm)"
    )


def test_difference_that_holm_takes_back():
    found = comparison(low=0.001, high=0.009, p=0.03, p_adjusted=0.18, family=6)
    assert describe(found, ACCURACY) == (
        "no difference shown (95 % CI +0.1 … +0.9 points, p 0.030 alone, p 0.18 after Holm;"
        " 5 seeds could have shown 1.6 (1.2 … 2.4) after Holm)"
    )


def test_difference_that_failed_runs_make():
    rest = comparison(p=0.4, p_adjusted=0.4)
    found = comparison(low=0.001, p=0.03, p_adjusted=0.03, without_failed=rest)
    assert describe(found, ACCURACY) == (
        "no difference shown without the runs that failed (95 % CI +0.1 … +0.9 points, p 0.030;"
        " 5 seeds could have shown 1.2 (0.9 … 1.7))"
    )


def test_difference_of_the_runs_that_learned():
    rest = comparison(difference=0.02, low=0.011, high=0.029, p=0.01, p_adjusted=0.02, family=2)
    failures = FailureComparison((0, 5), (10, 10), 0.237, 0.763, 0.033, p_adjusted=0.066)
    found = comparison(without_failed=rest, failures=failures, of_learned=True, family=2)
    assert describe(found, ACCURACY) == (
        "of the runs that learned: higher by 2.0 points (95 % CI +1.1 … +2.9 points,"
        " p 0.020 after Holm)"
    )
    assert describe_failures(found, ACCURACY, "mlm") == (
        "5 of 10 runs failed (95 % CI 24 … 76 %), of mlm 0 of 10 (Fisher p 0.066 after Holm);"
        " with them: +0.1 points (95 % CI −0.6 … +0.9 points)"
    )
    nothing = replace(found, without_failed=of_two({1: 0.5}, {1: 0.6}))
    assert describe(nothing, ACCURACY) == "of the runs that learned: cannot be tested: 1 seed"
    study = StudyScores("s", "mlm", [*FIVE], [ACCURACY], {"mlm": VariantScores()})
    assert conclude(study, {("ltr", ACCURACY.name): found}) == (
        "The one comparison with mlm shows a difference: ltr is higher by 2.0 points in "
        "mrpc accuracy (runs that learned)."
    )


def test_as_good_as_the_baseline():
    found = comparison(margin=0.01, p_equivalent=0.012)
    assert describe(found, ACCURACY) == (
        "as good as the baseline, within 1.0 points (p 0.012; 95 % CI −0.6 … +0.9 points)"
    )
    assert describe(replace(found, p_equivalent=0.06), ACCURACY) == describe(comparison(), ACCURACY)
    # a difference that is shown is told first, however small
    shown = replace(found, low=0.001, p=0.001, p_adjusted=0.001)
    assert describe(shown, ACCURACY).startswith("higher by 0.1 points (")


@pytest.mark.parametrize(("sign", "words"), [(-1, "lower (better)"), (1, "higher (worse)")])
def test_losses_say_which_end_is_better(sign: int, words: str):
    ends = sorted((sign * 0.08, sign * 0.22))
    found = comparison(difference=sign * 0.15, low=ends[0], high=ends[1], p=0.002, p_adjusted=0.002)
    assert describe(found, LOSS).startswith(f"{words} by 0.150 (95 % CI ")
    assert "points" not in describe(found, LOSS)


def test_what_cannot_be_tested():
    said = [
        (of_two({1: 0.5}, {1: 0.6}), "1 seed"),
        (of_two({1: 0.5, 2: 0.6}, {1: 0.6}), "1 seed against 2"),
        (of_two({1: 0.5}, {1: 0.6, 2: 0.7}), "2 seeds against 1"),
        (of_two({}, {1: 0.6}), "no seed has values on both sides"),
    ]
    for found, why in said:
        assert describe(found, ACCURACY) == f"cannot be tested: {why}"


def test_constant_differences():
    values = {seed: 0.6 + seed / 100 for seed in FIVE}
    assert describe(of_two(values, values), ACCURACY) == "the same in every seed"
    more = {seed: value + 0.005 for seed, value in values.items()}
    assert describe(of_two(values, more), ACCURACY) == (
        "no difference shown: higher by 0.5 points in each of 5 seeds, with no spread"
        " (sign test, p 0.062)"
    )
    same, lower = dict.fromkeys(FIVE, 0.6), dict.fromkeys(FIVE[:4], 0.58)
    assert describe(of_two(same, lower), ACCURACY) == (
        "lower by 2.0 points in each of 5 and 4 seeds, with no spread (permutation test, p 0.016)"
    )


def test_few_seeds_are_said_to_be_few():
    few = comparison(runs=(5, 3))
    expected = "; few seeds: 5 and 3 could have shown 1.2 (0.9 … 1.7))"
    assert describe(few, ACCURACY).endswith(expected)
    shown = comparison(runs=(2, 2), low=0.001, p=0.04, p_adjusted=0.04)
    assert describe(shown, ACCURACY).endswith(", p 0.040; few seeds: 2)")


def test_measure_that_does_not_decide():
    found = comparison(difference=0.0016, p_adjusted=None, family=0)
    assert (
        describe(found, ACCURACY)
        == "+0.2 points (95 % CI −0.6 … +0.9 points), not one of the measures that decide"
    )


def test_narrow_intervals_get_more_decimals():
    found = comparison(difference=0.0004, low=0.0001, high=0.0007, p=0.01, p_adjusted=0.01)
    assert describe(found, ACCURACY).startswith(
        "higher by 0.04 points (95 % CI +0.01 … +0.07 points"
    )


def test_rows():
    drawn = MultiBootstrap(-0.0036, -0.0101, 0.0031, 0.3, 1725, (5, 5), 1000)
    found = comparison(rows=1725, row_share=0.404, bootstrap=drawn)
    assert describe_rows(found, ACCURACY) == (
        "1,725 rows are 40 % of the uncertainty;"
        " Multi-Bootstrap over seeds and rows: 95 % CI −1.0 … +0.3 points"
    )
    assert describe_rows(replace(found, bootstrap=None), ACCURACY) == (
        "1,725 rows are 40 % of the uncertainty"
    )
    same = replace(found, row_share=0.0, bootstrap=replace(drawn, low=0.0, high=0.0))
    assert describe_rows(same, ACCURACY) == (
        "1,725 rows are 0 % of the uncertainty; Multi-Bootstrap: the same in every draw"
    )


def test_failed_runs():
    failures = FailureComparison((0, 3), (10, 10), 0.108, 0.603, 0.21, -0.004, 0.36)
    rest = comparison(difference=-0.002, low=-0.011, high=0.006)
    found = comparison(failures=failures, without_failed=rest)
    assert describe_failures(found, ACCURACY, "mlm") == (
        "3 of 10 runs failed (95 % CI 11 … 60 %), of mlm 0 of 10 (Fisher p 0.21);"
        " without them: −0.2 points (95 % CI −1.1 … +0.6 points);"
        " trimmed means: −0.4 points (p 0.36)"
    )
    few = replace(found, failures=replace(failures, trimmed=None, p_trimmed=None))
    assert describe_failures(few, ACCURACY, "mlm").endswith("(95 % CI −1.1 … +0.6 points)")
    no_test = replace(few, without_failed=of_two({1: 0.5}, {1: 0.6}))
    assert describe_failures(no_test, ACCURACY, "mlm").endswith(
        "; without them: nothing can be tested"
    )
    constant = replace(few, without_failed=of_two({1: 0.5, 2: 0.5}, {1: 0.6, 2: 0.6}))
    assert describe_failures(constant, ACCURACY, "mlm").endswith(
        "; without them: +10.0 points (no spread)"
    )


def test_p():
    assert [format_p(p) for p in (1.0, 0.214, 0.0312, 0.00096)] == [
        "p 1.00",
        "p 0.21",
        "p 0.031",
        "p < 0.001",
    ]


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(*2 * [st.floats(0, 1, allow_subnormal=False)]), max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_every_comparison_has_words_with_real_minus_signs(pairs, is_share: bool, higher: bool):
    measure = Measure("t", "m", higher, is_share)
    found = of_two(
        {seed: one for seed, (one, _) in enumerate(pairs)},
        {seed: other for seed, (_, other) in enumerate(pairs)},
    )
    words = describe(found, measure)
    assert words
    assert "-" not in words.replace("e-", "")
    assert "nan" not in words
    assert "−0.0 " not in words
    assert "+0.0 " not in words


def study(seeds=FIVE) -> StudyScores:
    scores = StudyScores(
        "s",
        "mlm+nsp",
        list(seeds),
        [ACCURACY, LOSS],
        {n: VariantScores() for n in ("mlm+nsp", "ltr")},
    )
    rng = np.random.default_rng(0)
    for name, variant in scores.variants.items():
        worse = 0.1 if name == "ltr" else 0.0
        variant.cells = {
            ACCURACY.name: Cell({seed: 0.8 - worse + rng.normal(0, 0.01) for seed in seeds}),
            LOSS.name: Cell({seed: 3.0 + rng.normal(0, 0.1) for seed in seeds}),
        }
    return scores


def test_conclusion_names_differences():
    scores = study()
    words = conclude(scores, compare_study(scores))
    assert words.startswith(
        "1 of 2 comparisons with mlm+nsp shows a difference after Holm: ltr is lower by "
    )
    assert words.endswith(" points in mrpc accuracy.")


def test_conclusion_without_differences():
    scores = study()
    scores.variants["ltr"].cells[ACCURACY.name] = Cell({2: 0.5})
    words = conclude(scores, compare_study(scores))
    assert words == (
        "The one comparison with mlm+nsp shows no difference, which does not show that there is"
        " none; 1 more cannot be tested."
    )
    scores.variants["ltr"].cells = {}
    assert (
        conclude(scores, compare_study(scores))
        == "Nothing can be said yet: no comparison with mlm+nsp can be tested."
    )


def test_conclusion_with_several_differences():
    scores = study()
    values = scores.variants["ltr"].cells[LOSS.name].values
    scores.variants["ltr"].cells[LOSS.name] = Cell({seed: x - 2 for seed, x in values.items()})
    words = conclude(scores, compare_study(scores))
    assert words.startswith("2 of 2 comparisons with mlm+nsp show a difference after Holm: ltr is ")
    assert " and ltr is lower (better) by 2." in words
    scores.measures.pop()
    words = conclude(scores, compare_study(scores))
    assert words.startswith("The one comparison with mlm+nsp shows a difference: ltr is lower by ")


def test_no_difference_in_several():
    scores = study()
    scores.variants["ltr"] = VariantScores(dict(scores.variants["mlm+nsp"].cells))
    assert conclude(scores, compare_study(scores)) == (
        "None of 2 comparisons with mlm+nsp shows a difference after Holm, which does not show"
        " that there is none."
    )


def test_a_whole_study_has_no_warnings():
    assert warnings(study()) == []


def test_few_seeds_are_warned_of():
    assert "3 seeds: intervals are wide" in warnings(study((1, 2, 3)))[0]
    assert "1 seed: nothing can be tested" in warnings(study((1,)))[0]


def test_missing_and_failed_runs_are_named():
    scores = study()
    scores.variants["ltr"].failures = ["mrpc, seed 2: exit code 1"]
    for cell in scores.variants["ltr"].cells.values():
        del cell.values[2]
    assert warnings(scores) == [
        "ltr: failed: mrpc, seed 2: exit code 1",
        "ltr: seed 2 is missing; 4 of 5 seeds left",
    ]


def test_runs_missing_in_some_measures_and_in_the_baseline():
    scores = study()
    del scores.variants["ltr"].cells[ACCURACY.name].values[2]
    scores.variants["ltr"].cells[LOSS.name].values.clear()
    del scores.variants["mlm+nsp"].cells[ACCURACY.name].values[4]
    assert warnings(scores) == [
        "mlm+nsp, mrpc accuracy: seed 4 is missing; 4 of 5 seeds left",
        "ltr, mrpc accuracy: seed 2 is missing; 4 of 5 seeds left",
        "ltr, mlm loss: no seed has a value",
    ]


def test_degenerate_runs_are_named_and_stay_in_the_mean():
    scores = study()
    cell = scores.variants["ltr"].cells[ACCURACY.name]
    cell.degenerate = {3: "one class for every row", 5: "one class for every row", 1: "loss rose"}
    cell.values[1] = math.nan
    assert warnings(scores) == [
        "ltr, mrpc accuracy: seed 1 is degenerate: loss rose; it is not in the mean",
        "ltr, mrpc accuracy: seeds 3 and 5 are degenerate: one class for every row;"
        " they are in the mean",
        "ltr, mrpc accuracy: seed 1 has no finite value; it is left out of mean and comparison",
    ]

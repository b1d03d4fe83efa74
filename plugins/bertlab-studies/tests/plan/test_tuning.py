"""The section ``tune`` of a study file, the trials that are drawn, and the rows that choose."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bertlab_studies.errors import StudyError
from bertlab_studies.plan.tuning import Range, Rows, Tuning, read_tuning

RATE = "model.optimizer.learning_rate"
WARMUP = "model.optimizer.warmup_steps"
SPACE = {
    "optimizer.learning_rate": {"log": [1e-4, 1e-2]},
    "optimizer.warmup_steps": [0.0, 0.05, 0.1],
}


def tuning(**given: Any) -> Tuning:
    found = read_tuning({"trials": 4, "space": SPACE, **given}, "s.yaml: tune", {}, (1, 2, 3))
    assert found is not None
    return found


def test_defaults() -> None:
    found = tuning()
    assert (found.search, found.by, found.seeds, found.same_rows) == ("random", None, (0,), False)
    assert list(found.space) == [RATE, WARMUP]
    assert read_tuning(None, "s.yaml: tune", {}, (1,)) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trails": 4}, r"tune: no key is called 'trails'; did you mean 'trials'"),
        ({"trials": 0}, r"tune\.trials: found 0, expected a whole number above 1"),
        ({"trials": True}, r"tune\.trials: found True"),
        ({"search": "randon"}, r"tune\.search: found 'randon'.*random.*expected random or grid"),
        ({"space": {}}, r"tune\.space: found \{\}, expected config keys"),
        (
            {"space": {"a": []}},
            r"tune\.space\.a: found \[\], expected a list of values, or a range",
        ),
        ({"space": {"a": [1, 1.0]}}, r"tune\.space\.a: 1 is there twice"),
        ({"space": {"a": {"log": [0, 1]}}}, r"a\.log: found \[0, 1\], expected numbers above 0"),
        (
            {"space": {"a": {"uniform": [2, 2]}}},
            r"a\.uniform: found \[2, 2\], expected two numbers",
        ),
        ({"space": {"a": {"log": [1, 2, 3]}}}, r"a\.log: found \[1, 2, 3\], expected two numbers"),
        ({"space": {"a": {"lag": [1, 2]}}}, r"space\.a: found .*, expected a list of values"),
        ({"space": {"seed_everything": [1, 2]}}, r"seed_everything: cannot be set here"),
        ({"space": {"evaluate.from_step": [1, 2]}}, r"from_step: cannot be tuned"),
        ({"seeds": [5, 2]}, r"tune\.seeds: 2 is a seed of the study as well; .* such as \[0\]"),
        ({"seeds": {"pretrain": 1}}, r"tune\.seeds: found .*, expected a number of seeds"),
        ({"same_rows": "yes"}, r"tune\.same_rows: found 'yes', expected true or false"),
        ({"by": 3}, r"tune\.by: found 3, expected a measure"),
        ({"search": "grid"}, rf"tune\.space\.{RATE}: found a range, but search: grid"),
        (
            {"search": "grid", "trials": 3, "space": {"a": [1, 2], "b": [1, 2]}},
            r"tune\.trials: found 3, but the grid has 4 points; expected 4",
        ),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        tuning(**given)


@pytest.mark.parametrize(
    "overrides",
    [
        {RATE: 1e-3},
        {"model.optimizer": {"learning_rate": 1e-3}},
        {f"{RATE}.below": 1},
    ],
)
def test_a_variant_that_sets_what_is_tuned_is_refused(overrides: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match=rf"tune\.space\.{RATE}: the variant 'big' sets {RATE}"):
        read_tuning({"trials": 4, "space": SPACE}, "tune", {"a": {}, "big": overrides}, (1,))
    beside = {"model.optimizer.learning_rates": 1, "model.objectives": ["mlm"]}
    assert read_tuning({"trials": 4, "space": SPACE}, "tune", {"big": beside}, (1,)) is not None


def test_more_trials_begin_with_the_same_ones() -> None:
    few, many = tuning(trials=3).settings(), tuning(trials=9).settings()
    assert many[:3] == few
    assert tuning(trials=3, seeds=[0, 7]).settings() == few
    assert tuning(trials=3, seeds=[7]).settings() != few


def test_a_key_is_drawn_whatever_else_is_tuned() -> None:
    alone = tuning(space={"optimizer.learning_rate": {"log": [1e-4, 1e-2]}}).settings()
    assert [each[RATE] for each in tuning().settings()] == [each[RATE] for each in alone]


def test_draws_are_uniform_on_their_scale() -> None:
    found = tuning(trials=2000, space={**SPACE, "a": {"uniform": [-1, 3]}}).settings()
    logs = np.log10([each[RATE] for each in found])  # of numbers with three digits
    assert stats.kstest(logs, stats.uniform(-4, 2).cdf).pvalue > 0.01
    assert stats.kstest([each["a"] for each in found], stats.uniform(-1, 4).cdf).pvalue > 0.01
    counts = [sum(each[WARMUP] == value for each in found) for value in (0.0, 0.05, 0.1)]
    assert stats.chisquare(counts).pvalue > 0.01
    rates = [each[RATE] for each in found]
    assert abs(stats.pearsonr(rates, [each["a"] for each in found]).statistic) < 0.06


def test_a_grid_has_each_point_once() -> None:
    found = tuning(search="grid", trials=None, space={"a": [1, 2], "b": ["x", "y", "z"]})
    assert found.trials == 6
    assert found.settings() == [{"a": a, "b": b} for a in (1, 2) for b in "xyz"]


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(0, 1, exclude_max=True), st.booleans())
def test_a_number_is_in_its_range(one: float, other: float, share: float, is_log: bool) -> None:
    low, high = min(one, other), max(one, other)
    assert low <= Range(low, high, is_log).at(share) <= high


@given(st.integers(0, 3000))
def test_each_row_either_chooses_or_decides(count: int) -> None:
    chooses, decides = Rows.CHOOSE.of([""] * count), Rows.DECIDE.of([""] * count)
    assert (chooses ^ decides).all()
    assert Rows.ALL.of([""] * count).all()
    assert len(chooses) == count
    # of a longer set, the first rows are in the same half
    assert (Rows.CHOOSE.of([""] * (count + 5))[:count] == chooses).all()


def test_halves_do_not_follow_the_order_of_rows() -> None:
    chooses = Rows.CHOOSE.of([""] * 4000)
    for part in (chooses, chooses[::2], chooses[1::2], chooses[:2000]):
        assert stats.binomtest(int(part.sum()), len(part)).pvalue > 0.01


@pytest.mark.slow
@given(st.lists(st.integers(0, 9), min_size=2, max_size=200).filter(lambda each: len({*each}) > 1))
def test_a_cluster_is_in_one_half_and_halves_are_about_equal(numbers: list[int]) -> None:
    names = [f"document:{number}" for number in numbers]
    chooses = Rows.CHOOSE.of(names)
    assert (chooses ^ Rows.DECIDE.of(names)).all()
    largest = max(map(numbers.count, numbers))
    if largest > 1:
        both = [
            {names[row] for row in range(len(names)) if chooses[row] == half} for half in (0, 1)
        ]
        assert not both[0] & both[1]
        assert both[0]
        assert both[1]
        assert abs(chooses.sum() - len(names) / 2) <= largest
    assert (Rows.CHOOSE_SINGLY.of(names) == Rows.CHOOSE.of([""] * len(names))).all()

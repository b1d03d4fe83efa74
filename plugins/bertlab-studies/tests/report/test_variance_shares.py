"""Variance shares: against a textbook, scipy and simulation; and how the report shows them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from bertlab_studies.report.render import html, latex, markdown
from bertlab_studies.report.report import report_of, runs_of
from bertlab_studies.report.variance_shares import (
    VarianceShares,
    variance_shares,
    variance_tables,
)
from bertlab_studies.study_scores import Cell, StudyScores
from made_up_scores import add_repeats, made_up_study

# calcium in turnip leaves, % of dry weight, four determinations of each of four leaves (Snedecor
# and Cochran 1989, Statistical methods, section 13.3): mean squares 0.2961 and 0.0066
LEAVES = [
    [3.28, 3.09, 3.03, 3.03],
    [3.52, 3.48, 3.38, 3.38],
    [2.88, 2.80, 2.81, 2.76],
    [3.34, 3.38, 3.23, 3.26],
]


def cell_of(groups: object) -> Cell:
    """Return a cell of fine-tunings by pre-training."""
    found = Cell()
    for seed, values in enumerate(groups, 1):  # type: ignore[arg-type]
        found.repeats[seed] = {number: float(value) for number, value in enumerate(values, 1)}
        found.values[seed] = float(np.mean(values))
    return found


def shares_of(*variants: object) -> VarianceShares:
    found = variance_shares(map(cell_of, variants))
    assert found is not None
    return found


def test_a_textbook_example() -> None:
    found = shares_of(LEAVES)
    assert found.pretraining == pytest.approx(0.0724, abs=5e-5)
    assert found.finetuning == pytest.approx(0.0066, abs=5e-5)
    assert found.freedom == (3, 12)
    assert found.standard_error() == pytest.approx((0.2961 / 16) ** 0.5, abs=5e-5)


@settings(max_examples=25)
@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 1000))
def test_a_balanced_variant_is_scipys_analysis_of_variance(
    pretrainings: int, finetunings: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(pretrainings, 1)) + rng.normal(size=(pretrainings, finetunings))
    found = shares_of(values)
    # the pooled variance, and its ratio to that between, by other formulas than ours
    within = np.mean(np.var(values, axis=1, ddof=1))
    f = stats.f_oneway(*values).statistic
    assert found.finetuning == pytest.approx(within)
    assert found.pretraining == pytest.approx(max(0.0, within * (f - 1) / finetunings), abs=1e-9)
    assert found.is_negative == (f < 1)
    assert found.freedom == (pretrainings - 1, pretrainings * (finetunings - 1))
    if f > 1:  # then it is the standard error of the mean of the pre-trainings' means
        assert found.standard_error() == pytest.approx(stats.sem(values.mean(1)))


def test_variants_are_pooled_and_their_means_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    one, two = (2 * rng.normal(size=(4, 1)) + rng.normal(size=(4, 3)) for _ in range(2))
    pooled, single = shares_of(one, two + 100), (shares_of(one), shares_of(two))
    # balanced and equally large: the mean of both
    assert pooled.pretraining == pytest.approx(np.mean([each.pretraining for each in single]))
    assert pooled.finetuning == pytest.approx(np.mean([each.finetuning for each in single]))
    assert pooled.freedom == (6, 16)


COUNTS = ([12, 1, 2, 1, 9, 2], [2, 12, 5, 1, 8])  # fine-tunings of each pre-training, two variants


def _drawn(
    rng: np.random.Generator, counts: list[int], a: float, e: float
) -> list[NDArray[np.float64]]:
    return [a * rng.normal() + e * rng.normal(size=count) for count in counts]


@pytest.mark.nightly
@pytest.mark.parametrize(("a", "e"), [(2.0, 1.0), (1.5, 1.5)])
def test_estimates_are_unbiased_where_numbers_differ(a: float, e: float) -> None:
    rng = np.random.default_rng(5)
    studies = [[_drawn(rng, counts, a, e) for counts in COUNTS] for _ in range(2000)]
    found = [shares_of(*study) for study in studies]
    means = [[np.mean([each.mean() for each in variant]) for variant in study] for study in studies]
    for estimates, truth in (
        ([each.pretraining for each in found], a**2),
        ([each.finetuning for each in found], e**2),
        # of a variant's mean, by the formula and by what the means do
        ([each.standard_error() ** 2 for each in found], np.mean(np.var(means, axis=0, ddof=1))),
    ):
        error = np.std(estimates) / len(estimates) ** 0.5
        assert abs(np.mean(estimates) - truth) < 4 * error


def test_twice_the_runs_have_the_error_that_is_foretold() -> None:
    values = np.array(LEAVES)
    found = shares_of(values)
    assert found.standard_error(pretrainings=2) == pytest.approx(found.standard_error() / 2**0.5)
    between, within = found.pretraining, found.finetuning
    assert found.standard_error(finetunings=2) == pytest.approx((between / 4 + within / 32) ** 0.5)
    many = found.standard_error(finetunings=1e12)
    assert many == pytest.approx((between / 4) ** 0.5)  # fine-tunings alone go no further


def test_a_negative_estimate_counts_as_nothing() -> None:
    found = shares_of([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])  # the same mean: below what chance gives
    assert (found.pretraining, found.finetuning, found.is_negative) == (0.0, 1.0, True)
    assert not shares_of(LEAVES).is_negative


def test_values_without_spread_have_no_shares() -> None:
    same = shares_of([[0.1 + 0.2] * 3, [0.3] * 3])  # they differ by rounding
    assert (same.total, same.is_negative) == (0.0, False)
    every = shares_of([[0.5, 0.5], [0.7, 0.7]])
    assert every.finetuning == 0.0
    assert every.pretraining == pytest.approx(0.02)


def test_too_few_runs_say_nothing() -> None:
    assert variance_shares([]) is None
    assert variance_shares([Cell({1: 0.5, 2: 0.6})]) is None  # not nested
    assert variance_shares([cell_of([[1.0, 2.0]])]) is None  # one pre-training
    assert variance_shares([cell_of([[1.0], [2.0]])]) is None  # one fine-tuning of each
    assert variance_shares([cell_of([[1.0, 2.0]]), cell_of([[1.0], [2.0]])]) is not None


def test_values_that_are_not_finite_are_left_out() -> None:
    with_nan = [[*LEAVES[0], np.nan], *LEAVES[1:], [np.inf]]
    assert shares_of(with_nan) == shares_of(LEAVES)


def test_rows_are_those_of_the_mean_over_runs() -> None:
    rng = np.random.default_rng(2)
    scores = (rng.random((4, 300)) < 0.8).astype(float)
    cell = cell_of(LEAVES)
    cell.examples = dict(enumerate(scores, 1))
    found = variance_shares([cell, cell_of(LEAVES)])  # of the other variant none were kept
    assert found is not None
    assert found.rows == pytest.approx(stats.sem(scores.mean(0)) ** 2)
    cell.examples[1] = scores[0][:299]
    found = variance_shares([cell])
    assert found is not None
    assert found.rows is None
    assert shares_of(LEAVES).rows is None


# the report


def nested() -> StudyScores:
    return add_repeats(made_up_study())


def test_the_table_has_a_row_for_each_measure() -> None:
    study = nested()
    (table,) = variance_tables(study)
    assert [row[0] for row in table.grid.rows] == [
        "qnli accuracy, points",
        "mrpc f1, points",
        "mlm loss",
    ]
    found = variance_shares(each.cells["qnli accuracy"] for each in study.variants.values())
    assert found is not None
    row = table.grid.rows[0]
    share = 100 * found.pretraining / found.total
    assert row[1] == f"{share:.0f} % ({100 * found.pretraining**0.5:.2f})"
    assert row[2] == f"{100 - share:.0f} % ({100 * found.finetuning**0.5:.2f})"
    assert row[3] == "–"
    assert row[4] == f"{100 * found.standard_error():.2f}"
    assert row[7] == "12, 45"
    assert "§" not in table.legend


def test_rows_and_negative_estimates_are_marked() -> None:
    study = nested()
    for each in study.variants.values():
        cell = each.cells["qnli accuracy"]
        cell.examples = {seed: np.array([0.0, 1.0] * 50) for seed in study.seeds}
        for seed in study.seeds:
            cell.repeats[seed] = {1: 0.5, 2: 0.6, 3: 0.7, 4: 0.8}
    (table,) = variance_tables(study)
    assert table.grid.rows[0][1:3] == ("0 % (0.00)§", "100 % (12.91)")
    # 0.25 · 100 / 99 / 100 over the variance of 0.5, 0.6, 0.7, 0.8, which is 0.0167
    assert table.grid.rows[0][3] == "+15 % (5.03)"
    assert "§ the estimate is below 0" in table.legend


def test_without_repeats_there_is_no_table() -> None:
    assert variance_tables(made_up_study()) == []
    assert "Variance shares" not in html(report_of(made_up_study()))


@pytest.mark.slow
def test_every_format_shows_it() -> None:
    report = report_of(nested())
    tables = report.tables_of(report.studies[0])
    table = next(each for each in tables if each.title == "Variance shares")
    share = table.grid.rows[0][2]
    assert "Variance shares" in html(report)
    assert share in html(report)
    assert "## Variance shares" in markdown(report)
    assert share in markdown(report)
    assert "Variance shares" in latex(report)
    assert share.replace("%", "\\%") in latex(report)
    assert "a seed's value is their mean" in report.legend
    joined = html(report_of(nested(), made_up_study(name="other")))
    assert "nsp: Variance shares" in joined
    assert "other: Variance shares" not in joined


def test_each_fine_tuning_is_listed_below_its_pre_training() -> None:
    study = nested()
    del study.variants["mlm"].cells["mrpc f1"].repeats[2][3]
    rows = runs_of(study).rows
    assert len(rows) == 3 * 5 * (1 + 4)
    place = next(at for at, row in enumerate(rows) if row[:2] == ("mlm", "2"))
    assert [row[1] for row in rows[place + 1 : place + 5]] == [
        f"2, fine-tuning {number}" for number in (1, 2, 3, 4)
    ]
    value = study.variants["mlm"].cells["qnli accuracy"].repeats[2][3]
    assert rows[place + 3][2] == f"{100 * value:.2f}"
    assert rows[place + 3][3] == ""

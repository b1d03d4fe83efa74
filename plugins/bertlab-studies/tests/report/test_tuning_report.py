"""The expected best of n trials against enumeration, and the trials in a report."""

import csv
import io
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertlab_studies.plan.tuning import Rows
from bertlab_studies.report.plots import pictures
from bertlab_studies.report.render import html, latex, markdown
from bertlab_studies.report.report import report_of
from bertlab_studies.report.tuning_report import (
    curves_of,
    expected_best,
    tuning_csv_files,
    tuning_tables,
)
from bertlab_studies.study_scores import StudyScores, Trial, TuningScores
from made_up_scores import MEASURES, made_up_study

VALUES = st.lists(st.floats(-100, 100).map(lambda value: round(value, 1)), min_size=1, max_size=5)


@settings(max_examples=25)
@given(VALUES, st.booleans(), st.booleans())
def test_expected_best_is_that_of_all_draws(
    values: list[float], higher: bool, replacement: bool
) -> None:
    mean, deviation = expected_best(np.array(values), higher, replacement)
    best = max if higher else min
    for n in range(1, len(values) + 1):
        draws = product(values, repeat=n) if replacement else combinations(values, n)
        found = [best(draw) for draw in draws]
        assert mean[n - 1] == pytest.approx(np.mean(found), abs=1e-9)
        assert deviation[n - 1] == pytest.approx(np.std(found), abs=1e-5)


def test_expected_best_is_that_of_simulated_searches() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0.8, 0.02, 24)
    mean, deviation = expected_best(values)
    drawn = rng.choice(values, (200_000, 24))
    for n in (1, 5, 24):
        best = drawn[:, :n].max(1)
        assert mean[n - 1] == pytest.approx(best.mean(), abs=2e-4)
        assert deviation[n - 1] == pytest.approx(best.std(), abs=2e-4)


def tuned_study(**changes: Any) -> StudyScores:
    """Return a study with four trials of each variant; the third of ``mlm`` failed."""
    study = made_up_study(names=("mlm+nsp", "mlm"))
    values: dict[str, list[float | None]] = {
        "mlm+nsp": [0.80, 0.84, 0.82, 0.83],
        "mlm": [0.79, 0.81, None, 0.70],
    }
    trials = {
        variant: [
            Trial({"lr": 10.0**-number}, {} if value is None else {0: value}, value)
            for number, value in enumerate(found)
        ]
        for variant, found in values.items()
    }
    given = {"search": "random", "chosen": {"mlm+nsp": 1, "mlm": 1}, **changes}
    study.tuning = TuningScores(MEASURES[0], Rows.CHOOSE, seeds=[0], trials=trials, **given)
    return study


def test_the_report_says_what_was_chosen_and_how() -> None:
    chosen, expected = tuning_tables(tuned_study())
    assert chosen.grid.rows == (
        ("mlm+nsp", "2", "0.1", "84.0", "4", "0"),
        ("mlm", "2", "0.1", "81.0", "4", "1"),
    )
    assert "4 trials (random search, seeds 0" in chosen.legend
    assert "the half of the rows that chooses; the other half decides" in chosen.legend
    assert [row[0] for row in expected.grid.rows] == ["1", "2", "4"]
    # a failed trial counts as the worst of all: 0.79, 0.81, 0.70, 0.70
    assert expected.grid.rows[0][2].startswith("75.0 ± ")


def test_the_report_has_trials_in_all_its_forms() -> None:
    study = tuned_study()
    report = report_of(study)
    drawn = pictures(study, report.comparisons[0])
    assert "expected_best" in [each.name for each in drawn]
    for text in (html(report, drawn), markdown(report, drawn), latex(report)):
        assert "Chosen settings" in text
        assert "Expected best of n trials" in text


def test_trials_and_curves_are_csv_files() -> None:
    files = tuning_csv_files(tuned_study())
    trials = list(csv.DictReader(io.StringIO(files["tuning_trials.csv"])))
    assert len(trials) == 8
    assert trials[1] == {
        **{"variant": "mlm+nsp", "trial": "2", "lr": "0.1", "value": "0.84", "seed 0": "0.84"},
        "chosen": "True",
    }
    assert (trials[6]["value"], trials[6]["chosen"]) == ("", "False")
    curve = list(csv.DictReader(io.StringIO(files["expected_best.csv"])))
    assert [row["trials"] for row in curve] == ["1", "2", "3", "4"] * 2
    # all four without replacement: the best itself; with, a little less
    assert float(curve[3]["unbiased"]) == pytest.approx(0.84)
    assert 0.83 < float(curve[3]["expected"]) < 0.84


@pytest.mark.parametrize("changes", [{"search": "grid"}, {"chosen": {}}])
def test_no_curve_of_a_grid_or_of_trials_that_are_not_over(changes: dict[str, Any]) -> None:
    study = tuned_study(**changes)
    assert study.tuning is not None
    assert curves_of(study.tuning) == {}
    assert len(tuning_tables(study)) == 1
    assert list(tuning_csv_files(study)) == ["tuning_trials.csv"]
    assert "expected_best" not in [
        each.name for each in pictures(study, report_of(study).comparisons[0])
    ]


def test_a_study_that_is_not_tuned_has_none() -> None:
    assert tuning_tables(made_up_study()) == []
    assert tuning_csv_files(made_up_study()) == {}

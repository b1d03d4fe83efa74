"""What each measure can see, against direct sums and statsmodels."""

import numpy as np
import pytest
from statsmodels.stats.power import tt_ind_solve_power

from bertlab_studies.report.render import html, latex, markdown
from bertlab_studies.report.report import report_of
from bertlab_studies.report.resolution import (
    checkpoint_deviation,
    consistency,
    resolution_tables,
    resolutions,
    second_half,
)
from bertlab_studies.study_scores import Cell, Curve, Measure, StudyScores, VariantScores
from made_up_scores import made_up_study


def test_what_is_seen_is_that_of_the_two_sample_test() -> None:
    rng = np.random.default_rng(0)
    measure, values = Measure("x", "loss", False, False), rng.normal(0, 1, (2, 6))
    variants = {
        name: VariantScores({measure.name: Cell(dict(enumerate(each.tolist())))})
        for name, each in zip("ab", values, strict=True)
    }
    (found,) = resolutions(StudyScores("s", "a", list(range(6)), [measure], variants))
    pooled = np.sqrt(values.var(1, ddof=1).mean())
    effect = tt_ind_solve_power(nobs1=6, alpha=0.05, power=0.8)
    # a little more: the test is Welch's, which does not know that both are equally noisy
    assert 1 <= found.sees / (effect * pooled) < 1.1
    assert found.over_seeds == pytest.approx(np.ptp(values.mean(1)) / pooled)
    assert found.over_checkpoints is None
    assert found.of_progress is None
    assert (found.correlation, found.same) == (None, None)


def test_checkpoints_wobble_around_a_line() -> None:
    steps = list(range(100, 1100, 100))
    line = [0.01 * each for each in steps]
    assert checkpoint_deviation([Curve(steps, line)]) == pytest.approx(0, abs=1e-9)
    noise = np.random.default_rng(1).normal(0, 0.5, (400, 10))
    curves = [Curve(steps, (line + each).tolist()) for each in noise]
    assert checkpoint_deviation(curves) == pytest.approx(0.5, rel=0.1)
    assert checkpoint_deviation([Curve([1, 2], [0.0, 1.0])]) == 0


def test_progress_is_that_of_the_second_half() -> None:
    one, other = Curve([1, 2, 3, 4], [9.0, 5.0, 4.0, 3.0]), Curve([2, 4], [6.0, 2.0])
    assert second_half([one, other]) == pytest.approx((-2 - 4) / 2)
    assert second_half([Curve([4], [1.0])]) == 0


def test_rows_are_alike_as_pairs_of_seeds_say() -> None:
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 2, (3, 50)).astype(np.float64)
    correlation, same = consistency([Cell(examples=dict(enumerate(rows)))])
    pairs = [(0, 1), (0, 2), (1, 2)]
    matrix = np.corrcoef(rows)
    assert correlation == pytest.approx(np.mean([matrix[pair] for pair in pairs]))
    assert same == pytest.approx(np.mean([np.mean(rows[i] == rows[j]) for i, j in pairs]))
    real, none = consistency([Cell(examples=dict(enumerate(rng.normal(size=(2, 50)))))])
    assert real is not None
    assert none is None
    assert consistency([Cell()]) == (None, None)


def test_the_report_has_the_table_in_each_form() -> None:
    study = made_up_study()
    report = report_of(study)
    for text in (markdown(report), html(report), latex(report)):
        assert "What each measure can see" in text
    (table,) = resolution_tables(study)
    assert [row[0] for row in table.grid.rows] == ["qnli accuracy", "mrpc f1", "mlm loss"]
    loss = table.grid.rows[-1]
    assert loss[4].endswith(" %")  # curves of the held-out loss are known
    assert resolution_tables(made_up_study(seeds=1)) == []

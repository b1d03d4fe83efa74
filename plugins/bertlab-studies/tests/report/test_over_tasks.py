"""One figure over tasks, against rliable's numbers, a direct implementation and the comparisons."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab_studies.report.over_tasks import (
    draw_runs,
    interquartile_mean,
    over_tasks,
    probability_of_improvement,
)
from bertlab_studies.report.render import html, latex, markdown
from bertlab_studies.report.report import report_of
from bertlab_studies.report.row_noise import row_noise
from bertlab_studies.report.seed_noise import seed_noise
from bertlab_studies.report.statistics import compare, contrast
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

X = np.array(
    [
        [0.803, 0.797, 0.813],
        [0.802, 0.789, 0.807],
        [0.826, 0.819, 0.786],
        [0.775, 0.788, 0.801],
        [0.753, 0.796, 0.775],
    ]
)
Y = np.array(
    [[0.775, 0.779, 0.784], [0.798, 0.811, 0.787], [0.817, 0.777, 0.797], [0.808, 0.792, 0.775]]
)
TASKS = [Measure("mnli", "accuracy"), Measure("qnli", "accuracy"), Measure("mrpc", "f1")]


def study_of(**tables: np.ndarray) -> StudyScores:
    """Return a study of variants with ``(seeds, tasks)`` accuracies."""
    variants = {
        name: VariantScores(
            cells={
                measure.name: Cell(dict(enumerate(column.tolist(), 1)))
                for measure, column in zip(TASKS, table.T, strict=True)
            }
        )
        for name, table in tables.items()
    }
    seeds = list(range(1, 1 + max(map(len, tables.values()))))
    return StudyScores("s", next(iter(tables)), seeds, list(TASKS), variants)


def test_figures_are_those_of_rliable():
    """Numbers of rliable 1.2.0 with arch 8.0.0, ``np.random.seed(0)`` and 2,000 draws.

    ``metrics.aggregate_iqm``, ``metrics.probability_of_improvement`` and
    ``library.get_interval_estimates`` on X, and on (X, Y). arch 8 refuses the argument
    ``random_state`` that rliable gives it, None, which was left out.
    """
    found = over_tasks(study_of(y=Y, x=X), draws=2000)["x"]
    assert found.interquartile is not None
    assert found.improvement is not None
    assert found.interquartile.value == pytest.approx(0.7965555555555556, abs=1e-15)
    assert (found.interquartile.low, found.interquartile.high) == pytest.approx(
        (0.7872222222222223, 0.805), abs=1e-15
    )
    assert found.improvement.value == pytest.approx(0.6166666666666667, abs=1e-15)
    assert (found.improvement.low, found.improvement.high) == pytest.approx(
        (0.39166666666666666, 0.8252083333333322), abs=1e-14
    )


scores = st.integers(1, 5).flatmap(
    lambda tasks: st.tuples(
        *(
            st.lists(
                st.lists(st.integers(0, 4), min_size=tasks, max_size=tasks), min_size=2, max_size=6
            ).map(lambda rows: np.array(rows, np.float64))
            for _ in range(2)
        )
    )
)


@pytest.mark.slow
@settings(max_examples=50)
@given(scores)
def test_figures_are_those_of_scipy(sides):
    x, y = sides
    assert interquartile_mean(x) == pytest.approx(stats.trim_mean(x, 0.25, axis=None))
    u = [stats.mannwhitneyu(x[:, t], y[:, t]).statistic for t in range(x.shape[1])]
    probability = probability_of_improvement(x, y)
    assert probability == pytest.approx(np.mean(u) / (len(x) * len(y)))
    assert probability + probability_of_improvement(y, x) == pytest.approx(1)


@pytest.mark.parametrize("sides", [(X, Y), (X[: len(Y)], Y)], ids=["apart", "at once"])
def test_draws_are_those_of_a_loop(sides):
    rng = np.random.RandomState(4)
    expected: list[list[np.ndarray]] = [[], []]
    for _ in range(7):
        for place, side in enumerate(sides):
            chosen = rng.choice(len(side), side.shape)  # runs of each task apart
            drawn = [[side[chosen[r, t], t] for t in range(3)] for r in range(len(side))]
            expected[place].append(np.array(drawn))
    found = draw_runs(sides, draws=7, seed=4)
    assert [each.tolist() for each in found] == [np.array(each).tolist() for each in expected]


def test_the_mean_is_compared_as_a_measure_is():
    found = over_tasks(study_of(y=Y, x=X), draws=10)
    values = {"y": dict(enumerate(Y.mean(1))), "x": dict(enumerate(X.mean(1)))}
    cells = {name: Cell(each) for name, each in values.items()}
    expected = compare(seed_noise(values), cells, "y", "x")
    one = found["x"].comparison
    assert one is not None
    assert found["x"].mean.mean == pytest.approx(X.mean())
    assert (one.difference, one.low, one.high, one.p) == pytest.approx(
        (expected.difference, expected.low, expected.high, expected.p)
    )
    # it is not one of those that decide
    assert (one.p_adjusted, one.family, one.significant) == (None, 0, False)
    assert (found["y"].comparison, found["y"].improvement) == (None, None)


def test_variances_over_rows_of_tasks_add_up():
    rng = np.random.default_rng(5)
    study = study_of(y=Y, x=X[:4])
    rows = (40, 70)  # the third task has none
    for variant in study.variants.values():
        for measure, count in zip(TASKS, rows, strict=False):
            cell = variant.cells[measure.name]
            for seed in cell.values:
                cell.examples[seed] = (rng.random(count) < 0.8).astype(float)
    found = over_tasks(study, draws=10)["x"].comparison
    assert found is not None
    assert found.error is not None
    assert found.row_share is not None
    parts = [
        row_noise([study.cell(name, each).examples for name in "yx"], (-1, 1), paired=False)
        for each in TASKS[:2]
    ]
    over_rows = sum(part[0] for part in parts if part is not None) / 9
    values = {"y": dict(enumerate(Y.mean(1))), "x": dict(enumerate(X[:4].mean(1)))}
    over_seeds = seed_noise(values).contrast({"y": -1, "x": 1}).variance
    assert over_seeds is not None
    assert found.error**2 == pytest.approx(over_seeds + over_rows)
    assert found.row_share == pytest.approx(over_rows / (over_seeds + over_rows))
    assert found.rows == 110


def test_one_task_twice_is_that_task():
    rng = np.random.default_rng(6)
    examples = {
        name: {s: (rng.random(50) < p).astype(float) for s in range(4)}
        for name, p in (("y", 0.6), ("x", 0.7))
    }
    cells = {
        name: Cell({s: float(each.mean()) for s, each in found.items()}, examples=found)
        for name, found in examples.items()
    }
    noise = seed_noise({name: cell.values for name, cell in cells.items()})
    once = contrast(noise, {"y": -1, "x": 1}, cells)
    twice = contrast(noise, {"y": -1, "x": 1}, cells, cells)
    assert once.difference == twice.difference
    # rows of two tasks are taken for independent
    assert twice.error is not None
    assert once.error is not None
    assert twice.error <= once.error


def test_seeds_that_lack_a_task_are_left_out():
    study = study_of(y=Y, x=X)
    del study.variants["x"].cells["mrpc f1"].values[1]
    study.variants["x"].cells["mnli accuracy"].values[2] = np.nan
    found = over_tasks(study, draws=10)["x"]
    assert found.mean.n == 3
    assert found.mean.mean == pytest.approx(X[2:].mean())
    assert found.interquartile is not None
    assert found.interquartile.value == pytest.approx(interquartile_mean(X[2:]))


def test_only_shares_that_are_better_if_higher_count():
    study = study_of(y=Y, x=X)
    study.measures[1] = Measure("qnli", "accuracy", is_primary=False)
    study.measures[2] = Measure("mrpc", "f1", higher_is_better=False)
    assert over_tasks(study) == {}
    study.measures[1] = TASKS[1]
    assert over_tasks(study, draws=10)["x"].mean.mean == pytest.approx(X[:, :2].mean())


def test_few_runs_have_no_interval():
    study = study_of(y=Y, x=X[:1], nothing=X)
    for cell in study.variants["nothing"].cells.values():
        cell.values.clear()
    found = over_tasks(study, draws=10)
    assert found["x"].interquartile is not None
    assert (found["x"].interquartile.low, found["x"].interquartile.high) == (None, None)
    assert (found["nothing"].interquartile, found["nothing"].improvement) == (None, None)
    text = markdown(report_of(study))
    assert "| nothing | – | – | – | – | – | – | 0 |" in text
    assert "| x | 80.43 | +1.3 | – | – | 80.43 | 0.75 | 1 |" in text


@pytest.mark.slow
def test_the_report_has_the_table_in_each_format():
    report = report_of(study_of(y=Y, x=X))
    text = markdown(report)
    assert "## Over all tasks" in text
    assert "Over mnli accuracy, qnli accuracy, mrpc f1." in text
    assert "Holm's correction leaves it out" in text
    assert "| x | 79.5 ± " in text
    assert "Over all tasks" in html(report)
    assert "Over all tasks" in latex(report)
    nothing = study_of(y=Y[:0], x=X[:0])
    nothing.seeds = [1]
    assert "Over all tasks" not in markdown(report_of(nothing))

"""Noise over rows against a plain analysis of variance; variants that are good at other rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import special, stats

from bertlab.errors import DataError
from bertlab_studies.report import row_noise
from bertlab_studies.report.seed_noise import seed_noise
from bertlab_studies.report.statistics import compare, compare_study
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

score = st.sampled_from([-1.0, 0.0, 0.25, 1.0])


def row_variance(
    one: dict[int, np.ndarray], other: dict[int, np.ndarray], paired: bool
) -> tuple[float, int] | None:
    """Return it of a difference."""
    found = row_noise.row_noise([one, other], (-1, 1), paired)
    return None if found is None else (found.variance, found.rows)


def tables(sides: int):
    """Return ``(sides, runs, rows)`` scores."""
    shape = st.tuples(st.just(sides), st.integers(2, 5), st.integers(2, 8))
    return arrays.arrays(np.float64, shape, elements=score)


def by_seed(table: np.ndarray) -> dict[int, np.ndarray]:
    return dict(enumerate(table))


def mean_squares(table: np.ndarray) -> tuple[float, float]:
    """Return those of rows and of the rest, of crossed runs and rows, one number a cell."""
    runs, rows = table.shape
    grand, of_run, of_row = table.mean(), table.mean(1), table.mean(0)
    between = runs * sum((mean - grand) ** 2 for mean in of_row) / (rows - 1)
    rest = sum(
        (table[run, row] - of_run[run] - of_row[row] + grand) ** 2
        for run in range(runs)
        for row in range(rows)
    )
    return between, rest / ((runs - 1) * (rows - 1))


@settings(deadline=None, max_examples=25)
@given(tables(2))
def test_pairs_are_the_variance_component_of_rows(both):
    one, other = both
    runs, rows = one.shape
    between, rest = mean_squares(other - one)
    found = row_variance(by_seed(one), by_seed(other), paired=True)
    assert found == (pytest.approx(max(0, (between - rest) / runs / rows), abs=1e-12), rows)


@settings(deadline=None, max_examples=25)
@given(tables(2), st.integers(2, 5))
def test_unpaired_sides_are_that_of_the_difference(both, runs: int):
    one, other = both[0], both[1][:runs]
    rows = one.shape[1]
    component = np.var(other.mean(0) - one.mean(0), ddof=1)
    for side in (one, other):
        component -= mean_squares(side)[1] / len(side)
    shifted = {100 + seed: scores for seed, scores in by_seed(other).items()}
    found = row_variance(by_seed(one), shifted, paired=False)
    assert found == (pytest.approx(max(0, component / rows), abs=1e-12), rows)


@pytest.mark.parametrize("paired", [True, False])
def test_the_planted_variance_is_found(paired: bool):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        ease, better = rng.normal(size=50), rng.normal(scale=0.5, size=50)
        one, other = ease + rng.normal(size=(2, 5, 50))
        both = by_seed(one), by_seed(other + better + rng.normal(size=(5, 1)))
        found.append(row_variance(*both, paired)[0])
    error = np.std(found) / 20
    assert np.mean(found) == pytest.approx(0.25 / 50, abs=3 * error)  # 0.5² over 50 rows


@settings(deadline=None, max_examples=25)
@given(tables(1), st.booleans())
def test_rows_that_are_as_hard_for_both_add_nothing(table, paired: bool):
    one = by_seed(table[0])
    other = {seed: scores + 0.25 for seed, scores in one.items()}
    assert row_variance(one, other, paired)[0] == pytest.approx(0, abs=1e-15)


@settings(deadline=None, max_examples=25)
@given(tables(2), st.booleans())
def test_swapping_sides_and_order_of_rows_change_nothing(both, paired: bool):
    one, other = map(by_seed, both)
    found = row_variance(one, other, paired)
    assert found[0] >= 0
    assert row_variance(other, one, paired)[0] == pytest.approx(found[0], abs=1e-12)
    turned = map(by_seed, both[:, ::-1, ::-1])
    assert row_variance(*turned, paired)[0] == pytest.approx(found[0], abs=1e-12)


def test_too_little_gives_nothing_and_broken_runs_are_left_out():
    rng = np.random.default_rng(0)
    one, other = by_seed(rng.random((3, 6))), by_seed(rng.random((3, 6)))
    assert row_variance({0: one[0]}, other, False) is None
    assert row_variance({}, {}, False) is None
    assert row_variance({0: one[0], 7: one[1]}, other, True) is None  # one pair
    assert row_variance(by_seed(np.ones((3, 1))), by_seed(np.ones((3, 1))), False) is None
    broken = other | {2: np.array([np.nan, 1, 0, 1, 1, 0])}
    whole = {seed: other[seed] for seed in (0, 1)}
    assert row_variance(one, broken, False) == row_variance(one, whole, False)
    assert row_variance(one, broken, True) == row_variance(one, whole, True)


@pytest.mark.parametrize("last", [1.0, np.nan])
def test_other_rows_are_refused(last: float):
    one, other = by_seed(np.ones((2, 5))), by_seed(np.ones((2, 4)))
    with pytest.raises(DataError, match="predictions of 4 and 5 rows"):
        row_variance(one, other, False)
    mixed = {0: np.ones(4), 1: np.ones(4), 2: np.array([1, 1, 1, 1, last])}
    with pytest.raises(DataError, match="predictions of 4 and 5 rows"):
        row_variance(mixed, mixed, True)


def equally_good(rng: np.random.Generator, runs: int, rows: int) -> StudyScores:
    """Return a study of two variants that are right about other rows, and as often."""
    measure = Measure("rte", "accuracy")
    ease, cells = rng.normal(1, 1, rows), {}
    for name in ("base", "other"):
        chance = special.expit(ease + rng.normal(0, 1.5, rows))
        right = (rng.random((runs, rows)) < chance).astype(float)
        cells[name] = Cell(dict(enumerate(right.mean(1))), examples=by_seed(right))
    variants = {name: VariantScores({measure.name: cell}) for name, cell in cells.items()}
    return StudyScores("s", "base", list(range(runs)), [measure], variants)


@pytest.mark.nightly
def test_stars_are_of_the_population_and_not_of_the_rows_at_hand():
    rng = np.random.default_rng(0)
    stars = by_seeds_alone = 0
    for _ in range(1000):
        study = equally_good(rng, 10, 277)
        stars += compare_study(study, draws=0)["other", "rte accuracy"].significant
        cells = {name: study.cell(name, study.measures[0]) for name in study.variants}
        alone = {name: Cell(cell.values) for name, cell in cells.items()}
        noise = seed_noise({name: cell.values for name, cell in cells.items()})
        by_seeds_alone += compare(noise, alone, "base", "other").significant
    assert stats.binomtest(stars, 1000, 0.05, alternative="greater").pvalue > 0.025
    assert by_seeds_alone > 150

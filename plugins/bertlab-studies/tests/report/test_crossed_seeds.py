"""Variance shares of crossed seeds: against least squares, REML and simulation; the report."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from bertlab_studies.report.crossed_seeds import CrossedShares, crossed_shares, crossed_tables
from bertlab_studies.report.render import html, latex, markdown
from bertlab_studies.report.report import report_of, runs_of
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

Values = NDArray[np.float64]
NAMES = ("weights", "order", "masks")


def factors_of(shape: tuple[int, ...]) -> dict[int, dict[str, int]]:
    combinations = product(*(range(1, count + 1) for count in shape))
    return {
        number: dict(zip(NAMES, each, strict=False)) for number, each in enumerate(combinations, 1)
    }


def cell_of(values: Values) -> Cell:
    return Cell(dict(enumerate(map(float, values.ravel()), 1)))


def shares_of(*tables: Values) -> CrossedShares:
    found = crossed_shares(map(cell_of, tables), factors_of(tables[0].shape))
    assert found is not None
    return found


def made_up(rng: np.random.Generator, shape: tuple[int, ...], deviations: list[float]) -> Values:
    """Return a table with an effect of each level of each axis, and noise of deviation 1."""
    values = rng.normal(size=shape)
    for axis, deviation in enumerate(deviations):
        of_axis = [1] * len(shape)
        of_axis[axis] = shape[axis]
        values += rng.normal(scale=deviation, size=of_axis)
    return values


def design(shape: tuple[int, ...], axes: tuple[int, ...]) -> Values:
    """Return ``(runs, columns)``: a constant, and an indicator of each level of the axes."""
    places = np.array(list(np.ndindex(shape)))
    levels = [places[:, [axis]] == np.arange(shape[axis]) for axis in axes]
    return np.hstack([np.ones((len(places), 1)), *levels])


def squares_left(values: Values, columns: Values) -> float:
    """Return the sum of squares that least squares leave."""
    fitted = columns @ np.linalg.lstsq(columns, values.ravel(), rcond=None)[0]
    return float(((values.ravel() - fitted) ** 2).sum())


@settings(max_examples=25)
@given(st.lists(st.integers(2, 4), min_size=2, max_size=3), st.integers(0, 1000))
def test_mean_squares_are_those_of_least_squares(counts: list[int], seed: int) -> None:
    shape, axes = tuple(counts), tuple(range(len(counts)))
    values = made_up(np.random.default_rng(seed), shape, [2.0] * len(shape))
    found = shares_of(values)
    left = squares_left(values, design(shape, axes))
    freedom = values.size - np.linalg.matrix_rank(design(shape, axes))
    rest = left / freedom
    assert found.variances["rest"] == pytest.approx(rest)
    assert found.freedom["rest"] == freedom
    for axis, name in zip(axes, NAMES, strict=False):
        # what leaving an axis out of the model costs
        without = squares_left(values, design(shape, tuple(each for each in axes if each != axis)))
        mean_square = (without - left) / (shape[axis] - 1)
        expected = (mean_square - rest) / (values.size / shape[axis])
        assert found.variances[name] == pytest.approx(max(expected, 0.0))
        assert found.freedom[name] == shape[axis] - 1
        assert (name in found.negative) == (expected < 0)


def test_variances_are_those_of_restricted_maximum_likelihood() -> None:
    shape = (6, 5)
    values = made_up(np.random.default_rng(3), shape, [2.0, 1.5])
    parts = [design(shape, (axis,))[:, 1:] for axis in (0, 1)]
    ones = np.ones((values.size, 1))

    def loss(logarithms: Values) -> float:
        *of_parts, rest = np.exp(logarithms)
        pairs = zip(of_parts, parts, strict=True)
        covariance = rest * np.eye(values.size) + sum(own * each @ each.T for own, each in pairs)
        inverse = np.linalg.inv(covariance)
        mean = (ones.T @ inverse @ values.ravel()) / (ones.T @ inverse @ ones)
        left = values.ravel() - mean.item()
        fixed = np.linalg.slogdet(ones.T @ inverse @ ones)[1]
        return float(np.linalg.slogdet(covariance)[1] + fixed + left @ inverse @ left)

    # balanced, and no estimate below 0: equal to the analysis of variance
    fitted = np.exp(optimize.minimize(loss, np.zeros(3)).x)
    assert list(shares_of(values).variances.values()) == pytest.approx(fitted, rel=1e-3)


@pytest.mark.slow
def test_estimates_have_no_bias_and_pool_variants() -> None:
    rng = np.random.default_rng(1)
    tables = [made_up(rng, (3, 4), [2.0, 1.0]) for _ in range(4000)]
    found = shares_of(*tables)
    assert found.variances == pytest.approx({"weights": 4.0, "order": 1.0, "rest": 1.0}, rel=0.06)
    assert found.freedom == {"weights": 8000, "order": 12000, "rest": 24000}
    assert found.total == pytest.approx(6.0, rel=0.05)


@settings(max_examples=25)
@given(st.integers(0, 1000), st.floats(-1e3, 1e3), st.floats(0.01, 100))
def test_a_shift_changes_nothing_and_a_scale_is_squared(
    seed: int, shift: float, scale: float
) -> None:
    values = made_up(np.random.default_rng(seed), (3, 3), [3.0, 2.0])
    one, other = shares_of(values), shares_of(scale * (values + shift))
    for name, variance in one.variances.items():
        assert other.variances[name] == pytest.approx(scale**2 * variance, rel=1e-6, abs=1e-9)
    # the first axis of a table is the second of its transpose
    turned = shares_of(values.T).variances
    assert turned["order"] == pytest.approx(one.variances["weights"])


def test_a_variant_that_lacks_a_run_is_left_out() -> None:
    rng = np.random.default_rng(5)
    whole, other = (made_up(rng, (3, 2), [1.0, 1.0]) for _ in range(2))
    lacking, broken = cell_of(other), cell_of(other)
    del lacking.values[4]
    broken.values[2] = float("nan")
    factors = factors_of((3, 2))
    assert crossed_shares([cell_of(whole), lacking, broken], factors) == shares_of(whole)
    assert crossed_shares([lacking, broken], factors) is None
    assert crossed_shares([Cell({1: 0.0, 2: 1.0})], factors_of((1, 2))) is None


def test_equal_runs_have_no_shares() -> None:
    found = shares_of(np.full((3, 3), 0.1 + 0.2))
    assert found.total == 0.0
    assert not found.negative


def study_of(*tables: Values) -> StudyScores:
    measure = Measure("qnli", "accuracy", is_primary=False)
    factors = factors_of(tables[0].shape)
    variants = {
        name: VariantScores(cells={measure.name: cell_of(table)})
        for name, table in zip("abc", tables, strict=False)
    }
    return StudyScores("noise", "a", list(factors), [measure], variants, factors=factors)


def test_the_report_has_shares_and_tests_nothing() -> None:
    rng = np.random.default_rng(0)
    noise = [made_up(rng, (3, 3), [4.0, 2.0]) / 100 for _ in range(2)]
    noise[1] += 0.5  # a difference that any test would show
    report = report_of(study_of(*noise))
    assert report.findings == (
        "Seeds are crossed: the study tells how much each part of a run moves a result, and tests "
        "no difference between variants.",
    )
    compared = report.comparisons[0]["b", "qnli accuracy"]
    assert compared.difference == pytest.approx(float(noise[1].mean() - noise[0].mean()))
    assert (compared.p, compared.low, compared.significant) == (None, None, False)
    (table,) = crossed_tables(report.studies[0])
    shares = shares_of(*noise)
    cells = table.grid.rows[0]
    assert cells[0] == "qnli accuracy, points"
    percents = [float(cell.split(" %")[0]) for cell in cells[1:4]]
    expected = [100 * each / shares.total for each in shares.variances.values()]
    assert percents == pytest.approx(expected, abs=0.51)
    assert cells[4] == "4, 4, 8"
    assert runs_of(report.studies[0]).rows[5][1] == "6 (weights 2, order 3)"
    assert "crossed: no independent ones" in report.legend
    for text in (html(report), markdown(report), latex(report)):
        assert "Variance shares" in text
        assert "masks" not in text.split("Variance shares")[1][:200]


def test_a_negative_estimate_is_marked() -> None:
    # each order is good for other weights: the means of the levels are all the same
    (table,) = crossed_tables(study_of(np.array([[0.0, 1.0], [1.0, 0.0]])))
    assert table.grid.rows[0][1].startswith("0 %")
    assert table.grid.rows[0][1].endswith("§")
    assert "§ the estimate is below 0" in table.legend


def test_only_crossed_seeds_have_the_table() -> None:
    study = study_of(np.array([[0.0, 1.0], [1.0, 0.0]]))
    study.factors = {seed: {"weights": seed} for seed in study.seeds}
    assert crossed_tables(study) == []
    assert study.name_of_seed(3) == "3"
    (warning,) = [line for line in report_of(study).warnings if "varies" in line]
    assert warning.startswith("only the seed of weights varies: tests and intervals speak for")
    assert "order, masks, dropout" in warning

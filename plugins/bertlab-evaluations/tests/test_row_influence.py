"""Influence scores: their mean against sklearn and scipy, their deviation against a bootstrap."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from bertlab_evaluations.row_influence import (
    f1_scores,
    macro_f1_scores,
    matthews_scores,
    pearson_scores,
    ratio_scores,
    spearman_scores,
)

Pair = tuple[np.ndarray, np.ndarray]


def quietly(metric: Callable[..., float], *sides: np.ndarray, **settings: object) -> float:
    """The reference's value, whose warnings of empty classes say what the scores must give."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(metric(*sides, **settings))


def classes(rows: int, names: str, seed: int, right: float = 0.6) -> Pair:
    """Unequal classes, some of the predictions right."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(names) + 1)
    gold, guess = (rng.choice(list(names), rows, p=shares / shares.sum()) for _ in range(2))
    return gold, np.where(rng.random(rows) < right, gold, guess)


def numbers(rows: int, correlation: float, seed: int, decimals: int = 9) -> Pair:
    """Skewed values of which one side is a noisy copy of the other; with ties if rounded."""
    rng = np.random.default_rng(seed)
    x = rng.exponential(1.0, rows)
    y = correlation * x + (1 - correlation**2) ** 0.5 * rng.normal(size=rows)
    return x.round(decimals), y.round(decimals)


def f1_of_b(gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    return f1_scores(gold == "b", predicted == "b")


def sklearn_f1_of_b(gold: np.ndarray, predicted: np.ndarray) -> float:
    return quietly(f1_score, gold == "b", predicted == "b", zero_division=0)


def sklearn_macro(gold: np.ndarray, predicted: np.ndarray) -> float:
    return quietly(f1_score, gold, predicted, average="macro")


def sklearn_matthews(gold: np.ndarray, predicted: np.ndarray) -> float:
    return quietly(matthews_corrcoef, gold, predicted)


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    return quietly(lambda: stats.pearsonr(x, y).statistic)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    return quietly(lambda: stats.spearmanr(x, y).statistic)


def share(part: np.ndarray, whole: np.ndarray) -> float:
    return float(part.sum() / whole.sum())


def words(rows: int, seed: int) -> Pair:
    """Right words and words of sentences."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(0, 30, rows)
    return rng.binomial(whole, rng.beta(8, 2, rows)).astype(float), whole.astype(float)


def f1_of_tables(tables: np.ndarray) -> np.ndarray:
    """F1 of each class of ``(draws, gold, predicted)`` numbers of rows."""
    hits = np.einsum("dcc->dc", tables)
    return 2 * hits / (tables.sum(1) + tables.sum(2))


def matthews_of_tables(tables: np.ndarray) -> np.ndarray:
    """Correlation of indicators of the classes (Gorodkin 2004)."""
    rows, hits = tables.sum((1, 2)), np.einsum("dcc->d", tables)
    gold, predicted = tables.sum(2), tables.sum(1)
    left, right = (rows**2 - (side**2).sum(1) for side in (gold, predicted))
    return (hits * rows - (gold * predicted).sum(1)) / np.sqrt(left * right)


CLASSES = [
    pytest.param(f1_of_b, sklearn_f1_of_b, classes(500, "ab", 1), id="f1"),
    pytest.param(macro_f1_scores, sklearn_macro, classes(500, "abc", 2), id="macro"),
    pytest.param(matthews_scores, sklearn_matthews, classes(500, "ab", 3), id="matthews"),
    pytest.param(matthews_scores, sklearn_matthews, classes(500, "abcd", 4), id="matthews-4"),
    pytest.param(matthews_scores, sklearn_matthews, classes(500, "ab", 5, 0.95), id="matthews-95"),
]
OF_TABLES = {
    sklearn_f1_of_b: lambda tables: f1_of_tables(tables)[:, 1],
    sklearn_macro: lambda tables: f1_of_tables(tables).mean(1),
    sklearn_matthews: matthews_of_tables,
}
NUMBERS = [
    pytest.param(pearson_scores, pearson, numbers(500, 0.7, 6), id="r"),
    pytest.param(spearman_scores, spearman, numbers(500, 0.7, 7), id="s"),
    pytest.param(spearman_scores, spearman, numbers(500, 0.95, 8), id="s-95"),
    pytest.param(spearman_scores, spearman, numbers(500, 0.8, 9, 0), id="s-ties"),
    pytest.param(ratio_scores, share, words(500, 10), id="ratio"),
]
WAYS = [*CLASSES, *NUMBERS]


@pytest.mark.first_fast
@pytest.mark.parametrize(("scores_of", "metric", "sides"), WAYS)
def test_scores_are_what_a_row_adds(scores_of, metric, sides: Pair):
    scores = scores_of(*sides)
    value = metric(*sides)
    assert scores.mean() == pytest.approx(value, abs=1e-12)
    # one more row of a kind moves the metric by its influence over N + 1, in first order
    added = [
        metric(*(np.append(side, side[row]) for side in sides)) for row in range(0, len(scores), 5)
    ]
    moved = (np.array(added) - value) * (len(scores) + 1)
    np.testing.assert_allclose(scores[::5] - value, moved, atol=0.02 * np.abs(moved).max())


@pytest.mark.parametrize(("scores_of", "metric", "sides"), CLASSES)
def test_deviation_is_that_of_a_bootstrap_of_classes(scores_of, metric, sides: Pair):
    """Rows that are drawn anew are tables that are: scikit-learn would take a second for them."""
    names, indices = np.unique(np.stack(sides), return_inverse=True)
    gold, predicted = indices.reshape(2, -1)
    table = np.zeros((len(names), len(names)))
    np.add.at(table, (gold, predicted), 1)
    (value,) = OF_TABLES[metric](table[None])
    assert value == pytest.approx(metric(*sides), abs=1e-12)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(500, table.ravel() / 500, 1000).reshape(-1, *table.shape)
    error = scores_of(*sides).std() / 500**0.5
    # 1,000 draws: 2.2 % by themselves
    assert error == pytest.approx(np.std(OF_TABLES[metric](drawn)), rel=0.06)


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(("scores_of", "metric", "sides"), NUMBERS)
def test_deviation_is_that_of_a_bootstrap_of_the_metric(scores_of, metric, sides: Pair):
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 500, (1000, 500))
    values = [metric(*(side[rows] for side in sides)) for rows in drawn]
    error = scores_of(*sides).std() / 500**0.5
    assert error == pytest.approx(np.std(values), rel=0.06)  # 1,000 draws: 2.2 % by themselves


tables = (
    st.integers(2, 4)
    .flatmap(
        lambda kinds: st.lists(
            st.lists(st.integers(0, 6), min_size=kinds, max_size=kinds),
            min_size=kinds,
            max_size=kinds,
        )
    )
    .filter(lambda table: any(map(any, table)))
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(tables)
def test_mean_is_the_metric_of_any_confusion_table(table: list[list[int]]):
    counts = np.array(table)
    gold, predicted = (
        np.repeat(np.array(list("abcd"))[index.ravel()], counts.ravel())
        for index in np.indices(counts.shape)
    )
    for scores_of, metric in (
        (f1_of_b, sklearn_f1_of_b),
        (macro_f1_scores, sklearn_macro),
        (matthews_scores, sklearn_matthews),
    ):
        scores = scores_of(gold, predicted)
        assert scores.shape == gold.shape
        assert np.isfinite(scores).all()
        assert scores.mean() == pytest.approx(metric(gold, predicted), abs=1e-12)


values = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(values)
def test_mean_is_the_correlation_of_any_values(pairs: list[tuple[int, int]]):
    x, y = np.array(pairs, np.float64).T
    for scores_of, metric in ((pearson_scores, pearson), (spearman_scores, spearman)):
        scores = scores_of(x, y)
        if np.ptp(x) == 0 or np.ptp(y) == 0:
            assert scores is None
        else:
            assert np.isfinite(scores).all()
            assert scores.mean() == pytest.approx(metric(x, y), abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(values)
def test_rank_scores_see_ranks_only(pairs: list[tuple[int, int]]):
    x, y = np.array(pairs, np.float64).T
    scores = spearman_scores(x, y)
    if scores is not None:
        np.testing.assert_allclose(spearman_scores(np.exp(x), y**3), scores, atol=1e-12)
        np.testing.assert_allclose(spearman_scores(y, x), scores, atol=1e-12)


def test_a_ratio_of_nothing_is_zero():
    assert ratio_scores(np.zeros(3), np.zeros(3)).tolist() == [0, 0, 0]


def test_correlation_far_from_zero_keeps_its_precision():
    x, y = numbers(100, 0.5, 11)
    expected = pearson_scores(x, y)
    np.testing.assert_allclose(pearson_scores(x * 1e-6 + 5, y * 1e6), expected, atol=1e-6)

"""Scores of rows for metrics that are no mean over rows: F1, Matthews, correlations, ratios.

Such a metric is a smooth function of means over the N rows, as F1 is of the counts. The score of a
row is the metric plus its influence: how much the metric changes per unit of weight that the row
gains. In first order, that is the sum over these means of the partial derivative times the row's
distance from the mean. The mean of the scores is exactly the metric, and their variance over N is
its delta-method variance, so whatever compares means over rows can compare these metrics too.

    F1 = 2 TP / (2 TP + FP + FN), of which row i counts tp_i, fp_i and fn_i:
    score_i = F1 + (2 tp_i - F1 (2 tp_i + fp_i + fn_i)) N / (2 TP + FP + FN)

References: Hampel (1974), The influence curve and its role in robust estimation; Efron (1982), The
jackknife, the bootstrap and other resampling plans, chapter 6 (the infinitesimal jackknife).
"""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FloatArray = NDArray[np.float64]


def ratio_scores(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return ``(N,)`` scores of the ratio of two sums over rows; 0 if the second sum is 0.

    Args:
        part: ``(N,)`` what each row adds to the upper sum, such as its right words.
        whole: ``(N,)`` what it adds to the lower sum, such as its words.
    """
    unit = whole.mean()
    if unit == 0:
        return np.zeros(len(whole))
    ratio = part.mean() / unit
    return np.asarray(ratio + (part - ratio * whole) / unit)


def f1_scores(gold: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> FloatArray:
    """Return ``(N,)`` scores of the F1 of one class; 0 if it is neither true nor predicted.

    Args:
        gold: ``(N,)`` whether a row is of the class.
        predicted: ``(N,)`` whether it is taken to be.
    """
    true, found = gold.astype(np.float64), predicted.astype(np.float64)
    # 2 tp + fp + fn counts a row once for its truth and once for its prediction
    return ratio_scores(2 * true * found, true + found)


def macro_f1_scores(gold: NDArray[np.str_], predicted: NDArray[np.str_]) -> FloatArray:
    """Return ``(N,)`` scores of the mean F1 of the classes that are true or predicted somewhere.

    Args:
        gold: ``(N,)`` names of the true classes.
        predicted: ``(N,)`` names of the predicted ones.
    """
    each = [f1_scores(gold == name, predicted == name) for name in np.union1d(gold, predicted)]
    return np.asarray(np.mean(each, axis=0))


def matthews_scores(gold: NDArray[np.str_], predicted: NDArray[np.str_]) -> FloatArray:
    """Return ``(N,)`` scores of Matthews' coefficient of K classes; arguments as above.

    It is the correlation of one-hot vectors (Gorodkin 2004), and 0 if one class is all of either
    side.
    """
    names = np.union1d(gold, predicted)
    true, guess = (side[:, None] == names for side in (gold, predicted))  # (N, K)
    if true.all(0).any() or guess.all(0).any():
        return np.zeros(len(gold))
    x, y = true - true.mean(0), guess - guess.mean(0)
    return _correlation((x * y).sum(1), (x * x).sum(1), (y * y).sum(1))


def pearson_scores(x: FloatArray, y: FloatArray) -> FloatArray | None:
    """Return ``(N,)`` scores of the correlation of ``(N,)`` values; None if a side is constant.

    With both sides standardised to z they are ``z_x z_y - r / 2 (z_x² + z_y²) + r`` (Devlin,
    Gnanadesikan and Kettenring 1975).
    """
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    x, y = x - x.mean(), y - y.mean()
    return _correlation(x * y, x * x, y * y)


def spearman_scores(x: FloatArray, y: FloatArray) -> FloatArray | None:
    """Return ``(N,)`` scores of the rank correlation, ties sharing their mean rank.

    A row that gains weight also moves the ranks of the rows above it, which the scores count
    (Croux and Dehon 2010, Influence functions of the Spearman and Kendall correlation measures).

    Args:
        x: ``(N,)`` values; if they are constant, None is returned.
        y: ``(N,)`` values, likewise.
    """
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return _correlation(_rank_products(x, y), _rank_products(x, x), _rank_products(y, y))


def _correlation(product: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the scores of ``mean(product) / sqrt(mean(x) mean(y))``, all ``(N,)``."""
    scale = np.sqrt(x.mean()) * np.sqrt(y.mean())
    value = product.mean() / scale
    return np.asarray(value + product / scale - value / 2 * (x / x.mean() + y / y.mean()))


def _rank_products(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return ``(N,)`` scores of the covariance of the ranks of x and y, these as shares of N."""
    ranks_x, ranks_y = ((stats.rankdata(side) - 0.5) / len(side) - 0.5 for side in (x, y))
    products = ranks_x * ranks_y
    moved = _moved_by(x, ranks_y) + _moved_by(y, ranks_x)
    return np.asarray(products + moved - 2 * products.mean())


def _moved_by(values: FloatArray, others: FloatArray) -> FloatArray:
    """Return for each row the sum of ``others`` over rows of higher value, over N; ties by half."""
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    sums = np.concatenate([[0.0], np.cumsum(others[order])])
    # values [1, 2, 2], others [a, b, c] -> sums [0, a, a + b, a + b + c]; a row of value 2 has 1
    # row below and 3 not above: all less (a + a + b + c) / 2 is b / 2 + c / 2
    below, not_above = (np.searchsorted(ascending, values, side) for side in ("left", "right"))
    return np.asarray((sums[-1] - (sums[below] + sums[not_above]) / 2) / len(values))

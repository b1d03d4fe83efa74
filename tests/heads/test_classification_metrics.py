"""Metrics of classes and scores beside scikit-learn's and scipy's, degenerate input included."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from bertlab.api.examples import Labels
from bertlab.heads.classification import (
    MacroF1,
    Matthews,
    Pearson,
    PredictedClasses,
    Spearman,
)
from bertlab.heads.sentences import SingleSentence
from bertlab.objectives.classification import MajorityAccuracy


def computed(metric, preds, target, parts=1):
    """The metric after as many updates."""
    preds, target = (np.array_split(np.asarray(values), parts) for values in (preds, target))
    for p, t in zip(preds, target, strict=True):
        metric.update(torch.from_numpy(p), torch.from_numpy(t))
    return float(metric.compute())


def quietly(function, *arguments, **settings):
    """Degenerate input makes scikit-learn and scipy warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(function(*arguments, **settings))


def expected_of_classes(preds, target):
    counts = np.bincount(target)
    return {
        "accuracy": (preds == target).mean(),
        "matthews": quietly(sk.matthews_corrcoef, target, preds),
        "f1": quietly(sk.f1_score, target, preds, labels=[1], average="macro", zero_division=0),
        "macro_f1": quietly(sk.f1_score, target, preds, average="macro", zero_division=0),
        "majority_accuracy": counts.max() / len(target),
        "predicted_classes": len(set(preds.tolist())),
    }


def found_of_classes(preds, target, classes, parts):
    head = SingleSentence()
    head.labels = Labels(tuple(map(str, range(classes))), (1,) * classes)
    metrics = head.metrics()
    assert ("f1" in metrics) == (classes == 2)
    return {name: computed(metric, preds, target, parts) for name, metric in metrics.items()}


@pytest.mark.slow
@given(st.data(), st.integers(2, 5), st.integers(1, 30), st.integers(1, 3))
def test_metrics_of_classes_equal_scikit_learn(data, classes, rows, parts):
    # few distinct ids make constant predictions, absent classes and empty intersections common
    ids = st.lists(st.sampled_from(data.draw(st.lists(st.integers(0, classes - 1), min_size=1))))
    draw = ids.map(lambda drawn: np.resize(np.array([*drawn, 0]), rows))
    preds, target = data.draw(draw), data.draw(draw)
    found = found_of_classes(preds, target, classes, min(parts, rows))
    expected = expected_of_classes(preds, target)
    assert found == pytest.approx({name: expected[name] for name in found}, abs=1e-6)


@pytest.mark.parametrize("classes", [2, 3, 40])
@pytest.mark.parametrize("seed", range(3))
def test_metrics_of_many_random_classes_equal_scikit_learn(classes, seed):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, classes, 20_000)
    preds = np.where(rng.random(20_000) < 0.7, target, rng.integers(0, classes, 20_000))
    found = found_of_classes(preds, target, classes, 7)
    expected = expected_of_classes(preds, target)
    assert found == pytest.approx({name: expected[name] for name in found}, abs=1e-6)


def test_f1_of_two_classes_is_scikit_learns_binary_default():
    preds, target = np.array([0, 1, 1, 0, 1]), np.array([0, 1, 0, 1, 1])
    assert found_of_classes(preds, target, 2, 1)["f1"] == pytest.approx(sk.f1_score(target, preds))


@pytest.mark.parametrize(
    ("preds", "target"),
    [([1, 1, 1], [0, 1, 1]), ([0, 0], [1, 1]), ([1, 1], [1, 1]), ([0], [0])],
)
def test_matthews_of_one_class_is_zero(preds, target):
    assert computed(Matthews(2), preds, target) == 0


def test_counts_do_not_overflow():
    metric = Matthews(2)
    metric.right = torch.tensor([10**9, 10**9])
    metric.true = metric.predicted = torch.tensor([11 * 10**8, 11 * 10**8])
    metric._update_count = 1
    assert float(metric.compute()) == pytest.approx(0.8181818, abs=1e-6)


def test_many_classes_take_no_table_of_pairs():
    # a table of all pairs of 200,000 classes would take 320 GB
    preds, target = [0, 199_999, 5], [0, 199_999, 199_998]
    assert computed(Matthews(200_000), preds, target) == pytest.approx(2 / 3)
    assert computed(MacroF1(200_000), preds, target) == pytest.approx(0.5)
    assert computed(PredictedClasses(200_000), preds, target) == 3


score_lists = st.one_of(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 5.0]), min_size=2, max_size=20),  # ties
    st.lists(st.integers(-(10**6), 10**6).map(lambda n: n / 8), min_size=2, max_size=20),
    st.lists(st.floats(-5, 5, width=16), min_size=2, max_size=20),
)


@given(score_lists, score_lists, st.integers(1, 3))
def test_correlations_equal_scipy(preds, target, parts):
    size = min(len(preds), len(target))
    p, t = np.array(preds[:size], np.float32), np.array(target[:size], np.float32)
    for metric, function in ((Pearson(), stats.pearsonr), (Spearman(), stats.spearmanr)):
        expected = quietly(lambda f=function: f(p.astype(float), t.astype(float)).statistic)
        found = computed(metric, p, t, min(parts, size))
        assert found == pytest.approx(expected, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e6])
def test_correlations_far_from_zero_keep_their_precision(offset):
    rng = np.random.default_rng(0)
    target = rng.normal(size=5000).astype(np.float32)
    preds = (offset + target + rng.normal(size=5000)).astype(np.float32)
    for metric, function in ((Pearson(), stats.pearsonr), (Spearman(), stats.spearmanr)):
        expected = function(preds.astype(float), target.astype(float)).statistic
        assert computed(metric, preds, target, 9) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("metric", [Pearson, Spearman])
@pytest.mark.parametrize(
    ("preds", "target"),
    [
        ([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]),
        ([1.0, 2.0, 3.0], [0.3, 0.3, 0.3]),
        ([1.0], [2.0]),
        ([1.0, math.nan, 2.0], [1.0, 2.0, 3.0]),
    ],
)
def test_correlations_of_constants_and_nan_are_nan(metric, preds, target):
    assert math.isnan(computed(metric(), preds, target))


@pytest.mark.parametrize("metric", [Matthews(2), MajorityAccuracy(), Pearson(), Spearman()])
def test_metrics_of_nothing_are_nan(metric):
    metric._update_count = 1  # torchmetrics warns otherwise
    assert math.isnan(float(metric.compute()))


@pytest.mark.parametrize("metric", [Matthews(3), MajorityAccuracy()])
def test_reset_forgets(metric):
    computed(metric, [0, 1, 2, 2], [2, 0, 1, 1])
    metric.reset()
    assert computed(metric, [0, 1], [0, 1]) == pytest.approx(
        1.0 if isinstance(metric, Matthews) else 0.5
    )

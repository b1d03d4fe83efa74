"""Clusters of rows against statsmodels' cluster-robust covariance and direct sums over clusters."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bertlab.api import Example
from bertlab_evaluations.clusters import (
    Clusters,
    alike_neighbours,
    clusters_of,
    counted,
    units,
)
from bertlab_evaluations.contract import EvaluationResult
from bertlab_evaluations.evaluation_scores import cluster_notes, mean_interval, score_groups
from bertlab_evaluations.held_out_loss import _documents


def uneven(rng: np.random.Generator, count: int = 40) -> Clusters:
    """Return clusters of 1 to 9 rows, whose rows do not follow each other."""
    numbers = np.repeat(np.arange(count), rng.integers(1, 10, count))
    found = clusters_of([f"story:{each}" for each in rng.permutation(numbers)])
    assert found is not None
    return found


def in_clusters(rng: np.random.Generator, clusters: Clusters, share: float) -> np.ndarray:
    """Return scores with an intraclass correlation."""
    together = rng.normal(size=len(clusters))[clusters.numbers]
    return share**0.5 * together + (1 - share) ** 0.5 * rng.normal(size=len(clusters.numbers))


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_the_variance_is_the_cluster_robust_one_of_statsmodels(share: float):
    regression = pytest.importorskip("statsmodels.regression.linear_model")
    rng = np.random.default_rng(1)
    clusters = uneven(rng)
    rows = in_clusters(rng, clusters, share)
    scores = clusters.scores(rows)
    assert scores.mean() == pytest.approx(rows.mean(), abs=1e-14)
    fitted = regression.OLS(rows, np.ones((len(rows), 1))).fit(
        cov_type="cluster", cov_kwds={"groups": clusters.numbers}
    )
    found = scores.var(ddof=1) / len(clusters)
    assert found == pytest.approx(float(fitted.cov_params()[0, 0]), rel=1e-12)


def test_the_variance_is_that_of_a_direct_sum():
    rng = np.random.default_rng(2)
    clusters = uneven(rng)
    rows = in_clusters(rng, clusters, 0.3)
    number, count = len(clusters), len(rows)
    sums = [
        sum(
            score - rows.mean()
            for score, own in zip(rows, clusters.numbers, strict=True)
            if own == g
        )
        for g in range(number)
    ]
    expected = number / (number - 1) * sum(each**2 for each in sums) / count**2
    assert clusters.scores(rows).var(ddof=1) / number == pytest.approx(expected, rel=1e-12)


def test_rows_on_their_own_are_what_they_were():
    rows = np.random.default_rng(3).normal(size=30)
    alone = Clusters("id", np.arange(30))
    assert alone.are_rows
    np.testing.assert_allclose(alone.scores(rows), rows, atol=1e-14)
    assert alone.freedom(rows) == pytest.approx(29)
    assert mean_interval(rows, alone) == pytest.approx(mean_interval(rows))
    right = (rows > 0).astype(float)
    assert mean_interval(right, alone) == mean_interval(right)


def test_clusters_are_numbered_by_their_first_rows():
    found = clusters_of(["context:b", "context:a", "", "context:b", ""])
    assert found is not None
    assert found.kind == "context"
    assert found.numbers.tolist() == [0, 1, 2, 0, 3]  # rows without a cluster are on their own
    assert found.sizes.tolist() == [2, 1, 1, 1]
    left = found.of(np.array([False, True, True, False, True]))
    assert left is not None
    assert left.numbers.tolist() == [0, 1, 2]
    assert found.of(np.array([True, False, False, True, False])) is None  # one tells nothing
    assert clusters_of(["", ""]) is None
    assert clusters_of(["document:x", "document:x"]) is None


def test_degrees_of_freedom_are_those_of_even_clusters_or_fewer():
    rng = np.random.default_rng(4)
    even = Clusters("paradigm", np.repeat(np.arange(12), 5))
    assert even.freedom(in_clusters(rng, even, 0.6)) == pytest.approx(11)
    # one cluster of 60 rows beside 11 of one: with a correlation of 1 it is nearly all
    giant = Clusters("paradigm", np.concatenate([np.zeros(60, int), np.arange(1, 12)]))
    together = rng.normal(size=12)[giant.numbers]
    parts = np.array([60.0**2, *[1.0] * 11])
    assert giant.freedom(together) == pytest.approx(
        parts.sum() ** 2 / (parts**2).sum() - 1, rel=0.1
    )


def test_the_intraclass_correlation_is_found():
    rng = np.random.default_rng(5)
    found = []
    for _ in range(200):
        clusters = uneven(rng)
        found.append(clusters.correlation(in_clusters(rng, clusters, 0.4)))
    assert np.mean(found) == pytest.approx(0.4, abs=0.03)


@pytest.mark.slow
def test_intervals_cover_what_they_say_and_rows_alone_do_not():
    rng = np.random.default_rng(6)
    clusters = Clusters("passage", np.repeat(np.arange(60), 5))
    held = alone = 0
    for _ in range(300):
        rows = in_clusters(rng, clusters, 0.6)
        low, high = mean_interval(rows, clusters)
        held += low <= 0 <= high
        low, high = mean_interval(rows)
        alone += low <= 0 <= high
    assert 0.92 <= held / 300 <= 0.98
    assert alone / 300 < 0.85


def test_an_interval_of_a_share_is_wilsons_of_fewer_rows():
    rng = np.random.default_rng(7)
    clusters = Clusters("passage", np.repeat(np.arange(60), 5))
    right = (in_clusters(rng, clusters, 0.6) > -0.5).astype(float)
    low, high = mean_interval(right, clusters)
    variance = clusters.scores(right).var(ddof=1) / 60
    worth = right.mean() * (1 - right.mean()) / variance
    t = stats.t.ppf(0.975, 59)
    centre = (right.mean() + t**2 / (2 * worth)) / (1 + t**2 / worth)
    assert (low + high) / 2 == pytest.approx(centre)
    assert high - low > np.subtract(*mean_interval(right)[::-1])
    # all are right: 60 passages are worth 60 rows
    every = mean_interval(np.ones(300), clusters)
    assert every[1] == 1
    assert every[0] == pytest.approx(60 / (60 + t**2))


def test_groups_have_intervals_over_their_clusters_and_one_over_its_rows():
    rng = np.random.default_rng(8)
    paradigm = np.repeat(np.arange(6), 10)
    names = [f"p{each}" for each in paradigm]
    scores = (rng.random(60) < 0.5 + 0.08 * paradigm).astype(float)
    result = EvaluationResult(
        {"accuracy": scores.mean()},
        scores,
        groups={"paradigm": names, "field": ["a"] * 30 + ["b"] * 30},
        clusters=[f"paradigm:{name}" for name in names],
    )
    every, *by_paradigm, one, other = score_groups(result)
    assert (every.rows, every.clusters) == (60, 6)
    assert {(each.rows, each.clusters) for each in by_paradigm} == {(10, 10)}
    assert (one.clusters, other.clusters) == (3, 3)
    assert by_paradigm[0].low == mean_interval(scores[:10])[0]
    assert list(cluster_notes(result)) == [
        "intervals are over 6 paradigms (60 rows); fewer than 20 tell little"
    ]
    without = replace(result, clusters=())
    assert score_groups(without)[0].clusters == 60


def test_neighbours_that_are_alike_are_told():
    rng = np.random.default_rng(9)
    clusters = Clusters("passage", np.repeat(np.arange(100), 5))
    together, apart = (in_clusters(rng, clusters, share) for share in (0.6, 0.0))
    assert alike_neighbours(together, None) == pytest.approx(0.48, abs=0.12)
    assert alike_neighbours(apart, None) is None
    assert alike_neighbours(together, clusters) is None  # they are known
    assert alike_neighbours(np.ones(50), None) is None
    # ids that each row has alone: those that were found say nothing, those that were named do
    assert alike_neighbours(together, Clusters("context", np.arange(500))) is not None
    assert alike_neighbours(together, Clusters("id", np.arange(500))) is None
    (note,) = cluster_notes(EvaluationResult({}, together))
    assert "--cluster COLUMN" in note


def test_false_alarms_on_neighbours_are_rare():
    rng = np.random.default_rng(10)
    found = [alike_neighbours(rng.normal(size=150), None) is not None for _ in range(300)]
    assert np.mean(found) <= 0.02


def test_documents_of_a_text_are_parted_by_its_empty_lines():
    lines = [line for start in range(1, 61, 3) for line in (start, start + 1)]  # 1 2, 4 5, 7 8, …
    rows = [Example({"text": "x"}, f"a.txt:{line}") for line in lines]
    assert _documents(rows)[:4] == ["document:a.txt:1"] * 2 + ["document:a.txt:4"] * 2
    assert len(set(_documents(rows))) == 20
    assert _documents(rows[:10]) == []  # a gap or two may be a mistake
    assert _documents(rows[::2]) == []  # each line is alone
    assert _documents([*rows, Example({"text": "x"}, "b.jsonl:1")]) == []


def test_words():
    assert counted("context", 1204, 5928) == "1,204 passages (5,928 rows)"
    assert counted("context", 40, 40) == "40 rows"
    assert units("story") == "stories"
    assert units("user_id") == "clusters by user_id"
    assert units("row") == "rows"

"""Clusters of rows: questions on one passage, pairs of one template, sentences of one document.

Rows of a cluster are not independent: a model that misreads a passage misses several questions. So
what other rows would give is told by whole clusters. The mean over N rows in G clusters is a ratio
of two sums over clusters, of their scores and of their sizes; its first-order variance is that of
a mean over G numbers (:meth:`Clusters.scores`), the cluster-robust variance of the mean.

References: Cochran (1977), Sampling techniques, section 9A; Liang and Zeger (1986), Longitudinal
data analysis using generalized linear models; Bell and McCaffrey (2002), Bias reduction in standard
errors for linear regression with multi-stage samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bertlab_evaluations.row_influence import ratio_scores

FloatArray = NDArray[np.float64]

FEW = 20  # clusters; below, their number is said beside what is found
_WORDS = {"context": "passage", "text_a": "first text"}  # what columns of heads hold
_FOUND = ("context", "text_a", "document", "paradigm")  # nobody named these
_FAR, _DRAWS = 0.02, 199  # of the correlation of neighbours


@dataclass(frozen=True)
class Clusters:
    """The clusters of N rows.

    Attributes:
        kind: what rows of a cluster share: ``context``, ``document``, ``paradigm``, or the name of
            a column.
        numbers: ``(N,)`` int64 number of each row's cluster, 0 … G − 1 in the order of their first
            rows.
    """

    kind: str
    numbers: NDArray[np.int64]

    @cached_property
    def sizes(self) -> FloatArray:
        """``(G,)`` rows of each cluster."""
        return np.bincount(self.numbers).astype(np.float64)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def are_rows(self) -> bool:
        """Whether each row is a cluster of its own."""
        return len(self) == len(self.numbers)

    def of(self, kept: NDArray[np.bool_]) -> "Clusters | None":
        """Return the clusters of some of the rows, None if they are of one alone.

        Args:
            kept: ``(N,)`` which rows.
        """
        return _numbered(self.kind, self.numbers[kept])

    def scores(self, rows: FloatArray) -> FloatArray:
        """Return ``(G,)`` scores of clusters, whose mean is that of the rows.

        Their sample variance over G is the cluster-robust variance of the mean over rows, with the
        factor G / (G − 1), for clusters of any sizes.

        Args:
            rows: ``(N,)`` scores of the rows.
        """
        totals = np.bincount(self.numbers, rows).astype(np.float64)  # (G,)
        return ratio_scores(totals, self.sizes)

    def freedom(self, rows: FloatArray) -> float:
        """Return the degrees of freedom of that variance; G − 1 of equal sizes, else fewer.

        Satterthwaite's, if the rows of a cluster correlate as found: a cluster of n rows has a part
        of n (1 + (n − 1) ρ) in the variance, and a few large ones may be all of it.

        Args:
            rows: ``(N,)`` scores of the rows.
        """
        parts = self.sizes * (1 + (self.sizes - 1) * max(0.0, self.correlation(rows)))
        return float(parts.sum() ** 2 / (parts**2).sum()) - 1

    def correlation(self, rows: FloatArray) -> float:
        """Return the intraclass correlation of ``(N,)`` scores; 0 if no cluster has two rows.

        By the one-way analysis of variance, for unequal sizes too (Donner 1986).
        """
        sizes, count, number = self.sizes, len(self.numbers), len(self)
        if count == number:
            return 0.0
        means = np.bincount(self.numbers, rows) / sizes
        between = float(sizes @ (means - rows.mean()) ** 2) / (number - 1)
        within = float(((rows - means[self.numbers]) ** 2).sum()) / (count - number)
        size = (count - float(sizes @ sizes) / count) / (number - 1)
        total = between + (size - 1) * within
        return (between - within) / total if total > 0 else 0.0

    def counted(self, rows: int | None = None) -> str:
        """Return ``67 paradigms (67,000 rows)``, or ``277 rows`` if each is on its own.

        Args:
            rows: their number, if it is not that of ``numbers``.
        """
        rows = len(self.numbers) if rows is None else rows
        return counted(self.kind, len(self), rows)


def counted(kind: str, clusters: int, rows: int) -> str:
    """Return ``67 paradigms (67,000 rows)``, or ``277 rows`` if each is on its own."""
    if clusters == rows:
        return f"{rows:,} rows"
    return f"{clusters:,} {units(kind)} ({rows:,} rows)"


def units(kind: str) -> str:
    """Return what clusters are called: ``passages``, ``stories``, ``clusters by user_id``."""
    word = _WORDS.get(kind, kind)
    if not word.replace(" ", "").isalpha():
        return f"clusters by {word}"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def clusters_of(labels: Sequence[str]) -> Clusters | None:
    """Return the clusters that rows name; None if they name none, or one for all.

    Args:
        labels: of each row, ``KIND:ID``; empty of a row that is on its own.
    """
    kinds = [label.partition(":")[0] for label in labels if label]
    if not kinds:
        return None
    # a row without a cluster is one itself
    named = [label or number for number, label in enumerate(labels)]
    places: dict[str | int, int] = {}
    numbers = np.array([places.setdefault(each, len(places)) for each in named], np.int64)
    return _numbered(kinds[0], numbers)


def _numbered(kind: str, numbers: NDArray[np.int64]) -> Clusters | None:
    """Return clusters with numbers in the order of their first rows."""
    # 7, 2, 7 -> found [2, 7] at [1, 0], numbered [1, 0] -> 0, 1, 0
    found, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return Clusters(kind, np.argsort(np.argsort(first))[inverse]) if len(found) > 1 else None


def alike_neighbours(scores: FloatArray, clusters: Clusters | None) -> float | None:
    """Return how much the scores of rows correlate with the next row's, if that is far from 0.

    Rows in clusters that nobody named follow each other in most files. Of clusters of five rows
    with an intraclass correlation of 0.3 neighbours correlate by 0.24.

    Args:
        scores: ``(N,)``, in the order of the file.
        clusters: of the rows, if they are known; then nothing is to be found, unless each row has
            its own, and nobody said so.

    Returns:
        The correlation, if it is 0.02 or more and larger than after each of 199 permutations of the
        rows (p 0.005); else None.
    """
    known = clusters is not None and not (clusters.are_rows and clusters.kind in _FOUND)
    if known or len(scores) < 2 * FEW or not np.isfinite(scores).all() or np.ptp(scores) == 0:
        return None
    centred = scores - scores.mean()
    squares, rng = float(centred @ centred), np.random.default_rng(0)

    def of_neighbours(values: FloatArray) -> float:
        return float(values[:-1] @ values[1:]) / squares

    found = of_neighbours(centred)
    if found < _FAR:
        return None
    shuffled = (of_neighbours(rng.permutation(centred)) for _ in range(_DRAWS))
    return None if any(each >= found for each in shuffled) else found

"""Means of groups of rows with intervals: what an evaluation's table shows."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from bertlab_evaluations.clusters import FEW, Clusters, alike_neighbours, clusters_of
from bertlab_evaluations.contract import EvaluationResult, FloatArray

_LEVEL = 0.95


@dataclass(frozen=True)
class GroupScore:
    """The mean score of a group of rows.

    Attributes:
        kind: of group: ``phenomenon``.
        group: ``island_effects``; empty for all rows.
        rows: that were scored.
        mean: of their scores.
        low: lower end of the 95 % interval: what other rows of the kind might give or, where rows
            are of several clusters, other clusters.
        high: its upper end.
        clusters: that the interval is over; as many as rows, if each is on its own.
    """

    kind: str
    group: str
    rows: int
    mean: float
    low: float
    high: float
    clusters: int = 0


def score_groups(result: EvaluationResult) -> list[GroupScore]:
    """Return the mean of all rows, then of each group, with 95 % intervals over clusters.

    A group of one cluster, such as a paradigm, has an interval over its rows.
    """
    clusters = clusters_of(result.clusters)
    every = np.ones(len(result.scores), np.bool_)
    found = [_group_score("all", "", result.scores, clusters, every)]
    for kind, names in result.groups.items():
        # by number: an array of the names would have the length of the longest for each
        places = {group: number for number, group in enumerate(dict.fromkeys(names))}
        of_row = np.array([places[name] for name in names])
        for group, number in places.items():
            found.append(_group_score(kind, group, result.scores, clusters, of_row == number))
    return found


def _group_score(
    kind: str,
    group: str,
    scores: FloatArray,
    clusters: Clusters | None,
    members: npt.NDArray[np.bool_],
) -> GroupScore:
    kept = members & ~np.isnan(scores)
    scored = scores[kept]
    if not len(scored):
        return GroupScore(kind, group, 0, math.nan, math.nan, math.nan)
    own = None if clusters is None else clusters.of(kept)
    low, high = mean_interval(scored, own)
    count = len(scored) if own is None else len(own)
    return GroupScore(kind, group, len(scored), float(scored.mean()), low, high, count)


def mean_interval(scores: FloatArray, clusters: Clusters | None = None) -> tuple[float, float]:
    """Return the 95 % interval of the mean of N scores.

    Wilson's of scores in 0 … 1, which is not empty where all rows are right; scores between, as of
    ties, vary less than it allows for. Of rows in clusters, it is taken for as many independent
    rows as vary as much, with Student's t of the clusters (Korn and Graubard 1998, Confidence
    intervals for proportions with small expected number of positive counts estimated from survey
    data). Student's of other scores, over clusters.
    """
    count, mean, upper = float(len(scores)), float(scores.mean()), (1 + _LEVEL) / 2
    apart = clusters is None or clusters.are_rows
    units = scores if clusters is None else clusters.scores(scores)  # (G,)
    freedom = count - 1 if clusters is None else clusters.freedom(scores)
    if scores.min() < 0 or scores.max() > 1:
        half = float(stats.t.ppf(upper, freedom) * stats.sem(units)) if count > 1 else math.nan
        return mean - half, mean + half
    z = float(stats.norm.ppf(upper) if apart else stats.t.ppf(upper, freedom))
    if not apart:
        variance = float(units.var(ddof=1)) / len(units)
        # all are right, or all wrong: a cluster is worth a row
        count = min(count, mean * (1 - mean) / variance) if variance else float(len(units))
    # Wilson 1927
    centre = (mean + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(mean * (1 - mean) / count + (z / count) ** 2 / 4)
    return max(0.0, centre - half), min(1.0, centre + half)


def cluster_notes(result: EvaluationResult) -> Iterator[str]:
    """Yield a line on what the intervals are over, if it is not plainly rows."""
    scored = ~np.isnan(result.scores)
    clusters = clusters_of(result.clusters)
    own = None if clusters is None else clusters.of(scored)
    if own is not None and not own.are_rows:
        few = f"; fewer than {FEW} tell little" if len(own) < FEW else ""
        yield f"intervals are over {own.counted()}{few}"
    found = alike_neighbours(result.scores[scored], own)
    if found is not None:
        yield (
            f"scores of neighbouring rows correlate by {found:.2f}: rows are not independent, and "
            "intervals too narrow; --cluster COLUMN says which belong together"
        )

"""Means of groups of rows with intervals: what an evaluation's table shows."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

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
        low: lower end of the 95 % interval over rows: what other rows of the kind might give.
        high: its upper end.
    """

    kind: str
    group: str
    rows: int
    mean: float
    low: float
    high: float


def score_groups(result: EvaluationResult) -> list[GroupScore]:
    """Return the mean of all rows, then of each group, with 95 % intervals over rows."""
    found = [_group_score("all", "", result.scores)]
    for kind, names in result.groups.items():
        of_row = np.array(names)
        for group in dict.fromkeys(names):
            found.append(_group_score(kind, group, result.scores[of_row == group]))
    return found


def _group_score(kind: str, group: str, scores: FloatArray) -> GroupScore:
    scored = scores[~np.isnan(scores)]
    if not len(scored):
        return GroupScore(kind, group, 0, math.nan, math.nan, math.nan)
    low, high = mean_interval(scored)
    return GroupScore(kind, group, len(scored), float(scored.mean()), low, high)


def mean_interval(scores: FloatArray) -> tuple[float, float]:
    """Return the 95 % interval of the mean of N scores.

    Wilson's of scores in 0 … 1, which is not empty where all rows are right; scores between, as of
    ties, vary less than it allows for. Student's of other scores.
    """
    count, mean = len(scores), float(scores.mean())
    if scores.min() >= 0 and scores.max() <= 1:
        # Wilson 1927; z = 1.96
        z = float(stats.norm.ppf((1 + _LEVEL) / 2))
        centre = (mean + z**2 / (2 * count)) / (1 + z**2 / count)
        half = z / (1 + z**2 / count) * math.sqrt(mean * (1 - mean) / count + (z / count) ** 2 / 4)
        return max(0.0, centre - half), min(1.0, centre + half)
    if count < 2:
        return math.nan, math.nan
    half = float(stats.t.ppf((1 + _LEVEL) / 2, count - 1) * stats.sem(scores))
    return mean - half, mean + half

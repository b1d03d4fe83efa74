"""How much another sample of rows would move a difference, beyond what other seeds would.

Runs and rows are crossed: every run is scored on the same rows. Two variants that are equally good
in the population may be good at different rows, and the more seeds a study has the surer it would
be of the rows at hand. So the variance of a difference has two parts, as in a random-effects
analysis of variance with crossed factors (Owen and Eckles 2012, Bootstrapping data arrays of
arbitrary order): seeds, and rows. Rows of one passage or template are sampled together, and then
whole clusters of them take the place of rows (:mod:`bertlab_evaluations.clusters`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertlab.api import DataError
from bertlab_evaluations.clusters import FEW, Clusters, alike_neighbours
from bertlab_studies.study_scores import Cell, Measure, StudyScores

FloatArray = NDArray[np.float64]


class RowNoise(NamedTuple):
    """What other rows would add to the variance of a contrast.

    Attributes:
        variance: that part.
        rows: of the test set.
        clusters: that they are in; as many as rows, if nothing is known of clusters.
        freedom: degrees of freedom of ``variance``.
        kind: of the clusters; empty if they are rows.
    """

    variance: float
    rows: int
    clusters: int
    freedom: float
    kind: str = ""


def row_noise(
    sides: Sequence[Mapping[int, FloatArray]],
    weights: Sequence[float],
    paired: bool,
    clusters: Clusters | None = None,
) -> RowNoise | None:
    """Return the part of a contrast's variance that other rows, or clusters of rows, would add.

    The variance over rows of the weighted sum also holds the noise of single runs at single rows,
    which the variance over seeds has counted already; that part is subtracted.

    Args:
        sides: of each variant, ``(rows,)`` score of each row by seed; the same rows in all.
        weights: of the variants' means. A difference has −1 and 1.
        paired: whether the sum is taken seed by seed.
        clusters: of the rows; None if each is on its own.

    Returns:
        None if a side has fewer than two seeds with scores, or there are fewer than two rows.

    Raises:
        DataError: the sides or their seeds have different numbers of rows.
    """
    lengths = {len(scores) for side in sides for scores in side.values()}
    if len(lengths) > 1:
        raise DataError(
            f"predictions of {' and '.join(str(length) for length in sorted(lengths))} rows cannot"
            " be compared row by row; score all runs on the same test set"
        )
    usable = [
        {seed: scores for seed, scores in side.items() if np.isfinite(scores).all()}
        for side in sides
    ]
    if paired:
        seeds = sorted(set.intersection(*(set(side) for side in usable)))
        usable = [{seed: side[seed] for seed in seeds} for side in usable]
    parts = [w * np.array(list(side.values())) for w, side in zip(weights, usable, strict=True)]
    if paired:
        parts = [np.sum(parts, axis=0)]
    if min(map(len, parts)) < 2 or max(lengths) < 2:
        return None
    rows, kind, freedom = parts[0].shape[1], "", float(parts[0].shape[1] - 1)
    if clusters is not None and not clusters.are_rows:
        kind, freedom = clusters.kind, clusters.freedom(np.sum([p.mean(0) for p in parts], axis=0))
        parts = [np.array([clusters.scores(run) for run in part]) for part in parts]
    units = parts[0].shape[1]
    means = sum(part.mean(0) for part in parts)  # (units,)
    # of (S, R) scores what is left without the means of runs and rows, as the mean over S runs
    single = sum(_interaction(part) / len(part) for part in parts)
    variance = max(0.0, float(np.var(means, ddof=1)) - single) / units
    return RowNoise(variance, rows, units, freedom, kind)


def _interaction(scores: FloatArray) -> float:
    """Return the mean square of ``(S, R)`` scores without the means of runs and of rows."""
    runs, rows = scores.shape
    rest = scores - scores.mean(1, keepdims=True) - scores.mean(0) + scores.mean()
    return float(np.square(rest).sum() / ((runs - 1) * (rows - 1)))


def clusters_of_cells(cells: Sequence[Cell]) -> Clusters | None:
    """Return the clusters of the rows of some variants, which are the same rows.

    Raises:
        DataError: two variants have their rows in other clusters.
    """
    known = [cell.clusters for cell in cells if cell.clusters is not None]
    for each in known[1:]:
        if not np.array_equal(each.numbers, known[0].numbers):
            raise DataError(
                f"rows are in {known[0].counted()} here and in {each.counted()} there; score all "
                "runs on the same test set, with the same clusters"
            )
    return known[0] if known else None


def row_warnings(scores: StudyScores) -> Iterator[str]:
    """Yield a line for each measure whose rows are in few clusters, or in ones that nobody named.

    Rows are looked at as tests see them: as differences to the baseline, the mean over seeds.
    """
    for measure in scores.measures:
        cells = {name: scores.cell(name, measure) for name in scores.variants}
        clusters = clusters_of_cells(list(cells.values()))
        if not measure.is_primary:
            continue
        if clusters is not None and len(clusters) < FEW:
            yield (
                f"{measure.name}: {clusters.counted()}: so few tell little of others, which "
                "intervals and tests allow for"
            )
        found = [each for each in _correlations(scores, measure, clusters) if each is not None]
        if found:
            yield (
                f"{measure.name}: differences to the baseline correlate by {max(found):.2f} from "
                "one row to the next: rows are not independent, and tests take them to be; "
                "data.cluster of a fine-tuning, or cluster of an evaluation, names the column of "
                "what rows share"
            )


def _correlations(
    scores: StudyScores, measure: Measure, clusters: Clusters | None
) -> Iterator[float | None]:
    before = list(scores.cell(scores.baseline, measure).examples.values())
    for variant in scores.variants:
        after = list(scores.cell(variant, measure).examples.values())
        if variant == scores.baseline or len({len(each) for each in before + after}) != 1:
            continue
        if before and after:
            difference = np.mean(after, axis=0) - np.mean(before, axis=0)
            yield alike_neighbours(difference, clusters)

"""Scores of single evaluation rows, read from what runs leave.

The mean of a run's row scores is its metric: a row's own score, such as right or wrong, where the
metric is a mean over rows, and its influence (:mod:`bertlab_evaluations.row_influence`) where it
is not.
"""

from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertlab import PluginError
from bertlab.api import Head
from bertlab.extend import explain_damage, open_to_read, parse_json
from bertlab_evaluations.clusters import Clusters, clusters_of
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.tuning import Rows
from bertlab_studies.report.prediction_scores import candidate_scores
from bertlab_studies.study_scores import Cell

_TOLERANCE = 1e-5  # metrics are computed in float32


def row_scores(
    path: Path, metric: str, value: float, rows: Rows = Rows.ALL, head: Head | None = None
) -> NDArray[np.float64] | None:
    """Return ``(rows,)`` float64 scores whose mean is the metric; None where there are none.

    They are those of the head's own ``row_scores``. Else there are scores of accuracy, F1, macro F1
    and Matthews' coefficient of classes, of Pearson's and Spearman's correlation, of the accuracy
    of tags and of precision, recall and F1 of entities, and of SQuAD's metrics.

    Args:
        path: predictions as JSON lines, each with its ``gold``.
        metric: that the rows are scored by.
        value: that the run reported; if the rows' mean is another, they are not what it is made of.
        rows: that are scored; of a half, the scores' mean is the metric of that half.
        head: that predicted them.

    Raises:
        PluginError: the head gives something else than a finite number for each row.
    """
    if not path.is_file():
        return None
    with explain_damage(path), open_to_read(path) as file:
        lines = [parse_json(line.decode()) for line in file]
    if not lines:
        return None
    own = _own_scores(head, metric, lines)
    if own is not None:
        fits = abs(own.mean() - value) < _TOLERANCE
        if rows is not Rows.ALL:  # again, as an influence depends on the other rows
            kept = list(compress(lines, rows.of(_labels(lines))))
            own = _own_scores(head, metric, kept) if kept else None
        return own if fits else None
    ways = list(candidate_scores(lines, metric))
    for place, scores in enumerate(ways):
        if scores is not None and abs(scores.mean() - value) < _TOLERANCE:
            if rows is Rows.ALL:
                return scores
            kept = list(compress(lines, rows.of(_labels(lines))))
            # from the end: a half all of whose questions have an answer has SQuAD 1.1's way first,
            # which the whole may lack: ways [2.0] of all, [1.1, 2.0] of the half -> -1
            return list(candidate_scores(kept, metric))[place - len(ways)] if kept else None
    return None


def _own_scores(
    head: Head | None, metric: str, lines: Sequence[Mapping[str, Any]]
) -> NDArray[np.float64] | None:
    """Return the ``(N,)`` scores that a head itself gives of N rows; None if it gives none."""
    labelled = all("gold" in line for line in lines)
    found = head.row_scores(metric, lines) if head is not None and labelled else None
    if found is None:
        return None
    scores = np.asarray(found, np.float64)
    if scores.shape != (len(lines),) or not np.isfinite(scores).all():
        usable = np.isfinite(scores).sum() if scores.ndim == 1 else 0
        raise PluginError(
            f"{type(head).__module__}.{type(head).__qualname__}: row_scores({metric!r}) gives "
            f"{usable} finite numbers of shape {scores.shape}, expected one for each of "
            f"{len(lines)} rows"
        )
    return scores


def evaluated_rows(
    path: Path, metric: str, value: float, rows: Rows = Rows.ALL
) -> NDArray[np.float64] | None:
    """Return the ``(rows,)`` scores that ``bertlab evaluate`` wrote, NaN of rows without one.

    Args:
        path: ``NAME.rows.jsonl``.
        metric: that the rows are scored by: a column of its name, else ``score``.
        value: that the run reported; None is returned if the rows' mean is another metric.
        rows: whose scores are returned.
    """
    if not path.is_file():
        return None
    with explain_damage(path), open_to_read(path) as file:
        lines = [parse_json(line.decode()) for line in file]
        found = [line.get(metric, line["score"]) for line in lines]
        scores = np.array([np.nan if each is None else each for each in found], np.float64)
    fits = len(scores) > 0 and abs(np.nanmean(scores) - value) < _TOLERANCE
    kept = scores[rows.of(_labels(lines))]
    return kept if fits and not np.isnan(kept).all() else None


def row_clusters(path: Path, rows: Rows = Rows.ALL) -> Clusters | None:
    """Return the clusters that a file of predictions or of rows' scores names; None if it has none.

    Args:
        path: JSON lines; those of before there were clusters have no ``cluster``.
        rows: whose clusters are returned.
    """
    if not path.is_file():
        return None
    with explain_damage(path), open_to_read(path) as file:
        labels = [
            str(parse_json(line.decode()).get("cluster", "")) if b'"cluster":' in line else ""
            for line in file
        ]
    found = clusters_of(labels)
    return None if found is None else found.of(rows.of(labels))


def _labels(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the cluster that each line names; those of before there were clusters have none."""
    return [str(line.get("cluster", "")) for line in lines]


def keep_common_rows(cells: Sequence[Cell]) -> list[str]:
    """Leave out rows that some run of an evaluation could not score, such as long texts.

    Args:
        cells: of one measure, of each variant. Their ``examples``, ``clusters`` and ``values`` are
            changed: runs are compared by their means over the same rows.

    Returns:
        A line on what was left out, if anything was: rows, and runs without scores of rows.

    Raises:
        StudyError: no row was scored by all runs.
    """
    scores = [each for cell in cells for each in cell.examples.values()]
    if not scores or len({len(each) for each in scores}) > 1:
        return []
    missing = np.isnan(scores)  # (runs, rows)
    if not missing.any():
        return []
    kept = np.asarray(~missing.any(0))
    if not kept.any():
        raise StudyError("no row was scored by all runs, so that there is nothing to compare")
    runs = 0
    for cell in cells:
        runs += len(cell.values.keys() - cell.examples.keys())
        cell.examples.update({seed: each[kept] for seed, each in cell.examples.items()})
        cell.values = {seed: float(each.mean()) for seed, each in cell.examples.items()}
        cell.clusters = None if cell.clusters is None else cell.clusters.of(kept)
    return [
        f"{(~kept).sum()} rows that some run could not score are left out of all runs, whose means "
        "are over the others"
        + f"; {runs} runs keep no scores of rows, and are left out"
        * (runs > 0)
    ]
